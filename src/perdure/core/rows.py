"""The rows of a session that its log decides, as values: what `projection.py` folds and `verify` compares.

Lives here: one frozen class a table, with the columns that are functions of the log (MSG-1) and no others: no attempts,
no errors of recovery, neither held nor deleting. Not here: how they change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core import events, messages


@dataclass(frozen=True, slots=True)
class Session:
    """A session: settings, totals and the open execution."""

    id: str
    agent: str
    model: str | None
    title: str | None
    metadata: messages.JsonObject | None
    policy: events.Policy
    archived: bool
    forked_from: events.Origin | None
    time_created: int
    time_updated: int
    usage: messages.Usage = field(default_factory=messages.Usage)
    execution_id: str | None = None
    execution_purpose: events.Purpose | None = None
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input, its prompt as JSON text."""

    id: str
    session_id: str
    kind: messages.InputKind
    prompt: str
    delivery: messages.Delivery
    admitted_delivery: messages.Delivery
    time_created: int
    admitted_seq: int
    promoted_seq: int | None = None
    wake_pending: bool = False
    execution_requests: int = 0
    retries: int = 0
    retried_by: str | None = None
    outcome: messages.Outcome | None = None
    error: messages.Failure | None = None
    settled_seq: int | None = None

    @property
    def pending(self) -> bool:
        """Neither promoted nor settled."""
        return self.promoted_seq is None and self.outcome is None


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits, or waited, for a person."""

    session_id: str
    message_id: str
    call_id: str
    execution_id: str
    time_created: int
    deadline: int | None = None
    decision: messages.Decision | None = None
    by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A recovered execution and its continuation."""

    execution_id: str
    session_id: str
    assistant_message_id: str | None
    continuation_message_id: str
    phase: events.Phase
    wake_pending: bool
    not_before: int | None
    attempt: int
    time_created: int
