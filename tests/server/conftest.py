"""A real server on a real socket, in the loop of the test, and a client that reads its streams."""

import asyncio
import contextlib
import dataclasses
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure import Agent, Perdure, config
from perdure.models import scripted
from perdure.server import app as server
from perdure.server import run
from perdure.store import sqlite

TOKEN = "a-token-of-the-tests"
PATIENCE = 10


@dataclass
class Frame:
    """One frame of a stream; a comment has no event."""

    event: str | None = None
    id: str | None = None
    data: Any = None


@dataclass
class Served:
    """A server that runs, its engine, and a client that carries the token."""

    url: str
    port: int
    perdure: Perdure
    app: Any
    server: run.PatientServer
    client: httpx2.AsyncClient
    stopping: asyncio.Event
    task: asyncio.Task[None] | None = None

    async def session(self, session_id: str = "s", **settings: Any) -> str:
        done = await self.client.post("/v1/sessions", json={"id": session_id, **settings})
        assert done.status_code == 201, done.text
        return session_id

    async def prompt(self, text: str = "hi", session_id: str = "s", **rest: Any) -> dict[str, Any]:
        done = await self.client.post(f"/v1/sessions/{session_id}/prompts", json={"text": text, **rest})
        assert done.status_code == 202, done.text
        return done.json()

    async def settle(self, message_id: str, session_id: str = "s") -> dict[str, Any]:
        done = await self.client.post(f"/v1/sessions/{session_id}/wait", json={"message_id": message_id, "timeout": 9})
        assert done.json()["done"], done.text
        return done.json()

    @contextlib.asynccontextmanager
    async def reader(
        self, session_id: str | None = "s", headers: dict[str, str] | None = None, **query: Any
    ) -> AsyncIterator["Reader"]:
        """A reader of a session's stream, or of all (None); it fails the test rather than wait for ever."""
        asked = {"Accept": "text/event-stream", **(headers or {})}
        path = "/v1/events" if session_id is None else f"/v1/sessions/{session_id}/events"
        async with asyncio.timeout(PATIENCE), self.client.stream("GET", path, headers=asked, params=query) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield Reader(answer)

    async def stop(self) -> None:
        """Stop as a signal would, the engine aside."""
        self.server.should_exit = True
        self.stopping.set()
        assert self.task is not None
        await self.task


class Reader:
    """Frames of one stream, in order."""

    def __init__(self, answer: Any) -> None:
        self.headers = answer.headers
        self._lines = answer.aiter_lines()

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Frame:
        frame = Frame()
        async for line in self._lines:
            if not line:
                return frame
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                frame.data = json.loads(value)
            elif name:
                frame = dataclasses.replace(frame, **{name: value})
        raise StopAsyncIteration

    async def until(self, wanted: Callable[[Frame], bool] | str) -> list[Frame]:
        """Frames up to and with the first that is wanted, by name or by a function."""
        found = []
        async for frame in self:
            found.append(frame)
            if frame.event == wanted if isinstance(wanted, str) else wanted(frame):
                return found
        raise AssertionError(f"the stream ended after {[one.event for one in found]}")

    async def rest(self) -> list[Frame]:
        return [frame async for frame in self]


def listening() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    sock.setblocking(False)
    return sock


@contextlib.asynccontextmanager
async def serving(perdure: Perdure, settings: config.Settings) -> AsyncIterator[Served]:
    app = server.create_app(perdure, settings, token=TOKEN)
    ready, stopping = asyncio.Event(), asyncio.Event()
    running = run.server(app, ready.set)
    running.main_loop = stopping.wait  # it looks every tenth of a second whether it should exit
    sock = listening()
    port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False) as client,
    ):
        task = asyncio.create_task(running.serve([sock]))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        served = Served(url, port, perdure, app, running, client, stopping, task)
        yield served
        await served.stop()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its schema and nothing in it, made once."""
    path = tmp_path_factory.mktemp("empty") / "perdure.db"

    async def make() -> None:
        await (await sqlite.SqliteStore.open(path)).close()

    asyncio.run(make())
    return path


@pytest.fixture
def settings(tmp_path: Path, empty_database: Path) -> config.Settings:
    shutil.copy(empty_database, tmp_path / "perdure.db")
    return config.settings(database_url=str(tmp_path / "perdure.db"), grace_seconds=1)


@pytest.fixture
def replies() -> list[scripted.Reply]:
    """What the model of agent `default` answers, prompt by prompt; a test appends."""
    return []


@pytest.fixture
def model(replies: list[scripted.Reply]) -> scripted.ScriptedModel:
    return scripted.ScriptedModel(lambda request: replies.pop(0) if replies else [scripted.Text("Fine.")])


@pytest.fixture
def agents(model: scripted.ScriptedModel) -> list[Agent]:
    """Who answers here; a module of tests may have its own."""
    return [Agent("default", model)]


@pytest.fixture
async def served(settings: config.Settings, agents: list[Agent]) -> AsyncIterator[Served]:
    own = {"own:m": scripted.ScriptedModel(lambda request: [scripted.Text("Mine.")], provider="own", name="m")}
    async with serving(Perdure(agents, settings=settings, models=own), settings) as running:
        yield running
