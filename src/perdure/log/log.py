"""The durable log: publish, transact, read, follow.

Lives here: running units of work on the store and announcing what they appended, after commit and in commit order;
reading and following an aggregate without gap or repeat. Replay is in `replay.py`. Not here: any session rule, any SQL,
fan-out itself (`live.py`).

A publish never loses its announcement: the store calls back on the loop in commit order, whether or not the publisher
still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from perdure import clock as clocks
from perdure import errors, ids
from perdure.core import codec, events
from perdure.log import live
from perdure.log.unit import CommitHook, Projector, Unit
from perdure.store import events as rows
from perdure.store import port

T = TypeVar("T")
D = TypeVar("D")
PAGE = 512
FIRST = 16
BYTES = 256 * 1024
"""About how much of a history a reader has in memory, however large its events are and however slowly it takes them."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The boundary between history and live: everything up to `seq` has been given."""

    seq: int


class Log:
    """The log of one store, as one process sees it."""

    def __init__(
        self,
        store: port.Store,
        *,
        clock: clocks.Clock,
        entropy: ids.Entropy,
        registry: codec.Registry,
        projectors: Sequence[Projector] = (),
    ) -> None:
        """Work on `store`; `projectors` run in this order inside every append."""
        self.store, self.clock, self.registry = store, clock, registry
        self.live = live.Live()
        self._entropy, self._projectors = entropy, tuple(projectors)
        self._stop_foreign = store.on_foreign_commit(self.live.ring_all)

    def close(self) -> None:
        """Stop watching for other processes."""
        self._stop_foreign()

    # -- writing -----------------------------------------------------------------------------------------------------------

    async def transact(
        self,
        work: Callable[[Unit], T],
        *,
        committed: Callable[[Sequence[events.Recorded[Any]]], None] | None = None,
        notify: bool = True,
    ) -> T:
        """Run one unit of work, announce what it appended, return what it returned.

        `work` is pure but for its unit and may run more than once. `committed` hears what was appended right after the
        commit, in commit order, before anybody else and whether or not the caller still waits; without `notify` then
        only followers hear of it. Raises what `work` raises, and the store's errors; then nothing of the unit is left
        and nobody was told.
        """
        now, proof = self.clock.now_ms(), int.from_bytes(self._entropy(6), "big") >> 1 or 1
        waits: list[asyncio.Future[None]] = []

        def run(tx: port.Tx) -> tuple[T, list[events.Recorded[Any]], list[str]]:
            unit = Unit(tx, now, proof, self.registry, self._projectors)
            result = work(unit)
            return result, unit.finish(), unit.removed

        def announce(outcome: tuple[T, list[events.Recorded[Any]], list[str]]) -> None:
            _, appended, removed = outcome
            try:
                if committed:
                    committed(appended)
            finally:
                waits.extend(self.live.announce(appended, notify=notify))
                for aggregate_id in removed:
                    self.live.end(aggregate_id)

        result, _, _ = await self.store.write(run, committed=announce)
        if waits and not self.live.inside_listener():
            await asyncio.gather(*waits)
        return result

    async def publish(
        self,
        payload: D,
        *,
        event_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        commit: CommitHook | None = None,
        fence: Callable[[port.Tx], object] | None = None,
    ) -> events.Recorded[D]:
        """Append one durable fact (LOG-1).

        `fence` runs first and raises where a claim is lost; `commit(tx, seq)` runs after the projectors. Raises
        `InvalidDurableEvent` for an ephemeral payload with a hook, and for an id that is in the log already.
        """
        if getattr(payload, "aggregate_field", None) is None:
            detail = "Local commit hooks require a durable event" if commit else "Only durable events enter the log"
            raise errors.InvalidDurableEvent(detail)

        def work(unit: Unit) -> None:
            if fence:
                fence(unit.tx)
            unit.append(payload, event_id=event_id, metadata=metadata, hook=commit)

        appended: list[events.Recorded[D]] = []
        await self.transact(work, committed=appended.extend)
        return appended[0]

    async def publish_many(
        self, payloads: Sequence[Any], *, event_ids: Sequence[str] | None = None
    ) -> list[events.Recorded[Any]]:
        """Append several facts of one aggregate atomically, with contiguous seqs (LOG-5)."""
        if any(getattr(payload, "aggregate_field", None) is None for payload in payloads):
            msg = "Only durable events enter the log"
            raise errors.InvalidDurableEvent(msg)
        if len({codec.aggregate_of(payload) for payload in payloads}) > 1:
            msg = "publish_many takes events of one aggregate"
            raise errors.InvalidDurableEvent(msg)
        if event_ids is not None and (len(event_ids) != len(payloads) or len(set(event_ids)) != len(event_ids)):
            msg = "publish_many takes one id for each event, none twice"
            raise errors.InvalidDurableEvent(msg)
        chosen: Sequence[str | None] = event_ids or [None] * len(payloads)

        def work(unit: Unit) -> None:
            for payload, one in zip(payloads, chosen, strict=True):
                unit.append(payload, event_id=one)

        appended: list[events.Recorded[Any]] = []
        await self.transact(work, committed=appended.extend)
        return appended

    async def signal(self, payload: Any) -> None:
        """Announce an ephemeral signal of a session to listeners, followers and channels."""
        await self.live.signal(payload.session_id, self._announced(payload))

    def signal_nowait(self, payload: Any) -> None:
        """The same for followers and channels only."""
        if self.live.hears_signals(payload.session_id):
            self.live.signal_nowait(payload.session_id, self._announced(payload))

    def _announced(self, payload: Any) -> events.Announced[Any]:
        return events.Announced(ids.mint("evt", self._entropy), self.clock.now_ms(), payload)

    # -- reading -----------------------------------------------------------------------------------------------------------

    def recorded(self, row: rows.EventRow) -> events.Recorded[Any]:
        """A stored row as an event, upcast to the latest version. Raises `EventUndecodable`."""
        try:
            payload = self.registry.upcast(self.registry.decode(row.type, row.data))
            metadata = codec.load_object(row.metadata)
        except (errors.Undecodable, errors.InvalidDurableEvent) as error:
            raise errors.EventUndecodable(row.aggregate_id, row.seq, row.position, str(error)) from error
        return events.Recorded(row.id, row.aggregate_id, row.seq, row.created, payload, metadata, row.position)

    def readable(self, found: Sequence[rows.EventRow]) -> list[events.Recorded[Any]]:
        """A page of stored rows as events, up to the first that cannot be decoded; where that comes first, this raises
        `EventUndecodable`: what stands before it is hidden by none.
        """
        read: list[events.Recorded[Any]] = []
        for row in found:
            try:
                read.append(self.recorded(row))
            except errors.EventUndecodable:
                if not read:
                    raise
                break
        return read

    async def last_seq(self, aggregate_id: str) -> int:
        """The aggregate's last seq, -1 for an empty log."""
        return (await self.store.read(lambda tx: tx.events.sequence(aggregate_id)))[0]

    async def read(
        self, aggregate_id: str, after: int = -1, limit: int = PAGE, *, partly: bool = False
    ) -> list[events.Recorded[Any]]:
        """Up to `limit` facts after seq `after`; `partly` as `readable`. Raises `CursorBeyondEnd`, `EventUndecodable`."""

        def work(tx: port.Tx) -> tuple[list[rows.EventRow], int]:
            found = tx.events.page(aggregate_id, after, limit)
            return found, (found[-1].seq if found else tx.events.sequence(aggregate_id)[0])

        found, last = await self.store.read(work)
        if after > last:
            raise errors.CursorBeyondEnd(after, last)
        return self.readable(found) if partly else [self.recorded(row) for row in found]

    async def follow(
        self, aggregate_id: str, after: int = -1, *, signals: bool = False, begun: bool = False, page: int = PAGE
    ) -> AsyncGenerator[events.Event | Synced, None]:
        """History after seq `after`, one `Synced` at its end (none for an empty log), then every later fact; no gap, no
        repeat.

        With `signals` also the ephemeral ones, as they come. Ends when the aggregate is removed; with `begun` also where
        its log is empty, since whoever asks has seen that it was not. Raises `CursorBeyondEnd`.
        """
        with self.live.following(aggregate_id, signals=signals) as follower:
            last = await self.last_seq(aggregate_id)
            if begun and last < 0:
                return
            if after > last:
                raise errors.CursorBeyondEnd(after, last)
            cursor = after
            async with aclosing(self._pages(aggregate_id, cursor, last, page)) as history:
                async for event in history:
                    cursor = event.seq
                    yield event
            if last >= 0:
                yield Synced(last)
            async with aclosing(self._tail(follower, aggregate_id, max(cursor, last), page)) as tail:
                async for item in tail:
                    yield item

    async def _pages(
        self, aggregate_id: str, after: int, end: int, page: int
    ) -> AsyncGenerator[events.Recorded[Any], None]:
        """Facts from the database after `after`, to `end`."""
        size = _Size(page)
        while after < end:
            limit = min(size.rows, end - after)
            found = await self.store.read(
                lambda tx, after=after, limit=limit: tx.events.page(aggregate_id, after, limit)
            )
            for row in found:
                yield self.recorded(row)
            if len(found) < limit:
                return  # removed meanwhile
            after = found[-1].seq
            size.learn(found)

    async def _tail(
        self, follower: live.Follower, aggregate_id: str, cursor: int, page: int
    ) -> AsyncGenerator[events.Event, None]:
        """What comes after the history: from memory while that is contiguous, else from the database."""
        while True:
            if follower.reread:
                follower.reread = False
                follower.buffer.clear()
                last = await self.last_seq(aggregate_id)
                async with aclosing(self._pages(aggregate_id, cursor, last, page)) as missed:
                    async for event in missed:
                        cursor = event.seq
                        yield event
                if cursor > last:
                    return  # another process removed the aggregate
            while follower.buffer and not follower.reread:
                item = follower.buffer.popleft()
                if isinstance(item, events.Announced):
                    yield item
                elif item.seq == cursor + 1:
                    cursor = item.seq
                    yield item
                elif item.seq > cursor:
                    follower.reread = True
            if follower.reread:
                continue
            if follower.ended:
                return
            await follower.wait()

    async def changes(self, aggregate_id: str, kinds: tuple[type[Any], ...]) -> AsyncGenerator[None, None]:
        """Tell at once, then each time facts of these kinds were committed, or may have been, that it is time to look.

        Ends when the aggregate is removed.
        """
        with self.live.following(aggregate_id, kinds=kinds) as follower:
            yield
            while True:
                await follower.wait()
                if follower.ended:
                    return
                follower.buffer.clear()
                follower.reread = False
                yield

    async def feed(self, after: int = 0, *, page: int = PAGE) -> AsyncGenerator[events.Recorded[Any] | Synced, None]:
        """Facts of every aggregate after a commit position, one `Synced` with the position where what was there ends,
        then every later fact; order holds within each aggregate.

        A deleted aggregate's facts are left out where they have to be read again. Raises `CursorBeyondEnd`.
        """
        with self.live.following(None) as follower:
            end = await self.last_position()
            if after > end:
                raise errors.CursorBeyondEnd(after, end)
            cursor, synced, size = after, False, _Size(page)
            while True:
                follower.buffer.clear()
                follower.reread = False
                limit = size.rows
                found = await self.store.read(lambda tx, cursor=cursor, limit=limit: tx.events.feed(cursor, limit))
                for row in found:
                    if row.position > end and not synced:
                        synced = True
                        yield Synced(end)
                    cursor = row.position
                    yield self.recorded(row)
                if len(found) == limit:
                    size.learn(found)
                    continue
                if not synced:
                    synced = True
                    yield Synced(end)
                async with aclosing(_announced_after(follower, cursor)) as announced:
                    async for event in announced:
                        cursor = event.position
                        yield event

    async def last_position(self) -> int:
        """The newest commit position ever given, 0 for a new log."""
        return await self.store.read(lambda tx: tx.events.last_position())


class _Size:
    """How many rows the next page of a history has: few at first, then as many as the last ones say are small enough."""

    __slots__ = ("_most", "rows")

    def __init__(self, most: int) -> None:
        """At most that many."""
        self._most = most
        self.rows = min(FIRST, most)

    def learn(self, found: Sequence[rows.EventRow]) -> None:
        """Measure a page."""
        measured = sum(len(row.data) for row in found)
        self.rows = min(max(BYTES * len(found) // max(measured, 1), 1), self._most)


async def _announced_after(follower: live.Follower, cursor: int) -> AsyncGenerator[events.Recorded[Any], None]:
    """What is announced after a commit position, for as long as that is contiguous; then the log is to be read again."""
    while True:
        while follower.buffer and not follower.reread:
            item = follower.buffer.popleft()
            if isinstance(item, events.Announced) or item.position <= cursor:
                continue
            if item.position > cursor + 1:
                return
            cursor = item.position
            yield item
        if follower.reread:
            return
        await follower.wait()
