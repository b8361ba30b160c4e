"""Logging a page in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from perdure.server import problems, requests
from perdure.server.serving import TAKES_NOTHING, Here

router = APIRouter(prefix="/v1", tags=["login"], responses=problems.declared(401, 403))


@router.post("/login", status_code=204, responses=problems.declared(400, 413, 422))
async def log_in(here: Here, request: Request, body: requests.LogIn) -> Response:
    """Take the token for a cookie that a page can use instead, event streams included. No script can read it."""
    here.guard.check(body.token.get_secret_value().encode())
    cookie = here.guard.cookies.write(secure=request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.post("/logout", status_code=204, responses=problems.declared(422), dependencies=TAKES_NOTHING)
async def log_out(here: Here, request: Request) -> Response:
    """Have the browser forget the cookie."""
    cookie = here.guard.cookies.unwrite(secure=request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})
