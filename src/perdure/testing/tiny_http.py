"""HTTP/1.1 on asyncio streams, small enough to misbehave on purpose.

Lives here: reading a request, writing a response whole or in chunks, breaking a connection off, and noticing that the
client went. Not here: routes, and anything a production server needs. A real server would not let a test cut the
connection in the middle of a chunk or stay silent before the status line; that is all this is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import msgspec

MAX_HEAD_BYTES = 64 * 1024


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, its body read; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """One request and the response to it."""

    def __init__(self, request: HttpRequest, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.began = self.broken = False
        self._writer = writer

    @property
    def peer(self) -> tuple[str, int]:
        """The client's end of the connection."""
        return self._writer.get_extra_info("peername")

    async def respond(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer at once and whole."""
        self.began = True
        told = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
        await self._send(_head(status, told) + body)

    async def json(self, value: Any, status: int = 200) -> None:
        """Answer with a JSON document."""
        await self.respond(status, msgspec.json.encode(value))

    async def begin(self) -> None:
        """Send the head of an event stream."""
        self.began = True
        await self._send(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))

    async def write(self, data: bytes) -> None:
        """Send a piece of the stream's body."""
        if data:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """End the stream's body."""
        await self._send(b"0\r\n\r\n")

    def cut(self, *, reset: bool) -> None:
        """Break the connection off, as a crash (close) or a cable (reset) would."""
        self.broken = True
        connection = self._writer.get_extra_info("socket")
        if reset and connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if reset:
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise ClientGone from None


Handler = Callable[[Exchange], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve(handler: Handler, port: int = 0) -> AsyncGenerator[int]:
    """Serve on 127.0.0.1 and give the port. A handler is cancelled when its client goes, and all are at the end."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_connection(handler, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=MAX_HEAD_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def _connection(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    first = b""
    try:
        while (request := await _read(reader, first)) is not None:
            exchange = Exchange(request, writer)
            first = await _watched(handler(exchange), reader)
            if exchange.broken:
                break
    except (ClientGone, ConnectionError, asyncio.IncompleteReadError):
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _watched(handling: Awaitable[None], reader: asyncio.StreamReader) -> bytes:
    """Handle while watching the client; give the first byte of its next request, if that came already."""
    handler, watcher = asyncio.ensure_future(handling), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait((handler, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not handler.done() and not _byte(watcher):
            raise ClientGone
        await handler
        return _byte(watcher) if watcher.done() else b""
    finally:
        handler.cancel()
        watcher.cancel()
        await asyncio.gather(handler, watcher, return_exceptions=True)


def _byte(watcher: asyncio.Future[bytes]) -> bytes:
    return b"" if watcher.exception() else watcher.result()


async def _read(reader: asyncio.StreamReader, first: bytes) -> HttpRequest | None:
    try:
        head = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *fields = head.decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields if field)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return HttpRequest(method, path, headers, body)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unnamed"
    fields = {"date": formatdate(usegmt=True), **headers}
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
