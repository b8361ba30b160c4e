"""The named statements, loaded once.

Lives here: reading `sql/common.sql` and one dialect file through aiosql, and how a statement of each kind is run on apsw. Not
here: what a statement means to a session (the row groups beside this file) and transactions (`sqlite.py`).

A turn runs some thirty statements, so that the way to the driver counts: each becomes a function of its own, with the
statement's parameters for its own, which binds them by number. It is made from text, as a dataclass makes its `__init__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import aiosql
from aiosql.adapters.generic import GenericAdapter
from aiosql.types import SQLOperationType

_KINDS = {
    # All rows at once, so that no cursor outlives the statement.
    SQLOperationType.SELECT: "return connection.execute(sql, {given}).fetchall()",
    # The first row or None.
    SQLOperationType.SELECT_ONE: "return connection.execute(sql, {given}).fetchone()",
    # The first column of the first row or None.
    SQLOperationType.SELECT_VALUE: "row = connection.execute(sql, {given}).fetchone(); return None if row is None else row[0]",
    # How many rows it changed.
    SQLOperationType.INSERT_UPDATE_DELETE: "connection.execute(sql, {given}); return connection.changes()",
}


def _once(name: str, kind: SQLOperationType, sql: str, parameters: list[str]) -> Any:
    """Run it with the parameters, each by its name."""
    numbered = re.sub(r":(\w+)", lambda found: f"?{1 + parameters.index(found[1])}", sql)
    head = ", ".join(["connection", *(["*", *parameters] if parameters else [])])
    body = _KINDS[kind].format(given=f"({' '.join(f'{one},' for one in parameters)})")
    made: dict[str, Any] = {"sql": numbered}
    exec(f"def {name}({head}): {body}", made)  # noqa: S102 - of our own files alone
    return made[name]


def _many(sql: str) -> Any:
    """Run it once for each, given by name or in the order of the statement: how many rows all of them changed."""

    def run(connection: Any, each: Any) -> int:
        before: int = connection.total_changes()
        connection.executemany(sql, each)
        return connection.total_changes() - before

    return run


class Statements:
    """The statements by their names; iterated over, the names. Each becomes a function when it is first asked for."""

    def __init__(self, read: Any) -> None:
        """Take them from what aiosql read."""
        self._read = read

    def __iter__(self) -> Iterator[str]:
        """What they are called."""
        return (name for name in self._read.available_queries if not name.endswith("_cursor"))

    def __getattr__(self, name: str) -> Any:
        """That statement, as a function of a connection and its parameters; `sql` is its text."""
        query = getattr(self._read, name)
        many = query.operation == SQLOperationType.INSERT_UPDATE_DELETE_MANY
        run = _many(query.sql) if many else _once(name, query.operation, query.sql, query.parameters)
        run.sql = query.sql
        setattr(self, name, run)
        return run


@cache
def load(dialect: str) -> Any:
    """Give the statements of `common.sql` and `{dialect}.sql`."""
    folder = resources.files("perdure.store") / "sql"
    text = "\n".join((folder / f"{name}.sql").read_text("utf-8") for name in ("common", dialect))
    # aiosql types its adapters only in part
    return Statements(aiosql.from_str(text, GenericAdapter))  # pyright: ignore[reportUnknownMemberType]
