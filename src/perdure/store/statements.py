"""The named statements, loaded once.

Lives here: reading `sql/common.sql` and one dialect file through aiosql, and how a statement of each kind is run on apsw. Not
here: what a statement means to a session (the row groups beside this file) and transactions (`sqlite.py`). aiosql's own way
from a name to the driver takes three calls more, some forty times a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

import aiosql
from aiosql.adapters.generic import GenericAdapter
from aiosql.types import SQLOperationType

Run = Callable[..., Any]


def _all(sql: str) -> Run:
    """All rows at once, so that no cursor outlives the statement."""

    def run(connection: Any, **given: Any) -> Any:
        return connection.execute(sql, given).fetchall()

    return run


def _first(sql: str) -> Run:
    """The first row or None."""

    def run(connection: Any, **given: Any) -> Any:
        return connection.execute(sql, given).fetchone()

    return run


def _value(sql: str) -> Run:
    """The first column of the first row or None."""

    def run(connection: Any, **given: Any) -> Any:
        row = connection.execute(sql, given).fetchone()
        return None if row is None else row[0]

    return run


def _count(sql: str) -> Run:
    """How many rows it changed."""

    def run(connection: Any, **given: Any) -> int:
        connection.execute(sql, given)
        return connection.changes()

    return run


def _many(sql: str) -> Run:
    """Run once for each, given by name or in the order of the statement: how many rows all of them changed."""

    def run(connection: Any, each: Any) -> int:
        before: int = connection.total_changes()
        connection.executemany(sql, each)
        return connection.total_changes() - before

    return run


_KINDS: dict[SQLOperationType, Callable[[str], Run]] = {
    SQLOperationType.SELECT: _all,
    SQLOperationType.SELECT_ONE: _first,
    SQLOperationType.SELECT_VALUE: _value,
    SQLOperationType.INSERT_UPDATE_DELETE: _count,
    SQLOperationType.INSERT_UPDATE_DELETE_MANY: _many,
}


@cache
def load(dialect: str) -> Any:
    """Give the statements of `common.sql` and `{dialect}.sql` as functions taking a connection and named parameters."""
    folder = resources.files("perdure.store") / "sql"
    text = "\n".join((folder / f"{name}.sql").read_text("utf-8") for name in ("common", dialect))
    # aiosql types its adapters only in part
    read: Any = aiosql.from_str(text, GenericAdapter)  # pyright: ignore[reportUnknownMemberType]
    loaded = SimpleNamespace()
    for name in read.available_queries:
        if not name.endswith("_cursor"):
            query = getattr(read, name)
            run: Any = _KINDS[query.operation](query.sql)
            run.sql = query.sql
            setattr(loaded, name, run)
    return loaded
