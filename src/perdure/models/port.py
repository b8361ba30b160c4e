"""The model port: one method, one closed union of stream events.

Lives here: what an adapter must provide and the events it may yield. Not here: retries (an adapter makes exactly one
physical request per `stream` and its library's own retries are off), persistence, tool execution. An adapter keeps the
order the publisher checks (PUB-2): a start before its deltas, an end before the next start of the same id, one `Finish`
at the very end. It gives a call id that the provider repeated within one message, or left empty, a fresh one. Whatever
fails is a `ModelError` with its kind; a stream that ends without the provider's own end is `ModelErrorKind.INCOMPLETE`,
never a `Finish`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.core import messages, request

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextStart:
    """A text part opens."""

    id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of an open part."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class TextEnd:
    """A text part closes."""

    id: str


@dataclass(frozen=True, slots=True)
class ReasoningStart:
    """A reasoning part opens."""

    id: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning of an open part."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningEnd:
    """A reasoning part closes; what the provider wants back with it (a signature) rides here."""

    id: str
    provider_metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolInputStart:
    """The model begins to write the arguments of a call."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """More of a call's raw arguments."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputEnd:
    """A call's raw arguments are complete; their text is whatever the deltas gave, valid JSON or not."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call itself, after its input ended. `provider_executed`: the provider runs it, a `ToolResult` follows."""

    call_id: str
    name: str
    provider_executed: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a provider-executed call."""

    call_id: str
    text: str
    structured: dict[str, Any] | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The provider's own end of the stream, exactly once and last. `tokens` is None where the provider gave no usage."""

    reason: FinishReason
    tokens: messages.Tokens | None = None
    cost: int | None = None


ModelEvent = (
    TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputEnd
    | ToolCall
    | ToolResult
    | Finish
)


class Model(Protocol):
    """A model of one provider. Instances are shared by all sessions and hold no session state."""

    @property
    def provider(self) -> str:
        """The prefix of the model's name, for instance `openai`."""
        ...

    @property
    def name(self) -> str:
        """The provider's own name of the model."""
        ...

    def stream(self, request: request.Request) -> AsyncIterator[ModelEvent]:
        """Make one request and yield its events; closing the iterator cancels the request.

        Raises `ModelError` (from the first `__anext__` on, never from the call itself).
        """
        ...

    async def close(self) -> None:
        """Release connections; the model is not used afterwards."""
        ...
