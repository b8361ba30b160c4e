"""The log, of one session or of all, by the page or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from perdure import errors
from perdure.server import feeding, joining, problems, wire
from perdure.server.serving import Here, Serving, Target
from perdure.server.sse import EventStream

router = APIRouter(tags=["events"], responses=problems.declared(401, 403, 422, 503))
STREAM = {200: {"content": {EventStream.media_type: {"schema": {"type": "string"}}}}}
Start = Annotated[int | None, Query(ge=-1, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Accept = Annotated[str, Header(include_in_schema=False)]
LastEventId = Annotated[str, Header(json_schema_extra={"pattern": "^[0-9]{0,16}$"})]


@router.get("/v1/events", response_model=wire.FeedPage, responses={**STREAM})
async def read_feed(
    *,
    here: Here,
    after: Start = None,
    limit: Limit = 500,
    follow: bool = True,
    accept: Accept = "",
    last_event_id: LastEventId = "",
) -> Response:
    """Facts of all sessions after a commit position: a page, or where `text/event-stream` is accepted a stream.

    As a session's stream, but for its ids: they are commit positions, and `Last-Event-ID` or `after` goes on from one. Order
    holds within each session; facts of a deleted session may be missing. There is no live text.
    """
    log, start = here.perdure.engine.log, max(_start(after, last_event_id), 0)
    last = await log.last_position()
    if start > last:
        raise errors.CursorBeyondEnd(start, last)
    if EventStream.media_type not in accept:
        rows = await log.store.read(lambda tx: tx.events.feed(start, limit))
        return wire.feed_page(log.readable(rows), start, last)
    return _stream(here, "all", feeding.reader(here, start, follow=follow))


@router.get(
    "/v1/sessions/{session_id}/events",  # noqa: FAST003, `Target` takes it
    response_model=wire.EventPage,
    responses={**STREAM, **problems.declared(404, 410)},
)
async def read_events(
    *,
    here: Here,
    session: Target,
    after: Start = None,
    limit: Limit = 500,
    follow: bool = True,
    accept: Accept = "",
    last_event_id: LastEventId = "",
) -> Response:
    """Facts after a seq: a page, or where `text/event-stream` is accepted a stream that goes on.

    The stream starts after `after` or `Last-Event-ID`, whichever is later, else at the beginning: `hello`, history, `synced`,
    then everything as it comes, live text without an id included. `follow=false` ends it at `synced`. `limit` is the page's.
    """
    log, start = here.perdure.engine.log, _start(after, last_event_id)
    last = await log.last_seq(session.id)
    if last < 0:
        await session.info()  # deleted just now, and this says so
    if EventStream.media_type not in accept:
        found = await log.read(session.id, start, limit, partly=True)
        return wire.event_page(found, await log.last_seq(session.id))
    if start > last:
        raise errors.CursorBeyondEnd(start, last)
    return _stream(here, "session", joining.reader(here, session.id, start, follow=follow))


def _stream(here: Serving, of: str, chunks: AsyncGenerator[bytes, None]) -> Response:
    heartbeat, stall = here.settings.heartbeat_seconds, here.settings.stall_seconds
    return EventStream(chunks, here.closing, heartbeat=heartbeat, stall=stall, reading=here.reading(of))


def _start(after: int | None, last_event_id: str) -> int:
    """Where to begin: the later of the two, since a browser that comes back repeats its query and adds the header.

    Raises `InvalidInput` for a header that is no id.
    """
    if last_event_id and not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17):
        raise errors.InvalidInput("Last-Event-ID: this is no id of this stream")
    return max(-1 if after is None else after, int(last_event_id or -1))
