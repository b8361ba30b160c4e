"""Running an app on a socket of our own until a signal comes.

Lives here: what our server does otherwise than uvicorn: open streams end first, so that nothing but the grace of running
steps delays an exit, and a request that is still at work when the time is over is told so; the connection is lent to
streams (`sse.py`); a signal is not raised again, since the engine has yet to stop. Not here: which app, where its socket
comes from (`cli/serve.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import sys
from collections.abc import Callable, Generator
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.server import problems, sse
from perdure.server.serving import Serving

_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def run(
    app: FastAPI, listening: socket.socket, *, ready: Callable[[], None], access_log: bool = False
) -> signal.Signals | None:
    """Start the app's engine, serve `listening` until a signal, stop; `ready` is called once requests are answered.

    Returns the signal. Raises what starting the engine raises, and then nothing was served.
    """
    serving = server(app, ready, access_log=access_log)
    async with app.router.lifespan_context(app):
        await serving.serve([listening])
    return serving.stopped_by


def server(app: FastAPI, ready: Callable[[], None], *, access_log: bool = False) -> PatientServer:
    """A server of the app, whose engine is started and stopped elsewhere."""
    settings = uvicorn.Config(
        app,
        http=LendingProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return PatientServer(settings, app.state.serving, ready)


class PatientServer(uvicorn.Server):
    """Serves until a signal comes or `should_exit` is set."""

    def __init__(self, settings: uvicorn.Config, serving: Serving, ready: Callable[[], None]) -> None:
        """Tell `ready` when the socket is served, and `serving` when it no longer will be."""
        super().__init__(settings)
        self._serving, self._ready = serving, ready
        self.stopped_by: signal.Signals | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so. Connections inherit how long the system waits for a peer that vanished without a word: bytes it
        never took, a heartbeat's too, end the connection after the bound on readers that stall.
        """
        for one in sockets or ():
            if _USER_TIMEOUT is not None and one.family in {socket.AF_INET, socket.AF_INET6}:
                stall_ms = int(self._serving.settings.stall_seconds * 1000)
                one.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, stall_ms)
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and waits, then everything else."""
        self._serving.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on the first signal; the next one does what it does to any process."""
        loop = asyncio.get_running_loop()
        for one in SIGNALS:
            loop.add_signal_handler(one, self._stop, one)
        try:
            yield
        finally:
            self._forget_signals()

    def _stop(self, received: signal.Signals) -> None:
        self._forget_signals()
        self._serving.close()
        self.stopped_by, self.should_exit = received, True

    @staticmethod
    def _forget_signals() -> None:
        for one in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(one)


class LendingProtocol(H11Protocol):
    """HTTP/1.1 that lends its connection to requests, and answers those that a stop cuts off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the connection into every scope whose response has a body in chunks."""
        super().connection_made(transport)
        inner: Any = self.app
        line = ConnectionLine(transport, self.flow)

        async def lending(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["http_version"] == "1.1":
                scope.setdefault("extensions", {})[sse.LINE] = line
            try:
                await inner(scope, receive, send)
            except asyncio.CancelledError:  # which nobody does but a stop whose time is over
                if not self.cycle.response_started:
                    await problems.stopping()(scope, receive, send)

        self.app = cast("Any", lending)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with a problem document too, and hang up; in the middle of an answer only hang up."""
        refused = sys.exception()
        status = refused.error_status_hint if isinstance(refused, h11.RemoteProtocolError) else HTTPStatus.BAD_REQUEST
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = problems.unreadable(status, str(refused or msg))
            headers = [*answer.raw_headers, (b"connection", b"close")]
            head = h11.Response(status_code=answer.status_code, headers=headers, reason=_phrase(answer.status_code))
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


class ConnectionLine:
    """A connection's own socket, for one response in chunks after another (`sse.Line`)."""

    __slots__ = ("_flow", "_transport")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        """Write to `transport` as far as `flow` lets."""
        self._transport, self._flow = transport, flow

    @property
    def full(self) -> bool:
        """Whether too much waits for the socket."""
        return self._flow.write_paused

    async def drain(self) -> None:
        """Wait until the socket took it, or is gone."""
        await self._flow.drain()

    def write(self, chunk: bytes) -> None:
        """Send one chunk as HTTP/1.1 has it. An empty one would end the body."""
        if chunk and not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def abort(self) -> None:
        """Reset the connection, so that not even the system keeps what was not read."""
        accepted: socket.socket = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it is gone already
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
