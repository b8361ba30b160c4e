"""A session's events as they come, whatever becomes of the connection.

Lives here: one stream after another, each from the last fact that was given, so that every fact is given exactly once.
Not here: what an event means. Signals carry no seq: after a reconnect the text of an open part comes again from its
beginning, and its offset says so. A server that comes back may hold another database, restored from a backup or put in the
place of the first: so each further connection asks for the last fact again, and one that is gone or another ends the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

from perdure import errors
from perdure.client import problems, wire
from perdure.client.transport import Backoff, Transport
from perdure.core import events, sse
from perdure.core.value import replace

MAX_EVENT_BYTES = 256 * 2**20
PAGE = 1000
NOTES = frozenset({b"hello", b"synced"})
"""Frames that are no events: signs of life."""

AWAY = (httpx2.TransportError, problems.ServerUnreachable, errors.SubscriberOverflow, errors.StoreBusy)
"""What a stream goes on after."""

STEADY_S = 5.0
"""A connection that lived so long was a good one: patience begins anew."""


async def history(transport: Transport, path: str, after: int) -> AsyncGenerator[events.Event, None]:
    """The facts after a seq, up to the end of the log as it is now."""
    end: int | None = None
    while end is None or after < end:
        page = await transport.get(path, wire.EventPage, after=after, limit=PAGE)
        end = page.last_seq if end is None else end
        if not page.data:
            return
        for raw in page.data:
            event = wire.event(raw)
            if isinstance(event, events.Recorded):
                after = event.seq
                if after > end:
                    return
                yield event


async def follow(transport: Transport, path: str, after: int, *, signals: bool) -> AsyncGenerator[events.Event, None]:
    """The facts after a seq and those to come, with signals if wanted, until the session is deleted.

    Raises what the server says where it refuses, `ServerUnreachable` once patience with it is at an end, and `HistoryReplaced`.
    """
    backoff, joined = Backoff(transport.patience), False
    last = _Last()
    while True:
        why: Exception | str = "the stream ended"
        began = time.monotonic()
        try:
            async with aclosing(_stream(transport, path, last.start(after), after)) as stream:
                async for event in stream:
                    transport.linked(up=True)
                    joined = True
                    if isinstance(event, events.Recorded):
                        if event.seq <= after:
                            last.check(event, again=event.seq == after)
                            continue
                        if event.seq > after + 1:
                            why = f"the stream left out seq {after + 1}"
                            break
                        after = last.given(event, event.seq)
                        backoff.again()
                        yield event
                    elif event is not None and signals:
                        yield event
        except errors.SessionGone:
            if joined:
                return
            raise
        except errors.CursorBeyondEnd as error:
            raise last.told(error) from None
        except AWAY as error:
            why = error
        await _lost(transport, backoff, began, why)


async def feed(transport: Transport, after: int, *, follow: bool) -> AsyncGenerator[events.Recorded[Any], None]:
    """The facts of all sessions after a commit position, each once; with `follow` also those to come.

    Raises as `follow`.
    """
    backoff = Backoff(transport.patience)
    last = _Last()
    while True:
        why: Exception | str = "the stream ended"
        began = time.monotonic()
        try:
            async with aclosing(_frames(transport, "/v1/events", after=last.start(after), follow=follow)) as stream:
                async for frame in stream:
                    transport.linked(up=True)
                    if frame.name == b"synced":
                        _check_end(wire.read(frame.data, _FeedEnd).position, after)
                        if not follow:
                            return
                    event = None if frame.name in NOTES else wire.event(frame.data)
                    position = int(frame.id or 0)
                    if not isinstance(event, events.Recorded):
                        continue
                    if position > after:
                        after = last.given(event, position)
                        backoff.again()
                        yield replace(event, position=position)
                    else:
                        last.check(event, again=position == after)
        except errors.CursorBeyondEnd as error:
            raise last.told(error) from None
        except AWAY as error:
            why = error
        await _lost(transport, backoff, began, why)


class _Last:
    """The last fact that was given, by which a log is known again."""

    def __init__(self) -> None:
        """None was given yet."""
        self._seen: tuple[str, int, type[Any]] | None = None

    def start(self, after: int) -> int:
        """After what place to ask, so that the last fact comes again if there was one."""
        return after if self._seen is None else after - 1

    def given(self, event: events.Recorded[Any], place: int) -> int:
        """It is given now; its place."""
        self._seen = event.id, event.created, event.data.__class__
        return place

    def check(self, event: events.Recorded[Any], *, again: bool) -> None:
        """Raise `HistoryReplaced` where what stands in the place of the last fact is another one."""
        if again and self._seen not in {None, (event.id, event.created, event.data.__class__)}:
            raise problems.HistoryReplaced

    def told(self, error: errors.CursorBeyondEnd) -> errors.PerdureError:
        """What it means that the log ends before a place: of one that was seen, that the log is another."""
        return error if self._seen is None else problems.HistoryReplaced()


def _check_end(end: int, after: int) -> None:
    """Raise `HistoryReplaced` where a log ends before what was given of it."""
    if end < after:
        raise problems.HistoryReplaced


class _End(msgspec.Struct):
    """Where a session's log ends."""

    seq: int


class _FeedEnd(msgspec.Struct):
    """Where the log of all sessions ends."""

    position: int


async def _lost(transport: Transport, backoff: Backoff, began: float, why: Exception | str) -> None:
    """A connection ended: wait before the next, anew for one that had held for a while. Raises as `Backoff.pause`."""
    transport.linked(up=False)
    if time.monotonic() - began > STEADY_S:
        backoff.again()
    await backoff.pause(why)


async def _stream(transport: Transport, path: str, start: int, after: int) -> AsyncGenerator[events.Event | None, None]:
    """The events of one connection after `start`; None for what is only a sign of life. Raises what a problem in it says, and
    `HistoryReplaced` for a log that ends before `after`.
    """
    async with aclosing(_frames(transport, path, after=start)) as stream:
        async for frame in stream:
            if frame.name == b"synced":
                _check_end(wire.read(frame.data, _End).seq, after)
            yield None if frame.name in NOTES else wire.event(frame.data)


async def _frames(transport: Transport, path: str, **query: Any) -> AsyncGenerator[sse.Frame, None]:
    """The frames of one connection. Raises what a problem in it says."""
    headers = {"Accept": "text/event-stream"}
    async with transport.http.stream("GET", path, params=query, headers=headers) as answer:
        if not answer.is_success:
            raise problems.error_of(answer.status_code, await answer.aread())
        parser = sse.Parser(MAX_EVENT_BYTES)
        async for chunk in answer.aiter_bytes():
            for frame in parser.feed(chunk):
                if frame.name == b"problem":
                    raise problems.from_document(msgspec.json.decode(frame.data))
                yield frame
