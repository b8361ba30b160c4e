"""What a model is asked, free of any provider: the nouns of a request and how a transcript is lowered to one.

Lives here: `Request` and its parts, `lower` (transcript → request messages, MSG-9) and the strict pairing check. Not here: wire
formats (each adapter in `models/` owns its own) and prompts' admission. Lowering is pure, so a request can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ToolChoice = Literal["auto", "none"]


@dataclass(frozen=True, slots=True)
class TextContent:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class MediaContent:
    """An image or a file, its bytes read from the content table."""

    kind: Literal["image", "file"]
    mime: str
    data: bytes
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningContent:
    """The model's own reasoning; `provider_metadata` (signatures and the like) only ever goes back to the same provider and model."""

    text: str
    provider_metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallContent:
    """A tool call the model made."""

    call_id: str
    name: str
    input: dict[str, Any]
    provider_executed: bool = False


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user side says (user, synthetic and system facts alike)."""

    content: tuple[TextContent | MediaContent, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said before."""

    content: tuple[TextContent | ReasoningContent | CallContent, ...]


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """The one result of one call; stands after the assistant message that holds the call, in call order."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = UserMessage | AssistantMessage | ResultMessage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One provider request. `model` is the provider's own name for it, without our `provider:` prefix."""

    session_id: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
