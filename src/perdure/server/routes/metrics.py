"""The server in numbers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.server import metrics, problems
from perdure.server.serving import Here

router = APIRouter(tags=["health"], responses=problems.declared(401, 403, 503))
TEXT = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses={**TEXT})
async def read_metrics(here: Here) -> Response:
    """The server's and the store's numbers in the Prometheus text format."""
    engine = here.perdure.engine
    found = metrics.exposition(engine, here.counts, here.readers, await metrics.stored(engine))
    return Response(found, media_type=metrics.MEDIA_TYPE)
