"""Giving up on a turn that crashed its owner too often, or whose continuation comes too late (REC-6, REC-7).

Lives here: the budget, the age, and the one commit that ends such a turn, so that the session is idle and usable again. Not
here: counting, which belongs to whoever takes a claim; a claim that is too old when it is recovered (`recovery.py`).
"""

from __future__ import annotations

from perdure.core import events, inbox, messages
from perdure.log.unit import Unit
from perdure.session import recovery
from perdure.store import port, sessions

REASON = "repeated_crashes"


def budget_of(session: sessions.SessionRow, default: int) -> int:
    """How many crashes a turn of this session may survive."""
    chosen = session.policy.recovery_budget
    return default if chosen is None else chosen


def too_late(tx: port.Tx, session: sessions.SessionRow, choice: inbox.Choice, now: int) -> bool:
    """Whether what would run is a continuation that nobody asked for and that has waited, beyond the time it had to, for
    longer than the session lets a dead turn go on.
    """
    age = session.policy.recovery_max_age_ms
    dead = None if age is None else tx.recoveries.waiting(session.id)
    if age is None or dead is None or choice.promote != (dead.continuation_message_id,):
        return False
    row = tx.inbox.get(dead.continuation_message_id)
    asked_for = row is not None and row.execution_requests > 0
    return not asked_for and now - max(dead.time_created, dead.not_before or 0) > age


def give_up(unit: Unit, session: sessions.SessionRow, *, late: bool = False) -> None:
    """End the hopeless turn, or withdraw the input nobody gets to start, in the caller's commit."""
    failure = messages.Failure(REASON, f"The process died {session.wake_attempts} times while working on this")
    dead = unit.tx.recoveries.waiting(session.id)
    if dead and late:
        recovery.withdraw(unit, session.id, dead.execution_id, reason=recovery.TOO_OLD)
    elif dead:
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
