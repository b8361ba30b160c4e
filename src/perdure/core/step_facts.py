"""Facts and signals of a step: the model call, its text, reasoning and tool calls, and the context around it.

Lives here: declarations only. `events.py` gathers them; nobody else imports this file.
"""

from __future__ import annotations

from typing import Literal

from perdure.core.event_kinds import durable, ephemeral
from perdure.core.messages import Decision, Effect, Failure, JsonObject, Tokens

Phase = Literal["safe", "ready", "unknown", "continue"]


# -- step --------------------------------------------------------------------------------------------------------------------


@durable("session.step.started")
class StepStarted:
    """A model call is about to leave, for a new assistant or for the next attempt of the current one."""

    session_id: str
    assistant_message_id: str
    agent: str
    model: str


@durable("session.step.ended")
class StepEnded:
    """The step is complete."""

    session_id: str
    assistant_message_id: str
    finish: str
    tokens: Tokens | None = None
    cost: int | None = None


@durable("session.step.failed")
class StepFailed:
    """The step failed; what it showed stays."""

    session_id: str
    assistant_message_id: str
    error: Failure
    tokens: Tokens | None = None
    cost: int | None = None


@durable("session.step.interrupted")
class StepInterrupted:
    """The step was stopped."""

    session_id: str
    assistant_message_id: str
    error: Failure


@durable("session.step.recovered")
class StepRecovered:
    """A dead owner's execution was turned into facts."""

    session_id: str
    execution_id: str
    phase: Phase
    assistant_message_id: str | None = None
    armed: bool = True


@durable("session.retry.scheduled")
class RetryScheduled:
    """The step will be attempted again at a given time (epoch ms)."""

    session_id: str
    assistant_message_id: str
    attempt: int
    at: int
    error: Failure


# -- parts -------------------------------------------------------------------------------------------------------------------


@durable("session.text.started")
class TextStarted:
    """A text part opened."""

    session_id: str
    assistant_message_id: str
    text_id: str


@ephemeral("session.text.delta")
class TextDelta:
    """More text; `offset` counts code points before it."""

    session_id: str
    assistant_message_id: str
    text_id: str
    delta: str
    offset: int


@durable("session.text.ended")
class TextEnded:
    """The part's full text."""

    session_id: str
    assistant_message_id: str
    text_id: str
    text: str


@durable("session.reasoning.started")
class ReasoningStarted:
    """A reasoning part opened."""

    session_id: str
    assistant_message_id: str
    reasoning_id: str


@ephemeral("session.reasoning.delta")
class ReasoningDelta:
    """More reasoning."""

    session_id: str
    assistant_message_id: str
    reasoning_id: str
    delta: str
    offset: int


@durable("session.reasoning.ended")
class ReasoningEnded:
    """The part's full reasoning."""

    session_id: str
    assistant_message_id: str
    reasoning_id: str
    text: str
    provider_metadata: JsonObject | None = None


@durable("session.tool.input.started")
class ToolInputStarted:
    """The model began to write a call."""

    session_id: str
    assistant_message_id: str
    call_id: str
    name: str


@ephemeral("session.tool.input.delta")
class ToolInputDelta:
    """More of a call's raw arguments."""

    session_id: str
    assistant_message_id: str
    call_id: str
    delta: str
    offset: int


@durable("session.tool.input.ended")
class ToolInputEnded:
    """A call's full raw arguments."""

    session_id: str
    assistant_message_id: str
    call_id: str
    text: str


@durable("session.tool.called")
class ToolCalled:
    """The call is about to run; from now on it may have side effects."""

    session_id: str
    assistant_message_id: str
    call_id: str
    name: str
    input: JsonObject
    effect: Effect = "write"
    provider_executed: bool = False


@durable("session.tool.approval_requested")
class ToolApprovalRequested:
    """The call waits for a person."""

    session_id: str
    assistant_message_id: str
    call_id: str
    input: JsonObject
    deadline: int | None = None


@durable("session.tool.approval_resolved")
class ToolApprovalResolved:
    """A person, or the deadline, decided."""

    session_id: str
    assistant_message_id: str
    call_id: str
    decision: Decision
    by: str
    note: str | None = None


@durable("session.tool.progress")
class ToolProgress:
    """What a running call shows so far; replaces what it showed before."""

    session_id: str
    assistant_message_id: str
    call_id: str
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] = ()


@durable("session.tool.succeeded")
class ToolSucceeded:
    """The call is complete."""

    session_id: str
    assistant_message_id: str
    call_id: str
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] = ()


@durable("session.tool.failed")
class ToolFailed:
    """The call failed, in words the model sees."""

    session_id: str
    assistant_message_id: str
    call_id: str
    error: Failure
    structured: JsonObject | None = None
    content: tuple[JsonObject, ...] | None = None


# -- context -----------------------------------------------------------------------------------------------------------------


@durable("session.synthetic")
class SyntheticAdded:
    """The engine adds words for the model."""

    session_id: str
    message_id: str
    text: str


@durable("session.context.updated")
class ContextUpdated:
    """The system context changed."""

    session_id: str
    message_id: str
    text: str


@durable("session.compaction.started")
class CompactionStarted:
    """An older prefix is being summarised."""

    session_id: str
    message_id: str
    reason: Literal["auto", "manual"]


@ephemeral("session.compaction.delta")
class CompactionDelta:
    """More of the summary."""

    session_id: str
    message_id: str
    delta: str
    offset: int


@durable("session.compaction.ended")
class CompactionEnded:
    """The summary replaces the prefix in what the model sees, but for `prompts`: seqs of what the turn it parts was asked."""

    session_id: str
    message_id: str
    summary: str
    recent: str
    prompts: tuple[int, ...] | None = None


@durable("session.compaction.failed")
class CompactionFailed:
    """No summary; history stays as it was."""

    session_id: str
    message_id: str
    error: Failure


@durable("session.usage.recorded")
class UsageRecorded:
    """Tokens were used outside a completed step; without `tokens` their number is unknown."""

    session_id: str
    source: str
    tokens: Tokens | None = None
    cost: int | None = None
