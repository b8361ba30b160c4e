"""The gate in front of the routes: what a request must be before anything looks at it (SEC-1, SEC-2).

Lives here: the order of the checks (host, token, size, JSON) and the last resort for what nobody caught. Not here: what
a body means. A body is read whole and bounded; JSON is checked once more strictly than the framework's parser does: one
UTF-8 text, no NaN, no lone surrogate, no number that overflows, no deep nesting, so that whatever passes is kept alike
by every store.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure import errors
from perdure.server import auth, problems

DEPTH = 64
BUSY = 256 * 1024
"""From this size on a body is checked in a thread."""

HEALTH, LOGIN = "/health", "/v1/login"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class Gate:
    """An ASGI middleware around every route."""

    def __init__(self, app: ASGIApp, guard: auth.Guard, max_body: int) -> None:
        """Let pass what `guard` lets pass, with bodies up to `max_body` bytes."""
        self._app, self._guard, self._max_body = app, guard, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, pass on, and answer for whatever comes out."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            replay = await self._admit(scope, receive)
            await self._app(scope, replay, watched)
        except errors.PerdureError as error:
            await self._answer(problems.response(error), scope, receive, send, started=started)
        except Exception as error:  # noqa: BLE001, the last resort: logged there, and the client learns nothing of it
            await self._answer(problems.unexpected(error), scope, receive, send, started=started)

    @staticmethod
    async def _answer(response: Response, scope: Scope, receive: Receive, send: Send, *, started: bool) -> None:
        if not started:
            # The server reads and forgets the rest of a refused body, so that the client gets to read the answer.
            await response(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._guard.check_host(headers)
        if scope["path"] == LOGIN:
            self._guard.check_page(headers)
        elif scope["path"] != HEALTH:
            self._guard.check_caller(scope["method"], headers)
        return _replayed(await self._body(headers, receive), receive)

    async def _body(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
        """The whole body. Raises `TooLarge`, `MalformedJson`."""
        given = dict(headers)
        length = given.get(b"content-length", b"")
        if b"transfer-encoding" not in given and length in {b"", b"0"}:
            return b""
        if length.isdigit() and int(length[:20]) > self._max_body:
            raise self._too_large()
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_body:
                raise self._too_large()
        whole = bytes(body)
        await (asyncio.to_thread(check_json, whole) if len(whole) > BUSY else _at_once(whole))
        return whole

    def _too_large(self) -> errors.TooLarge:
        return errors.TooLarge(f"The body is larger than {self._max_body} bytes")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once, then what the connection gives."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _at_once(body: bytes) -> None:
    check_json(body)


def check_json(body: bytes) -> Any:
    """Raise `MalformedJson` for what is not JSON, or is JSON that some store or client would not keep as it is."""
    if not body:
        return
    if body.count(b"[") + body.count(b"{") > DEPTH:
        _check_depth(body)
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise errors.MalformedJson(f"The body is not valid JSON: {error}") from None


def _check_depth(body: bytes) -> None:
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", body)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH:
            raise errors.MalformedJson(f"The body is nested deeper than {DEPTH} levels")
