"""Which schema this program knows: enough to recognise an up-to-date file without looking at the migrations.

Lives here: the number, the mark that makes a SQLite file ours, the refusal of a newer one. Not here: how a schema grows
(`migrate.py`, loaded only by whoever finds an older one).
"""

from __future__ import annotations

from perdure import errors

# The highest number in the migrations' folder; a test compares them.
CURRENT = 1
APPLICATION_ID = 0x50657264


def refuse_newer(version: int, current: int = CURRENT) -> None:
    """Raise `SchemaTooNew` for a schema this program does not know."""
    if version > current:
        msg = f"The database has schema {version}; this Perdure knows schemas up to {current}"
        raise errors.SchemaTooNew(msg)
