"""How a schema grows: numbered files, each in one transaction with its row and its number.

Lives here: the runner over `migrations/sqlite/NNNN_what.sql`. Not here: what a table means, and any statement in use at run
time. One migrator works at a time: each step takes the write lock first and looks at the version again, so of two processes
that race the second finds the work done. A step that is interrupted leaves the schema as it was. Steps keep child rows and
triggers: they add and fill. One that must rebuild a table says `-- foreign keys: off` in its first line; then nothing cascades
while it works, and every reference is checked before it commits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from perdure import errors
from perdure.store import driver, schema

REBUILDS = "-- foreign keys: off"

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, what it does, its statements."""

    version: int
    name: str
    text: str

    @property
    def rebuilds(self) -> bool:
        """Whether foreign keys rest while it works."""
        return self.text.startswith(REBUILDS)


def available(folder: Traversable | None = None) -> list[Migration]:
    """The steps of a folder, in order. Raises `Defect` where the numbers leave a gap."""
    folder = folder or resources.files("perdure.store") / "migrations" / "sqlite"
    found = [(match, file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    steps = sorted(
        (Migration(int(match[1]), match[2], file.read_text("utf-8")) for match, file in found),
        key=lambda step: step.version,
    )
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        msg = f"Migrations are not numbered without gaps: {[step.version for step in steps]}"
        raise errors.Defect(msg)
    return steps


def migrate(connection: driver.Connection, steps: Sequence[Migration] | None = None) -> None:
    """Bring the schema up to the last of `steps` (default: all there are). Raises `SchemaTooNew` before it changes anything."""
    steps = available() if steps is None else steps
    schema.refuse_newer(connection.pragma("user_version"), len(steps))
    for step in steps:
        if connection.pragma("user_version") < step.version:
            _take(connection, step, len(steps))


def _take(connection: driver.Connection, step: Migration, current: int) -> None:
    # Neither pragma has an effect inside a transaction, so they frame it.
    if step.rebuilds:
        connection.pragma("foreign_keys", False)
        connection.pragma("legacy_alter_table", True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version: int = connection.pragma("user_version")
            schema.refuse_newer(version, current)
            if version < step.version:
                _apply(connection, step)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    finally:
        if step.rebuilds:
            connection.pragma("legacy_alter_table", False)
            connection.pragma("foreign_keys", True)


def _apply(connection: driver.Connection, step: Migration) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migration "
        "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, time INTEGER NOT NULL)"
    )
    connection.execute(step.text).fetchall()
    connection.execute(
        "INSERT INTO schema_migration (version, name, time) VALUES (?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER))",
        (step.version, step.name),
    )
    if step.rebuilds and connection.execute("PRAGMA foreign_key_check").fetchone():
        msg = f"Migration {step.version} would leave a reference without its row"
        raise errors.Defect(msg)
    connection.pragma("application_id", schema.APPLICATION_ID)
    connection.pragma("user_version", step.version)
