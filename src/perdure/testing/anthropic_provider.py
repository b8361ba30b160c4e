"""A provider of the Anthropic Messages wire shape over real HTTP, a small sibling of `fake_provider.py`.

Lives here: `AnthropicProvider`, its replies in a row, its record of requests, its gates, and what it refuses: a tool
call without its result directly after it, and thinking whose signature it never gave. Not here: how replies look
(`anthropic_reply.py`) and bytes (`tiny_http.py`). It has no rules to choose a reply by: the n-th request gets the n-th
reply, and the last one again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from perdure.testing import anthropic_reply as reply
from perdure.testing import provider_script as script
from perdure.testing import tiny_http

State = Literal["open", "completed", "refused", "cut", "disconnected"]
USAGE = {"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}


@dataclass(slots=True)
class Recorded:
    """A request as it came and what became of it."""

    number: int
    headers: dict[str, str]
    body: dict[str, Any]
    state: State = "open"


@dataclass(slots=True)
class _Gate:
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


class AnthropicProvider:
    """The provider; `url` is the base URL for a client. `usage` is what every `message_start` counts."""

    def __init__(self, replies: Sequence[Sequence[reply.Item]] = (), usage: dict[str, Any] | None = None) -> None:
        self.url = ""
        self.requests: list[Recorded] = []
        self._replies = [tuple(items) for items in replies] or [(script.Text("Hello."),)]
        self._signatures = set(_signatures(self._replies))
        self._usage = usage or USAGE
        self._gates: defaultdict[str, _Gate] = defaultdict(_Gate)
        self._changed = asyncio.Condition()

    def release(self, gate: str) -> None:
        """Let everyone who waits at this gate pass, and all who come later."""
        self._gates[gate].released.set()

    async def arrived(self, gate: str) -> None:
        """Wait until a reply waits at this gate, or has."""
        await self._gates[gate].arrived.wait()

    async def ended(self, number: int) -> Recorded:
        """Wait until the request of that number (from 1) has come and ended, one way or another."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self.requests) >= number and self.requests[number - 1].state != "open"
            )
        return self.requests[number - 1]

    async def handle(self, exchange: tiny_http.Exchange) -> None:
        """Answer one HTTP request."""
        path = exchange.request.path.partition("?")[0]
        if (exchange.request.method, path) != ("POST", "/v1/messages"):
            await exchange.json(_error("not_found_error", f"No such route: {path}"), 404)
            return
        body = msgspec.json.decode(exchange.request.body, type=dict[str, Any])
        recorded = Recorded(len(self.requests) + 1, dict(exchange.request.headers), body)
        self.requests.append(recorded)
        await self._notify()
        state: State = "disconnected"
        try:
            state = await self._answer(exchange, recorded)
        finally:
            recorded.state = state
            await self._notify()

    async def _answer(self, exchange: tiny_http.Exchange, recorded: Recorded) -> State:
        if found := [*problems(recorded.body["messages"]), *self._forged(recorded.body["messages"])]:
            await exchange.json(_error("invalid_request_error", "; ".join(found)), 400)
            return "refused"
        items = self._replies[min(recorded.number, len(self._replies)) - 1]
        return await reply.Reply(exchange, recorded.number, recorded.body, self._usage, self._hang).play(items)

    def _forged(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        given = [
            block.get("signature") or block.get("data")
            for message in messages
            for block in _blocks(message)
            if block["type"] in {"thinking", "redacted_thinking"}
        ]
        return [f"invalid signature in thinking block: {one}" for one in given if one not in self._signatures]

    async def _hang(self, gate: str | None) -> None:
        waiting = _Gate() if gate is None else self._gates[gate]
        waiting.arrived.set()
        await waiting.released.wait()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def serve(
    replies: Sequence[Sequence[reply.Item]] = (), usage: dict[str, Any] | None = None
) -> AsyncGenerator[AnthropicProvider]:
    """Run a provider in this process, on a port of its own, until the block ends."""
    provider = AnthropicProvider(replies, usage)
    async with tiny_http.serve(provider.handle) as bound:
        provider.url = f"http://127.0.0.1:{bound}"
        yield provider


def problems(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Say where a tool call is not answered at the head of the very next message, or one that the provider ran itself not
    in its own; empty means the history is sound.
    """
    found: list[str] = []
    owed: list[str] = []
    for at, message in enumerate(messages):
        answered = [block["tool_use_id"] for block in _blocks(message) if block["type"] == "tool_result"]
        leading = [block["tool_use_id"] for block in _blocks(message)[: len(answered)] if "tool_use_id" in block]
        if answered != owed or leading != answered:
            found.append(f"messages.{at}: owed the results of {owed} at its head, has {answered}")
        owed = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
        ran = {block["id"] for block in _blocks(message) if block["type"] == "server_tool_use"}
        told = {block["tool_use_id"] for block in _blocks(message) if "tool_use_id" in block} - {*answered}
        if ran != told:
            found.append(f"messages.{at}: the provider ran {sorted(ran)}, the results are of {sorted(told)}")
    return [*found, *([f"the history ends before the results of {owed}"] if owed else [])]


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _signatures(replies: Sequence[Sequence[reply.Item]]) -> Iterator[str]:
    for item in (item for items in replies for item in items):
        if isinstance(item, reply.Thinking):
            yield item.signature
        if isinstance(item, reply.Redacted):
            yield item.data


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
