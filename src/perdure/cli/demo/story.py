"""The story of one kill, five times: ask, wait for the moment, SIGKILL, start again, wait until all is settled, measure.

Lives here: `tell`, which owns the provider, the server and the folder and ends all of them however it ends itself; and
the measuring. Not here: the moments (`scenes.py`), the verdict (`verdict.py`), how it looks (`report.py`). Everything
measured comes from outside: the HTTP API, the ledger file, the provider's record, and a look into the dead process's
database.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2

from perdure import errors
from perdure.cli.demo import autopsy, scenes, shop, verdict
from perdure.cli.demo.client import PATIENCE_S, Client, Reader
from perdure.cli.demo.server_process import ServerProcess
from perdure.core import fold, request
from perdure.testing import fake_provider


class Audience(Protocol):
    """Who is told."""

    def scene(self, scene: scenes.Scene) -> None:
        """A new scene begins."""
        ...

    def say(self, words: str) -> None:
        """Something happened."""
        ...

    def text(self, text: str) -> None:
        """The reader's screen shows this now."""
        ...

    def figures(self, figures: verdict.Figures) -> None:
        """A scene has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """The figures, how many histories the provider refused, and what broke the story off, if anything did."""

    figures: list[verdict.Figures]
    violations: int
    broken: str | None = None


async def tell(folder: Path, audience: Audience) -> Told:
    """Tell all of it, or as much as there is to tell: whatever keeps the next process from going on ends the story."""
    async with fake_provider.serve() as provider:
        server = ServerProcess(folder, provider.url)
        client = Client(server)
        stage = _Set(folder, provider, server, client, audience)
        figures: list[verdict.Figures] = []
        broken = None
        try:
            await server.start()
            audience.say(f"perdure serve runs as process {server.pid}, on one SQLite file")
            for scene in scenes.SCENES:
                audience.scene(scene)
                figures.append(await _Telling(stage, scene).tell())
                audience.figures(figures[-1])
        except (TimeoutError, ConnectionError, httpx2.HTTPError, errors.ConfigError) as error:
            broken = f"after {len(figures)} kills the story broke off: {type(error).__name__} {error}".strip()
        finally:
            await server.kill()
            await client.close()
        return Told(figures, len(provider.violations), broken)


@dataclass(frozen=True, slots=True)
class _Set:
    """What every scene plays on."""

    folder: Path
    provider: fake_provider.FakeProvider
    server: ServerProcess
    client: Client
    audience: Audience


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was known at the moment of the kill."""

    texts: dict[tuple[str, str], str]
    recent: int
    remains: autopsy.Remains
    requests: int


class _Telling:
    """One scene on its way; the stage of `scenes.Stage`."""

    def __init__(self, stage: _Set, scene: scenes.Scene) -> None:
        self._folder, self._provider, self._server = stage.folder, stage.provider, stage.server
        self._client, self._audience, self._scene = stage.client, stage.audience, scene
        self._session_id = f"demo-{scene.key}"
        self._path = f"/v1/sessions/{self._session_id}"
        self._reader = Reader(self._client, self._session_id, self._audience.text)
        self._ledger_before = self._ledger()
        self._prompts: list[str] = []

    async def tell(self) -> verdict.Figures:
        """The scene from its first prompt to its figures."""
        self._provider.script(self._scene.rules)
        await self._client.call("POST", "/v1/sessions", {"id": self._session_id, "agent": "support"})
        await self._reader.connect()
        try:
            self._close_gate()
            await self.prompt(self._scene.ask, "steer")
            await self._scene.until(self)
            seen = await self._kill()
            started = time.time()
            await self._restart()
            await self._settled()
            return await self._measure(seen, started)
        finally:
            await self._reader.close()

    # -- the stage -----------------------------------------------------------------------------------------------------

    async def reader_saw(self, characters: int) -> None:
        """Wait for live text on the reader's screen."""
        await self._reader.until(lambda: self._reader.seen >= characters)
        self._audience.say(f"the reader has seen {self._reader.seen} characters")

    async def ledger_line(self) -> None:
        """Wait until the tool has had its side effect."""
        async with asyncio.timeout(PATIENCE_S):
            while self._ledger() == self._ledger_before:  # noqa: ASYNC110, another process writes it
                await asyncio.sleep(shop.POLL_S)
        self._audience.say("the ledger has a new line; the tool has not returned")

    async def provider_asked(self, gate: str) -> None:
        """Wait until a request waits at the provider."""
        async with asyncio.timeout(PATIENCE_S):
            await self._provider.arrived(gate)
        self._audience.say("the model has the result of the tool, and is silent")

    async def prompt(self, text: str, delivery: str) -> None:
        """Send a prompt and wait for its receipt."""
        message_id = f"ask-{self._scene.key}-{len(self._prompts) + 1}"
        self._prompts.append(message_id)
        asked = {"id": message_id, "text": text, "delivery": delivery}
        receipt = await self._client.call("POST", f"{self._path}/prompts", asked)
        self._audience.say(f"“{text}”: 202, {receipt['state']}, {delivery}")

    # -- the kill ------------------------------------------------------------------------------------------------------

    def _close_gate(self) -> None:
        if self._scene.gate:
            (self._folder / self._scene.gate).touch()

    async def _kill(self) -> _Seen:
        pid, at = self._server.pid, time.monotonic()
        await self._server.kill()
        await self._reader.ended()  # what was on its way when the process died still reaches the reader
        if self._scene.gate:
            (self._folder / self._scene.gate).unlink()
        remains = await autopsy.examine(self._server.database, self._session_id)
        claim = f"a claim in phase “{remains.claim.phase}”" if remains.claim else "no claim"
        self._audience.say(f"kill -9 {pid}. It leaves {remains.seq + 1} facts, {claim}, {len(remains.pending)} waiting")
        return _Seen(self._reader.texts(), self._reader.recent(at), remains, len(self._provider.requests))

    async def _restart(self) -> None:
        began = time.monotonic()
        await self._server.start()
        seconds = time.monotonic() - began
        self._audience.say(f"a new process, {self._server.pid}, serves the same file after {seconds:.1f} s")
        await self._reader.connect()

    async def _settled(self) -> None:
        await self._reader.until(lambda: set(self._reader.settled()) >= set(self._prompts))

    # -- the figures -----------------------------------------------------------------------------------------------------

    async def _measure(self, seen: _Seen, started: float) -> verdict.Figures:
        messages: list[dict[str, Any]] = (await self._client.call("GET", f"{self._path}/messages?limit=200"))["data"]
        scene = self._scene
        return verdict.Figures(
            kill=scene.key,
            moment=scene.moment,
            struck=scene.struck(seen.remains),
            prompts=len(self._prompts),
            answered=await self._answered(messages),
            calls=len(self._reader.of("session.tool.called")),
            effects=len(self._ledger()) - len(self._ledger_before),
            effects_due=scene.effects,
            saw=sum(map(len, seen.texts.values())),
            kept=sum(_kept(messages, key, text) for key, text in seen.texts.items()),
            recent=seen.recent,
            missed=self._reader.missed(),
            notice=fold.STEP_UNKNOWN in _texts(messages),
            told=any(request.CHECK_FIRST.strip() in words for words in self._results(seen.requests)),
            told_due=scene.unknown_call,
            resumed_s=next(one.created for one in self._reader.facts if one.seq > seen.remains.seq) - started,
        )

    async def _answered(self, messages: list[dict[str, Any]]) -> int:
        """Prompts that succeeded and were settled once; none where there are more or fewer final answers than prompts."""
        settled, succeeded = self._reader.settled(), 0
        for message_id in self._prompts:
            receipt = await self._client.call("GET", f"{self._path}/prompts/{message_id}")
            succeeded += receipt["outcome"] == "succeeded" and settled[message_id] == 1
        finals = [one for one in messages if one["type"] == "assistant" and one.get("finish") == "stop"]
        return succeeded if len(finals) == len(self._prompts) else 0

    def _results(self, after: int) -> list[str]:
        """What the model was told of tool calls since the kill."""
        later = self._provider.requests[after:]
        return [str(one["content"]) for asked in later for one in asked.body["messages"] if one["role"] == "tool"]

    def _ledger(self) -> list[str]:
        ledger = self._folder / shop.LEDGER
        return ledger.read_text().splitlines() if ledger.exists() else []


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for one in messages for part in one.get("parts", ()) if part["type"] == "text"]


def _kept(messages: list[dict[str, Any]], key: tuple[str, str], text: str) -> int:
    """How much of what a reader saw of one part the transcript still begins with."""
    message_id, text_id = key
    parts = [part for one in messages if one["id"] == message_id for part in one.get("parts", ())]
    stored = next((part["text"] for part in parts if part["type"] == "text" and part["id"] == text_id), "")
    same = (number for number, (seen, kept) in enumerate(zip(text, stored, strict=False)) if seen != kept)
    return next(same, min(len(text), len(stored)))
