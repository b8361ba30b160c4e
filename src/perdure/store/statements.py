"""The named statements, loaded once.

Lives here: reading `sql/common.sql` and one dialect file through aiosql, and the adapter through which aiosql speaks
apsw. Not here: what a statement means to a session (the row groups beside this file) and transactions (`sqlite.py`).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import aiosql
from aiosql.adapters.generic import GenericAdapter


class ApswAdapter(GenericAdapter):
    """aiosql over apsw: rows come as lists, `!` answers the number of changed rows."""

    def select(self, conn: Any, query_name: str, sql: str, parameters: Any, record_class: Any = None) -> Any:
        """All rows at once, so that no cursor outlives the statement."""
        return conn.execute(sql, parameters).fetchall()

    def select_one(self, conn: Any, query_name: str, sql: str, parameters: Any, record_class: Any = None) -> Any:
        """The first row or None."""
        return conn.execute(sql, parameters).fetchone()

    def select_value(self, conn: Any, query_name: str, sql: str, parameters: Any) -> Any:
        """The first column of the first row or None."""
        row = conn.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def insert_update_delete(self, conn: Any, query_name: str, sql: str, parameters: Any) -> int:
        """Run it and count."""
        conn.execute(sql, parameters)
        return conn.changes()

    def insert_update_delete_many(self, conn: Any, query_name: str, sql: str, parameters: Any) -> Any:
        """Run it once for each; the rows that all of them answer."""
        return conn.executemany(sql, parameters).fetchall()


@cache
def load(dialect: str) -> Any:
    """Give the statements of `common.sql` and `{dialect}.sql` as methods taking a connection and named parameters."""
    folder = resources.files("perdure.store") / "sql"
    text = "\n".join((folder / f"{name}.sql").read_text("utf-8") for name in ("common", dialect))
    # aiosql types its adapters only in part
    return aiosql.from_str(text, ApswAdapter)  # pyright: ignore[reportUnknownMemberType]
