"""Fan-out of what was committed: followers, listeners and channels of this process.

Lives here: who hears of a commit, in which order, and what happens to a reader that is too slow. Not here: the log
itself. Everything runs on the event loop, from the store's commit-ordered callback, so one aggregate is heard in seq
order under any concurrency (LOG-7).

Three kinds of reader. A *follower* reads the log: it gets committed facts from a bounded buffer and, when that
overflows or another process wrote, from the database again; it never fails and never misses a fact. A *listener* is
awaited, in registration order; a failing one is logged and the others run. A *subscriber* to a channel has a bounded
queue and fails alone when it overflows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from perdure import errors
from perdure.core import events

Listener = Callable[[events.Event], Awaitable[None]]
Tap = Callable[[Sequence[events.Recorded[Any]]], None]
_logger = logging.getLogger("perdure.log")
_listening: ContextVar[bool] = ContextVar("perdure_listening", default=False)

BUFFER = 1024


class Follower:
    """One reader of one aggregate's log: a doorbell and a bounded buffer of what was announced since it was last read."""

    __slots__ = ("_bell", "buffer", "ended", "kinds", "limit", "reread", "signals")

    def __init__(self, limit: int, *, signals: bool, kinds: tuple[type[Any], ...] | None = None) -> None:
        """Buffer at most `limit` items; `signals` asks for ephemeral ones too, `kinds` for facts of these types alone."""
        self.kinds = kinds
        self.buffer: deque[events.Event] = deque()
        self.limit, self.signals = limit, signals
        self.reread = False
        self.ended = False
        self._bell = asyncio.Event()

    def offer(self, item: events.Event) -> None:
        """Take one announced item; past the limit forget the buffer and read the log again instead."""
        if self.kinds is not None and not isinstance(item.data, self.kinds):
            return
        if self.ended or (isinstance(item, events.Announced) and (self.reread or not self.signals)):
            return
        if len(self.buffer) >= self.limit:
            self.buffer.clear()
            self.reread = True
        elif not self.reread:
            self.buffer.append(item)
        self._bell.set()

    def ring(self) -> None:
        """Another process may have written: read the log again."""
        self.reread = True
        self._bell.set()

    def end(self) -> None:
        """The aggregate is gone."""
        self.ended = True
        self._bell.set()

    async def wait(self) -> None:
        """Wait for the doorbell; any number of commits may share one ring."""
        await self._bell.wait()
        self._bell.clear()


class Subscriber:
    """One reader of a channel with a bounded queue of its own."""

    __slots__ = ("_queue", "_types", "overflowed")

    def __init__(self, limit: int, types: frozenset[type[Any]]) -> None:
        """Hold at most `limit` events of `types` (all, where empty)."""
        self._queue: asyncio.Queue[events.Event | None] = asyncio.Queue(limit + 1)
        self._types = types
        self.overflowed = False

    def offer(self, event: events.Event) -> None:
        """Take an event; what is filtered out uses no capacity (LOG-8)."""
        if self.overflowed or (self._types and type(event.data) not in self._types):
            return
        if self._queue.qsize() >= self._queue.maxsize - 1:
            self.overflowed = True
            self._queue.put_nowait(None)
        else:
            self._queue.put_nowait(event)

    def __aiter__(self) -> AsyncIterator[events.Event]:
        """Iterate over the events as they come."""
        return self

    async def __anext__(self) -> events.Event:
        """The next event. Raises `SubscriberOverflow` once the queue has overflowed and is read."""
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)
            raise errors.SubscriberOverflow
        return event


class Live:
    """The readers of one process."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        self._followers: dict[str, set[Follower]] = {}
        self._everything: set[Follower] = set()
        self._listeners: list[Listener] = []
        self._taps: list[Tap] = []
        self._typed: list[Subscriber] = []
        self._global: list[Subscriber] = []
        self._backlog: dict[str, deque[tuple[events.Recorded[Any], asyncio.Future[None]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- readers come and go -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def following(
        self,
        aggregate_id: str | None,
        *,
        signals: bool = False,
        kinds: tuple[type[Any], ...] | None = None,
        limit: int = BUFFER,
    ) -> Any:
        """Register a follower of one aggregate, or of all of them (None), for the length of a block."""
        follower = Follower(limit, signals=signals, kinds=kinds)
        group = self._everything if aggregate_id is None else self._followers.setdefault(aggregate_id, set())
        group.add(follower)
        try:
            yield follower
        finally:
            group.discard(follower)
            if aggregate_id is not None and not group and self._followers.get(aggregate_id) is group:
                del self._followers[aggregate_id]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Await `listener` for every event from now on; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def tap(self, heard: Tap) -> Callable[[], None]:
        """Call `heard` at once with the facts of every commit that listeners hear of: quick, and never failing. Returns what
        ends that.
        """
        self._taps.append(heard)
        return lambda: self._taps.remove(heard) if heard in self._taps else None

    @contextlib.contextmanager
    def subscribe(self, *types: type[Any], limit: int = BUFFER) -> Any:
        """Open a bounded channel of some event types, or of all."""
        subscriber = Subscriber(limit, frozenset(types))
        channel = self._typed if types else self._global
        channel.append(subscriber)
        try:
            yield subscriber
        finally:
            channel.remove(subscriber)

    # -- announcing --------------------------------------------------------------------------------------------------------

    def announce(self, recorded: Sequence[events.Recorded[Any]], *, notify: bool = True) -> list[asyncio.Future[None]]:
        """Announce committed facts, in commit order; what must be awaited until every listener has heard them.

        Followers hear of every commit, listeners and channels only where `notify` says so (LOG-25).
        """
        for event in recorded:
            self._offer(event.aggregate_id, event)
        if not notify:
            return []
        for heard in self._taps:
            heard(recorded)
        if not (self._listeners or self._backlog or self._typed or self._global):
            return []
        waits: list[asyncio.Future[None]] = []
        for event in recorded:
            if self._listeners or event.aggregate_id in self._backlog:
                waits.append(self._queue(event))
            else:
                self._channels(event)
        return waits

    def _queue(self, event: events.Recorded[Any]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[None] = loop.create_future()
        backlog = self._backlog.get(event.aggregate_id)
        if backlog is None:
            self._backlog[event.aggregate_id] = deque([(event, heard)])
            task = loop.create_task(self._work_off(event.aggregate_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            backlog.append((event, heard))
        return heard

    async def _work_off(self, aggregate_id: str) -> None:
        """Tell listeners and channels of one aggregate's facts, one after another."""
        _listening.set(True)
        backlog = self._backlog[aggregate_id]
        try:
            while backlog:
                event, heard = backlog[0]
                interrupted = await self._tell(event)
                self._channels(event)
                backlog.popleft()
                if interrupted:
                    heard.cancel()
                elif not heard.done():
                    heard.set_result(None)
        finally:  # cut short only where the loop itself ends
            del self._backlog[aggregate_id]
            for _, heard in backlog:
                heard.cancel()

    async def _tell(self, event: events.Recorded[Any]) -> bool:
        """Await every listener, each isolated; whether one of them was cancelled (LOG-6)."""
        interrupted = False
        for listener in tuple(self._listeners):
            if listener not in self._listeners:
                continue  # one before it made it stop
            try:
                await listener(event)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task and task.cancelling():
                    raise
                interrupted = True
            except Exception as cause:
                kind = event.data.event_type
                _logger.exception(
                    "Event listener failed", extra={"event_id": event.id, "event_type": kind, "cause": repr(cause)}
                )
        return interrupted

    async def signal(self, aggregate_id: str, announced: events.Announced[Any]) -> None:
        """Announce an ephemeral signal; its listeners are fail-fast (LOG-6)."""
        self._offer(aggregate_id, announced)
        for listener in tuple(self._listeners):
            await listener(announced)
        self._channels(announced)

    def hears_signals(self, aggregate_id: str) -> bool:
        """Whether an ephemeral signal of it would reach a follower or a channel."""
        if self._typed or self._global:
            return True
        groups = (self._followers.get(aggregate_id, ()), self._everything)
        return any(follower.signals for group in groups for follower in group)

    def signal_nowait(self, aggregate_id: str, announced: events.Announced[Any]) -> None:
        """Announce an ephemeral signal to followers and channels only."""
        self._offer(aggregate_id, announced)
        self._channels(announced)

    def _offer(self, aggregate_id: str, event: events.Event) -> None:
        for follower in self._followers.get(aggregate_id, ()):
            follower.offer(event)
        for follower in self._everything:
            follower.offer(event)

    def _channels(self, event: events.Event) -> None:
        for group in (self._typed, self._global):
            for subscriber in group:
                subscriber.offer(event)

    @staticmethod
    def inside_listener() -> bool:
        """Whether a listener is running: what it publishes is announced after it, so it must not wait for that."""
        return _listening.get()

    def ring_all(self) -> None:
        """Another process committed something: every follower looks at the log."""
        for group in (*self._followers.values(), self._everything):
            for follower in group:
                follower.ring()

    def end(self, aggregate_id: str) -> None:
        """The aggregate is gone: its followers end."""
        for follower in self._followers.get(aggregate_id, ()):
            follower.end()
