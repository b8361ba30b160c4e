"""The script of the fake provider: rules, and the items their replies are made of.

Lives here: frozen values with a JSON form (`{"rules": [{"contains": "weather", "reply": [{"do": "text", "text":
"Sunny."}]}]}`; a class's name in snake case is its `do`) and the choice of a rule. Not here: playing them
(`fake_provider.py`). A fault's place in a reply is its place on the wire: `Cut` first means before the first byte,
between two texts means in the middle of one. A misspelt field is refused, for a rule that silently matches nothing
costs an afternoon.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag=_snake):
    """One step of a reply."""


class Open(_Item, frozen=True):
    """Send the response's head and first chunk now, which otherwise waits for the first content."""


class Text(_Item, frozen=True):
    """Text in chunks of `size` code points (0: one chunk), `delay_ms` apart."""

    text: str
    size: int = 0
    delay_ms: float = 0


class Echo(_Item, frozen=True):
    """The last user text, said back."""

    size: int = 0
    delay_ms: float = 0


class Reasoning(_Item, frozen=True):
    """Reasoning, under the name the imitated provider gives it."""

    text: str
    size: int = 0
    delay_ms: float = 0
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"


class Call(_Item, frozen=True):
    """A tool call; several are parallel calls. A `str` as input is sent as it is, malformed or unended.

    Without `id` it is `call_{request}_{n}`; an empty one is sent as no id at all. `late_name` sends the name after the first
    chunk.
    """

    name: str
    input: dict[str, Any] | str
    id: str | None = None
    size: int = 0
    delay_ms: float = 0
    late_name: bool = False


class Raw(_Item, frozen=True):
    """Text for the body as it is, for instance the half of a chunk: `data: {"choi`."""

    text: str


class HttpError(_Item, frozen=True):
    """An HTTP error in place of the stream; only the first item can be one. `body` replaces OpenAI's error body."""

    status: int
    message: str = "Scripted failure"
    code: str | None = None
    type: str | None = None
    headers: dict[str, str] = {}
    body: str | None = None


class StreamError(_Item, frozen=True):
    """An `{"error": …}` object in place of a chunk; the stream ends there."""

    message: str = "Scripted failure"
    code: str | int | None = None
    type: str | None = None


class Cut(_Item, frozen=True):
    """Break off: `close` the TCP connection in the middle, `reset` it, or `end` the response as if it were whole."""

    how: Literal["close", "reset", "end"] = "close"


class Hang(_Item, frozen=True):
    """Silence until the gate is released; without a gate until the client goes."""

    gate: str | None = None


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token counts as the provider counts them: `cached` is part of `prompt`, `reasoning` part of `completion`."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


class Finish(_Item, frozen=True):
    """The end of the answer. A reply that does not end itself gets the one that fits.

    Without `reason` it is `tool_calls` or `stop`; "" sends none. `usage` True counts roughly, False sends none; either way
    only if it was asked for. `done=False` leaves out `[DONE]`.
    """

    reason: str | None = None
    usage: Usage | bool = True
    done: bool = True


Item = Open | Text | Echo | Reasoning | Call | Raw | HttpError | StreamError | Cut | Hang | Finish


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers the requests that match all it names; the first rule that matches answers.

    `contains` and `equals` look at the last user text, `system` at the system message, `step` at the number of assistant
    messages after that text (0: it asks for the first), `attempt` at how often this text was asked at this step (1: the first
    time). After `times` uses the rule is spent.
    """

    reply: tuple[Item, ...]
    contains: str | None = None
    equals: str | None = None
    system: str | None = None
    step: int | None = None
    attempt: int | None = None
    times: int | None = None

    def matches(self, asked: Asked) -> bool:
        """Whether this rule answers that request."""
        return (
            (self.contains is None or self.contains in asked.prompt)
            and (self.equals is None or self.equals == asked.prompt)
            and (self.system is None or self.system in asked.system)
            and (self.step is None or self.step == asked.step)
            and (self.attempt is None or self.attempt == asked.attempt)
        )


class Asked(msgspec.Struct, frozen=True):
    """What the rules look at."""

    prompt: str
    system: str
    step: int
    attempt: int


class Script:
    """Rules in order, and how often each was used and each text asked."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._used = [0] * len(self.rules)
        self._asked: dict[tuple[str, int], int] = {}

    def choose(self, messages: Sequence[dict[str, Any]]) -> tuple[Asked, int | None, tuple[Item, ...]]:
        """Say what was asked, which rule answers (None: the default, an echo) and what it answers."""
        asked = self._look(messages)
        for number, rule in enumerate(self.rules):
            if rule.matches(asked) and (rule.times is None or self._used[number] < rule.times):
                self._used[number] += 1
                return asked, number, rule.reply
        return asked, None, (Text("Echo: "), Echo(size=16))

    def _look(self, messages: Sequence[dict[str, Any]]) -> Asked:
        prompt, system, step = "", "", 0
        for message in messages:
            match message.get("role"):
                case "user":
                    prompt, step = _text(message.get("content")), 0
                case "assistant":
                    step += 1
                case "system":
                    system = _text(message.get("content"))
                case _:
                    pass
        attempt = self._asked.get((prompt, step), 0) + 1
        self._asked[prompt, step] = attempt
        return Asked(prompt, system, step, attempt)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content or () if part.get("type") == "text")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    rules: list[Rule]


def from_json(text: str | bytes) -> list[Rule]:
    """Read `{"rules": […]}`; raises `ValueError` that names what is wrong and where."""
    return msgspec.json.decode(text, type=_Document).rules


def to_json(rules: Sequence[Rule]) -> bytes:
    """Write what `from_json` reads."""
    return msgspec.json.encode(_Document(list(rules)))
