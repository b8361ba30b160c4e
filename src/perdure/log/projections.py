"""What each fact of a session does to its rows, inside the commit.

Lives here: one small function a fact, consequences only, in one table. Messages and parts go through the fold of
`core/fold.py`, so rows are what memory is. Not here: decisions (services check before they append; a projector refuses
only what would be a lie), claims and drafts (operational, never made by a projector).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import errors, ids
from perdure.core import codec, events, fold, messages, view
from perdure.store import port

Recorded = events.Recorded[Any]
Projector = Callable[[port.Tx, Recorded], None]


class RowView:
    """A transaction as the fold sees it."""

    __slots__ = ("_session_id", "_tx")

    def __init__(self, tx: port.Tx, session_id: str) -> None:
        """Look at one session."""
        self._tx, self._session_id = tx, session_id

    def newest_assistant(self) -> messages.Assistant | None:
        """The newest assistant row."""
        return self._tx.messages.newest_assistant(self._session_id)

    def last_part(self, message_id: str, kind: messages.PartKind, part_id: str) -> tuple[int, messages.Part] | None:
        """The last part row of that kind and id."""
        return self._tx.messages.last_part(self._session_id, message_id, kind, part_id)

    def open_parts(self, message_id: str) -> list[tuple[int, messages.Part]]:
        """Part rows that are open."""
        return self._tx.messages.open_parts(self._session_id, message_id)

    def next_ordinal(self, message_id: str) -> int:
        """Where the next part row goes."""
        return self._tx.messages.next_ordinal(message_id)

    def message(self, message_id: str) -> messages.Message | None:
        """A message row of this session."""
        return self._tx.messages.get(message_id) if self._tx.messages.owner(message_id) == self._session_id else None


def project(tx: port.Tx, recorded: Recorded) -> None:
    """Bring the rows up to one more fact. Facts of other aggregates change nothing."""
    kind: type[Any] = recorded.data.__class__
    if kind not in fold.RULES:
        return
    session_id = recorded.aggregate_id
    changes = fold.changes(RowView(tx, session_id), recorded)
    for change in changes:
        _apply(tx, session_id, change)
    rule = ROWS.get(kind)
    if rule:
        rule(tx, recorded)
    usage = _USAGE.get(kind)
    if usage and (changes or usage == "always"):
        _count(tx, recorded)


def _apply(tx: port.Tx, session_id: str, change: view.Change) -> None:
    if isinstance(change, view.PutPart):
        tx.messages.put_part(session_id, change.message_id, change.ordinal, change.part)
    elif isinstance(change, view.Update):
        tx.messages.update(change.message)
    elif not tx.messages.insert(session_id, change.message):
        msg = f"Message id {change.message.id} is already taken"
        raise errors.LifecycleConflict(msg)


_USAGE: dict[type[Any], str] = {events.StepEnded: "changed", events.StepFailed: "changed", events.UsageRecorded: "always"}


def _count(tx: port.Tx, recorded: Recorded) -> None:
    fact = recorded.data
    if isinstance(fact, events.StepFailed) and fact.tokens is None and fact.cost is None:
        return
    session = tx.sessions.get(recorded.aggregate_id)
    if session and session.forked_from and recorded.seq <= session.forked_from.seq:
        return  # inherited: what the parent used is counted there
    tx.sessions.add_usage(recorded.aggregate_id, fact.tokens, fact.cost)


# -- session -----------------------------------------------------------------------------------------------------------------


def _created(tx: port.Tx, recorded: Recorded) -> None:
    if not tx.sessions.insert(recorded.data, recorded.created):
        msg = f"Session {recorded.aggregate_id} is already projected"
        raise errors.SessionAlreadyProjected(msg)


def _updated(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.update(recorded.aggregate_id, recorded.data.changes, recorded.created)


def _deleted(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.put_tombstone(recorded.aggregate_id, recorded.created)
    tx.sessions.delete(recorded.aggregate_id)


def _agent_switched(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_agent(recorded.aggregate_id, recorded.data.agent, recorded.created)


def _model_switched(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_model(recorded.aggregate_id, recorded.data.model, recorded.created)


# -- inbox -------------------------------------------------------------------------------------------------------------------


def _admitted(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptAdmitted = recorded.data
    taken = tx.messages.owner(fact.message_id) is not None or not tx.inbox.insert(
        fact.message_id,
        fact.session_id,
        fact.kind,
        fact.prompt,
        fact.delivery,
        time_created=recorded.created,
        admitted_seq=recorded.seq,
        wake_pending=fact.request_execution,
    )
    if taken:
        msg = f"Message id {fact.message_id} is already taken"
        raise errors.LifecycleConflict(msg)


def _execution_requested(tx: port.Tx, recorded: Recorded) -> None:
    message_id = recorded.data.message_id
    tx.inbox.count_request(message_id)
    if tx.recoveries.of_continuation(message_id):
        tx.recoveries.arm(message_id)
    else:
        tx.inbox.request(message_id)


def _promoted(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptPromoted = recorded.data
    row = tx.inbox.get(fact.message_id)
    if row is None:
        tx.inbox.insert(
            fact.message_id,
            fact.session_id,
            fact.kind,
            fact.prompt,
            fact.delivery,
            time_created=fact.time_created,
            admitted_seq=recorded.seq,
            promoted_seq=recorded.seq,
        )
        return
    same = (
        row.session_id == fact.session_id
        and row.kind == fact.kind
        and row.delivery == fact.delivery
        and row.time_created == fact.time_created
        and codec.same_json(row.prompt, codec.dump(fact.prompt))
    )
    promoted = same and (row.promoted_seq == recorded.seq or tx.inbox.promote(fact.message_id, recorded.seq))
    if not promoted:
        msg = f"Input {fact.message_id} cannot be promoted as it stands"
        raise errors.LifecycleConflict(msg)
    tx.recoveries.settle_wake(fact.session_id, fact.message_id)


def _withdrawn(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptWithdrawn = recorded.data
    tx.inbox.settle(fact.message_id, fact.reason, fact.error, recorded.seq)
    if target := tx.inbox.target_of(fact.message_id):
        tx.inbox.settle(target.id, fact.reason, fact.error, recorded.seq)
    tx.recoveries.settle_wake(fact.session_id, fact.message_id)


def _delivery_changed(tx: port.Tx, recorded: Recorded) -> None:
    tx.inbox.set_delivery(recorded.data.message_id, recorded.data.delivery)


def _retried(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptRetried = recorded.data
    tx.inbox.reopen(fact.message_id, fact.retry_message_id, wake_pending=fact.retry_message_id is None)


# -- execution ---------------------------------------------------------------------------------------------------------------


def _execution_started(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.ExecutionStarted = recorded.data
    tx.sessions.open_execution(fact.session_id, fact.execution_id, fact.purpose, recorded.created)
    if fact.purpose == "turn":
        tx.inbox.request_all(fact.session_id)


def _interrupt_requested(tx: port.Tx, recorded: Recorded) -> None:
    tx.inbox.clear_wakes(recorded.aggregate_id, recorded.seq)


def _parked(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_parked(recorded.aggregate_id, recorded.data.execution_id, parked=True)


def _resumed(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_parked(recorded.aggregate_id, recorded.data.execution_id, parked=False)


def _execution_ended(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.ExecutionEnded = recorded.data
    tx.sessions.close_execution(fact.session_id, fact.execution_id, recorded.created)
    for message_id in fact.message_ids:
        tx.inbox.settle(message_id, fact.outcome, fact.error, recorded.seq)
    tx.approvals.close(fact.session_id)


def _step_interrupted(tx: port.Tx, recorded: Recorded) -> None:
    tx.approvals.close(recorded.aggregate_id)


def _step_recovered(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.StepRecovered = recorded.data
    tx.sessions.close_execution(fact.session_id, fact.execution_id, recorded.created)
    tx.recoveries.insert(fact, ids.continue_message(fact.execution_id), recorded.created)
    tx.approvals.close(fact.session_id)


# -- approvals ---------------------------------------------------------------------------------------------------------------


def _approval_requested(tx: port.Tx, recorded: Recorded) -> None:
    session = tx.sessions.get(recorded.aggregate_id)
    execution_id = session.execution_id if session and session.execution_id else ""
    tx.approvals.put(recorded.data, execution_id, recorded.created)


def _approval_resolved(tx: port.Tx, recorded: Recorded) -> None:
    tx.approvals.resolve(recorded.data)


ROWS: dict[type[Any], Projector] = {
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
    events.StepInterrupted: _step_interrupted,
    events.StepRecovered: _step_recovered,
    events.ToolApprovalRequested: _approval_requested,
    events.ToolApprovalResolved: _approval_resolved,
}
"""Facts that change more than the transcript."""
