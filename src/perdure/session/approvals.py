"""Decisions about calls that wait for a person (APR).

Lives here: finding, listing and deciding approvals, and the denial that a deadline brings. Not here: which calls need
one (`runner/step.py`), parking and resuming (`runner/`). The first decision wins, by the row and not by who asks first
here; a deny's commit carries the failure the model sees, so a denied call can never run.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure import errors
from perdure.core import events, messages
from perdure.log.unit import Unit
from perdure.session import sessions
from perdure.store import port
from perdure.store.approvals import ApprovalRow


@dataclass(frozen=True, slots=True)
class Asked:
    """An approval and the call it is about; neither name nor input where the stored call cannot be read."""

    row: ApprovalRow
    name: str | None = None
    input: messages.JsonObject | None = None


def listed(tx: port.Tx) -> list[Asked]:
    """Everything that waits for a decision, the oldest first; a call that cannot be read hides no other (MSG-8)."""
    return [_as_far(tx, row) for row in tx.approvals.list()]


def _as_far(tx: port.Tx, row: ApprovalRow) -> Asked:
    try:
        return asked(tx, row)
    except (errors.Undecodable, errors.ApprovalNotFound):
        return Asked(row)


def asked(tx: port.Tx, row: ApprovalRow) -> Asked:
    """What exactly an approval is about."""
    found = tx.messages.last_part(row.session_id, row.message_id, "tool", row.call_id)
    part = found[1] if found else None
    if not isinstance(part, messages.ToolPart) or part.approval is None:
        raise errors.ApprovalNotFound(f"No call {row.call_id} of session {row.session_id} waits for approval")
    return Asked(row, part.name, part.approval.input)


def decide(
    unit: Unit,
    session_id: str,
    call_id: str,
    decision: messages.Decision,
    *,
    by: str,
    note: str | None = None,
    message_id: str | None = None,
) -> ApprovalRow:
    """Decide about a waiting call; the same decision again changes nothing.

    A call id is unique within one assistant message alone: without `message_id`, which names that, it is the call that waits.
    Raises `ApprovalNotFound`, `AlreadyDecided`, `SessionNotFound`, `SessionGone`.
    """
    sessions.usable(unit.tx, session_id)
    row = unit.tx.approvals.find(session_id, call_id, message_id)
    if row is None:
        raise errors.ApprovalNotFound(f"No call {call_id} of session {session_id} waits for approval")
    if row.decision == decision:
        return row
    if row.decision:
        raise errors.AlreadyDecided(f"Call {call_id} is already decided: {row.decision}")
    _resolve(unit, row, decision, by, note)
    return unit.tx.approvals.find(session_id, call_id, row.message_id) or row


def deny_overdue(unit: Unit, row: ApprovalRow) -> bool:
    """Deny a call whose deadline has passed; False where it was decided meanwhile."""
    current = unit.tx.approvals.find(row.session_id, row.call_id, row.message_id)
    if current is None or current.decision or current.deadline is None or current.deadline > unit.now:
        return False
    _resolve(unit, current, "deny", "deadline", "Nobody decided in time")
    return True


def _resolve(unit: Unit, row: ApprovalRow, decision: messages.Decision, by: str, note: str | None) -> None:
    resolved = events.ToolApprovalResolved(
        session_id=row.session_id,
        assistant_message_id=row.message_id,
        call_id=row.call_id,
        decision=decision,
        by=by,
        note=note,
    )
    unit.append(resolved)
    if decision == "deny":
        words = "This call was denied" + (f": {note}" if note else "")
        unit.append(
            events.ToolFailed(
                session_id=row.session_id,
                assistant_message_id=row.message_id,
                call_id=row.call_id,
                error=messages.Failure("denied", words),
            )
        )
