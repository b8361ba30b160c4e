"""Time: the only reader of the real clock, and the shape every clock has.

Lives here: `Clock` and `SystemClock`. Everything that needs the time takes a clock, so that a simulated run can own it.
Wall time is for people and for leases in rows; trust in a lease is measured by `suspend_ms`, a clock that goes on while
the machine sleeps.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now_ms(self) -> int:
        """Wall time in epoch ms."""
        ...

    def suspend_ms(self) -> int:
        """Milliseconds of a steady clock that counts suspend."""
        ...

    async def sleep_ms(self, ms: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall time in epoch ms."""
        return time.time_ns() // 1_000_000

    def suspend_ms(self) -> int:
        """CLOCK_BOOTTIME where the system has it, else the monotonic clock."""
        boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(boottime) // 1_000_000

    async def sleep_ms(self, ms: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(ms / 1000)
