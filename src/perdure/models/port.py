"""The model port: one method, one closed union of stream events.

Lives here: what an adapter must provide and the events it may yield. Not here: retries (an adapter makes exactly one
physical request per `stream` and its library's own retries are off), persistence, tool execution. An adapter keeps the
order the publisher checks (PUB-2): a start before its deltas, an end before the next start of the same id, one `Finish`
at the very end. It gives a call id that the provider repeated within one message, or left empty, a fresh one. Whatever
fails is a `ModelError` with its kind; a stream that ends without the provider's own end is `ModelErrorKind.INCOMPLETE`,
never a `Finish`.

Events are structs, because a stream makes one for every few letters: such a one is made in a fifth of a dataclass's time.
Deltas hold text alone, so that the garbage collector need not know of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from perdure.core import messages, request

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


class TextStart(msgspec.Struct, frozen=True):
    """A text part opens."""

    id: str


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of an open part."""

    id: str
    text: str


class TextEnd(msgspec.Struct, frozen=True):
    """A text part closes."""

    id: str


class ReasoningStart(msgspec.Struct, frozen=True):
    """A reasoning part opens."""

    id: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More reasoning of an open part."""

    id: str
    text: str


class ReasoningEnd(msgspec.Struct, frozen=True):
    """A reasoning part closes; what the provider wants back with it (a signature) rides here."""

    id: str
    provider_metadata: dict[str, Any] | None = None


class ToolInputStart(msgspec.Struct, frozen=True):
    """The model begins to write the arguments of a call."""

    call_id: str
    name: str


class ToolInputDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a call's raw arguments."""

    call_id: str
    text: str


class ToolInputEnd(msgspec.Struct, frozen=True):
    """A call's raw arguments are complete; their text is whatever the deltas gave, valid JSON or not."""

    call_id: str


class ToolCall(msgspec.Struct, frozen=True):
    """The call itself, after its input ended. `provider_executed`: the provider runs it, a `ToolResult` follows."""

    call_id: str
    name: str
    provider_executed: bool = False


class ToolResult(msgspec.Struct, frozen=True):
    """Result of a provider-executed call."""

    call_id: str
    text: str
    structured: dict[str, Any] | None = None
    is_error: bool = False


class Finish(msgspec.Struct, frozen=True):
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
