"""A model provider over real HTTP that does what a script says: for tests, demonstrations and crash drills.

Lives here: `FakeProvider` with its record of requests and its gates, the routes of the wire and of `/_control`, and the
program `python -m perdure.testing.fake_provider --script FILE --port 0`, whose first line of output is its URL in JSON.
Not here: what rules say (`provider_script.py`), how replies look (`provider_reply.py`) and bytes (`tiny_http.py`). It
refuses, and records, every history in which a tool call lacks its result: whoever tests against it has that check for
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from perdure.testing import pairing, provider_reply, tiny_http
from perdure.testing import provider_script as script

EXAMPLE = '{"rules": [{"contains": "story", "reply": [{"do": "text", "text": "Once, long ago.", "size": 4, "delay_ms": 150}]}]}'
"""What a script may say: an answer that comes slowly, so that there is time to look at it or to kill something."""

State = Literal["open", "completed", "refused", "cut", "disconnected"]


@dataclass(slots=True)
class Recorded:
    """A request as it came and what became of it; `rule` None is the default rule, `time` is epoch seconds.

    `cut`: we broke off. `disconnected`: the client did, or the provider was stopped.
    """

    number: int
    time: float
    headers: dict[str, str]
    body: dict[str, Any]
    prompt: str
    step: int
    attempt: int
    rule: int | None
    state: State = "open"


@dataclass(frozen=True, slots=True)
class Violation:
    """A history that no strict provider would take."""

    request: int
    problem: str


@dataclass(slots=True)
class _Gate:
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


class FakeProvider:
    """The provider; `url` is the base URL for a client. Rules may change at any time."""

    def __init__(self, rules: Sequence[script.Rule] = ()) -> None:
        self.url = ""
        self.requests: list[Recorded] = []
        self.violations: list[Violation] = []
        self._script = script.Script(rules)
        self._gates: defaultdict[str, _Gate] = defaultdict(_Gate)
        self._changed = asyncio.Condition()

    def script(self, rules: Sequence[script.Rule]) -> None:
        """Replace the rules; their counts and the gates start afresh."""
        self._script = script.Script(rules)
        self._gates.clear()

    def release(self, gate: str) -> None:
        """Let everyone who waits at this gate pass, and all who come later."""
        self._gates[gate].released.set()

    async def arrived(self, gate: str) -> None:
        """Wait until a reply waits at this gate, or has."""
        await self._gates[gate].arrived.wait()

    async def requested(self, number: int) -> Recorded:
        """Wait until the request of that number (from 1) has come."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def ended(self, number: int) -> Recorded:
        """Wait until the request of that number has come and ended, one way or another."""
        recorded = await self.requested(number)
        async with self._changed:
            await self._changed.wait_for(lambda: recorded.state != "open")
        return recorded

    async def handle(self, exchange: tiny_http.Exchange) -> None:
        """Answer one HTTP request."""
        path = exchange.request.path.partition("?")[0]
        match exchange.request.method, path.removeprefix("/v1"):
            case "POST", "/chat/completions":
                await self._complete(exchange)
            case "GET", "/models":
                await exchange.json({"object": "list", "data": [{"id": "fake", "object": "model", "owned_by": "fake"}]})
            case method, _ if path.startswith("/_control/"):
                await self._control(exchange, method, path.removeprefix("/_control/"))
            case _:
                await exchange.json(_error(f"No such route: {exchange.request.method} {path}"), 404)

    async def _complete(self, exchange: tiny_http.Exchange) -> None:
        try:
            body = msgspec.json.decode(exchange.request.body, type=dict[str, Any])
            messages = msgspec.convert(body.get("messages"), list[dict[str, Any]])
        except msgspec.DecodeError as refusal:
            await exchange.json(_error(str(refusal)), 400)
            return
        asked, rule, items = self._script.choose(messages)
        number, headers = len(self.requests) + 1, dict(exchange.request.headers)
        recorded = Recorded(number, time.time(), headers, body, asked.prompt, asked.step, asked.attempt, rule)
        self.requests.append(recorded)
        await self._notify()
        state: State = "disconnected"
        try:
            state = await self._answer(exchange, recorded, asked, items)
        finally:
            recorded.state = state
            await self._notify()

    async def _answer(
        self, exchange: tiny_http.Exchange, recorded: Recorded, asked: script.Asked, items: Sequence[script.Item]
    ) -> State:
        if found := pairing.problems(recorded.body["messages"]):
            self.violations += (Violation(recorded.number, problem) for problem in found)
            await exchange.json(_error("; ".join(found), "tool_pairing"), 400)
            return "refused"
        if not recorded.body.get("stream"):
            await exchange.json(_error("This provider only streams"), 400)
            return "refused"
        return await provider_reply.Reply(exchange, recorded.number, recorded.body, asked, self._hang).play(items)

    async def _hang(self, gate: str | None) -> None:
        waiting = _Gate() if gate is None else self._gates[gate]
        waiting.arrived.set()
        await waiting.released.wait()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _control(self, exchange: tiny_http.Exchange, method: str, verb: str) -> None:
        try:
            match method, verb:
                case "GET", "requests":
                    await exchange.json(self.requests)
                case "GET", "violations":
                    await exchange.json(self.violations)
                case "POST", "script":
                    self.script(script.from_json(exchange.request.body))
                    await exchange.json({})
                case "POST", "release":
                    self.release(_named_gate(exchange))
                    await exchange.json({})
                case "POST", "arrived":
                    await self.arrived(_named_gate(exchange))
                    await exchange.json({})
                case _:
                    await exchange.json(_error(f"No such control: {method} {verb}"), 404)
        except msgspec.DecodeError as refusal:
            await exchange.json(_error(str(refusal)), 400)


@contextlib.asynccontextmanager
async def serve(rules: Sequence[script.Rule] = (), *, port: int = 0) -> AsyncGenerator[FakeProvider]:
    """Run a provider in this process, on a port of its own, until the block ends."""
    provider = FakeProvider(rules)
    async with tiny_http.serve(provider.handle, port) as bound:
        provider.url = f"http://127.0.0.1:{bound}/v1"
        yield provider


class _GateName(msgspec.Struct, forbid_unknown_fields=True):
    gate: str


def _named_gate(exchange: tiny_http.Exchange) -> str:
    return msgspec.json.decode(exchange.request.body, type=_GateName).gate


def _error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


async def _run(rules: Sequence[script.Rule], port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(rules, port=port) as provider:
        sys.stdout.write(msgspec.json.encode({"url": provider.url}).decode() + "\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m perdure.testing.fake_provider", description="A scripted provider.")
    parser.add_argument(
        "--script", type=pathlib.Path, help=f"JSON file of rules, such as {EXAMPLE}; without it everything is echoed"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="0 (default) takes a free one; see the first line of output"
    )
    given = parser.parse_args(arguments)
    rules: list[script.Rule] = []
    if given.script:
        try:
            rules = script.from_json(given.script.read_bytes())
        except (OSError, ValueError) as refusal:
            parser.error(f"--script {given.script}: {refusal}")
    asyncio.run(_run(rules, given.port))


if __name__ == "__main__":
    main()
