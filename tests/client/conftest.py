"""A server in the loop of the test, one in a process that can be killed, and clients of either."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import Agent, Perdure, config, tool
from perdure.client import Client
from perdure.core import request as requests
from perdure.models import scripted
from perdure.server import app as server
from perdure.server import run
from perdure.testing import fake_provider

TOKEN = "a-token-of-the-tests"
PATIENCE = 30
SOURCE = Path(__file__).resolve().parents[2] / "src"
START = [sys.executable, "-c", "from perdure.cli.main import main; main()"]


@tool(approval="always")
async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


def answers(request):
    """What the model says, by the last message alone: it answers alike wherever it runs."""
    last = request.messages[-1]
    words = last.content[0].text if isinstance(last, requests.UserMessage) else ""
    if "refund" in words:
        return [scripted.Call("refund", {"order": 7}, "call_1")]
    if "hang" in words or "last attempt" in words:
        return [scripted.Text("Half"), scripted.Hang()]
    return [scripted.Reasoning("Hm."), scripted.Text("Fine.")]


def engine(path: Path) -> Perdure:
    agents = [Agent("default", scripted.ScriptedModel(answers), tools=[refund]), Agent("other", "openai:m")]
    return Perdure(agents, settings=config.settings(database_url=str(path), grace_seconds=0.2))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.asynccontextmanager
async def serving(perdure: Perdure, port: int = 0) -> AsyncIterator[str]:
    """The URL of a server in this loop."""
    app = server.create_app(perdure, token=TOKEN)
    ready = asyncio.Event()
    running = run.server(app, ready.set)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(64)
        listening.setblocking(False)
        async with app.router.lifespan_context(app):
            task = asyncio.create_task(running.serve([listening]))
            await asyncio.wait_for(ready.wait(), PATIENCE)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            running.should_exit = True
            await task


@pytest.fixture
def token() -> str:
    return TOKEN


@pytest.fixture
def app_here(tmp_path: Path) -> Perdure:
    """The embedded twin of what `url` serves."""
    return engine(tmp_path / "embedded.db")


@pytest.fixture
def serve():
    return serving


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with serving(engine(tmp_path / "served.db")) as where:
        yield where


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with asyncio.timeout(PATIENCE), Client(url, token=TOKEN) as made:
        yield made


class Killable:
    """`perdure serve` in a process, always on the same port and file."""

    def __init__(self, folder: Path, provider_url: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "OPENAI_"))}
        self._environment = kept | {
            "PYTHONPATH": str(SOURCE),
            "PERDURE_TOKEN": TOKEN,
            "PERDURE_DATABASE_URL": str(folder / "perdure.db"),
            "OPENAI_BASE_URL": provider_url,
            "OPENAI_API_KEY": "none",
        }
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        arguments = ["serve", "--model", "openai:fake", "--port", str(self.port), "--json"]
        self.process = await asyncio.create_subprocess_exec(
            *START, *arguments, env=self._environment, stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        assert json.loads(line)["url"] == self.url

    async def kill(self) -> None:
        assert self.process
        self.process.kill()
        await self.process.wait()


@pytest.fixture
async def provider() -> AsyncIterator[fake_provider.FakeProvider]:
    async with fake_provider.serve() as made:
        yield made


@pytest.fixture
async def killable(tmp_path: Path, provider: fake_provider.FakeProvider) -> AsyncIterator[Killable]:
    made = Killable(tmp_path, provider.url)
    await made.start()
    yield made
    if made.process and made.process.returncode is None:
        await made.kill()
