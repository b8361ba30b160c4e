"""The few calls the demo makes as any client would, and a reader that remembers what a person saw.

Lives here: prompts, receipts and messages over HTTP; `Reader`, which follows a session's events, puts live text
together and comes back after the server's death with the last seq it has. Not here: what is made of it (`story.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from perdure.cli.demo.server_process import ServerProcess
from perdure.cli.demo.verdict import RECENT_S

PATIENCE_S = 45.0  # longer than a lease: a recovery that waits for one is a bad figure, not a broken story
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """A durable event as it came; `created` is epoch seconds."""

    seq: int
    created: float
    type: str
    data: Json


class Client:
    """Calls of the server as it is now: after a restart it has another address."""

    def __init__(self, server: ServerProcess) -> None:
        """`server` need not run yet."""
        self._server = server
        self._http = httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """One call. Raises `HTTPStatusError` for an answer that is an error."""
        content = None if body is None else msgspec.json.encode(body)
        answer = await self._http.request(method, self._server.url + path, content=content, headers=self.headers())
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=Json)

    @contextlib.asynccontextmanager
    async def events(self, session_id: str, after: int) -> AsyncGenerator[AsyncIterator[str]]:
        """The lines of a session's event stream after a seq."""
        headers = {**self.headers(), "accept": "text/event-stream"}
        url = f"{self._server.url}/v1/sessions/{session_id}/events?after={after}"
        async with self._http.stream("GET", url, headers=headers) as answer:
            answer.raise_for_status()
            yield answer.aiter_lines()

    def headers(self) -> dict[str, str]:
        """The credential."""
        return {"authorization": f"Bearer {self._server.token}", "content-type": "application/json"}


class Reader:
    """Somebody who watches a session, across as many connections as it takes."""

    def __init__(self, client: Client, session_id: str, show: Callable[[str], None]) -> None:
        """`show` hears live text as it comes."""
        self.facts: list[Fact] = []
        self.synced = 0
        self._client, self._session_id, self._show = client, session_id, show
        self._texts: dict[tuple[str, str], str] = {}
        self._arrivals: list[tuple[float, int]] = []
        self._changed = asyncio.Condition()
        self._connected = False
        self._task: asyncio.Task[None] | None = None

    # -- connections -------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Follow from the last seq there is, and wait until the server says that this is all so far."""
        synced, self._connected = self.synced, True
        self._task = asyncio.create_task(self._follow())
        await self.until(lambda: self.synced > synced)

    async def ended(self) -> None:
        """Wait until the connection has ended, and with it what was still on its way. Raises `TimeoutError`."""
        if self._task:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({self._task})

    async def close(self) -> None:
        """Stop reading."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds of what was read. Raises `TimeoutError`, and `ConnectionError` where nothing more comes."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: not self._connected or holds())
        if not holds():
            raise ConnectionError("The reader's connection ended")

    async def _follow(self) -> None:
        try:
            async with self._client.events(self._session_id, self.last_seq) as lines:
                async for name, id, data in _events(lines):
                    await self._take(name, id, data)
        except httpx2.HTTPError:
            pass  # the server was killed, which is what all this is about
        finally:
            self._connected = False
            async with self._changed:
                self._changed.notify_all()

    async def _take(self, name: str, id: str, data: Json) -> None:
        if name == "synced":
            self.synced += 1
        elif id:
            self.facts.append(Fact(int(id), data["created"] / 1000, name, data["data"]))
        elif name == "session.text.delta":
            fragment = data["data"]
            key = fragment["assistant_message_id"], fragment["text_id"]
            text = self._texts.get(key, "")[: fragment["offset"]] + fragment["delta"]
            self._arrivals.append((time.monotonic(), len(text) - len(self._texts.get(key, ""))))
            self._texts[key] = text
            self._show(text)
        async with self._changed:
            self._changed.notify_all()

    # -- what was seen -----------------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The last fact that came, -1 before the first."""
        return self.facts[-1].seq if self.facts else -1

    @property
    def seen(self) -> int:
        """Characters of live text on the reader's screen."""
        return sum(len(text) for text in self._texts.values())

    def texts(self) -> dict[tuple[str, str], str]:
        """The live text on the reader's screen, by message and part."""
        return dict(self._texts)

    def recent(self, at: float) -> int:
        """Characters that came in the 250 ms before `at` or later."""
        return sum(length for arrived, length in self._arrivals if arrived > at - RECENT_S)

    def missed(self) -> int:
        """Seqs that came not exactly once, of all up to the last."""
        came = Counter(one.seq for one in self.facts)
        return sum(abs(came[seq] - 1) for seq in range(self.last_seq + 1))

    def settled(self) -> Counter[str]:
        """How often each prompt was settled."""
        ended = self.of("session.execution.ended")
        return Counter(message_id for one in ended for message_id in one.data["message_ids"])

    def of(self, kind: str) -> list[Fact]:
        """The facts of that type."""
        return [one for one in self.facts if one.type == kind]


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str, Json]]:
    """Name, id and data of server-sent events whose data is JSON."""
    name, id, data = "", "", ""
    async for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "id":
                id = value
            case "data":
                data += value
            case "" if not line and data:
                yield name, id, msgspec.json.decode(data, type=Json)
                name, id, data = "", "", ""
            case _:
                pass
