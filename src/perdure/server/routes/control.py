"""Stopping, going on, waiting, summarising."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from perdure import ids
from perdure.engine import perdure as embedded
from perdure.server import problems, requests, wire
from perdure.server.serving import TAKES_NOTHING, Here, Serving, Target
from perdure.session import status as statuses
from perdure.session.status import Status

router = APIRouter(
    prefix="/v1/sessions/{session_id}",
    tags=["control"],
    responses=problems.declared(400, 401, 403, 404, 410, 413, 422, 503),
)


@router.post("/interrupt", response_model=wire.Interrupted)
async def interrupt(here: Here, session: Target, body: requests.Interrupt | None = None) -> Response:
    """Stop the open turn for good; once this is answered nothing continues it. Waiting inputs stay."""
    asked = body or requests.Interrupt()
    stopped = await here.perdure.engine.interrupt(session.id, asked.reason, asked.execution_id)
    return wire.json(wire.Interrupted(stopped))


@router.post("/resume", response_model=Status, dependencies=TAKES_NOTHING)
async def resume(session: Target) -> Response:
    """Run whatever waits, a recovery that awaits a decision included."""
    await session.resume()
    return wire.json(await session.status())


@router.post("/wait", response_model=wire.Waited)
async def wait(here: Here, session: Target, body: requests.Wait | None = None) -> Response:
    """Wait for a prompt to settle, or without one until nothing is owed; `done` says whether that came."""
    asked = body or requests.Wait()
    if asked.message_id is not None:
        await session.receipt(ids.check_shape("Prompt id", asked.message_id))
    await _wait(here, session, asked)
    receipt = None if asked.message_id is None else await session.receipt(asked.message_id)
    rests = await here.perdure.engine.store.read(lambda tx: statuses.at_rest(tx, session.id))
    done = rests if receipt is None else receipt.state == "settled"
    return wire.json(wire.Waited(done, await session.status(), receipt))


@router.post(
    "/compact",
    status_code=202,
    response_model=wire.Compacting,
    responses=problems.declared(409),
    dependencies=TAKES_NOTHING,
)
async def compact(session: Target) -> Response:
    """Summarise the older part of the conversation. The answer comes once the start is durable; a busy session is a 409."""
    return wire.json(wire.Compacting(await session.compact()), 202)


async def _wait(here: Serving, session: embedded.Session, asked: requests.Wait) -> None:
    """Until it is so, the time is over, or the server goes."""
    waiting = asyncio.ensure_future(session.wait(asked.message_id, timeout=asked.timeout))
    closing = asyncio.ensure_future(here.closing.wait())
    try:
        await asyncio.wait((waiting, closing), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        waiting.cancel()
        closing.cancel()
        await asyncio.gather(waiting, closing, return_exceptions=True)
