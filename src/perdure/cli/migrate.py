"""`perdure migrate`: a database's schema brought up to what this program knows, apart from serving it."""

from __future__ import annotations

import asyncio

from perdure.cli import connect, upkeep
from perdure.maintenance import opening
from perdure.store import schema


def command(*, check: connect.Flag = False, database: upkeep.Database = None, json: upkeep.Json = False) -> int:
    """Bring the schema of the database up to date, or make the database where there is none.

    For deploys: opening the database does the same, so a server needs no such
    step; where several start at once, or one may not take long to start, it is
    done before. What is up to date stays untouched. Interrupted, it leaves the
    old schema.

    Exit codes: 0 up to date; 1 failed, the schema is newer than this program,
    or with --check it is older or there is none; 2 called wrongly.

    Parameters
    ----------
    check
        Only look: nothing is made or changed.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Answer with one line of JSON: {"file", "schema", "program_schema", "changed"}.

    """
    path = upkeep.database(database)
    before = opening.schema_of(path)
    changed = before < schema.CURRENT and not check
    if changed:
        asyncio.run(opening.migrate(path))
    now = schema.CURRENT if changed else before
    values = {"file": str(path), "schema": now, "program_schema": schema.CURRENT, "changed": changed}
    upkeep.answer(values, f"{path}: {_told(before, changed=changed)}", as_json=json)
    return upkeep.DONE if now == schema.CURRENT else upkeep.FAILED


def _told(before: int, *, changed: bool) -> str:
    if before == schema.CURRENT:
        return f"schema {before}, up to date"
    if changed:
        return f"schema {schema.CURRENT}, " + (f"was {before}" if before else "new")
    return f"schema {before}, older than {schema.CURRENT}" if before else "there is no database yet"
