"""Group commit: many units of work, one transaction, one wait for the disk; each still succeeds or fails alone (LOG-13).

Lives here: `Committer`, which runs units on the one writing connection, and what it does when a commit goes wrong. Not here:
threads, queues and futures (`sqlite.py`).

A unit that raises rolls back its own savepoint; its exception stands once the commit does, for it may have judged by rows of
members that have to run again. Where another process is in the way all members run again until their deadline. Where the disk
fails (a failed COMMIT, or a transaction that vanished under a unit) each member runs again, now by itself, so that one that fills
the disk fails alone; a second failure is its own and reaches its caller. A COMMIT that raised may have happened: the connection is
opened anew, and the members' first event id tells. Units that append no event may run twice by the port's contract.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import apsw

from perdure import errors
from perdure.store import port, sqlite_connection, statements

CHECKPOINT_PAGES = 1_000
WAL_PAGES = 8 * CHECKPOINT_PAGES
CHECKPOINT_WAIT_MS = 100

Work = Callable[[port.Tx], Any]
Probe = Callable[[str], None]


class Unit:
    """One unit of work on its way; settled once `result` or `error` is final."""

    __slots__ = ("committed", "deadline", "error", "event_id", "failures", "future", "result", "settled", "work")

    def __init__(
        self, work: Work, committed: Callable[[Any], None] | None, deadline: float, future: Any = None
    ) -> None:
        """Nothing has run yet."""
        self.work, self.committed, self.deadline, self.future = work, committed, deadline, future
        self.result: Any = None
        self.error: BaseException | None = None
        self.event_id: str | None = None
        self.failures = 0
        self.settled = False

    def fail(self, error: BaseException) -> None:
        """That is the outcome."""
        self.error, self.settled = sqlite_connection.translated(error), True


class Committer:
    """The writing connection and how units are committed on it. Used by one thread at a time."""

    def __init__(self, place: sqlite_connection.Place, probe: Probe | None = None) -> None:
        """Open the file. Raises `StoreUnusable` and its kind."""
        self._place, self._probe = place, probe
        self._connection: apsw.Connection | None = None
        self._wal_pages, self._checkpoint_at, self._restart_at = 0, CHECKPOINT_PAGES, WAL_PAGES
        self._data_version = -1
        self._open()
        self.foreign_commit()

    # -- one attempt -----------------------------------------------------------------------------------------------------

    def attempt(self, units: Iterable[Unit]) -> list[Unit]:
        """Run what `units` gives (at least one) until it ends, commit it at once; the members, those not settled to run again."""
        members: list[Unit] = []
        committing = False
        try:
            for unit in units:
                members.append(unit)
                self._run(unit, first=len(members) == 1)
            committing = True
            if self._probe:
                self._probe("before_commit")
            self._sql.execute("COMMIT")
        except (apsw.Error, errors.StoreError) as error:
            self._undo(members, error, committing=committing)
        else:
            for unit in members:
                unit.settled = True
            if self._probe:
                self._probe("after_commit")
        return members

    @property
    def _sql(self) -> apsw.Connection:
        return self._connection or self._open()

    def _run(self, unit: Unit, *, first: bool) -> None:
        """One member. Raises only what concerns all of them."""
        sql = self._sql
        if first:
            sql.execute("BEGIN IMMEDIATE")
            if self._probe:
                self._probe("begin")
        sql.execute("SAVEPOINT unit")
        tx = self._tx
        tx.events.appended = None
        unit.result = unit.error = unit.event_id = None
        try:
            unit.result = unit.work(tx)
            # A deferred reference is judged at COMMIT, which would fail all members for one unit's fault.
            if sql.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
                msg = "The unit leaves a reference without its row"
                raise errors.Defect(msg)
        except BaseException as error:  # noqa: BLE001 - whatever a unit raises is its caller's
            if not sql.in_transaction and isinstance(error, apsw.Error):
                raise
            if isinstance(error, sqlite_connection.BUSY):
                raise
            sql.execute("ROLLBACK TO unit")
            unit.error = sqlite_connection.translated(error)
        else:
            unit.event_id = tx.events.appended
        sql.execute("RELEASE unit")
        if self._probe:
            self._probe("unit")

    # -- when it goes wrong ----------------------------------------------------------------------------------------------

    def _undo(self, members: list[Unit], error: Exception, *, committing: bool) -> None:
        """Leave nothing of an attempt behind and say for each member what comes next."""
        if isinstance(error, sqlite_connection.BUSY):
            self._roll_back()
            now = time.monotonic()
            for unit in members:
                if now >= unit.deadline:
                    unit.fail(error)
            time.sleep(sqlite_connection.PAUSE)
            return
        self._drop()
        first = next((unit.event_id for unit in members if unit.error is None and unit.event_id), None)
        if committing and first and self._took_place(first):
            for unit in members:
                unit.settled = True
            return
        for unit in members:
            unit.failures += 1
            if unit.failures > 1:
                unit.fail(error)

    def _roll_back(self) -> None:
        try:
            if self._connection and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._drop()

    def _drop(self) -> None:
        """Let go of a connection that cannot be trusted any longer; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection:
            with suppress(apsw.Error):
                connection.close(force=True)

    def _took_place(self, event_id: str) -> bool:
        """Whether a commit that raised is in the file, and there to stay: what a failed sync left may not be on the disk."""
        try:
            self._open()
            if self._tx.events.by_id(event_id) is None:
                return False
            self._sql.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        except (apsw.Error, errors.StoreError):
            self._drop()
            return False
        return True

    def _open(self) -> apsw.Connection:
        connection = sqlite_connection.open_writer(self._place)
        connection.set_wal_hook(self._count_pages)
        self._tx = port.Tx(statements.load("sqlite"), connection)
        self._connection = connection
        return connection

    # -- between attempts ------------------------------------------------------------------------------------------------

    def _count_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        del connection, name
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def checkpoint(self) -> None:
        """Move the WAL into the file where it has grown enough; callers have their answers by now.

        Once in a thousand pages without waiting for anyone. If a reader kept the WAL from starting over for long, wait for it a
        moment, then again at twice the size: SQLite cannot shrink a WAL under a reader that never ends.
        """
        if self._wal_pages < self._checkpoint_at or not self._connection:
            return
        connection = self._connection
        try:
            if self._wal_pages < self._restart_at:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._restart_at = 2 * self._wal_pages
                connection.set_busy_timeout(CHECKPOINT_WAIT_MS)
                try:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                    self._wal_pages, self._restart_at = 0, WAL_PAGES
                finally:
                    connection.set_busy_timeout(self._place.busy_timeout_ms)
        except apsw.Error:
            pass  # What was committed is safe in the WAL, and a disk in trouble shows in the next unit.
        self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES

    def foreign_commit(self) -> bool:
        """Whether another connection than this one committed since the last time this was asked."""
        try:
            version: int = self._sql.pragma("data_version")
        except (apsw.Error, errors.StoreError):
            return False
        before, self._data_version = self._data_version, version
        return before != version

    def close(self) -> None:
        """Move all of the WAL into the file and let go."""
        connection = self._connection
        if connection:
            with suppress(apsw.Error):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._drop()
