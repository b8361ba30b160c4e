"""A clock that goes only when it is told to.

Lives here: `FakeClock`, which satisfies `perdure.clock.Clock`. Not here: anything that waits for real time to pass.
"""

from __future__ import annotations

import asyncio


class FakeClock:
    """Wall time and suspend-counting time start at `now_ms` and move together by `advance`; `sleep_ms` waits for that."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """It is `now_ms`, and stays so."""
        self._now = self._steady = now_ms
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """Wall time in epoch ms."""
        return self._now

    def suspend_ms(self) -> int:
        """Time that nobody sets."""
        return self._steady

    async def sleep_ms(self, ms: float) -> None:
        """Wait until time was advanced by so much."""
        if ms <= 0:
            await asyncio.sleep(0)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._steady + ms, waiting)
        self._sleeping.append(entry)
        try:
            await waiting
        finally:
            if entry in self._sleeping:
                self._sleeping.remove(entry)

    def advance(self, ms: int) -> None:
        """Let time pass; who slept until now or earlier goes on."""
        self._now += ms
        self._steady += ms
        for due, waiting in tuple(self._sleeping):
            if due <= self._steady and not waiting.done():
                waiting.set_result(None)

    def set_wall(self, now_ms: int) -> None:
        """Somebody sets the wall clock; steady time does not notice."""
        self._now = now_ms
