"""Whether the server answers: the one route that asks for no token."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.server import problems, wire
from perdure.server.serving import Here
from perdure.version import VERSION

router = APIRouter(tags=["health"])


@router.get("/health", response_model=wire.Health, responses=problems.declared(403))
async def health(here: Here) -> Response:
    """The server answers. `epoch` is random per process: another one means that it was started anew."""
    return wire.json(wire.Health("ok", VERSION, here.perdure.engine.epoch))
