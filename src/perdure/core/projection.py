"""The rows of one session as a value: what the log alone says they are (MSG-1).

Lives here: `Projection` (session, inbox, approvals, recoveries and the transcript, all frozen) and `apply`, pure, one
small rule a fact. Written apart from `log/projections.py` on purpose: that one moves rows by statements, this one moves
values, and tests, `verify` and `rebuild` hold the two against each other. Not here: what no log knows (claims, attempts,
errors, drafts, epochs, held, deleting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure import errors, ids
from perdure.core import codec, events, fold, lifecycle, messages, rows, transcript

Recorded = events.Recorded[Any]


@dataclass(frozen=True, slots=True)
class Projection:
    """Everything of one session that its log decides; `gone` is when it was deleted."""

    session: rows.Session | None = None
    inputs: Mapping[str, rows.Input] = field(default_factory=dict[str, rows.Input])
    approvals: Mapping[tuple[str, str], rows.Approval] = field(default_factory=dict[tuple[str, str], rows.Approval])
    recoveries: Mapping[str, rows.Recovery] = field(default_factory=dict[str, rows.Recovery])
    transcript: transcript.Transcript = field(default_factory=transcript.Transcript)
    gone: int | None = None

    @property
    def seq(self) -> int:
        """How far it goes."""
        return self.transcript.seq


Rule = Callable[[Projection, Recorded], Projection]


def apply(held: Projection, recorded: Recorded) -> Projection:
    """The projection with one more fact; at or below its seq it stays as it is (MSG-5).

    Raises `SessionAlreadyProjected` and `LifecycleConflict` for a fact that the rows refuse too, so that no log holds it.
    """
    if recorded.seq <= held.seq:
        return held
    kind: type[Any] = recorded.data.__class__
    after = transcript.apply(held.transcript, recorded)
    if kind in fold.RULES and kind is not events.SessionCreated and held.session is None:
        raise _refused(f"Session {recorded.aggregate_id} does not exist")
    _check_id(held.transcript, after)
    taken = after.messages is not held.transcript.messages
    rule = RULES.get(kind)
    if rule and (taken or kind not in ONLY_IF_TAKEN):
        held = rule(held, recorded)
    if held.gone is not None:
        after = transcript.Transcript((), recorded.seq)
    return _counted(replace(held, transcript=after), recorded, taken=taken)


def _refused(words: str) -> errors.LifecycleConflict:
    return errors.LifecycleConflict(words)


def _check_id(before: transcript.Transcript, after: transcript.Transcript) -> None:
    if len(after.messages) > len(before.messages) and before.message(after.messages[-1].id):
        raise _refused(f"Message id {after.messages[-1].id} is already taken")


def _counted(held: Projection, recorded: Recorded, *, taken: bool) -> Projection:
    fact = recorded.data
    if held.session is None or not isinstance(fact, events.StepEnded | events.StepFailed | events.UsageRecorded):
        return held
    reported = isinstance(fact, events.UsageRecorded) or taken
    if not reported or (isinstance(fact, events.StepFailed) and fact.tokens is None and fact.cost is None):
        return held
    was = held.session.usage
    tokens = was.tokens.plus(fact.tokens) if fact.tokens else was.tokens
    usage = messages.Usage(tokens, was.cost + (fact.cost or 0), was.unknown_cost + (fact.cost is None))
    return replace(held, session=replace(held.session, usage=usage))


# -- session -----------------------------------------------------------------------------------------------------------------


def _created(held: Projection, recorded: Recorded) -> Projection:
    fact: events.SessionCreated = recorded.data
    if held.session:
        msg = f"Session {fact.session_id} is already projected"
        raise errors.SessionAlreadyProjected(msg)
    session = rows.Session(
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
    return replace(held, session=session)


def _session(held: Projection, **changes: Any) -> Projection:
    return replace(held, session=replace(held.session, **changes)) if held.session else held


def _updated(held: Projection, recorded: Recorded) -> Projection:
    wanted: events.Changes = recorded.data.changes
    named = {name: getattr(wanted, name) for name in ("title", "metadata", "archived", "policy")}
    given = {name: value for name, value in named.items() if value is not None}
    return _session(held, **given, time_updated=recorded.created)


def _deleted(held: Projection, recorded: Recorded) -> Projection:
    del held
    return Projection(gone=recorded.created)


def _agent_switched(held: Projection, recorded: Recorded) -> Projection:
    return _session(held, agent=recorded.data.agent, time_updated=recorded.created)


def _model_switched(held: Projection, recorded: Recorded) -> Projection:
    return _session(held, model=recorded.data.model, time_updated=recorded.created)


# -- inbox -------------------------------------------------------------------------------------------------------------------


def _put(held: Projection, *changed: rows.Input) -> Projection:
    return replace(held, inputs={**held.inputs, **{one.id: one for one in changed}})


def _admitted(held: Projection, recorded: Recorded) -> Projection:
    fact: events.PromptAdmitted = recorded.data
    if fact.message_id in held.inputs or held.transcript.message(fact.message_id):
        raise _refused(f"Message id {fact.message_id} is already taken")
    fresh = _input(fact, recorded.created, recorded.seq)
    return _put(held, replace(fresh, wake_pending=fact.request_execution))


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


def _execution_requested(held: Projection, recorded: Recorded) -> Projection:
    one = held.inputs.get(recorded.data.message_id)
    if one is None:
        return held
    recovery = _of_continuation(held, one.id)
    woken = one.wake_pending or (one.pending and recovery is None)
    held = _put(held, replace(one, execution_requests=one.execution_requests + 1, wake_pending=woken))
    return _recovery(held, replace(recovery, wake_pending=True)) if recovery and one.pending else held


def _promoted(held: Projection, recorded: Recorded) -> Projection:
    fact: events.PromptPromoted = recorded.data
    one = held.inputs.get(fact.message_id)
    if one is None:
        return _put(held, replace(_input(fact, fact.time_created, recorded.seq), promoted_seq=recorded.seq))
    same = (
        one.pending
        and (one.kind, one.delivery, one.time_created) == (fact.kind, fact.delivery, fact.time_created)
        and codec.same_json(one.prompt, codec.dump(fact.prompt))
    )
    if not same:
        raise _refused(f"Input {fact.message_id} cannot be promoted as it stands")
    return _settle_wake(_put(held, replace(one, promoted_seq=recorded.seq, wake_pending=False)), one.id)


def _withdrawn(held: Projection, recorded: Recorded) -> Projection:
    fact: events.PromptWithdrawn = recorded.data
    one = held.inputs.get(fact.message_id)
    if one is None or _moved(one, "withdrawn") is None:
        return held
    held = _put(held, _settled(one, fact.reason, fact.error, recorded.seq))
    target = next((other for other in held.inputs.values() if other.retried_by == one.id), None)
    if target and target.outcome is None:
        held = _put(held, _settled(target, fact.reason, fact.error, recorded.seq))
    return _settle_wake(held, one.id)


def _settled(one: rows.Input, outcome: messages.Outcome, error: messages.Failure | None, seq: int) -> rows.Input:
    return replace(one, outcome=outcome, error=error, settled_seq=seq, wake_pending=False)


def _moved(one: rows.Input, move: str) -> str | None:
    state = "pending" if one.pending else ("settled" if one.outcome else "running")
    return lifecycle.advance(lifecycle.INPUT, state, move)


def _delivery_changed(held: Projection, recorded: Recorded) -> Projection:
    one = held.inputs.get(recorded.data.message_id)
    return _put(held, replace(one, delivery=recorded.data.delivery)) if one and one.pending else held


def _retried(held: Projection, recorded: Recorded) -> Projection:
    fact: events.PromptRetried = recorded.data
    one = held.inputs.get(fact.message_id)
    by = fact.retry_message_id
    if one is None or one.outcome is None or (by is None) is not (one.promoted_seq is None):
        return held
    if by and any(other.retried_by == by for other in held.inputs.values()):
        raise _refused(f"Message id {by} is already taken")
    reopened = replace(one, outcome=None, error=None, settled_seq=None, retried_by=by, retries=one.retries + 1)
    return _put(held, replace(reopened, wake_pending=by is None))


# -- execution ---------------------------------------------------------------------------------------------------------------


def _execution_started(held: Projection, recorded: Recorded) -> Projection:
    fact: events.ExecutionStarted = recorded.data
    opened = {"execution_id": fact.execution_id, "execution_purpose": fact.purpose, "parked": False}
    held = _session(held, **opened, time_updated=recorded.created)
    if fact.purpose != "turn":
        return held
    waiting = [one for one in held.inputs.values() if one.pending and not _of_continuation(held, one.id)]
    return _put(held, *(replace(one, wake_pending=True) for one in waiting))


def _interrupt_requested(held: Projection, recorded: Recorded) -> Projection:
    named: str | None = recorded.data.execution_id
    if named and held.session and held.session.execution_id not in {None, named}:
        return held
    return _put(held, *(replace(one, wake_pending=False) for one in held.inputs.values() if one.wake_pending))


def _is_open(held: Projection, execution_id: str) -> bool:
    return held.session is not None and held.session.execution_id == execution_id


def _parked(held: Projection, recorded: Recorded) -> Projection:
    return _session(held, parked=True) if _is_open(held, recorded.data.execution_id) else held


def _resumed(held: Projection, recorded: Recorded) -> Projection:
    return _session(held, parked=False) if _is_open(held, recorded.data.execution_id) else held


def _close(held: Projection, execution_id: str, time: int) -> Projection:
    if not _is_open(held, execution_id):
        return held
    return _session(held, execution_id=None, execution_purpose=None, parked=False, time_updated=time)


def _execution_ended(held: Projection, recorded: Recorded) -> Projection:
    fact: events.ExecutionEnded = recorded.data
    named = [held.inputs[one] for one in fact.message_ids if one in held.inputs]
    running = [one for one in named if _moved(one, "settled")]
    held = _put(held, *(_settled(one, fact.outcome, fact.error, recorded.seq) for one in running))
    return _close_approvals(_close(held, fact.execution_id, recorded.created), recorded)


def _step_recovered(held: Projection, recorded: Recorded) -> Projection:
    fact: events.StepRecovered = recorded.data
    held = _close_approvals(_close(held, fact.execution_id, recorded.created), recorded)
    if fact.execution_id in held.recoveries:
        return held
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
    return _recovery(held, recovery)


def _recovery(held: Projection, recovery: rows.Recovery) -> Projection:
    return replace(held, recoveries={**held.recoveries, recovery.execution_id: recovery})


def _of_continuation(held: Projection, message_id: str) -> rows.Recovery | None:
    return next((one for one in held.recoveries.values() if one.continuation_message_id == message_id), None)


def _settle_wake(held: Projection, message_id: str) -> Projection:
    recovery = _of_continuation(held, message_id)
    return _recovery(held, replace(recovery, wake_pending=False)) if recovery else held


# -- approvals ---------------------------------------------------------------------------------------------------------------


def _approval_requested(held: Projection, recorded: Recorded) -> Projection:
    fact: events.ToolApprovalRequested = recorded.data
    key = (fact.assistant_message_id, fact.call_id)
    execution_id = (held.session and held.session.execution_id) or ""
    fresh = rows.Approval(fact.session_id, *key, execution_id, recorded.created, fact.deadline)
    return replace(held, approvals={key: fresh, **held.approvals})


def _approval_resolved(held: Projection, recorded: Recorded) -> Projection:
    fact: events.ToolApprovalResolved = recorded.data
    key = (fact.assistant_message_id, fact.call_id)
    one = held.approvals.get(key)
    if one is None or one.decision:
        return held
    decided = replace(one, decision=fact.decision, by=fact.by, note=fact.note)
    return replace(held, approvals={**held.approvals, key: decided})


def _close_approvals(held: Projection, recorded: Recorded) -> Projection:
    del recorded
    return replace(held, approvals={key: one for key, one in held.approvals.items() if one.decision})


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
