"""Turns whose owner died and whose continuation waits."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.server import problems, wire
from perdure.server.serving import Here

router = APIRouter(prefix="/v1/recoveries", tags=["recoveries"], responses=problems.declared(401, 403, 503))


@router.get("", response_model=wire.RecoveriesView)
async def list_recoveries(here: Here) -> Response:
    """Every recovery that waits, of all sessions."""
    return wire.json(wire.recoveries(await here.perdure.engine.store.read(lambda tx: tx.recoveries.list())))
