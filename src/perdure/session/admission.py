"""A prompt becomes durable under its caller's id (IN-1..7, IN-10..13).

Lives here: admitting, retrying exactly, cancelling, changing delivery, running again, and the receipt of any prompt.
Not here: ringing the doorbell (the engine does, after the commit), promotion. Each verb is one unit; the database
decides every race.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure import errors, ids
from perdure.core import codec, events, messages
from perdure.core.answers import Receipt
from perdure.log.unit import Unit
from perdure.session import holding, sessions
from perdure.store import inbox as rows
from perdure.store import port
from perdure.store.sessions import SessionRow


@dataclass(frozen=True, slots=True)
class Admitted:
    """A receipt, and whether the session is to be rung."""

    receipt: Receipt
    ring: bool


def admit(
    unit: Unit,
    session_id: str,
    message_id: str,
    prompt: messages.Prompt,
    delivery: messages.Delivery,
    *,
    resume: bool,
) -> Admitted:
    """Admit a prompt, or recognise an exact retry. Raises `PromptConflict`, `InvalidInput`, and then nothing is armed or
    changed.
    """
    tx = unit.tx
    claim = tx.claims.of_session(session_id)
    session = sessions.usable(tx, session_id)
    codec.refuse_unlike("The prompt", prompt)
    row = tx.inbox.get(message_id)
    if row:
        same = (
            row.session_id == session_id
            and row.kind == "user"
            and row.admitted_delivery == delivery
            and codec.same_json(tx.inbox.prompt(row), codec.dump(prompt))
        )
        if not same:
            raise errors.PromptConflict(session_id, message_id)
        return _again(unit, session, row, resume=resume)
    holding.leave(unit, session)
    if resume and claim is None:
        quiet(tx, session)
    admitted = events.PromptAdmitted(
        session_id=session_id,
        message_id=message_id,
        kind="user",
        prompt=prompt,
        delivery=delivery,
        request_execution=resume,
    )
    try:
        unit.append(admitted)
    except errors.LifecycleConflict:  # another kind of message has that id
        raise errors.PromptConflict(session_id, message_id) from None
    return Admitted(receipt_of(tx, session_id, message_id), resume)


def _again(unit: Unit, session: SessionRow, row: rows.InputRow, *, resume: bool) -> Admitted:
    """An exact retry: nothing is written but the wish to run what still waits (IN-2, IN-5)."""
    ring = False
    if resume and row.pending:
        holding.leave(unit, session)
        ring = request_execution(unit, session.id, row.id)
    return Admitted(receipt_of(unit.tx, session.id, row.id), ring)


def request_execution(unit: Unit, session_id: str, message_id: str) -> bool:
    """Store that a pending input is wanted to run (IN-5); whether it is pending and wanted afterwards.

    Raises `LifecycleConflict` for an input that does not exist in this session.
    """
    row = unit.tx.inbox.get(message_id)
    if row is None or row.session_id != session_id:
        msg = f"Input {message_id} does not exist in session {session_id}"
        raise errors.LifecycleConflict(msg)
    if not row.pending:
        return False
    recovery = unit.tx.recoveries.of_continuation(message_id)
    if recovery.wake_pending if recovery else row.wake_pending:
        return True
    session = unit.tx.sessions.get(session_id)
    if session and unit.tx.claims.of_session(session_id) is None:
        quiet(unit.tx, session)
    event_id = ids.execution_requested_event(message_id, row.execution_requests)
    unit.append(events.PromptExecutionRequested(session_id=session_id, message_id=message_id), event_id=event_id)
    return True


def quiet(tx: port.Tx, session: SessionRow) -> None:
    """Fresh intent in a session at rest starts the count of attempts anew (REC-6). The caller saw that it has no claim."""
    if not session.wake_attempts or session.execution_id or tx.recoveries.waiting(session.id):
        return
    if not any(row.wake_pending for row in tx.inbox.pending(session.id)):
        tx.sessions.set_wake_attempts(session.id, 0)


def resume(unit: Unit, session_id: str) -> bool:
    """Want every pending input to run, a continuation included; whether there is anything to ring for."""
    holding.leave(unit, sessions.usable(unit.tx, session_id))
    pending = unit.tx.inbox.pending(session_id)
    wanted = [request_execution(unit, session_id, row.id) for row in pending]
    return any(wanted)


def cancel(unit: Unit, session_id: str, message_id: str) -> Receipt:
    """Withdraw a pending prompt. Raises `PromptNotFound`, `LifecycleConflict` where it is not pending or not the
    caller's.
    """
    row = _own_pending(unit, session_id, message_id)
    unit.append(events.PromptWithdrawn(session_id=session_id, message_id=row.id, reason="cancelled"))
    return receipt_of(unit.tx, session_id, message_id)


def change_delivery(unit: Unit, session_id: str, message_id: str, delivery: messages.Delivery) -> Receipt:
    """Deliver a pending prompt otherwise. Raises as `cancel`."""
    row = _own_pending(unit, session_id, message_id)
    if row.delivery != delivery:
        unit.append(events.PromptDeliveryChanged(session_id=session_id, message_id=message_id, delivery=delivery))
    return receipt_of(unit.tx, session_id, message_id)


def _own(tx: port.Tx, session_id: str, message_id: str) -> rows.InputRow:
    row = tx.inbox.get(message_id)
    if row is None or row.session_id != session_id:
        msg = f"Prompt {message_id} was never admitted to session {session_id}"
        raise errors.PromptNotFound(msg)
    return row


def _own_pending(unit: Unit, session_id: str, message_id: str) -> rows.InputRow:
    sessions.usable(unit.tx, session_id)
    row = _own(unit.tx, session_id, message_id)
    if row.kind != "user" or not row.pending:
        msg = f"Prompt {message_id} is not waiting"
        raise errors.LifecycleConflict(msg)
    return row


def retry(unit: Unit, session_id: str, message_id: str) -> Admitted:
    """Run a failed or interrupted prompt again (IN-12). Raises `PromptNotFound`, `LifecycleConflict`."""
    tx = unit.tx
    claim = tx.claims.of_session(session_id)
    session = sessions.usable(tx, session_id)
    row = _own(tx, session_id, message_id)
    if row.kind != "user" or row.outcome not in {"failed", "interrupted"}:
        msg = f"Prompt {message_id} has no failed or interrupted outcome to retry"
        raise errors.LifecycleConflict(msg)
    holding.leave(unit, session)
    if claim is None:
        quiet(tx, session)
    if row.promoted_seq is None:
        unit.append(events.PromptRetried(session_id=session_id, message_id=message_id))
        return Admitted(receipt_of(tx, session_id, message_id), ring=True)
    retry_id = ids.retry_message(message_id, row.retries + 1)
    unit.append(events.PromptRetried(session_id=session_id, message_id=message_id, retry_message_id=retry_id))
    unit.append(
        events.PromptAdmitted(
            session_id=session_id,
            message_id=retry_id,
            kind="synthetic",
            prompt=messages.text_prompt("The last attempt did not finish. Please answer the request above again."),
            delivery="queue",
            request_execution=True,
        )
    )
    return Admitted(receipt_of(tx, session_id, message_id), ring=True)


def receipt_of(tx: port.Tx, session_id: str, message_id: str) -> Receipt:
    """The receipt of any input. Raises `PromptNotFound`."""
    row = _own(tx, session_id, message_id)
    running = row.promoted_seq is not None
    if running and row.retried_by and (again := tx.inbox.get(row.retried_by)):
        running = again.promoted_seq is not None
    return Receipt(
        row.id,
        session_id,
        "settled" if row.outcome else ("running" if running else "admitted"),
        row.delivery,
        row.admitted_seq,
        row.promoted_seq,
        row.settled_seq,
        row.outcome,
        row.error,
        _usage(tx, row, running=running),
    )


def _usage(tx: port.Tx, row: rows.InputRow, *, running: bool) -> messages.Usage:
    """What the settled turns of an input used, and the one that is not settled yet, if it runs in that."""
    before = row.usage or messages.Usage()
    session = tx.sessions.get(row.session_id) if running and row.outcome is None else None
    return before.plus(session.turn_usage) if session and session.turn_usage else before
