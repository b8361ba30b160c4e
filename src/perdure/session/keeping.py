"""One task that sees to every lease of a process in time.

Lives here: `Keeper`, which calls back for each lease when it is due, each in a task of its own, so that a renewal that is
stuck delays no other, and `in_time`, for work that cannot be cancelled. Not here: when a lease is due and what is done
then (`claims.py`). The task sleeps until the earliest is due and ends when nothing is kept, so that a turn, which is over
long before, costs no task.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure import clock as clocks

L = TypeVar("L")
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Kept(Generic[L]):
    """A lease that is kept: when it is due (ms on the suspend-counting clock), and the task that sees to it now."""

    lease: L
    due: float
    seeing: asyncio.Task[None] | None = None


class Keeper(Generic[L]):
    """Calls `see_to(lease)` when it is due; the answer is when it is due again, infinity for never."""

    def __init__(self, clock: clocks.Clock, see_to: Callable[[L], Awaitable[float]]) -> None:
        """Nothing is kept yet."""
        self._clock, self._see_to = clock, see_to
        self._kept: dict[Kept[L], None] = {}  # in the order they came, which a set would not keep
        self._task: asyncio.Task[None] | None = None
        self._wakes = 0.0

    def keep(self, lease: L, due: float) -> Kept[L]:
        """See to a lease from now on."""
        kept = Kept(lease, due)
        self._kept[kept] = None
        self._wake_at(due)
        return kept

    async def drop(self, kept: Kept[L]) -> None:
        """See to it no more; nothing of it runs when this returns."""
        self._kept.pop(kept, None)
        if kept.seeing:
            kept.seeing.cancel()
            await asyncio.wait({kept.seeing})

    def close(self) -> None:
        """End the task, which may sleep although nothing is kept any more."""
        if self._task:
            self._task.cancel()

    def _wake_at(self, due: float) -> None:
        """Have the task wake then at the latest."""
        if self._task and not self._task.done():
            if self._wakes <= due:
                return
            self._task.cancel()
        self._wakes = due
        # In no context: it outlives whoever happened to be the first.
        self._task = asyncio.get_running_loop().create_task(self._watch(), context=contextvars.Context())

    async def _watch(self) -> None:
        while waiting := [one for one in self._kept if not one.seeing and one.due < math.inf]:
            self._wakes = min(one.due for one in waiting)
            await self._clock.sleep_ms(self._wakes - self._clock.suspend_ms())
            now = self._clock.suspend_ms()
            for one in self._kept:
                if one.due <= now and not one.seeing:
                    one.seeing = asyncio.get_running_loop().create_task(self._see(one))

    async def _see(self, kept: Kept[L]) -> None:
        kept.due = await self._see_to(kept.lease)
        kept.seeing = None
        if kept in self._kept:
            self._wake_at(kept.due)


async def in_time(seconds: float, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Wait until some work is done that no cancellation stops, so long at most: None then, and it goes on by itself."""
    doing = asyncio.create_task(work)
    doing.add_done_callback(_heard)
    try:
        await asyncio.wait({doing}, timeout=seconds)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise
    return doing if doing.done() else None


def _heard(doing: asyncio.Task[Any]) -> None:
    """Perhaps nobody waits any more for how it ended."""
    if not doing.cancelled():
        doing.exception()
