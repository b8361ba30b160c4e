"""Looking at a file without leaving a trace: a connection that cannot write, and the seam of a store that only reads.

Lives here: `Look` and `Looking`. Not here: reading beside our own writer (`readers.py`), what is looked for (`checkup.py`,
`maintenance/`). SQLite itself leaves traces: whoever reads a WAL database makes `-wal` and `-shm` beside it, and cannot where
no file may be made. So a file that nobody has open, which is one without those two, is read as it lies, as immutable; should
it change or somebody open it meanwhile, what was read counts for nothing and is read again. One that is in use is read
together with its users, whose `-wal` and `-shm` are there already.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import apsw

from perdure import errors
from perdure.store import driver, port, schema, sqlite_connection, sqlite_threads, statements

T = TypeVar("T")

POLL_SECONDS = 0.05
Still = tuple[int, int, int]
"""What a file is while nobody has it open: inode, size, time of its last change."""


class Look:
    """A file of ours, for reading only. Used by one thread at a time."""

    def __init__(self, place: sqlite_connection.Place) -> None:
        """Open it. Raises `StoreUnusable` and its kind for what is no database of ours; its schema may be any."""
        self._place = place
        self._connection: driver.Connection | None = None
        self._still: Still | None = None
        self._version = self.ask(lambda connection: connection.pragma("data_version"))

    def check_schema(self) -> None:
        """Raise `SchemaTooNew` for a schema this program does not know, `StoreUnusable` for one that is too old to read."""
        version: int = self.ask(lambda connection: connection.pragma("user_version"))
        schema.refuse_newer(version)
        if version < schema.CURRENT:
            said = f"its schema {version} is older than {schema.CURRENT}; 'perdure serve' brings it up to date"
            raise errors.StoreUnusable(f"Cannot open {self._place.path} for reading only: {said}")

    def run(self, work: Callable[[port.Tx], T]) -> T:
        """Run a unit that reads, on one snapshot; it may run twice. Raises what it raises, and the store's errors."""

        def looking(connection: driver.Connection) -> T:
            tx = port.Tx(statements.load("sqlite"), connection)
            result = work(tx)
            tx.flush()  # what a unit keeps back it must not get away with here
            return result

        return self.ask(looking)

    def ask(self, work: Callable[[driver.Connection], T]) -> T:
        """The same with the bare connection."""
        while True:
            try:
                found = self._on_a_snapshot(self._current(), work)
            except Exception as error:
                if self._overtaken():
                    continue  # what was read half-way may be anything
                raise driver.translated(error) from error
            if not self._overtaken():
                return found

    @staticmethod
    def _on_a_snapshot(connection: driver.Connection, work: Callable[[driver.Connection], T]) -> T:
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            with suppress(apsw.Error):  # the unit's own error says more, and there is nothing to lose
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _current(self) -> driver.Connection:
        if self._connection is None or self._overtaken():
            self.close()
            self._still = still(self._place)
            self._connection = sqlite_connection.open_looker(self._place, alone=self._still is not None)
        return self._connection

    def _overtaken(self) -> bool:
        """Whether a file that lay still does so no more."""
        return self._still is not None and still(self._place) != self._still

    def changed(self) -> bool:
        """Whether anybody committed since this was last asked."""
        try:
            if self._overtaken():
                return True
            version = self.ask(lambda connection: connection.pragma("data_version"))
        except errors.PerdureError:
            return False  # whoever reads next is told
        before, self._version = self._version, version
        return before != version

    def close(self) -> None:
        """Let go."""
        connection, self._connection = self._connection, None
        if connection:
            with suppress(apsw.Error):
                connection.close()


def still(place: sqlite_connection.Place) -> Still | None:
    """What the file is if nobody has it open, and nobody died with it open; else None."""
    name = os.fspath(place.path)
    try:
        about = os.stat(name)  # noqa: PTH116 - which costs half of the path's own
    except OSError as error:
        raise sqlite_connection.unusable(place.path, error) from error
    return None if any(map(os.path.exists, (f"{name}-shm", f"{name}-wal", f"{name}-journal"))) else _of(about)


def _of(about: os.stat_result) -> Still:
    return about.st_ino, about.st_size, about.st_mtime_ns


# -- a store that only reads ---------------------------------------------------------------------------------------------


_Read = tuple[Callable[[port.Tx], Any], "asyncio.Future[Any]"]


class Looking:
    """The seam of a store that only reads: one thread that runs its units and looks for commits of others."""

    def __init__(self, place: sqlite_connection.Place) -> None:
        """Nothing is opened before `start`."""
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._rings: list[Callable[[], None]] = []
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def start(self) -> None:
        """Open the file in the thread. Raises what opening raises."""
        threading.Thread(target=self._read_loop, name="perdure-looker", daemon=True).start()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._reads.put(None)
            raise

    def _open(self) -> Look:
        look = Look(self._place)
        try:
            look.check_schema()
        except BaseException:
            look.close()
            raise
        return look

    async def write(self, work: Callable[[port.Tx], T], committed: Callable[[T], None] | None) -> NoReturn:
        """Refuse. Raises `ConfigError`."""
        raise errors.ConfigError("The database was opened for reading only: nothing can be stored in it")

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        """As the port's."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._reads.put((work, future))
        return await future

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring on commits of others until the answer is called."""
        self._rings.append(ring)
        return lambda: self._rings.remove(ring) if ring in self._rings else None

    def poll(self) -> None:
        """Nothing to do: the thread looks by itself."""

    async def close(self) -> None:
        """Let go of the file."""
        self._reads.put(None)
        await asyncio.shield(self._ended)

    def _read_loop(self) -> None:
        try:
            look = self._open()
        except BaseException as error:  # noqa: BLE001 - whoever opens hears of it
            self._tell(sqlite_threads.resolve, self._opened, None, error)
            return
        self._tell(sqlite_threads.resolve, self._opened, None, None)
        looked = time.monotonic()
        while True:
            try:
                item = self._reads.get(timeout=POLL_SECONDS)
            except queue.Empty:
                item = ()
            if item is None:
                break
            if item:
                self._answer(look, *item)
            if self._rings and time.monotonic() - looked > POLL_SECONDS:
                looked = time.monotonic()
                if look.changed():
                    self._tell(self._ring)
        look.close()
        self._tell(sqlite_threads.resolve, self._ended, None, None)

    def _answer(self, look: Look, work: Callable[[port.Tx], Any], future: asyncio.Future[Any]) -> None:
        try:
            result = look.run(work)
        except BaseException as error:  # noqa: BLE001 - whatever a unit raises is its caller's
            self._tell(sqlite_threads.resolve, future, None, error)
        else:
            self._tell(sqlite_threads.resolve, future, result, None)

    def _ring(self) -> None:
        for ring in tuple(self._rings):
            ring()

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        """Have the loop call; one that is closed has nobody left to tell."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)
