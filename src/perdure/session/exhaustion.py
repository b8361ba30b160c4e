"""Giving up on a turn that crashed its owner too often (REC-6).

Lives here: the budget and the one commit that ends such a turn, so that the session is idle and usable again. Not here:
counting, which belongs to whoever takes a claim.
"""

from __future__ import annotations

from perdure.core import events, messages
from perdure.log.unit import Unit
from perdure.session import recovery
from perdure.store import sessions

REASON = "repeated_crashes"


def budget_of(session: sessions.SessionRow, default: int) -> int:
    """How many crashes a turn of this session may survive."""
    chosen = session.policy.recovery_budget
    return default if chosen is None else chosen


def give_up(unit: Unit, session: sessions.SessionRow) -> None:
    """End the hopeless turn, or withdraw the input nobody gets to start, in the caller's commit."""
    failure = messages.Failure(REASON, f"The process died {session.wake_attempts} times while working on this")
    dead = unit.tx.recoveries.waiting(session.id)
    if dead:
        unit.tx.recoveries.set_error(dead.execution_id, REASON)
        _withdraw(unit, session.id, dead.continuation_message_id, failure)
        recovery.end(unit, session.id, dead.execution_id, "failed", reason=REASON, error=failure)
    elif session.parked and session.execution_id:
        newest = unit.tx.messages.newest_assistant(session.id)
        if newest and newest.time.completed is None:
            unit.append(events.StepInterrupted(session_id=session.id, assistant_message_id=newest.id, error=failure))
        recovery.end(unit, session.id, session.execution_id, "failed", reason=REASON, error=failure)
    else:
        woken = next((row for row in unit.tx.inbox.pending(session.id) if row.wake_pending), None)
        if woken:
            _withdraw(unit, session.id, woken.id, failure)
        unit.tx.sessions.set_wake_attempts(session.id, 0)


def _withdraw(unit: Unit, session_id: str, message_id: str, failure: messages.Failure) -> None:
    unit.append(events.PromptWithdrawn(session_id=session_id, message_id=message_id, reason="failed", error=failure))
