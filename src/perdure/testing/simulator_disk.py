"""A disk that takes its time: units of work that are on their way while everything else goes on.

Lives here: `Slow`, a seam of the store around the inline one that does what the writer's and the readers' threads do, in
virtual time: a unit waits, takes place at one instant, and only later do `committed` and whoever awaits it hear of it; in
commit order, and also where the caller was cancelled meanwhile. Not here: real threads (`store/sqlite_threads.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from perdure.store import port, sqlite, sqlite_threads

T = TypeVar("T")
NEXT = 1e-6
"""Units keep their order, so no two are at the very same instant."""


class Slow:
    """`inline`, but each way takes up to `most_ms`."""

    def __init__(
        self, inline: sqlite.Seam, loop: asyncio.AbstractEventLoop, chance: random.Random, most_ms: float
    ) -> None:
        """Nothing is on its way yet."""
        self._inline, self._loop, self._chance, self._most = inline, loop, chance, most_ms / 1000
        self._last_written = self._last_told = 0.0
        self._under_way = 0
        self._arrived: asyncio.Future[None] | None = None

    def _soon(self, after: float) -> float:
        return max(self._loop.time() + self._chance.random() * self._most, after + NEXT)

    async def write(self, work: Callable[[port.Tx], T], committed: Callable[[T], None] | None) -> T:
        """As the port's."""
        outcome = sqlite_threads.Outcome(loop=self._loop)
        self._under_way += 1
        self._last_written = self._soon(self._last_written)
        self._loop.call_at(self._last_written, self._take_place, work, committed, outcome)
        return await outcome

    def _take_place(self, work: Any, committed: Any, outcome: asyncio.Future[Any]) -> None:
        result, error = _at_once(self._inline.write(work, None))
        self._last_told = self._soon(self._last_told)
        self._loop.call_at(self._last_told, self._tell, result, error, committed, outcome)

    def _tell(self, result: Any, error: Exception | None, committed: Any, outcome: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        try:
            if committed and error is None:
                committed(result)
        except Exception as raised:  # noqa: BLE001, it reaches the caller
            error = raised
        _resolve(outcome, result, error)
        if self._arrived and not self._under_way:
            _resolve(self._arrived, None, None)

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        """As the port's; what is read may be old by the time it is known."""
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_at(self._soon(0), self._look, work, outcome)
        return await outcome

    def _look(self, work: Any, outcome: asyncio.Future[Any]) -> None:
        if not outcome.cancelled():
            self._loop.call_at(self._soon(0), _resolve, outcome, *_at_once(self._inline.read(work)))

    def watch(self, ring: sqlite.Ring) -> Callable[[], None]:
        """As the port's."""
        return self._inline.watch(ring)

    def poll(self) -> None:
        """As the port's."""
        self._inline.poll()

    async def close(self) -> None:
        """Once everything has arrived."""
        if self._under_way and not self._loop.is_closed():
            self._arrived = self._loop.create_future()
            await self._arrived
        await self._inline.close()


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, Exception | None]:
    """What a coroutine that waits for nothing returns or raises; a death goes through."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value, None
    except Exception as error:  # noqa: BLE001, it is the caller's
        return None, error
    coroutine.close()
    raise AssertionError("The inline seam waits for nothing")


def _resolve(outcome: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
