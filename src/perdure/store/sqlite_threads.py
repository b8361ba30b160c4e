"""The seam that threads make: one writer thread, some reader threads, and the event loop that never waits for a disk.

Lives here: queues, threads, futures, and how an outcome gets back to the loop: one call for a whole batch. Not here: what a
commit is and what becomes of a failed one (`group_commit.py`). The writer waits for nothing but work: it takes what has arrived
while it ran the units before, up to a bound, and commits the moment nothing more is there, so a lone writer pays no delay and a
crowd shares each wait for the disk.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from perdure import errors
from perdure.store import driver, group_commit, meter, port, sqlite_connection
from perdure.store.readers import Reader

T = TypeVar("T")

MAX_UNITS = 512
MAX_SECONDS = 0.025
POLL_SECONDS = 0.05
_logger = logging.getLogger("perdure.store")


class Outcome(asyncio.Future[Any]):
    """A future that its awaiter cannot cancel: asyncio keeps the cancellation and delivers it once this is done."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse."""
        return False


class _Signal(enum.Enum):
    STOP = enum.auto()
    LOOK = enum.auto()


_Read = tuple[Callable[[port.Tx], Any], "asyncio.Future[Any]"]


def _announce(units: list[group_commit.Unit]) -> None:
    """On the loop, in commit order: `committed`, then the outcome to whoever awaits it."""
    for unit in units:
        error = unit.error
        if error is None and unit.committed:
            try:
                unit.committed(unit.result)
            except BaseException as raised:  # noqa: BLE001 - the others are told all the same
                error = raised
        resolve(unit.future, unit.result, error)


def resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Settle a future, unless it is; on its loop."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(driver.translated(error))


class Threads:
    """The seam; belongs to the running loop."""

    def __init__(self, place: sqlite_connection.Place, probe: group_commit.Probe | None, readers: int) -> None:
        """Nothing runs before `start`."""
        self._place, self._probe = place, probe
        self._loop = asyncio.get_running_loop()
        self._writes: queue.SimpleQueue[group_commit.Unit | _Signal] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._taken: list[group_commit.Unit] = []
        self._again: deque[group_commit.Unit] = deque()
        self._rings: list[Callable[[], None]] = []
        self._looked = 0.0
        self._stopping = False
        self.meter = meter.Meter(lambda: self._writes.qsize() + len(self._again))
        self._opened, self._writer_ended = Outcome(), Outcome()
        self._readers_ended = [Outcome() for _ in range(max(1, readers))]

    # -- on the loop -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the file in the writer thread. Raises what opening raises."""
        threading.Thread(target=self._write_loop, name="perdure-writer", daemon=True).start()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._writes.put(_Signal.STOP)
            raise
        for ended in self._readers_ended:
            threading.Thread(target=self._read_loop, args=(ended,), name="perdure-reader", daemon=True).start()

    async def write(self, work: Callable[[port.Tx], T], committed: Callable[[T], None] | None) -> T:
        """As the port's."""
        unit = group_commit.Unit(work, committed, self._place.deadline(), Outcome(loop=self._loop))
        self._writes.put(unit)
        return await unit.future

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        """As the port's; a reader that gives up waiting is not waited for."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._reads.put((work, future))
        return await future

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring on foreign commits until the answer is called."""
        self._rings.append(ring)
        self._writes.put(_Signal.LOOK)
        return lambda: self._rings.remove(ring) if ring in self._rings else None

    def poll(self) -> None:
        """Have the writer look for foreign commits now."""
        self._writes.put(_Signal.LOOK)

    async def close(self) -> None:
        """Finish what was accepted; readers let go first, so that the writer can empty the WAL."""
        for _ in self._readers_ended:
            self._reads.put(None)
        cancelled: asyncio.CancelledError | None = None
        for ended in (*self._readers_ended, self._writer_ended):
            if ended is self._writer_ended:
                self._writes.put(_Signal.STOP)
            try:
                await ended
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled:
            raise cancelled

    def _ring(self) -> None:
        for ring in tuple(self._rings):
            ring()

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        """Have the loop call; one that is closed has nobody left to tell."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    # -- in the writer thread --------------------------------------------------------------------------------------------

    def _write_loop(self) -> None:
        try:
            committer = group_commit.Committer(self._place, self._probe)
        except BaseException as error:  # noqa: BLE001 - whoever opens hears of it
            self._tell(resolve, self._opened, None, error)
            return
        self._tell(resolve, self._opened, None, None)
        try:
            self._serve(committer)
        except BaseException as error:
            _logger.critical("the writer failed; this store takes no more writes", exc_info=True)
            self._refuse(errors.StoreFailed(f"The writer of the database failed: {type(error).__name__}: {error}"))
        committer.close()
        self._tell(resolve, self._writer_ended, None, None)

    def _serve(self, committer: group_commit.Committer) -> None:
        """Batch after batch, until the end."""
        while (first := self._next(committer)) is not None:
            began = time.monotonic()
            members = committer.attempt(self._members(first))
            self.meter.committed(time.monotonic() - began, len(members))
            settled = [unit for unit in members if unit.settled]
            self._again.extendleft(reversed([unit for unit in members if not unit.settled]))
            self._taken.clear()
            if settled:
                self._tell(_announce, settled)
                if self._probe:
                    self._probe("delivered")
            committer.checkpoint()
            if self._rings and time.monotonic() - self._looked > POLL_SECONDS:
                self._look(committer)

    def _refuse(self, error: errors.StoreFailed) -> None:
        """Nobody waits for ever for a writer that failed: not those it had taken, nor whoever comes until the end."""
        waiting: list[group_commit.Unit] = [*self._taken, *self._again]
        while True:
            for unit in waiting:
                if not unit.settled:
                    unit.fail(error)
            self._tell(_announce, waiting)
            if self._stopping:
                return
            item = self._writes.get()
            self._stopping = item is _Signal.STOP
            waiting = [item] if isinstance(item, group_commit.Unit) else []

    def _next(self, committer: group_commit.Committer) -> group_commit.Unit | None:
        """The next batch's first unit, waited for; None at the end."""
        if self._again:
            return self._again.popleft()
        while not self._stopping:
            try:
                item = self._writes.get(timeout=POLL_SECONDS if self._rings else None)
            except queue.Empty:
                item = _Signal.LOOK
            if isinstance(item, group_commit.Unit):
                return item
            self._heed(item, committer)
        return None

    def _members(self, first: group_commit.Unit) -> Iterator[group_commit.Unit]:
        """`first` and what arrives while units run; one that met a failing disk stays by itself."""
        self._taken.append(first)
        yield first
        until = time.monotonic() + MAX_SECONDS
        for _ in range(0 if first.failures else MAX_UNITS - 1):
            unit = self._arrived()
            if unit is None:
                return
            self._taken.append(unit)
            yield unit
            if time.monotonic() > until:
                return

    def _arrived(self) -> group_commit.Unit | None:
        if self._again:
            return None if self._again[0].failures else self._again.popleft()
        while True:
            try:
                item = self._writes.get_nowait()
            except queue.Empty:
                return None
            if isinstance(item, group_commit.Unit):
                return item
            self._heed(item, None)

    def _heed(self, signal: _Signal, committer: group_commit.Committer | None) -> None:
        if signal is _Signal.STOP:
            self._stopping = True
        elif committer is None:
            self._looked = 0.0  # in the middle of a transaction: look right after it
        else:
            self._look(committer)

    def _look(self, committer: group_commit.Committer) -> None:
        self._looked = time.monotonic()
        if self._rings and committer.foreign_commit():
            self._tell(self._ring)

    # -- in a reader thread ----------------------------------------------------------------------------------------------

    def _read_loop(self, ended: Outcome) -> None:
        reader = Reader(self._place)
        while (item := self._reads.get()) is not None:
            work, future = item
            if future.cancelled():
                continue
            try:
                result = reader.run(work)
            except BaseException as error:  # noqa: BLE001 - whatever a unit raises is its caller's
                self._tell(resolve, future, None, error)
            else:
                self._tell(resolve, future, result, None)
        reader.close()
        self._tell(resolve, ended, None, None)
