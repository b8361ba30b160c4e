"""Calls that wait for a person."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from perdure.server import problems, requests, wire
from perdure.server.serving import Here, Target
from perdure.session import approvals

router = APIRouter(prefix="/v1", tags=["approvals"], responses=problems.declared(401, 403, 503))


@router.get("/approvals", response_model=wire.ApprovalsView)
async def list_approvals(here: Here) -> Response:
    """Every call that waits for a decision, of all sessions, the oldest first."""
    return wire.json(wire.approvals(await here.perdure.engine.store.read(approvals.listed)))


@router.post(
    "/sessions/{session_id}/approvals/{call_id:path}",  # noqa: FAST003, `Target` takes it
    response_model=wire.ApprovalView,
    responses=problems.declared(400, 404, 409, 410, 413, 422),
)
async def decide_approval(
    here: Here, session: Target, call_id: Annotated[str, Path(max_length=1000)], body: requests.Decide
) -> Response:
    """Decide about a call. The first decision wins: the same again changes nothing, another is a 409.

    A model may use a call id again in another message: without `message_id` the decision is about the call that waits.
    """
    row = await session.decide(call_id, body.decision, note=body.note, message_id=body.message_id)
    return wire.json(wire.approval(await here.perdure.engine.store.read(lambda tx: approvals.asked(tx, row))))
