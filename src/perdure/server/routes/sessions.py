"""Sessions: create, list, read, change, fork, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.engine import perdure as embedded
from perdure.server import cursors, problems, requests, wire
from perdure.server.serving import TAKES_NOTHING, Here, Serving, Target
from perdure.session import sessions, status

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=problems.declared(401, 403, 422, 503))


@router.post("", status_code=201, response_model=wire.SessionView, responses=problems.declared(400, 409, 410, 413))
async def create_session(here: Here, body: requests.CreateSession) -> Response:
    """Create a session, or find the one created before with the same id and settings."""
    made = await here.perdure.sessions.create(
        body.agent,
        id=body.id,
        title=body.title,
        metadata=body.metadata,
        model=body.model,
        policy=body.policy_fact(),
    )
    return wire.json(await _view(here, made), 201, {"Location": f"/v1/sessions/{made.id}"})


@router.get("", response_model=wire.SessionPage)
async def list_sessions(
    here: Here,
    status: status.State | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Response:
    """Sessions, newest first. With `status` a page may be short and still have a next; what cannot be decoded is blocked."""
    listed = await _listed(here, cursor, limit, status)
    following = None if listed.next is None else cursors.write("sessions", *listed.next)
    return wire.json(wire.session_page(listed, following))


@router.get("/{session_id}", response_model=wire.SessionView, responses=problems.declared(404, 410))  # noqa: FAST003, `Target` takes it
async def read_session(here: Here, session: Target) -> Response:
    """One session: its settings, its totals and what it is doing."""
    return wire.json(await _view(here, session))


@router.patch("/{session_id}", response_model=wire.SessionView, responses=problems.declared(400, 404, 410, 413))  # noqa: FAST003, as above
async def change_session(here: Here, session: Target, body: requests.ChangeSession) -> Response:
    """Change settings, agent and model, all at once. Another agent or model answers from the next step on."""
    await session.update(body.changes(), agent=body.agent, model=body.model)
    return wire.json(await _view(here, session))


@router.delete(
    "/{session_id}",  # noqa: FAST003, as above
    status_code=204,
    responses=problems.declared(404, 410),
    dependencies=TAKES_NOTHING,
)
async def delete_session(session: Target) -> Response:
    """Delete a session for good, also while it runs: that takes at most the grace period, and its id never comes back."""
    await session.delete()
    return Response(status_code=204)


@router.post(
    "/{session_id}/fork",  # noqa: FAST003, as above
    status_code=201,
    response_model=wire.SessionView,
    responses=problems.declared(400, 404, 409, 410, 413),
)
async def fork_session(here: Here, session: Target, body: requests.Fork | None = None) -> Response:
    """A new session with this one's facts up to a seq, ready for prompts; what was open there is closed in it."""
    asked = body or requests.Fork()
    made = await session.fork(id=asked.id, seq=asked.seq)
    return wire.json(await _view(here, made), 201, {"Location": f"/v1/sessions/{made.id}"})


async def _view(here: Serving, session: embedded.Session) -> wire.SessionView:
    engine = here.perdure.engine
    now, budget = engine.world.clock.now_ms(), engine.settings.recovery_budget
    row, doing = await engine.store.read(
        lambda tx: (sessions.get(tx, session.id), status.status_of(tx, session.id, now, budget=budget))
    )
    return wire.session(row, status.blocked_by(doing, engine.parts.blocked.get(session.id)))


async def _listed(here: Serving, cursor: str | None, limit: int, wanted: status.State | None) -> status.Listed:
    engine = here.perdure.engine
    before = (2**62, "")
    if cursor is not None:
        created, session_id = cursors.read("sessions", cursor, 2)
        before = (cursors.number(created), session_id)
    now, budget, blocked = engine.world.clock.now_ms(), engine.settings.recovery_budget, {**engine.parts.blocked}
    return await engine.store.read(
        lambda tx: status.page(tx, before, limit, now, wanted, budget=budget, blocked=blocked)
    )
