"""The tools of an MCP server, over stdio or streamable HTTP.

Lives here: `mcp(…)`, a toolset that holds one connection, names the server's tools and calls them. Not here: the protocol
(the `mcp` client library, an extra: this module is its door, and nothing else imports it). A call is never sent twice:
where the connection breaks under it the model is told that it may have happened, and the next call connects again. The
hints of a server decide the effects of its tools, as far as you trust it; `effects` overrules them.

A connection is held by a task of its own, since the library's scopes must be left by the task that entered them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

from perdure import agent, errors
from perdure.core.messages import Effect, JsonObject
from perdure.tools import processes

try:
    import anyio
    import httpx2
    import mcp_types as wire
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
except ImportError as missing:
    raise errors.ConfigError("MCP servers need the extra: install perdure[mcp]") from missing

HTTP = httpx2.Timeout(30.0, read=300.0)  # a server may keep an answer open for long
START_S = 60.0
STOP_S, LAST_S = 10.0, 1.0
"""How long (seconds) a server may take to end, and its connection once the server was killed."""
IDEMPOTENCY_KEY = "perdure/idempotency-key"


def mcp(
    server: str | Sequence[str],
    *,
    name: str | None = None,
    prefix: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = 300.0,
    effects: Mapping[str, Effect] | None = None,
) -> McpServer:
    """An MCP server as a toolset: a command line such as `"uvx mcp-server-time"`, or an http(s) URL.

    `env` and `cwd` are for a command, which otherwise sees only PATH, HOME and the like; `headers` are for a URL. `prefix`
    stands before the name of every tool, `timeout_s` bounds one call, `effects` says by the server's own tool names what
    its hints do not. Raises `ConfigError` for an empty command.
    """
    url = server if isinstance(server, str) and server.startswith(("http://", "https://")) else None
    command = [] if url else (shlex.split(server) if isinstance(server, str) else list(server))
    if not (url or command):
        raise errors.ConfigError("An MCP server is a command or an http(s) URL; this one is empty")
    called = name or (urlsplit(url).hostname if url else Path(command[0]).name) or "mcp"
    place = _Place(url, command, dict(env or {}), cwd, dict(headers or {}))
    return McpServer(called, place, prefix, timeout_s, dict(effects or {}))


class McpServer:
    """A toolset whose tools are a server's."""

    def __init__(
        self, name: str, place: _Place, prefix: str, timeout_s: float | None, effects: dict[str, Effect]
    ) -> None:
        """Use `mcp`."""
        self.name = name
        self._place, self._prefix, self._timeout_s, self._effects = place, prefix, timeout_s, effects
        self._connecting = asyncio.Lock()
        self._connection: _Connection | None = None

    async def start(self, owner_id: str) -> list[agent.Tool]:
        """Connect and list the tools. Raises `ConfigError` where that fails: better no engine than one without tools."""
        self._place.owner_id, self._connecting = owner_id, asyncio.Lock()
        try:
            async with asyncio.timeout(START_S):
                client = await self._connected()
                found: list[wire.Tool] = []
                page = await client.list_tools()
                found += page.tools
                while page.next_cursor:
                    page = await client.list_tools(cursor=page.next_cursor)
                    found += page.tools
        except Exception as error:
            await self.stop()
            raise errors.ConfigError(f"MCP server {self.name!r} did not start: {_why(error)}") from error
        except asyncio.CancelledError:
            await self.stop()
            raise
        if unknown := self._effects.keys() - {one.name for one in found}:
            await self.stop()
            raise errors.ConfigError(f"MCP server {self.name!r} has no tool {', '.join(sorted(unknown))}")
        return [self._tool(one) for one in found]

    async def stop(self) -> None:
        """Disconnect; a server that is a process of ours ends."""
        if self._connection:
            await self._connection.close()
            self._connection = None

    def _tool(self, found: wire.Tool) -> agent.Tool:
        async def call(arguments: JsonObject, context: agent.ToolContext) -> agent.ToolResult:
            return await self._call(found.name, arguments, context)

        name = re.sub(r"[^A-Za-z0-9_-]", "_", self._prefix + found.name)[:64]
        words = found.description or found.title or found.name
        effect = self._effects.get(found.name) or _effect(found.annotations)
        return agent.Tool(call, name, words, effect, self._timeout_s, found.input_schema)

    async def _call(self, name: str, arguments: JsonObject, context: agent.ToolContext) -> agent.ToolResult:
        """Call a tool of the server, once."""
        try:
            async with asyncio.timeout(START_S):
                client = await self._connected()
        except Exception as error:
            raise agent.ToolError(
                f"MCP server {self.name} cannot be reached, so the call was not made: {_why(error)}"
            ) from error
        connection = self._connection

        async def show(progress: float, total: float | None, message: str | None) -> None:
            with contextlib.suppress(agent.CallSettled):
                context.progress(structured={"progress": progress, "total": total}, content=message or "")

        meta: Any = {IDEMPOTENCY_KEY: context.idempotency_key}
        try:
            result = await client.call_tool(name, arguments, progress_callback=show, meta=meta)
        except Exception as error:
            if isinstance(error, MCPError) and error.code == wire.INVALID_PARAMS:
                raise agent.ToolError(f"MCP server {self.name} refused the call: {error.message}") from error
            if connection and self._place.url:  # a process is known to live or not; of a URL only the next try tells
                connection.give_up()
            raise agent.ToolError(
                f"MCP server {self.name} gave no result, and the call may have happened: {_why(error)}"
            ) from error
        return _result(result)

    async def _connected(self) -> Client:
        """The client of a connection that works as far as is known."""
        async with self._connecting:
            if self._connection and not self._connection.over:
                return await asyncio.shield(self._connection.opened)
            if self._connection:
                await self._connection.close()
            self._connection = _Connection(self._place)
            return await asyncio.shield(self._connection.opened)


class _Place:
    """Where a server is, and how a connection to it is opened."""

    def __init__(
        self,
        url: str | None,
        command: list[str],
        env: dict[str, str],
        cwd: str | Path | None,
        headers: dict[str, str],
    ) -> None:
        self.url, self.command, self.env, self.cwd, self.headers = url, command, env, cwd, headers
        self.owner_id = self._mark = ""

    def kill(self) -> bool:
        """End a server that is a process of ours, and what it started; whether it is one."""
        if self._mark:
            processes.end_all(self._mark.__eq__)
        return bool(self._mark)

    @contextlib.asynccontextmanager
    async def transport(self, ended: asyncio.Event) -> AsyncGenerator[tuple[Any, Any], None]:
        """The two streams; `ended` is set when the server's side ends. What a command leaves behind is ended too."""
        async with contextlib.AsyncExitStack() as stack:
            if self.url:
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=self.headers, timeout=HTTP))
                inner: Any = streamable_http_client(self.url, http_client=http)
            else:
                self._mark = mark = processes.mark(self.owner_id)
                stack.callback(processes.end_all, mark.__eq__)
                env = {**self.env, processes.MARK: mark}
                inner = stdio_client(
                    StdioServerParameters(command=self.command[0], args=self.command[1:], env=env, cwd=self.cwd)
                )
            reading, writing = await stack.enter_async_context(inner)
            yield _Watched(reading, ended), writing


class _Connection:
    """One connection, from its opening to its end, in a task of its own."""

    def __init__(self, place: _Place) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ended, self._place = asyncio.Event(), place
        self._task = asyncio.create_task(self._hold(place))

    @property
    def over(self) -> bool:
        """Whether a call had better use another."""
        return self._ended.is_set() or self._task.done()

    def give_up(self) -> None:
        """It failed a call: have the next one use another."""
        self._ended.set()

    async def close(self) -> None:
        """End it, and a process that serves it; one that does not end in time, ours or that of who waits here, is killed."""
        self._ended.set()
        if not self.opened.done():
            self._task.cancel()
        try:
            await asyncio.wait({self._task}, timeout=STOP_S)
        finally:
            if not self._task.done():
                self._force()
        await asyncio.wait({self._task}, timeout=LAST_S)
        self._task.cancel()

    def _force(self) -> None:
        """What waits for a process of ours goes on once that is dead, and cleans up behind it; cancelled, it would not."""
        if not self._place.kill():
            self._task.cancel()

    async def _hold(self, place: _Place) -> None:
        try:
            async with Client(place.transport(self._ended)) as client:
                self.opened.set_result(client)
                await self._ended.wait()
        except BaseException as error:
            if not self.opened.done():
                failure = ConnectionError(_why(error)) if isinstance(error, asyncio.CancelledError) else error
                self.opened.set_exception(failure)
                self.opened.exception()  # whoever waits for it hears of it, and if nobody does that is no fault
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended.set()


class _Watched:
    """The library's stream of what the server says, telling when it has ended."""

    def __init__(self, inner: Any, ended: asyncio.Event) -> None:
        self._inner, self._ended = inner, ended

    async def receive(self) -> Any:
        """The next message."""
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# -- what the server says ----------------------------------------------------------------------------------------------------


def _effect(hints: wire.ToolAnnotations | None) -> Effect:
    if hints and hints.read_only_hint:
        return "read"
    return "idempotent" if hints and hints.idempotent_hint else "write"


def _result(given: wire.CallToolResult) -> agent.ToolResult:
    structured = given.structured_content
    if structured is not None:
        structured = cast("JsonObject", structured) if isinstance(structured, dict) else {"value": structured}
    return agent.ToolResult([_part(block) for block in given.content], structured, failed=given.is_error)


def _part(block: wire.ContentBlock) -> JsonObject:
    """One block of content as a part of ours."""
    match block:
        case wire.TextContent():
            return {"type": "text", "text": block.text}
        case wire.ImageContent():
            return _media("image", block.mime_type, block.data)
        case wire.AudioContent():
            return _media("file", block.mime_type, block.data)
        case wire.ResourceLink():
            return {"type": "text", "text": f"[{block.name}: {block.uri}]"}
        case wire.EmbeddedResource():
            held = block.resource
            if isinstance(held, wire.TextResourceContents):
                return {"type": "text", "text": f"[{held.uri}]\n{held.text}"}
            return _media("file", held.mime_type, held.blob)


def _media(kind: str, mime: str | None, encoded: str) -> JsonObject:
    try:
        return {"type": kind, "mime": mime, "data": base64.b64decode(encoded)}
    except (binascii.Error, ValueError):
        return {"type": "text", "text": f"[{kind}, {mime}, that is no base64]"}


def _why(error: BaseException) -> str:
    """The error in one line; of a group its first."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
