"""`perdure backup`: a database that may be in use, copied as it is at one moment."""

from __future__ import annotations

from pathlib import Path

from perdure.cli import upkeep
from perdure.store import checkup


def command(target: Path, /, *, database: upkeep.Database = None, json: upkeep.Json = False) -> int:
    """Copy the database to a new file, whoever works on it meanwhile, and check the copy.

    Parameters
    ----------
    target
        The new file. It appears once it is complete and on disk; an existing one is never overwritten.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Answer with one line of JSON.

    """
    source = upkeep.database(database)
    with upkeep.progress("backup") as advance:
        size = checkup.backup(source, target, advance)
    sentence = f"{source} copied to {target} ({size / 2**20:.1f} MiB)"
    upkeep.answer({"file": str(target), "bytes": size}, sentence, as_json=json)
    return upkeep.DONE
