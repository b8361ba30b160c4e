"""Facts of a session as a whole: its settings, its inbox and its executions, one line of meaning each.

Lives here: declarations only. `events.py` gathers them; nobody else imports this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.core.event_kinds import durable
from perdure.core.messages import Delivery, Failure, InputKind, JsonObject, Prompt

Purpose = Literal["turn", "compaction"]


# -- values that facts carry -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork came from."""

    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on tokens of all kinds, cost (micro-dollars), wall seconds and steps; None is no limit."""

    tokens: int | None = None
    cost: int | None = None
    seconds: float | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often a step is asked of a provider that fails, and how long is waited; None means the engine's default.

    `attempts` counts the first one too; `attempts_of` says otherwise for one kind of error (`rate_limit`, `server`, …): 1 is
    never again, and a kind that is not tried again by default is with more, but for `quota`: an account that is used up.
    """

    attempts: int | None = None
    base_ms: int | None = None
    retry_after_cap_ms: int | None = None
    attempts_of: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How a session wants to be recovered and bounded; None means the engine's default.

    `approval` overrides, by tool name, whether a call waits for a person.
    """

    recovery: Literal["auto", "ask", "never"] = "auto"
    recovery_budget: int | None = None
    recovery_max_age_ms: int | None = None
    repeat_unknown: Literal["ask", "deny", "allow"] = "ask"
    max_steps: int | None = None
    approval: dict[str, Literal["never", "always"]] | None = None
    session_budget: Budget | None = None
    turn_budget: Budget | None = None
    retry: Retrying | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed settings of a session; None leaves a setting alone."""

    title: str | None = None
    metadata: JsonObject | None = None
    archived: bool | None = None
    policy: Policy | None = None


# -- session -----------------------------------------------------------------------------------------------------------------


@durable("session.created")
class SessionCreated:
    """The session exists."""

    session_id: str
    agent: str
    model: str | None = None
    title: str | None = None
    metadata: JsonObject | None = None
    policy: Policy | None = None
    forked_from: Origin | None = None


@durable("session.updated")
class SessionUpdated:
    """Settings changed."""

    session_id: str
    changes: Changes


@durable("session.deleted")
class SessionDeleted:
    """Everything of the session is gone; a tombstone stays."""

    session_id: str


@durable("session.agent.switched")
class AgentSwitched:
    """Another agent answers from here on."""

    session_id: str
    message_id: str
    agent: str


@durable("session.model.switched")
class ModelSwitched:
    """Another model answers from here on."""

    session_id: str
    message_id: str
    model: str
    previous: str | None = None


# -- inbox -------------------------------------------------------------------------------------------------------------------


@durable("session.prompt.admitted")
class PromptAdmitted:
    """An input is durable and waits; the model does not see it yet."""

    session_id: str
    message_id: str
    kind: InputKind
    prompt: Prompt
    delivery: Delivery
    request_execution: bool = False


@durable("session.prompt.execution_requested")
class PromptExecutionRequested:
    """A waiting input is wanted to run."""

    session_id: str
    message_id: str


@durable("session.prompt.promoted")
class PromptPromoted:
    """The input is in the transcript."""

    session_id: str
    message_id: str
    kind: InputKind
    prompt: Prompt
    delivery: Delivery
    time_created: int


@durable("session.prompt.withdrawn")
class PromptWithdrawn:
    """The input will not be promoted."""

    session_id: str
    message_id: str
    reason: Literal["cancelled", "superseded", "failed"]
    error: Failure | None = None


@durable("session.prompt.delivery_changed")
class PromptDeliveryChanged:
    """A waiting input is to be delivered otherwise."""

    session_id: str
    message_id: str
    delivery: Delivery


@durable("session.prompt.retried")
class PromptRetried:
    """A failed or interrupted prompt runs again: by a retry input, or as pending where it was never promoted."""

    session_id: str
    message_id: str
    retry_message_id: str | None = None


# -- execution ---------------------------------------------------------------------------------------------------------------


@durable("session.execution.started")
class ExecutionStarted:
    """One owner opened a turn, or a manual compaction."""

    session_id: str
    execution_id: str
    owner_id: str
    purpose: Purpose
    attempt: int


@durable("session.execution.interrupt_requested")
class ExecutionInterruptRequested:
    """Someone wants the open turn to stop, for good."""

    session_id: str
    execution_id: str | None = None
    reason: str


@durable("session.execution.parked")
class ExecutionParked:
    """The turn is open and waits for approvals without an owner."""

    session_id: str
    execution_id: str
    waiting: tuple[str, ...]


@durable("session.execution.resumed")
class ExecutionResumed:
    """A parked turn has an owner again."""

    session_id: str
    execution_id: str


@durable("session.execution.ended")
class ExecutionEnded:
    """The turn is over and these inputs have its outcome."""

    session_id: str
    execution_id: str
    outcome: Literal["succeeded", "failed", "interrupted"]
    message_ids: tuple[str, ...] = ()
    error: Failure | None = None
    reason: str | None = None
