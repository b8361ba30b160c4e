"""What each fact of a session does to its rows, inside the commit.

Lives here: one small function a fact, consequences only, in one table. Messages and parts go through the fold of
`core/fold.py`, so rows are what memory is. Not here: decisions (services check before they append; a projector refuses
only what would be a lie), claims and drafts (operational, never made by a projector).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import errors, ids
from perdure.core import bodies, codec, events, fold, lifecycle, messages, projection, view
from perdure.store import inbox, port

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
    changes = fold.changes(RowView(tx, recorded.aggregate_id), recorded)
    rule = ROWS.get(kind)
    if rule and (changes or kind not in projection.ONLY_IF_TAKEN):
        rule(tx, recorded)
    for change in changes:
        _apply(tx, recorded, change)
    usage = _USAGE.get(kind)
    if usage and (changes or usage == "always"):
        _count(tx, recorded)


def _apply(tx: port.Tx, recorded: Recorded, change: view.Change) -> None:
    session_id = recorded.aggregate_id
    if isinstance(change, view.PutPart):
        part = change.part
        tx.messages.put_part(session_id, change.message_id, change.ordinal, part, bodies.holder(recorded, part))
    elif isinstance(change, view.Update):
        tx.messages.update(change.message)
    elif not tx.messages.insert(session_id, change.message) and not _known(tx, session_id, change.message):
        msg = f"Message id {change.message.id} is already taken"
        raise errors.LifecycleConflict(msg)


def _known(tx: port.Tx, session_id: str, message: messages.Message) -> bool:
    """Whether that very message is there already, so that a fact projected again changes nothing (IN-9)."""
    return tx.messages.owner(message.id) == session_id and tx.messages.get(message.id) == message


_USAGE: dict[type[Any], str] = {
    events.StepEnded: "changed",
    events.StepFailed: "changed",
    events.UsageRecorded: "always",
}


def _count(tx: port.Tx, recorded: Recorded) -> None:
    fact = recorded.data
    if isinstance(fact, events.StepFailed) and fact.tokens is None and fact.cost is None:
        return
    session = tx.sessions.get(recorded.aggregate_id)
    if session is None or (session.forked_from and recorded.seq <= session.forked_from.seq):
        return  # inherited: what the parent used is counted there
    used = messages.usage_of(fact.tokens, fact.cost)
    turn = session.turn_usage.plus(used) if session.turn_usage else used
    tx.sessions.set_usage(session.id, session.usage.plus(used), turn)


# -- session -----------------------------------------------------------------------------------------------------------------


def _created(tx: port.Tx, recorded: Recorded) -> None:
    if not tx.sessions.insert(recorded.data, recorded.created):
        msg = f"Session {recorded.aggregate_id} is already projected"
        raise errors.SessionAlreadyProjected(msg)


def _updated(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.update(recorded.aggregate_id, recorded.data.changes, recorded.created)


def _deleted(tx: port.Tx, recorded: Recorded) -> None:
    tx.messages.flush()
    tx.content.release(recorded.aggregate_id)
    tx.sessions.put_tombstone(recorded.aggregate_id, recorded.created)
    tx.sessions.delete(recorded.aggregate_id)
    tx.forget()


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


def _own(tx: port.Tx, recorded: Recorded, message_id: str) -> inbox.InputRow | None:
    """The input a fact names, if it is one of the fact's own session."""
    row = tx.inbox.get(message_id)
    return row if row and row.session_id == recorded.aggregate_id else None


def _moved(row: inbox.InputRow, move: str) -> bool:
    state = "pending" if row.pending else ("settled" if row.outcome else "running")
    return lifecycle.advance(lifecycle.INPUT, state, move) is not None


def _execution_requested(tx: port.Tx, recorded: Recorded) -> None:
    row = _own(tx, recorded, recorded.data.message_id)
    if row is None:
        return
    tx.inbox.count_request(row.id)
    if tx.recoveries.of_continuation(row.id) is None:
        tx.inbox.request(row.id)
    elif row.pending:
        tx.recoveries.arm(row.id)


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
        and codec.same_json(tx.inbox.prompt(row), codec.dump(fact.prompt))
    )
    promoted = same and (row.promoted_seq == recorded.seq or tx.inbox.promote(fact.message_id, recorded.seq))
    if not promoted:
        msg = f"Input {fact.message_id} cannot be promoted as it stands"
        raise errors.LifecycleConflict(msg)
    if row.kind == "synthetic":  # perhaps a continuation
        tx.recoveries.settle_wake(fact.session_id, fact.message_id)


def _withdrawn(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptWithdrawn = recorded.data
    row = _own(tx, recorded, fact.message_id)
    if row is None or not _moved(row, "withdrawn"):
        return
    tx.inbox.settle(fact.message_id, fact.reason, fact.error, recorded.seq)
    if target := tx.inbox.target_of(fact.message_id):
        tx.inbox.settle(target.id, fact.reason, fact.error, recorded.seq)
    tx.recoveries.settle_wake(fact.session_id, fact.message_id)


def _delivery_changed(tx: port.Tx, recorded: Recorded) -> None:
    if row := _own(tx, recorded, recorded.data.message_id):
        tx.inbox.set_delivery(row.id, recorded.data.delivery)


def _retried(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.PromptRetried = recorded.data
    row, by = _own(tx, recorded, fact.message_id), fact.retry_message_id
    if row is None or row.outcome is None or (by is None) is not (row.promoted_seq is None):
        return
    if by and tx.inbox.target_of(by):
        msg = f"Message id {by} is already taken"
        raise errors.LifecycleConflict(msg)
    tx.inbox.reopen(row.id, by, wake_pending=by is None)


# -- execution ---------------------------------------------------------------------------------------------------------------


def _execution_started(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.ExecutionStarted = recorded.data
    tx.sessions.open_execution(fact.session_id, fact.execution_id, fact.purpose, recorded.created)
    if fact.purpose == "turn":
        tx.inbox.request_all(fact.session_id)


def _interrupt_requested(tx: port.Tx, recorded: Recorded) -> None:
    named: str | None = recorded.data.execution_id
    session = tx.sessions.get(recorded.aggregate_id) if named else None
    if session and session.execution_id not in {None, named}:
        return
    tx.inbox.clear_wakes(recorded.aggregate_id, recorded.seq)


def _parked(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_parked(recorded.aggregate_id, recorded.data.execution_id, parked=True)


def _resumed(tx: port.Tx, recorded: Recorded) -> None:
    tx.sessions.set_parked(recorded.aggregate_id, recorded.data.execution_id, parked=False)


def _execution_ended(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.ExecutionEnded = recorded.data
    session = tx.sessions.get(fact.session_id)
    used = session.turn_usage if session else None
    tx.sessions.close_execution(fact.session_id, fact.execution_id, recorded.created, settled=True)
    for message_id in fact.message_ids:
        row = _own(tx, recorded, message_id)
        if row and _moved(row, "settled"):
            total = row.usage.plus(used) if row.usage and used else used
            tx.inbox.settle(message_id, fact.outcome, fact.error, recorded.seq, total)
    tx.approvals.close(fact.session_id)


def _step_interrupted(tx: port.Tx, recorded: Recorded) -> None:
    tx.approvals.close(recorded.aggregate_id)


def _step_recovered(tx: port.Tx, recorded: Recorded) -> None:
    fact: events.StepRecovered = recorded.data
    tx.sessions.close_execution(fact.session_id, fact.execution_id, recorded.created)
    tx.approvals.close(fact.session_id)
    amid = fact.assistant_message_id
    if amid and tx.messages.owner(amid) != fact.session_id:
        fact = events.replace(fact, assistant_message_id=None)
    newest = tx.messages.newest_assistant(fact.session_id)
    inserted = tx.recoveries.insert(fact, ids.continue_message(fact.execution_id), recorded.created)
    if inserted and newest and newest.retry and newest.time.completed is None:
        tx.recoveries.set_back_off(fact.execution_id, newest.retry.at, newest.retry.attempt)


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
