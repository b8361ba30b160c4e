"""What a running call shows, from the tool to the log.

Lives here: the throttle between them. A tool reports as often as it likes, from its thread or the loop; the newest value
becomes a fact at most three times a second, so that with the last one, which always precedes the call's outcome, there
are never more than four. Facts stay for ever, so a call that grows old has fewer: what waits for an hour does not need to be
told thrice a second how far that is. Not here: the fact and its commit (`publisher.py`), what a value looks like there
(`tool_results.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

from perdure import agent
from perdure import clock as clocks
from perdure.core import messages
from perdure.runner import tool_results
from perdure.runner.publisher import Spawn

SPACING_MS = 334
OLDER, WIDEST_MS = 30, 10_000
"""Facts are a thirtieth of the call's age apart once that is more, and at most ten seconds."""

Shown = tuple[messages.JsonObject | None, tool_results.Content]


class Progress:
    """The progress of one call. `record` adds a fact to those that wait, `flush` makes them durable."""

    def __init__(
        self,
        clock: clocks.Clock,
        record: Callable[..., None],
        flush: Callable[[], Awaitable[None]],
        spawn: Spawn,
    ) -> None:
        """For a call that is about to start, on its loop; `spawn` runs what writes, once the call shows something."""
        self._clock, self._record, self._flush, self._spawn = clock, record, flush, spawn
        self._began = clock.suspend_ms()
        self._writing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._latest: Shown | None = None
        self._written: Shown | None = None
        self._closed = False

    def report(self, structured: messages.JsonObject | None, content: str | Sequence[messages.JsonObject]) -> None:
        """Take what the tool shows now; for `ToolContext.progress`, from any thread. Raises `CallSettled`."""
        shown = tool_results.of_progress(structured, content)
        with self._lock:
            if self._closed:
                raise agent.CallSettled("Progress was reported after the call had its outcome")
            self._latest = shown
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        if self._writing is None and not self._closed:
            self._writing = self._spawn(self._write())

    def cancel(self) -> None:
        """Write no more."""
        if self._writing:
            self._writing.cancel()

    async def ended(self) -> None:
        """Wait until nothing is being written; after `cancel`."""
        if self._writing:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        """Write what is new, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._take():
                await self._flush()
                await self._clock.sleep_ms(self._spacing())

    def _spacing(self) -> int:
        age = self._clock.suspend_ms() - self._began
        return min(max(SPACING_MS, age // OLDER), WIDEST_MS)

    def close(self) -> None:
        """The call has its outcome: add the last value to the facts that wait, accept no more."""
        with self._lock:
            self._closed = True
        self._take()

    def _take(self) -> bool:
        """Add the newest value to the facts that wait, if it is not among them yet."""
        with self._lock:
            latest = self._latest
        if latest is None or latest == self._written:
            return False
        self._written = latest
        self._record(*latest)
        return True
