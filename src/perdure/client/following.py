"""A session's events as they come, whatever becomes of the connection.

Lives here: one stream after another, each from the last fact that was given, so that every fact is given exactly once.
Not here: what an event means. Signals carry no seq: after a reconnect the text of an open part comes again from its
beginning, and its offset says so.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
import msgspec

from perdure import errors
from perdure.client import problems, wire
from perdure.client.transport import Backoff, Transport
from perdure.core import events, sse

MAX_EVENT_BYTES = 256 * 2**20
PAGE = 1000
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
        except (
            httpx2.TransportError,
            problems.ServerUnreachable,
            errors.SubscriberOverflow,
            errors.StoreBusy,
        ) as error:
            why = error
        transport.linked(up=False)
        if time.monotonic() - began > STEADY_S:
            backoff.again()
        await backoff.pause(why)


async def _stream(transport: Transport, path: str, after: int) -> AsyncGenerator[events.Event | None, None]:
    """The events of one connection; None for what is only a sign of life. Raises what a problem in it says."""
    headers = {"Accept": "text/event-stream"}
    async with transport.http.stream("GET", path, params={"after": after}, headers=headers) as answer:
        if not answer.is_success:
            raise problems.error_of(answer.status_code, await answer.aread())
        parser = sse.Parser(MAX_EVENT_BYTES)
        async for chunk in answer.aiter_bytes():
            for frame in parser.feed(chunk):
                if frame.name == b"problem":
                    raise problems.from_document(msgspec.json.decode(frame.data))
                if frame.name in {b"hello", b"synced"}:
                    yield None
                else:
                    yield wire.event(frame.data)
