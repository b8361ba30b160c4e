"""The nouns of a transcript: messages, their parts, and what a prompt is made of (MSG-2, MSG-3).

Lives here: frozen values that both the fold and the rows hold. Not here: how they change (`transcript.py`) and how they
are written as JSON (`codec.py`). An assistant's parts stand beside its header because rows keep them apart: no event
rewrites a whole message. What the HTTP API describes as it is (prompts, times, tokens, failures and the like) is a
dataclass, which pydantic knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.value import Value

JsonObject = dict[str, Any]
Effect = Literal["read", "idempotent", "write"]
Delivery = Literal["steer", "queue"]
InputKind = Literal["user", "synthetic"]
Outcome = Literal["succeeded", "failed", "interrupted", "superseded", "cancelled"]
Decision = Literal["approve", "deny"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one model call; `input` counts what is not in `cache_read`."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def plus(self, other: Tokens) -> Tokens:
        """Sum, kind by kind."""
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A recorded error: a machine-readable type and a sentence."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One part of a prompt: text, or an image or file whose bytes are in the content table under `hash`."""

    type: Literal["text", "image", "file"]
    text: str | None = None
    mime: str | None = None
    name: str | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a caller asks."""

    parts: tuple[PromptPart, ...]

    @property
    def text(self) -> str:
        """Its text parts, joined by newlines."""
        return "\n".join(part.text for part in self.parts if part.text)

    @property
    def has_media(self) -> bool:
        """Whether an image or a file is part of it."""
        return any(part.type != "text" for part in self.parts)


def text_prompt(text: str) -> Prompt:
    """Build a prompt of one text part."""
    return Prompt((PromptPart("text", text),))


# -- parts of an assistant ---------------------------------------------------------------------------------------------------


class Pending(Value):
    """The model is still writing the call's arguments, or they wait; `input` is raw text."""

    input: str = ""


class Running(Value):
    """The call is durable and may have side effects from now on."""

    input: JsonObject
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] = ()


class Completed(Value):
    """The call succeeded."""

    input: JsonObject
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] = ()


class Errored(Value):
    """The call failed, or its outcome is unknown (`error.type` tells)."""

    input: JsonObject
    error: Failure
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] = ()


ToolState = Pending | Running | Completed | Errored


@dataclass(frozen=True, slots=True)
class Approval:
    """What became of a call that needed approval; `decision` None while it waits."""

    input: JsonObject
    deadline: int | None = None
    decision: Decision | None = None
    by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class PartTime:
    """When a tool part came, ran and completed (epoch ms)."""

    created: int
    ran: int | None = None
    completed: int | None = None


class TextPart(Value):
    """Text; `text` is final once the part has ended, empty before."""

    id: str
    text: str = ""
    ended: bool = False


class ReasoningPart(Value):
    """Reasoning, likewise."""

    id: str
    text: str = ""
    provider_metadata: JsonObject | None = None
    ended: bool = False


class ToolPart(Value):
    """One tool call."""

    call_id: str
    name: str
    state: ToolState
    time: PartTime
    effect: Effect = "write"
    provider_executed: bool = False
    approval: Approval | None = None


Part = TextPart | ReasoningPart | ToolPart
PartKind = Literal["text", "reasoning", "tool"]

_STATUS: dict[type[ToolState], str] = {Pending: "pending", Running: "running", Completed: "completed", Errored: "error"}


def part_key(part: Part) -> tuple[PartKind, str]:
    """Kind and id of a part."""
    if isinstance(part, ToolPart):
        return "tool", part.call_id
    return ("text" if isinstance(part, TextPart) else "reasoning"), part.id


def part_is_open(part: Part) -> bool:
    """Whether a part is not ended, or a call not settled."""
    if isinstance(part, ToolPart):
        return isinstance(part.state, Pending | Running)
    return not part.ended


def message_is_settled(message: Message) -> bool:
    """Whether no fact can change a message any more (MSG-4)."""
    if isinstance(message, Assistant):
        return message.time.completed is not None
    return not isinstance(message, Compaction) or message.status != "running"


def tool_status(part: ToolPart) -> str:
    """pending, running, completed or error."""
    return _STATUS[type(part.state)]


# -- messages ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageTime:
    """When a message came and, for an assistant or compaction, completed (epoch ms)."""

    created: int
    completed: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """A scheduled next attempt of a step."""

    attempt: int
    at: int
    error: Failure


class User(Value):
    """A promoted prompt."""

    id: str
    seq: int
    time: MessageTime
    prompt: Prompt
    delivery: Delivery


class Synthetic(Value):
    """Words the engine added for the model: a continuation, a recovery notice, a retry."""

    id: str
    seq: int
    time: MessageTime
    text: str


class System(Value):
    """A change of context, told to the model."""

    id: str
    seq: int
    time: MessageTime
    text: str


class Assistant(Value):
    """One step of the model: header here, parts in order."""

    id: str
    seq: int
    time: MessageTime
    agent: str
    model: str
    parts: tuple[Part, ...] = ()
    finish: str | None = None
    tokens: Tokens | None = None
    cost: int | None = None
    error: Failure | None = None
    retry: Retry | None = None


class AgentSwitched(Value):
    """From here on another agent answers."""

    id: str
    seq: int
    time: MessageTime
    agent: str


class ModelSwitched(Value):
    """From here on another model answers."""

    id: str
    seq: int
    time: MessageTime
    model: str
    previous: str | None = None


class Compaction(Value):
    """An older prefix of the model-visible context, replaced by a summary once `status` is completed.

    `recent` is the id of the first message kept verbatim behind the summary, empty if none was; `prompts` are the seqs of
    older prompts that stay verbatim before it, since they belong to the turn that the summary parts.
    """

    id: str
    seq: int
    time: MessageTime
    reason: Literal["auto", "manual"]
    status: Literal["running", "completed", "failed"] = "running"
    summary: str | None = None
    recent: str | None = None
    prompts: tuple[int, ...] | None = None
    error: Failure | None = None


Message = User | Synthetic | System | Assistant | AgentSwitched | ModelSwitched | Compaction


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls used together; `cost` in integer micro-dollars. `unknown_cost` counts the calls whose cost nobody
    knows, `unknown_tokens` those whose tokens nobody knows: where one is not 0, the sum beside it is a lower bound.
    """

    tokens: Tokens = field(default_factory=Tokens)
    cost: int = 0
    unknown_cost: int = 0
    unknown_tokens: int = 0

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.tokens.plus(other.tokens),
            self.cost + other.cost,
            self.unknown_cost + other.unknown_cost,
            self.unknown_tokens + other.unknown_tokens,
        )


def usage_of(tokens: Tokens | None, cost: int | None) -> Usage:
    """What one call used; None is unknown, which is counted as such and never as nothing."""
    return Usage(tokens or Tokens(), cost or 0, int(cost is None), int(tokens is None))
