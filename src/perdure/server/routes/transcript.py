"""The transcript, the requests it took, and what the session is doing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.core.answers import AttemptPage
from perdure.server import cursors, problems, schema, wire
from perdure.server.serving import Target
from perdure.session.status import Status

router = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["transcript"], responses=problems.declared(401, 403, 404, 410, 422, 503)
)


@router.get("/messages", response_model=schema.MessagePage)
async def read_messages(
    session: Target,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int, Query(ge=-1, le=2**53)] = -1,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    cursor: str | None = None,
) -> Response:
    """The transcript in order, assistants with their parts: after a seq, or where the page before ended.

    With `before` it is the last of it before that seq, and there is no next: go back from the first seq of the page.
    """
    if before is not None:
        return wire.message_page(await session.messages(after=after, before=before, limit=limit), None)
    if cursor is not None:
        after = cursors.number(*cursors.read("messages", cursor, 1))
    found = await session.messages(after=after, limit=limit + 1)
    following = cursors.write("messages", found[limit - 1].seq) if len(found) > limit else None
    return wire.message_page(found[:limit], following)


@router.get("/attempts", response_model=AttemptPage)
async def read_attempts(
    session: Target,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int, Query(ge=-1, le=2**53)] = -1,
) -> Response:
    """Every request to a provider and what it used, in order; `next` is the `after` of the next page, which begins with
    another message, so that a page may hold some more than `limit`.
    """
    return wire.json(await session.attempts(after=after, limit=limit))


@router.get("/status", response_model=Status)
async def read_status(session: Target) -> Response:
    """What the session is doing and what it waits for."""
    return wire.json(await session.status())
