"""Prompts: send, look after, cancel, deliver otherwise, run again."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.server import problems, requests, wire
from perdure.server.serving import TAKES_NOTHING, PromptId, Target
from perdure.session.admission import Receipt

router = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["prompts"], responses=problems.declared(401, 403, 404, 410, 422, 503)
)


@router.post("/prompts", status_code=202, response_model=Receipt, responses=problems.declared(400, 409, 413))
async def send_prompt(session: Target, body: requests.SendPrompt) -> Response:
    """Admit a prompt: durable before the answer, and safe to send again under the same id."""
    receipt = await session.prompt(body.prompt(), id=body.id, delivery=body.delivery, resume=body.resume)
    return wire.json(receipt, 202)


@router.get("/prompts/{message_id}", response_model=Receipt)
async def read_receipt(session: Target, message_id: PromptId) -> Response:
    """What became of a prompt."""
    return wire.json(await session.receipt(message_id))


@router.delete(
    "/prompts/{message_id}",
    response_model=Receipt,
    responses=problems.declared(409),
    dependencies=TAKES_NOTHING,
)
async def cancel_prompt(session: Target, message_id: PromptId) -> Response:
    """Withdraw a prompt that still waits."""
    return wire.json(await session.cancel(message_id))


@router.patch("/prompts/{message_id}", response_model=Receipt, responses=problems.declared(400, 409, 413))
async def change_prompt(session: Target, message_id: PromptId, body: requests.ChangePrompt) -> Response:
    """Deliver a waiting prompt otherwise."""
    return wire.json(await session.change_delivery(message_id, body.delivery))


@router.post(
    "/prompts/{message_id}/retry",
    status_code=202,
    response_model=Receipt,
    responses=problems.declared(409),
    dependencies=TAKES_NOTHING,
)
async def retry_prompt(session: Target, message_id: PromptId) -> Response:
    """Run a failed or interrupted prompt again."""
    return wire.json(await session.retry(message_id), 202)


@router.get("/inbox", response_model=wire.InboxView)
async def read_inbox(session: Target) -> Response:
    """Inputs that wait, in admission order."""
    return wire.json(wire.inbox(await session.inbox()))
