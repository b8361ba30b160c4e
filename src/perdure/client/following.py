"""A session's events as they come, whatever becomes of the connection.

Lives here: one stream after another, each from the last fact that was given, so that every fact is given exactly once.
Not here: what an event means. Signals carry no seq: after a reconnect the text of an open part comes again from its
beginning, and its offset says so.
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

    Raises what the server says where it refuses, and `ServerUnreachable` once patience with it is at an end.
    """
    backoff, joined = Backoff(transport.patience), False
    while True:
        why: Exception | str = "the stream ended"
        began = time.monotonic()
        try:
            async with aclosing(_stream(transport, path, after)) as stream:
                async for event in stream:
                    transport.linked(up=True)
                    joined = True
                    if isinstance(event, events.Recorded):
                        if event.seq <= after:
                            continue
                        if event.seq > after + 1:
                            why = f"the stream left out seq {after + 1}"
                            break
                        after = event.seq
                        backoff.again()
                        yield event
                    elif event is not None and signals:
                        yield event
        except errors.SessionGone:
            if joined:
                return
            raise
        except AWAY as error:
            why = error
        await _lost(transport, backoff, began, why)


async def feed(transport: Transport, after: int, *, follow: bool) -> AsyncGenerator[events.Recorded[Any], None]:
    """The facts of all sessions after a commit position, each once; with `follow` also those to come.

    Raises as `follow`.
    """
    backoff = Backoff(transport.patience)
    while True:
        why: Exception | str = "the stream ended"
        began = time.monotonic()
        try:
            async with aclosing(_frames(transport, "/v1/events", after=after, follow=follow)) as stream:
                async for frame in stream:
                    transport.linked(up=True)
                    if frame.name == b"synced" and not follow:
                        return
                    event = None if frame.name in NOTES else wire.event(frame.data)
                    position = int(frame.id or 0)
                    if isinstance(event, events.Recorded) and position > after:
                        after = position
                        backoff.again()
                        yield replace(event, position=position)
        except AWAY as error:
            why = error
        await _lost(transport, backoff, began, why)


async def _lost(transport: Transport, backoff: Backoff, began: float, why: Exception | str) -> None:
    """A connection ended: wait before the next, anew for one that had held for a while. Raises as `Backoff.pause`."""
    transport.linked(up=False)
    if time.monotonic() - began > STEADY_S:
        backoff.again()
    await backoff.pause(why)


async def _stream(transport: Transport, path: str, after: int) -> AsyncGenerator[events.Event | None, None]:
    """The events of one connection; None for what is only a sign of life. Raises what a problem in it says."""
    async with aclosing(_frames(transport, path, after=after)) as stream:
        async for frame in stream:
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
