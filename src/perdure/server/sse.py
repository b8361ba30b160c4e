"""One open stream: frames to a socket until the reader leaves, stalls, or the server goes.

Lives here: the ASGI response, heartbeats, the bound on a reader that does not read (API-1). Not here: what is sent
(`joining.py`). The server's flow control makes a send wait while the socket takes nothing; a send that waits longer
than the bound drops the reader, and where the server lends us its transport (`run.py`) the connection is aborted, so
that neither side's unsent bytes are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perdure import errors
from perdure.server import frames, problems

ABORT = "perdure.abort"
"""The key under `extensions` of a scope where a server puts what aborts the connection."""

FAREWELL = 0.25
"""How long (seconds) the last bytes of a stream may wait for a reader."""

_logger = logging.getLogger("perdure.server")


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
        self._reading, self._sent = reading, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until one of four things ends it."""
        with self._reading:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        bounded = self._bounded(send)
        try:
            await bounded({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _first_of(self._pump(bounded), self._beat(bounded), self._left(receive), self._closing.wait())
            self._stall = min(self._stall, FAREWELL)
            await bounded({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            _logger.warning("dropped a reader that stopped reading", extra={"path": scope["path"]})
            abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
            if abort:
                abort()
                await self._left(receive)

    def _bounded(self, send: Send) -> Send:
        async def bounded(message: Message) -> None:
            async with asyncio.timeout(self._stall):
                await send(message)
            self._sent += 1

        return bounded

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            try:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except errors.PerdureError as error:
                _logger.exception("a stream failed")
                told = frames.note("problem", problems.document(error))
                await send({"type": "http.response.body", "body": told, "more_body": True})

    async def _beat(self, send: Send) -> None:
        while True:
            sent = self._sent
            await asyncio.sleep(self._heartbeat)
            if sent == self._sent:
                await send({"type": "http.response.body", "body": frames.HEARTBEAT, "more_body": True})

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
