"""What OpenAPI says of the transcript.

Lives here: descriptions only, of the JSON that `wire.message` gives; a test holds the two together. Not here: anything
that runs on a request.
"""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from perdure.core import messages


class _Described(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Part(_Described):
    """One part of an assistant: text or reasoning (`id`, `text`, `ended`), or a tool call (`call_id`, `name`, `state`)."""

    type: Literal["text", "reasoning", "tool"]
    id: str | None = None
    text: str | None = None
    ended: bool | None = None
    provider_metadata: dict[str, Any] | None = None
    call_id: str | None = None
    name: str | None = None
    status: Literal["pending", "running", "completed", "error"] | None = None
    state: dict[str, Any] | None = None
    time: messages.PartTime | None = None
    effect: messages.Effect | None = None
    provider_executed: bool | None = None
    approval: messages.Approval | None = None


class Message(_Described):
    """One message; which fields it has depends on its type."""

    id: str
    type: Literal["user", "synthetic", "system", "assistant", "agent_switched", "model_switched", "compaction"]
    seq: int
    time: messages.MessageTime
    prompt: messages.Prompt | None = None
    delivery: messages.Delivery | None = None
    text: str | None = None
    agent: str | None = None
    model: str | None = None
    previous: str | None = None
    parts: list[Part] | None = None
    finish: str | None = None
    tokens: messages.Tokens | None = None
    cost: int | None = None
    error: messages.Failure | None = None
    retry: messages.Retry | None = None
    reason: Literal["auto", "manual"] | None = None
    status: Literal["running", "completed", "failed"] | None = None
    summary: str | None = None
    recent: str | None = None
    prompts: list[int] | None = None


class MessagePage(_Described):
    """Some of the transcript, in order; `next` where there is more."""

    data: list[Message]
    next: str | None = None
