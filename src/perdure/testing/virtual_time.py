"""An event loop and a clock on which waiting takes no time.

Lives here: `VirtualLoop`, an asyncio loop whose time stands still while anything can run and then jumps to the next
timer, and `VirtualClock`, a `perdure.clock.Clock` on it. Not here: engines, crashes (`simulator.py`). What runs in which
order depends on nothing but what was scheduled: neither on wall time nor on where objects lie in memory, so tasks, which
asyncio keeps in sets, have hashes that count. No sockets, processes or threads: nothing from outside is waited for.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import selectors
from collections.abc import Callable
from typing import Any, Self

BUSY = 1_000_000
"""How many turns a loop may make at one instant before it counts as stuck."""

UNWINDING = 100


class Stuck(Exception):
    """Nothing will ever happen in this simulation any more, or nothing but more of the same."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose `time` starts at 0 and jumps. Raises `Stuck` past `limit_s`, and where nothing is left to wait for."""

    def __init__(self, limit_s: float = 3_600.0) -> None:
        """It is 0 o'clock."""
        self._now, self._limit, self._turns = 0.0, limit_s, 0
        self._held: set[asyncio.Task[Any]] = set()  # asyncio's own references are weak
        super().__init__(_Jumping(self._jump))
        numbers = itertools.count(1)

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            task: asyncio.Task[Any] = _Numbered(coroutine, loop=loop, number=next(numbers), **more)
            self._held.add(task)
            task.add_done_callback(self._held.discard)
            return task

        self.set_task_factory(make)
        self.complaints: list[str] = []
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Somebody's callback failed, or a task nobody waited for."""
        del loop
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _jump(self, timeout: float | None) -> None:
        """Nothing is ready: go to the next timer."""
        if timeout is None:
            raise Stuck("Everything waits, and no timer runs")
        self._turns = self._turns + 1 if timeout <= 0 else 0
        self._now += max(timeout, 0)
        if self._now > self._limit or self._turns > BUSY:
            raise Stuck(f"Still not at its end at {self._now:.3f} s")

    def abandon(self) -> None:
        """End the loop as a dead process leaves its: no task is told and none is waited for."""
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # what unwinds complains, and nobody is to hear of it
        try:
            for task in sorted(self._held, key=hash):
                unwinding: Any = task
                unwinding._log_destroy_pending = False  # noqa: SLF001, as a loop that ends does to its own
                _close(unwinding.get_coro())
            self._held.clear()
            self.close()
        finally:
            logging.disable(before)


def _close(coroutine: Any) -> None:
    """Unwind a coroutine, again where its clean-up waits for something."""
    for _ in range(UNWINDING):
        try:
            coroutine.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001, whatever a dead process says
            return
        else:
            return


class _Numbered(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __new__(cls, *args: Any, number: int, **more: Any) -> Self:
        """Number it before asyncio puts it into a set."""
        del args, more
        self = super().__new__(cls)
        self.number = number
        return self

    def __init__(self, coroutine: Any, *, number: int, **more: Any) -> None:
        """Start it."""
        self.number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self.number


class _Jumping(selectors.SelectSelector):
    """Asks nobody whether anything is ready: time passes instead."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing is ever ready from outside."""
        self._jump(timeout)
        return []


class VirtualClock:
    """Wall time and suspend-counting time of a loop that began at `start_ms`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int) -> None:
        """Read `loop`."""
        self._loop, self._start = loop, start_ms

    def now_ms(self) -> int:
        """Wall time in epoch ms."""
        return self._start + round(self._loop.time() * 1000)

    def suspend_ms(self) -> int:
        """The same: a virtual machine never sleeps."""
        return self.now_ms()

    async def sleep_ms(self, ms: float) -> None:
        """Wait on the loop."""
        await asyncio.sleep(ms / 1000)
