"""A model that plays a script: for tests and demonstrations without a network.

Lives here: `ScriptedModel` and the items its replies are made of. Not here: HTTP (`testing/fake_provider.py` is that)
and time: a `Delay` waits with the sleep the model was given, and there is no other clock, so a replay is exact. Text
stays one part until another kind of content follows, so a `Delay`, `Hang`, `Cut` or `Fail` between two texts strikes in
the middle of the part. Any event of the port may stand among the items and passes as it is, in an impossible order too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.core import request as requests
from perdure.errors import Defect, ModelError, ModelErrorKind
from perdure.models import port


class Gate:
    """Where a reply waits: `arrived` tells that one does, `open` lets it and all later ones pass."""

    def __init__(self) -> None:
        self._arrived, self._opened = asyncio.Event(), asyncio.Event()

    def open(self) -> None:
        """Let everyone pass."""
        self._opened.set()

    async def arrived(self) -> None:
        """Wait until a reply waits here, or has."""
        await self._arrived.wait()

    async def wait(self) -> None:
        """Wait until the gate is open."""
        self._arrived.set()
        await self._opened.wait()


@dataclass(frozen=True, slots=True)
class Text:
    """Text, in about that many deltas."""

    text: str
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning, likewise."""

    text: str
    chunks: int = 1
    provider_metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. A `str` is sent as it is, valid JSON or not; `whole=False` leaves the arguments unended.

    With `result` the provider itself executed the call.
    """

    name: str
    input: dict[str, Any] | str
    call_id: str | None = None
    chunks: int = 1
    whole: bool = True
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """A pause of so many seconds of the injected sleep."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence until the gate opens; without a gate, until the stream is closed."""

    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """A model error."""

    kind: ModelErrorKind = ModelErrorKind.SERVER
    detail: str = "Scripted failure"
    status: int | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream breaks off here."""


Item = Text | Reasoning | Call | Delay | Hang | Fail | Cut | port.ModelEvent
Reply = Sequence[Item]
Sleep = Callable[[float], Awaitable[object]]


class ScriptedModel:
    """Plays one reply per request: the next of a list, or what a function makes of the request. Implements
    `port.Model`.

    `requests` holds what it was asked. A reply that does not end itself ends with a `Finish` for what it holds.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Callable[[requests.Request], Reply],
        *,
        provider: str = "scripted",
        name: str = "scripted",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """A list longer than the requests is no error; a shorter one is a `Defect` of the test."""
        self.provider, self.name = provider, name
        self.requests: list[requests.Request] = []
        self._replies, self._sleep = replies, sleep

    async def stream(self, request: requests.Request) -> AsyncIterator[port.ModelEvent]:
        """Play the reply to this request (see `port.Model.stream`)."""
        number = len(self.requests)
        self.requests.append(request)
        playing = _Playing(number)
        for item in self._reply(request, number):
            match item:
                case Delay():
                    await self._sleep(item.seconds)
                case Hang():
                    await (item.gate or Gate()).wait()
                case Fail():
                    raise ModelError(item.kind, item.detail, status=item.status, retry_after_ms=item.retry_after_ms)
                case Cut():
                    raise ModelError(ModelErrorKind.INCOMPLETE, "The scripted stream breaks off")
                case _:
                    for event in playing.events(item):
                        yield event
        if not playing.finished:
            for event in playing.events(port.Finish("tool_calls" if playing.calls else "stop")):
                yield event

    async def close(self) -> None:
        """Nothing is held."""

    def _reply(self, request: requests.Request, number: int) -> Reply:
        if callable(self._replies):
            return self._replies(request)
        if number >= len(self._replies):
            raise Defect(f"The script has {len(self._replies)} replies, but this is request {number + 1}")
        return self._replies[number]


class _Playing:
    """One reply being played: which part is open and which ids are taken."""

    def __init__(self, number: int) -> None:
        self.finished, self.calls = False, 0
        self._number, self._parts = number, 0
        self._end: port.TextEnd | port.ReasoningEnd | None = None

    def events(self, item: Text | Reasoning | Call | port.ModelEvent) -> list[port.ModelEvent]:
        played: list[port.ModelEvent] = []
        goes_on = isinstance(item, Text if isinstance(self._end, port.TextEnd) else Reasoning)
        if self._end and not goes_on:
            played.append(self._end)
            self._end = None
        match item:
            case Text():
                played += self._text(item)
            case Reasoning():
                played += self._reasoning(item)
            case Call():
                played += self._call(item)
            case _:
                self.finished = self.finished or isinstance(item, port.Finish)
                self.calls += isinstance(item, port.ToolCall)
                played.append(item)
        return played

    def _text(self, item: Text) -> list[port.ModelEvent]:
        start: list[port.ModelEvent] = []
        if self._end is None:
            self._end = port.TextEnd(self._fresh("text"))
            start = [port.TextStart(self._end.id)]
        return [*start, *_deltas(port.TextDelta, self._end.id, item.text, item.chunks)]

    def _reasoning(self, item: Reasoning) -> list[port.ModelEvent]:
        start: list[port.ModelEvent] = []
        if self._end is None:
            self._end = port.ReasoningEnd(self._fresh("reasoning"), item.provider_metadata)
            start = [port.ReasoningStart(self._end.id)]
        return [*start, *_deltas(port.ReasoningDelta, self._end.id, item.text, item.chunks)]

    def _call(self, item: Call) -> list[port.ModelEvent]:
        call_id = item.call_id or f"call_{self._number}_{self.calls}"
        self.calls += 1
        raw = item.input if isinstance(item.input, str) else msgspec.json.encode(item.input).decode()
        said: list[port.ModelEvent] = [port.ToolInputStart(call_id, item.name)]
        said += [port.ToolInputDelta(call_id, piece) for piece in pieces(raw, item.chunks)]
        if item.whole:
            said += [
                port.ToolInputEnd(call_id),
                port.ToolCall(call_id, item.name, provider_executed=item.result is not None),
            ]
        if item.result is not None:
            said.append(port.ToolResult(call_id, item.result))
        return said

    def _fresh(self, kind: str) -> str:
        self._parts += 1
        return f"{kind}_{self._parts - 1}"


@functools.lru_cache(maxsize=16)
def _deltas(
    kind: type[port.TextDelta | port.ReasoningDelta], part_id: str, text: str, chunks: int
) -> tuple[port.ModelEvent, ...]:
    """The deltas of a part; those asked for lately are kept, as a script mostly says the same again."""
    return tuple(kind(part_id, piece) for piece in pieces(text, chunks))


def pieces(text: str, count: int) -> list[str]:
    """Cut text into at most `count` pieces of nearly equal length; none of them is empty."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]
