"""Reading: units on one consistent snapshot each, beside the writer and never in its way.

Lives here: `Reader`, a connection that cannot write, opened on first use and again after the disk failed it. Not here: threads
(`sqlite.py`). A snapshot holds back the WAL for as long as its unit runs; units are short and synchronous, so that is short.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apsw

from perdure import errors
from perdure.store import driver, port, sqlite_connection, statements


class Reader:
    """One reading connection. Used by one thread at a time."""

    def __init__(self, place: sqlite_connection.Place) -> None:
        """Nothing is opened yet; the file that will be is the one that stands there now."""
        self._place, self._file = place, sqlite_connection.which(place.path)
        self._connection: driver.Connection | None = None

    def run(self, work: Callable[[port.Tx], Any]) -> Any:
        """Run `work` on a snapshot. Raises what it raises, the database's complaints as `StoreError`."""
        deadline = self._place.deadline()
        while True:
            try:
                return self._attempt(work)
            except driver.BUSY as error:
                if time.monotonic() >= deadline:
                    raise driver.translated(error) from error
                time.sleep(sqlite_connection.PAUSE)
            except apsw.ReadOnlyError as error:
                if getattr(error, "extendedresult", None) == apsw.SQLITE_READONLY:
                    msg = "A unit that reads must not write"
                    raise errors.Defect(msg) from error
                self.close()
                raise driver.translated(error) from error
            except apsw.Error as error:
                if driver.is_physical(error):
                    self.close()
                raise driver.translated(error) from error
            except driver.UNSTORABLE as error:
                raise driver.translated(error) from error

    def _attempt(self, work: Callable[[port.Tx], Any]) -> Any:
        connection = self._connection or self._open()
        connection.execute("BEGIN")
        self._tx.forget()  # the writer has committed since
        self._tx.begin()
        try:
            result = work(self._tx)
            self._tx.flush()  # what a unit keeps back it must not get away with here
            return result
        finally:
            with suppress(apsw.Error):  # the unit's own error says more, and there is nothing to lose
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _open(self) -> driver.Connection:
        sqlite_connection.check_same(self._place.path, self._file)
        connection = sqlite_connection.open_reader(self._place)
        self._tx = port.Tx(statements.load("sqlite"), connection)
        self._connection = connection
        return connection

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection:
            with suppress(apsw.Error):
                connection.close()
