"""Turns whose owner died: those that wait, and what a person may do about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from perdure import ids
from perdure.server import problems, wire
from perdure.server.serving import IN_PATH, TAKES_NOTHING, Here

router = APIRouter(prefix="/v1/recoveries", tags=["recoveries"], responses=problems.declared(401, 403, 503))
REFUSALS = problems.declared(404, 409, 410, 422)


async def execution_id(execution_id: Annotated[str, Path(json_schema_extra=IN_PATH)]) -> str:
    """The execution the path names. Raises `InvalidId`."""
    return ids.check_shape("Execution id", execution_id)


Execution = Annotated[str, Depends(execution_id)]


@router.get("", response_model=wire.RecoveriesView)
async def list_recoveries(here: Here) -> Response:
    """Every turn that waits to go on, of all sessions, and every recovery that fails."""
    return wire.json(wire.RecoveriesView(tuple(await here.perdure.recoveries.list())))


@router.post("/{execution_id}/retry", status_code=204, responses=REFUSALS, dependencies=TAKES_NOTHING)
async def retry_recovery(here: Here, execution_id: Execution) -> Response:
    """Go on with a turn that waits for a decision, or try a recovery that failed again at once."""
    await here.perdure.recoveries.retry(execution_id)
    return Response(status_code=204)


@router.post("/{execution_id}/dismiss", status_code=204, responses=REFUSALS, dependencies=TAKES_NOTHING)
async def dismiss_recovery(here: Here, execution_id: Execution) -> Response:
    """End such a turn for good; its session takes new prompts."""
    await here.perdure.recoveries.dismiss(execution_id)
    return Response(status_code=204)
