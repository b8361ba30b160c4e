"""One busy period per key, with a doorbell.

Lives here: a generic organ that knows nothing of sessions. `wake` starts a drain of a key or makes the running one be
followed by another; `run` joins or starts a forced one and waits; `interrupt` cancels the running one, once, and says
why. However often and from wherever the bell rings, a key has at most one drain, and a ring during settlement or
clean-up is kept for a successor (EX-6). Imports nothing of ours.

Why a task of its own per drain: cancelling it is then the whole of interrupting, and a drain's context never leaks into
the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Busy(Generic[K]):
    """One drain, as its body sees it. `reason` is why it was cancelled, None while it was not."""

    key: K
    forced: bool
    slots: asyncio.Semaphore
    reason: str | None = None
    has_slot: bool = False

    async def enter(self) -> None:
        """Wait for a slot."""
        await self.slots.acquire()
        self.has_slot = True

    def leave(self) -> None:
        """Give the slot back, if it has one."""
        if self.has_slot:
            self.has_slot = False
            self.slots.release()

    @contextlib.asynccontextmanager
    async def aside(self) -> AsyncGenerator[None, None]:
        """Give the slot to another key while waiting on one. Whoever is being cancelled goes on without: its clean-up
        must not wait for strangers.
        """
        self.leave()
        try:
            yield
        finally:
            if self.reason is None:
                await self.enter()


@dataclass(slots=True)
class _Entry(Generic[K]):
    """The busy period of a key: the drain that runs, and what is to follow it."""

    busy: Busy[K]
    task: asyncio.Task[None] | None = None
    again: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    next_waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])

    @property
    def over(self) -> bool:
        """Whether its drain has ended and waits to be settled."""
        return self.task is not None and self.task.done()


class Coordinator(Generic[K]):
    """Runs `drain(busy)` for each key that is rung; `failed(key, error)` hears of drains that raised."""

    def __init__(
        self,
        drain: Callable[[Busy[K]], Awaitable[None]],
        *,
        failed: Callable[[K, Exception], None],
        parallel: int = 1000,
    ) -> None:
        """Run at most `parallel` drains at once."""
        self._drain, self._failed = drain, failed
        self._parallel, self._slots = parallel, asyncio.Semaphore(parallel)
        self._entries: dict[K, _Entry[K]] = {}
        self._closed = False

    def active(self) -> list[K]:
        """The keys that are busy."""
        return list(self._entries)

    def running(self) -> set[asyncio.Task[None]]:
        """The drains that run or wait to be settled; who waits for them finds them settled."""
        return {entry.task for entry in self._entries.values() if entry.task}

    def has_room(self, before: int = 0) -> bool:
        """Whether a drain that starts now finds a slot without waiting, should so many start `before` it."""
        return not self._closed and len(self._entries) + before < self._parallel

    def free(self, key: K) -> bool:
        """Whether a ring now starts a drain of that key, and that has a slot at once."""
        return key not in self._entries and self.has_room()

    def wake(self, key: K) -> None:
        """Ring: start a drain, or have the running one followed by another. Does nothing once closed."""
        if self._closed:
            return
        entry = self._entries.get(key)
        if entry:
            entry.again = True
        else:
            self._start(key, forced=False)

    async def run(self, key: K) -> None:
        """Join the running drain, or start a forced one, and wait for its end. Raises what it raises.

        Cancelling the wait does not cancel the drain. A drain that is being interrupted, or has ended already, is not
        joined: a forced successor follows it. Returns at once when closed.
        """
        if self._closed:
            return
        entry = self._entries.get(key) or self._start(key, forced=True)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (entry.next_waiters if entry.busy.reason or entry.over else entry.waiters).append(waiter)
        await waiter

    def interrupt(self, key: K, reason: str = "interrupt") -> bool:
        """Cancel the running drain and forget rings before this one; False where nothing runs or it is cancelled
        already.
        """
        entry = self._entries.get(key)
        if entry is None or entry.busy.reason or entry.over:
            return False
        entry.busy.reason = reason
        entry.again = False
        if entry.task:
            entry.task.cancel()
        return True

    async def close(self, grace_s: float, reason: str = "shutdown") -> None:
        """Start nothing more, give drains `grace_s` seconds, then cancel what still runs and wait for its clean-up."""
        self._closed = True
        for entry in self._entries.values():
            entry.again = False
        if running := self.running():
            await asyncio.wait(running, timeout=grace_s)
            for key in self.active():
                self.interrupt(key, reason)
            await asyncio.wait(running)

    def _start(self, key: K, *, forced: bool) -> _Entry[K]:
        entry = self._entries[key] = _Entry(Busy(key, forced, self._slots))
        self._launch(entry)
        return entry

    def _launch(self, entry: _Entry[K]) -> None:
        entry.task = asyncio.get_running_loop().create_task(self._run(entry.busy))
        entry.task.add_done_callback(functools.partial(self._ended, entry))

    def _ended(self, entry: _Entry[K], task: asyncio.Task[None]) -> None:
        """Settle a drain; if anybody rang or joined, another follows. The loop calls this, so that any number of self-wakes
        costs no stack.
        """
        self._settle(entry, task)
        key = entry.busy.key
        if self._closed or not (entry.again or entry.next_waiters):
            del self._entries[key]
            for waiter in entry.next_waiters:
                _tell(waiter, None)
            return
        entry.busy = Busy(key, bool(entry.next_waiters), self._slots)
        entry.waiters, entry.next_waiters, entry.again = entry.next_waiters, [], False
        self._launch(entry)

    async def _run(self, busy: Busy[K]) -> None:
        try:
            await busy.enter()
            if not self._closed:
                await self._drain(busy)
        finally:
            busy.leave()

    def _settle(self, entry: _Entry[K], task: asyncio.Task[None]) -> None:
        """Tell those who waited how the drain ended. A ring or a join from in here finds it over."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            try:
                self._failed(entry.busy.key, error)
            except Exception as defect:  # noqa: BLE001, it reaches those who wait instead
                error = defect
        for waiter in entry.waiters:
            if task.cancelled() and entry.busy.reason is None:
                waiter.cancel()
            else:
                _tell(waiter, error)
        entry.waiters = []


def _tell(waiter: asyncio.Future[None], error: BaseException | None) -> None:
    if waiter.done():
        return
    if error:
        waiter.set_exception(error)
    else:
        waiter.set_result(None)
