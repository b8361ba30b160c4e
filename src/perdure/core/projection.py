"""The rows of one session as a value: what the log alone says they are (MSG-1).

Lives here: `Projection` (session, inbox, approvals, recoveries and the transcript, all frozen) and `Builder`, which folds a
log into one, one small rule a fact, whatever came before at the same cost. Written apart from `log/projections.py` on
purpose: that one moves rows by statements, this one moves values; tests and `verify` hold the two against each other, and
`rebuild` writes what this one says. Not here: what no log knows (claims, attempts, errors, drafts, epochs, held, deleting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure import errors, ids
from perdure.core import bodies, codec, events, fold, lifecycle, messages, rows, transcript, view

Recorded = events.Recorded[Any]
Place = tuple[str, int]
"""A part by its message and ordinal."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Everything of one session that its log decides; `gone` is when it was deleted, `holders` are the facts that hold the
    bodies of parts.
    """

    session: rows.Session | None = None
    inputs: Mapping[str, rows.Input] = field(default_factory=dict[str, rows.Input])
    approvals: Mapping[rows.ApprovalKey, rows.Approval] = field(default_factory=dict[rows.ApprovalKey, rows.Approval])
    recoveries: Mapping[str, rows.Recovery] = field(default_factory=dict[str, rows.Recovery])
    transcript: transcript.Transcript = field(default_factory=transcript.Transcript)
    gone: int | None = None
    holders: Mapping[Place, int] = field(default_factory=dict[Place, int], compare=False)

    @property
    def seq(self) -> int:
        """How far it goes."""
        return self.transcript.seq


def apply(held: Projection, recorded: Recorded) -> Projection:
    """The projection with one more fact; at or below its seq it stays as it is (MSG-5). Raises as `Builder.apply`."""
    if recorded.seq <= held.seq:
        return held
    builder = Builder(held)
    builder.apply(recorded)
    return builder.freeze()


class Builder:
    """A projection that grows in place: the thousandth fact costs what the first did."""

    __slots__ = ("approvals", "gone", "holders", "inputs", "recoveries", "session", "transcript")

    def __init__(self, held: Projection | None = None) -> None:
        """Go on from a projection, which stays as it is, or from nothing."""
        held = held or Projection()
        self.session, self.gone, self.holders = held.session, held.gone, {**held.holders}
        self.inputs, self.approvals = rows.Inputs(held.inputs), rows.Approvals(held.approvals)
        self.recoveries, self.transcript = rows.Recoveries(held.recoveries), transcript.Builder(held.transcript)

    def apply(self, recorded: Recorded) -> None:
        """Bring it up to one more fact; one at or below its seq changes nothing (MSG-5).

        Raises `SessionAlreadyProjected` and `LifecycleConflict` for a fact that the rows refuse too, so that no log holds
        it; the builder is of no use any more then.
        """
        if recorded.seq <= self.transcript.seq:
            return
        kind: type[Any] = recorded.data.__class__
        if kind in fold.RULES:
            if self.session is None and kind is not events.SessionCreated:
                raise _refused(f"Session {recorded.aggregate_id} does not exist")
            changes = fold.changes(self.transcript, recorded)
            rule = RULES.get(kind)
            if rule and (changes or kind not in ONLY_IF_TAKEN):
                rule(self, recorded)
            if self.gone is None:
                self.transcript.change(changes)
                self._hold(recorded, changes)
            if kind in REPORTS and (changes or kind is events.UsageRecorded):
                self._count(recorded)
        self.transcript.seq = recorded.seq

    def freeze(self) -> Projection:
        """The projection so far; the builder may go on."""
        return Projection(
            self.session,
            {**self.inputs.by_id},
            {**self.approvals.by_key},
            {**self.recoveries.by_id},
            self.transcript.freeze(),
            self.gone,
            {**self.holders},
        )

    def set_session(self, **changes: Any) -> None:
        """Other settings of the session, or another state of it."""
        if self.session:
            self.session = replace(self.session, **changes)

    def _hold(self, recorded: Recorded, changes: list[view.Change]) -> None:
        """Remember which parts the fact holds the body of."""
        for change in changes:
            if isinstance(change, view.PutPart):
                seq = bodies.holder(recorded, change.part)
                place = (change.message_id, change.ordinal)
                if seq is None:
                    self.holders.pop(place, None)
                else:
                    self.holders[place] = seq

    def _count(self, recorded: Recorded) -> None:
        """Add what a model call used to the totals of session and turn; what a fork inherited is its parent's (API-3)."""
        fact: events.StepEnded | events.StepFailed | events.UsageRecorded = recorded.data
        session = self.session
        if session is None or (session.forked_from and recorded.seq <= session.forked_from.seq):
            return
        if isinstance(fact, events.StepFailed) and fact.tokens is None and fact.cost is None:
            return
        used = messages.usage_of(fact.tokens, fact.cost)
        turn = session.turn_usage.plus(used) if session.turn_usage else used
        self.session = replace(session, usage=session.usage.plus(used), turn_usage=turn)


Rule = Callable[[Builder, Recorded], None]


def _refused(words: str) -> errors.LifecycleConflict:
    return errors.LifecycleConflict(words)


# -- session -----------------------------------------------------------------------------------------------------------------


def _created(held: Builder, recorded: Recorded) -> None:
    fact: events.SessionCreated = recorded.data
    if held.session:
        msg = f"Session {fact.session_id} is already projected"
        raise errors.SessionAlreadyProjected(msg)
    held.session = rows.Session(
        id=fact.session_id,
        agent=fact.agent,
        model=fact.model,
        title=fact.title,
        metadata=fact.metadata,
        policy=fact.policy or events.Policy(),
        archived=False,
        forked_from=fact.forked_from,
        time_created=recorded.created,
        time_updated=recorded.created,
    )


def _updated(held: Builder, recorded: Recorded) -> None:
    wanted: events.Changes = recorded.data.changes
    named = {name: getattr(wanted, name) for name in ("title", "metadata", "archived", "policy")}
    given = {name: value for name, value in named.items() if value is not None}
    held.set_session(**given, time_updated=recorded.created)


def _deleted(held: Builder, recorded: Recorded) -> None:
    nothing = Projection(transcript=transcript.Transcript((), recorded.seq - 1), gone=recorded.created)
    held.__init__(nothing)


def _agent_switched(held: Builder, recorded: Recorded) -> None:
    held.set_session(agent=recorded.data.agent, time_updated=recorded.created)


def _model_switched(held: Builder, recorded: Recorded) -> None:
    held.set_session(model=recorded.data.model, time_updated=recorded.created)


# -- inbox -------------------------------------------------------------------------------------------------------------------


def _admitted(held: Builder, recorded: Recorded) -> None:
    fact: events.PromptAdmitted = recorded.data
    if fact.message_id in held.inputs.by_id or held.transcript.message(fact.message_id):
        raise _refused(f"Message id {fact.message_id} is already taken")
    fresh = _input(fact, recorded.created, recorded.seq)
    held.inputs.put(replace(fresh, wake_pending=fact.request_execution))


def _input(fact: events.PromptAdmitted | events.PromptPromoted, time_created: int, admitted_seq: int) -> rows.Input:
    return rows.Input(
        id=fact.message_id,
        session_id=fact.session_id,
        kind=fact.kind,
        prompt=codec.dump(fact.prompt),
        delivery=fact.delivery,
        admitted_delivery=fact.delivery,
        time_created=time_created,
        admitted_seq=admitted_seq,
    )


def _execution_requested(held: Builder, recorded: Recorded) -> None:
    one = held.inputs.by_id.get(recorded.data.message_id)
    if one is None:
        return
    recovery = held.recoveries.of_continuation(one.id)
    woken = one.wake_pending or (one.pending and recovery is None)
    held.inputs.put(replace(one, execution_requests=one.execution_requests + 1, wake_pending=woken))
    if recovery and one.pending:
        held.recoveries.put(replace(recovery, wake_pending=True))


def _promoted(held: Builder, recorded: Recorded) -> None:
    fact: events.PromptPromoted = recorded.data
    one = held.inputs.by_id.get(fact.message_id)
    if one is None:
        held.inputs.put(replace(_input(fact, fact.time_created, recorded.seq), promoted_seq=recorded.seq))
        return
    same = (
        one.pending
        and (one.kind, one.delivery, one.time_created) == (fact.kind, fact.delivery, fact.time_created)
        and codec.same_json(one.prompt, codec.dump(fact.prompt))
    )
    if not same:
        raise _refused(f"Input {fact.message_id} cannot be promoted as it stands")
    held.inputs.put(replace(one, promoted_seq=recorded.seq, wake_pending=False))
    _settle_wake(held, one.id)


def _withdrawn(held: Builder, recorded: Recorded) -> None:
    fact: events.PromptWithdrawn = recorded.data
    one = held.inputs.by_id.get(fact.message_id)
    if one is None or _moved(one, "withdrawn") is None:
        return
    held.inputs.put(_settled(one, fact.reason, fact.error, recorded.seq))
    target = held.inputs.target_of(one.id)
    if target and target.outcome is None:
        held.inputs.put(_settled(target, fact.reason, fact.error, recorded.seq))
    _settle_wake(held, one.id)


def _settled(one: rows.Input, outcome: messages.Outcome, error: messages.Failure | None, seq: int) -> rows.Input:
    return replace(one, outcome=outcome, error=error, settled_seq=seq, wake_pending=False)


def _moved(one: rows.Input, move: str) -> str | None:
    state = "pending" if one.pending else ("settled" if one.outcome else "running")
    return lifecycle.advance(lifecycle.INPUT, state, move)


def _delivery_changed(held: Builder, recorded: Recorded) -> None:
    one = held.inputs.by_id.get(recorded.data.message_id)
    if one and one.pending:
        held.inputs.put(replace(one, delivery=recorded.data.delivery))


def _retried(held: Builder, recorded: Recorded) -> None:
    fact: events.PromptRetried = recorded.data
    one = held.inputs.by_id.get(fact.message_id)
    by = fact.retry_message_id
    if one is None or one.outcome is None or (by is None) is not (one.promoted_seq is None):
        return
    if by and held.inputs.target_of(by):
        raise _refused(f"Message id {by} is already taken")
    reopened = replace(one, outcome=None, error=None, settled_seq=None, retried_by=by, retries=one.retries + 1)
    held.inputs.put(replace(reopened, wake_pending=by is None))


# -- execution ---------------------------------------------------------------------------------------------------------------


def _execution_started(held: Builder, recorded: Recorded) -> None:
    fact: events.ExecutionStarted = recorded.data
    opened = {"execution_id": fact.execution_id, "execution_purpose": fact.purpose, "parked": False}
    held.set_session(**opened, time_updated=recorded.created)
    if fact.purpose == "turn":
        for one in [*held.inputs.asleep.values()]:
            if not held.recoveries.of_continuation(one.id):
                held.inputs.put(replace(one, wake_pending=True))


def _interrupt_requested(held: Builder, recorded: Recorded) -> None:
    named: str | None = recorded.data.execution_id
    if named and held.session and held.session.execution_id not in {None, named}:
        return
    for one in [*held.inputs.awake.values()]:
        held.inputs.put(replace(one, wake_pending=False))


def _is_open(held: Builder, execution_id: str) -> bool:
    return held.session is not None and held.session.execution_id == execution_id


def _parked(held: Builder, recorded: Recorded) -> None:
    if _is_open(held, recorded.data.execution_id):
        held.set_session(parked=True)


def _resumed(held: Builder, recorded: Recorded) -> None:
    if _is_open(held, recorded.data.execution_id):
        held.set_session(parked=False)


def _close(held: Builder, recorded: Recorded) -> None:
    if _is_open(held, recorded.data.execution_id):
        held.set_session(execution_id=None, execution_purpose=None, parked=False, time_updated=recorded.created)
    _close_approvals(held, recorded)


def _execution_ended(held: Builder, recorded: Recorded) -> None:
    fact: events.ExecutionEnded = recorded.data
    used = held.session.turn_usage if held.session else None
    for message_id in fact.message_ids:
        one = held.inputs.by_id.get(message_id)
        if one and _moved(one, "settled"):
            total = one.usage.plus(used) if one.usage and used else used or one.usage
            held.inputs.put(replace(_settled(one, fact.outcome, fact.error, recorded.seq), usage=total))
    held.set_session(turn_usage=None)
    _close(held, recorded)


def _step_recovered(held: Builder, recorded: Recorded) -> None:
    fact: events.StepRecovered = recorded.data
    _close(held, recorded)
    if fact.execution_id in held.recoveries.by_id:
        return
    newest = held.transcript.newest_assistant()
    retry = newest.retry if newest and newest.time.completed is None else None
    amid = fact.assistant_message_id
    recovery = rows.Recovery(
        execution_id=fact.execution_id,
        session_id=fact.session_id,
        assistant_message_id=amid if amid and held.transcript.message(amid) else None,
        continuation_message_id=ids.continue_message(fact.execution_id),
        phase=fact.phase,
        wake_pending=fact.armed,
        not_before=retry.at if retry else None,
        attempt=retry.attempt if retry else 0,
        time_created=recorded.created,
    )
    held.recoveries.put(recovery)


def _settle_wake(held: Builder, message_id: str) -> None:
    if recovery := held.recoveries.of_continuation(message_id):
        held.recoveries.put(replace(recovery, wake_pending=False))


# -- approvals ---------------------------------------------------------------------------------------------------------------


def _approval_requested(held: Builder, recorded: Recorded) -> None:
    fact: events.ToolApprovalRequested = recorded.data
    key = (fact.assistant_message_id, fact.call_id)
    if key not in held.approvals.by_key:
        execution_id = (held.session and held.session.execution_id) or ""
        held.approvals.put(rows.Approval(fact.session_id, *key, execution_id, recorded.created, fact.deadline))


def _approval_resolved(held: Builder, recorded: Recorded) -> None:
    fact: events.ToolApprovalResolved = recorded.data
    one = held.approvals.by_key.get((fact.assistant_message_id, fact.call_id))
    if one and not one.decision:
        held.approvals.put(replace(one, decision=fact.decision, by=fact.by, note=fact.note))


def _close_approvals(held: Builder, recorded: Recorded) -> None:
    del recorded
    held.approvals.close()


RULES: dict[type[Any], Rule] = {
    events.SessionCreated: _created,
    events.SessionUpdated: _updated,
    events.SessionDeleted: _deleted,
    events.AgentSwitched: _agent_switched,
    events.ModelSwitched: _model_switched,
    events.PromptAdmitted: _admitted,
    events.PromptExecutionRequested: _execution_requested,
    events.PromptPromoted: _promoted,
    events.PromptWithdrawn: _withdrawn,
    events.PromptDeliveryChanged: _delivery_changed,
    events.PromptRetried: _retried,
    events.ExecutionStarted: _execution_started,
    events.ExecutionInterruptRequested: _interrupt_requested,
    events.ExecutionParked: _parked,
    events.ExecutionResumed: _resumed,
    events.ExecutionEnded: _execution_ended,
    events.StepInterrupted: _close_approvals,
    events.StepRecovered: _step_recovered,
    events.ToolApprovalRequested: _approval_requested,
    events.ToolApprovalResolved: _approval_resolved,
}
"""Facts that change more than the transcript; the same ones as in `log/projections.py`."""

ONLY_IF_TAKEN = frozenset({events.StepInterrupted, events.ToolApprovalRequested, events.ToolApprovalResolved})
"""Facts of an assistant: where the transcript takes no notice of them, neither does any row (MSG-4)."""

REPORTS = frozenset({events.StepEnded, events.StepFailed, events.UsageRecorded})
"""Facts that say what a model call used."""
