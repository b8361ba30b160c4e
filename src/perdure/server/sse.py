"""One open stream: frames to a socket until the reader leaves, stalls, or the server goes.

Lives here: the ASGI response, heartbeats, the bound on a reader that does not read (API-1). Not here: what is sent
(`joining.py`). Where the server lends us the connection (`run.py`), chunks go straight to it: most of what a delta costs
for each of its readers is the way through the framework, and on that way nothing is left to do once a response has begun.
Flow control makes a write wait while the socket takes nothing; one that waits longer than the bound drops the reader, and
a lent connection is aborted, so that neither side's unsent bytes are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractContextManager, aclosing
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure import errors
from perdure.server import frames, problems

LINE = "perdure.line"
"""The key under `extensions` of a scope where a server puts its `Line`."""

FAREWELL = 0.25
"""How long (seconds) the last bytes of a stream may wait for a reader."""

_logger = logging.getLogger("perdure.server")


class Line(Protocol):
    """A connection that is lent for the body of a response, once its head was sent."""

    @property
    def full(self) -> bool:
        """Whether a write has to wait."""
        ...

    async def drain(self) -> None:
        """Wait until it is not full, or gone."""
        ...

    def write(self, chunk: bytes) -> None:
        """Send a piece of the body, without a wait; nothing where the connection is gone."""
        ...

    def abort(self) -> None:
        """End the connection and forget what was not sent."""
        ...


class _Out:
    """Where a stream's bytes go; a wait for the reader is bounded, and raises `TimeoutError`."""

    def __init__(self, send: Send, line: Line | None, stall: float) -> None:
        """Use `line` where there is one, else `send`."""
        self._send, self.line, self.stall = send, line, stall
        self.written = 0

    async def write(self, chunk: bytes) -> None:
        """Send a piece of the body."""
        self.written += 1
        if self.line is None:
            async with asyncio.timeout(self.stall):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            return
        if self.line.full:
            async with asyncio.timeout(self.stall):
                await self.line.drain()
        self.line.write(chunk)

    async def end(self) -> None:
        """Send the end of the body."""
        async with asyncio.timeout(self.stall):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class EventStream(Response):
    """`text/event-stream` of the frames a generator gives."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        closing: asyncio.Event,
        *,
        heartbeat: float,
        stall: float,
        reading: AbstractContextManager[None],
    ) -> None:
        """Send `chunks` until `closing`; a comment after `heartbeat` idle seconds; give up a send after `stall` seconds.
        `reading` is entered for as long as it lasts.
        """
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks, self._closing = chunks, closing
        self._heartbeat, self._stall = heartbeat, stall
        self._reading = reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until one of four things ends it."""
        with self._reading:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        out = _Out(send, scope.get("extensions", {}).get(LINE), self._stall)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _first_of(self._pump(out), self._beat(out), self._left(receive), self._closing.wait())
            out.stall = min(out.stall, FAREWELL)
            await out.end()
        except TimeoutError:
            _logger.warning("dropped a reader that stopped reading", extra={"path": scope["path"]})
            if out.line:
                out.line.abort()
                await self._left(receive)

    async def _pump(self, out: _Out) -> None:
        async with aclosing(self._chunks) as chunks:
            try:
                async for chunk in chunks:
                    await out.write(chunk)
            except errors.PerdureError as error:
                _logger.exception("a stream failed")
                await out.write(frames.note("problem", problems.document(error)))

    async def _beat(self, out: _Out) -> None:
        while True:
            written = out.written
            await asyncio.sleep(self._heartbeat)
            if written == out.written:
                await out.write(frames.HEARTBEAT)

    @staticmethod
    async def _left(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Run all until one is over, then end the others; raises what that one raised."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
