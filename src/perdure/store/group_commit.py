"""Group commit: many units of work, one transaction, one wait for the disk; each still succeeds or fails alone (LOG-13).

Lives here: `Committer`, which runs units on the one writing connection, and what it does when a commit goes wrong. Not here:
threads, queues and futures (`sqlite_threads.py`).

A unit that raises rolls back its own savepoint (the first of them the transaction); its exception stands once the commit does,
for it may have judged by rows of members that have to run again. Where another process is in the way, all members run again
until their deadline. Where the disk fails (a failed COMMIT, or a transaction that vanished under a unit), each member runs
again, now by itself, so that one which fills the disk fails alone; a second failure is its own and reaches its caller. A COMMIT
that raised may have happened: another connection is opened, and looks for the members' first events, each of which carries a
proof that no other event has. Units that append no event may run twice by the port's contract.

Where another file, or none, stands at the path by now, nothing is committed: nobody would find it there. Once the file is
back, service goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import apsw

from perdure import errors
from perdure.store import driver, events, port, sqlite_connection, statements

CHECKPOINT_PAGES = 1_000
WAL_PAGES = 8 * CHECKPOINT_PAGES
CHECKPOINT_WAIT_MS = 100

Work = Callable[[port.Tx], Any]
Probe = Callable[[str], None]


class Unit:
    """One unit of work on its way; settled once `result` or `error` is final."""

    __slots__ = ("appended", "committed", "deadline", "error", "failures", "future", "result", "settled", "work")

    def __init__(
        self, work: Work, committed: Callable[[Any], None] | None, deadline: float, future: Any = None
    ) -> None:
        """Nothing has run yet."""
        self.work, self.committed, self.deadline, self.future = work, committed, deadline, future
        self.result: Any = None
        self.error: BaseException | None = None
        self.appended: events.Appended | None = None
        self.failures = 0
        self.settled = False

    def fail(self, error: BaseException) -> None:
        """That is the outcome."""
        self.error, self.settled = driver.translated(error), True


class _Vanished(Exception):
    """The transaction ended under a unit, all members' work with it; the cause says why."""


class Committer:
    """The writing connection and how units are committed on it. Used by one thread at a time."""

    def __init__(self, place: sqlite_connection.Place, probe: Probe | None = None) -> None:
        """Open the file. Raises `StoreUnusable` and its kind."""
        self._place, self._probe = place, probe
        self._wal_pages, self._checkpoint_at, self._restart_at = 0, CHECKPOINT_PAGES, WAL_PAGES
        self._use(sqlite_connection.open_writer(place, create=True))
        self._file = sqlite_connection.which(place.path)
        self._data_version: int = self._sql.pragma("data_version")

    def _use(self, connection: driver.Connection) -> None:
        connection.set_wal_hook(self._count_pages)
        self._sql, self._tx = connection, port.Tx(statements.load("sqlite"), connection)
        self._built_on: Any = None

    # -- one attempt -----------------------------------------------------------------------------------------------------

    def attempt(self, units: Iterable[Unit]) -> list[Unit]:
        """Run the units (one at least), commit at once. Answers them; those not settled are to be run again, in order."""
        members: list[Unit] = []
        committing = False
        try:
            for unit in units:
                members.append(unit)
                self._run(unit)
            if self._sql.in_transaction:  # unless all of them failed
                if self._probe:
                    self._probe("before_commit")
                sqlite_connection.check_same(self._place.path, self._file)
                committing = True
                self._sql.execute("COMMIT")
                if self._probe:
                    self._probe("after_commit")
        except BaseException as error:  # noqa: BLE001 - the members hear of it, and the writer lives on
            self._undo(members, error, committing=committing)
            return members
        for unit in members:
            unit.settled = True
        return members

    def _run(self, unit: Unit) -> None:
        """One member. Raises only what concerns all of them."""
        sql, tx = self._sql, self._tx
        first = not sql.in_transaction  # the transaction is its savepoint
        sql.execute("BEGIN IMMEDIATE" if first else "SAVEPOINT unit")
        if first:
            self._begin()
        tx.begin()
        unit.result = unit.error = unit.appended = None
        try:
            unit.result = unit.work(tx)
            tx.end()
            # A deferred reference is judged at COMMIT, which would fail all members for one unit's fault.
            if sql.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
                msg = "The unit leaves a reference without its row"
                raise errors.Defect(msg)
        except BaseException as error:
            if not sql.in_transaction:
                raise _Vanished from error
            if isinstance(error, driver.BUSY):
                raise
            tx.forget()
            sql.execute("ROLLBACK" if first else "ROLLBACK TO unit")
            unit.error = driver.translated(error)
        else:
            unit.appended = tx.events.appended
        if not first:
            sql.execute("RELEASE unit")
        if self._probe:
            self._probe("unit")

    def _begin(self) -> None:
        """A transaction began: what is remembered of units before serves only if no other connection committed since."""
        version = self._sql.execute("PRAGMA data_version").fetchone()
        if version != self._built_on:
            self._tx.forget()
            self._built_on = version
        if self._probe:
            self._probe("begin")

    # -- when it goes wrong ----------------------------------------------------------------------------------------------

    def _undo(self, members: list[Unit], error: BaseException, *, committing: bool) -> None:
        """Leave nothing of an attempt behind, and see to it that each member is settled or can run again."""
        error = error.__cause__ if isinstance(error, _Vanished) and error.__cause__ else error
        self._tx.forget()
        with suppress(apsw.Error):
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
        if isinstance(error, driver.BUSY):
            now = time.monotonic()
            for unit in members:
                if now >= unit.deadline:
                    unit.fail(error)
            time.sleep(sqlite_connection.PAUSE)
            return
        if isinstance(error, errors.StoreUnusable):
            self._give_up(members, error, in_doubt=False)
            return
        try:
            self._replace()
            proofs = [unit.appended for unit in members if unit.error is None and unit.appended]
            took_place = committing and bool(proofs) and all(map(self._tx.events.holds, proofs))
        except (apsw.Error, errors.StoreError):
            self._give_up(members, error, in_doubt=committing)
            return
        for unit in members:
            unit.failures += 1
            if took_place:
                unit.settled = True
            elif unit.failures > 1 or not isinstance(error, apsw.Error):
                unit.fail(error)

    def _replace(self) -> None:
        """Go on with another connection.

        The old one is closed last: as long as one is open, SQLite goes by its index of the WAL and not by what a failed commit
        may have left at the end of it, and the next commit overwrites that.
        """
        sqlite_connection.check_same(self._place.path, self._file)
        old = self._sql
        self._use(sqlite_connection.open_writer(self._place, create=False))
        with suppress(apsw.Error):
            old.close()

    @staticmethod
    def _give_up(members: list[Unit], error: BaseException, *, in_doubt: bool) -> None:
        for unit in members:
            unit.fail(error)
            if in_doubt and unit.appended:
                unit.error = errors.StoreFailed("The disk failed during a commit whose outcome is not known")

    # -- between attempts ------------------------------------------------------------------------------------------------

    def _count_pages(self, connection: Any, name: str, pages: int) -> int:
        del connection, name
        if pages < self._wal_pages:  # it started over
            self._checkpoint_at, self._restart_at = CHECKPOINT_PAGES, WAL_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def checkpoint(self) -> None:
        """Move the WAL into the file where it has grown enough; callers have their answers by now.

        Every thousand pages without waiting for anyone. If readers have kept the WAL from starting over for long, wait for them
        a moment, and next at twice the size: SQLite cannot shrink a WAL under a reader that never ends.
        """
        if self._wal_pages < self._checkpoint_at:
            return
        sql = self._sql
        try:
            if self._wal_pages < self._restart_at:
                sql.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._restart_at = 2 * self._wal_pages
                sqlite_connection.wait_for_others(sql, CHECKPOINT_WAIT_MS)
                try:
                    sql.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                finally:
                    sqlite_connection.wait_for_others(sql, self._place.busy_timeout_ms)
        except apsw.Error:
            pass  # what was committed is safe in the WAL, and a disk in trouble shows in the next unit
        self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES

    def foreign_commit(self) -> bool:
        """Whether another connection than this one committed since the last time this was asked."""
        try:
            version: int = self._sql.pragma("data_version")
        except apsw.Error:
            return False
        before, self._data_version = self._data_version, version
        return before != version

    def close(self) -> None:
        """Move all of the WAL into the file and let go."""
        with suppress(apsw.Error):
            self._sql.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with suppress(apsw.Error):
            self._sql.close()
