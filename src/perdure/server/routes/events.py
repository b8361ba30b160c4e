"""A session's log, by the page or as a stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from perdure import errors
from perdure.server import joining, problems, wire
from perdure.server.serving import Here, Target
from perdure.server.sse import EventStream

router = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["events"], responses=problems.declared(401, 403, 404, 410, 422, 503)
)
STREAM = {200: {"content": {EventStream.media_type: {"schema": {"type": "string"}}}}}


@router.get("/events", response_model=wire.EventPage, responses={**STREAM})
async def read_events(
    *,
    here: Here,
    session: Target,
    after: Annotated[int | None, Query(ge=-1, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    follow: bool = True,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Facts after a seq: a page, or where `text/event-stream` is accepted a stream that goes on.

    The stream starts after `after`, else after `Last-Event-ID`, else at the beginning: `hello`, history, `synced`, then
    everything as it comes, live text without an id included. `follow=false` ends it at `synced`. `limit` is the page's.
    """
    log, start = here.perdure.engine.log, _start(after, last_event_id)
    if EventStream.media_type not in accept:
        return wire.event_page(await log.read(session.id, start, limit), await log.last_seq(session.id))
    last = await log.last_seq(session.id)
    if start > last:
        raise errors.CursorBeyondEnd(start, last)
    chosen, chunks = here.settings, joining.reader(here, session.id, start, follow=follow)
    return EventStream(chunks, here.closing, heartbeat=chosen.heartbeat_seconds, stall=chosen.stall_seconds)


def _start(after: int | None, last_event_id: str) -> int:
    """The query wins over the header. Raises `InvalidInput` for a header that is no seq."""
    if after is not None or not last_event_id:
        return -1 if after is None else after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17):
        raise errors.InvalidInput("Last-Event-ID: this is not a seq")
    return int(last_event_id)
