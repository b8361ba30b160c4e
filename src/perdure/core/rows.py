"""The rows of a session that its log decides, as values: what `projection.py` folds and `verify` compares.

Lives here: one frozen class a table, with the columns that are functions of the log (MSG-1) and no others (no attempts,
no errors of recovery, neither held nor deleting), and the tables that change in place while a log is folded, with an
index for every question asked of many rows at once. Not here: when rows change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.core import events, messages


@dataclass(frozen=True, slots=True)
class Session:
    """A session: settings, totals and the open execution. `turn_usage` is what the turn that is not settled yet used."""

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
    turn_usage: messages.Usage | None = None
    execution_id: str | None = None
    execution_purpose: events.Purpose | None = None
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input, its prompt as JSON text. `usage` is that of the settled turns it ran in, None where they used nothing."""

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
    usage: messages.Usage | None = None

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


# -- tables ------------------------------------------------------------------------------------------------------------------

ApprovalKey = tuple[str, str]


class Inputs:
    """The inputs of one session by id; those that wait apart, by whether they are wanted to run."""

    __slots__ = ("_targets", "asleep", "awake", "by_id")

    def __init__(self, held: Mapping[str, Input]) -> None:
        """Go on from these."""
        self.by_id, self.awake, self.asleep = dict[str, Input](), dict[str, Input](), dict[str, Input]()
        self._targets: dict[str, str] = {}
        for one in held.values():
            self.put(one)

    def put(self, one: Input) -> None:
        """An input, new or changed."""
        was = self.by_id.get(one.id)
        if was and was.retried_by is not None:
            del self._targets[was.retried_by]
        if one.retried_by is not None:
            self._targets[one.retried_by] = one.id
        self.by_id[one.id] = one
        self.awake.pop(one.id, None)
        self.asleep.pop(one.id, None)
        if one.pending:
            (self.awake if one.wake_pending else self.asleep)[one.id] = one

    def target_of(self, retry_id: str) -> Input | None:
        """The prompt that a retry input runs again."""
        target = self._targets.get(retry_id)
        return None if target is None else self.by_id[target]


class Approvals:
    """The approvals of one session by assistant and call."""

    __slots__ = ("_undecided", "by_key")

    def __init__(self, held: Mapping[ApprovalKey, Approval]) -> None:
        """Go on from these."""
        self.by_key = {**held}
        self._undecided = {key for key, one in held.items() if one.decision is None}

    def put(self, one: Approval) -> None:
        """An approval, new or decided."""
        key = (one.message_id, one.call_id)
        self.by_key[key] = one
        (self._undecided.discard if one.decision else self._undecided.add)(key)

    def close(self) -> None:
        """Nothing waits any longer."""
        for key in self._undecided:
            del self.by_key[key]
        self._undecided.clear()


class Recoveries:
    """The recoveries of one session by execution."""

    __slots__ = ("_continuations", "by_id")

    def __init__(self, held: Mapping[str, Recovery]) -> None:
        """Go on from these."""
        self.by_id = {**held}
        self._continuations = {one.continuation_message_id: key for key, one in held.items()}

    def put(self, one: Recovery) -> None:
        """A recovery, new or changed."""
        self.by_id[one.execution_id] = one
        self._continuations[one.continuation_message_id] = one.execution_id

    def of_continuation(self, message_id: str) -> Recovery | None:
        """The recovery whose continuation that input is."""
        execution_id = self._continuations.get(message_id)
        return None if execution_id is None else self.by_id[execution_id]
