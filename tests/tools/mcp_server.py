"""A small MCP server for the tests: every kind of effect, content and failure.

`mcp_server.py LEDGER` speaks stdio; `mcp_server.py LEDGER PORT` serves streamable HTTP and prints the port it has;
`mcp_server.py LEDGER deaf` speaks stdio and ends at no word, but when it is killed. Each call of a tool that changes
something leaves a line in the ledger: what happened, as the world outside sees it.
"""

import base64
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

LEDGER = Path(sys.argv[1])
server = MCPServer("test server", log_level="ERROR")


def note(words: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{words}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(what: str) -> str:
    """Look at something."""
    return f"{what} as seen by {os.getpid()}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def put(value: int, context: Context) -> dict[str, int]:
    """Put a value."""
    note(f"put {value}")
    await context.report_progress(1, 2, "half-way")
    return {"value": value}


@server.tool(name="pay.now")
def pay(cents: int, context: Context) -> str:
    """Pay."""
    meta = context.request_context.meta or {}
    note(f"pay {cents} {dict(meta).get('perdure/idempotency-key')}")
    return "paid"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("out of paper")


@server.tool()
def draw() -> CallToolResult:
    """Draw a picture."""
    picture = base64.b64encode(b"png").decode()
    return CallToolResult(
        content=[TextContent(text="a dot"), ImageContent(data=picture, mime_type="image/png")],
        structured_content={"dots": 1},
    )


@server.tool()
def die() -> str:
    """Do something and die."""
    note("die")
    os._exit(1)


@server.tool()
async def hang(fifo: str) -> str:
    """Run for ever; the FIFO is told at the beginning and at the end."""

    def tell() -> None:
        with Path(fifo).open("w") as telling:
            telling.write(f"{os.getpid()}\n")

    tell()
    try:
        await anyio.sleep_forever()
    finally:
        tell()
    return ""


def serve(port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    print(listening.getsockname()[1], flush=True)  # noqa: T201, whoever started this reads it
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listening]))


if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.run("stdio")
    threading.Event().wait()
elif len(sys.argv) > 2:
    serve(int(sys.argv[2]))
else:
    server.run("stdio")
