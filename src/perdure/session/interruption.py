"""Stopping a turn for good, from any node, with no claim (EX-8).

Lives here: the one commit that acknowledges an interrupt and the facts by which its owner settles it. Not here:
cancelling what runs in this process (`runner/`), recovery of a marked claim whose owner died (`recovery.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core import events
from perdure.log.unit import Unit
from perdure.session import recovery, sessions


@dataclass(frozen=True, slots=True)
class Requested:
    """Whether anything was there to stop, and the claim that is marked now: its owner has to settle."""

    found: bool
    marked: str | None = None


def request(unit: Unit, session_id: str, reason: str, execution_id: str | None = None) -> Requested:
    """Record the interrupt and mark whoever executes.

    Settles in the same commit what has no owner: a waiting continuation, a parked turn, an open turn without a claim. A
    request that names another execution than the open one changes nothing. Raises `SessionNotFound`, `SessionGone`.
    """
    tx = unit.tx
    claim = tx.claims.of_session(session_id)
    session = sessions.get(tx, session_id)
    waiting = tx.recoveries.waiting(session_id)
    open_id = session.execution_id or (claim.id if claim else None) or (waiting.execution_id if waiting else None)
    if execution_id is not None and execution_id != open_id:
        return Requested(found=False)
    if claim:
        tx.claims.mark_interrupted(session_id)
    unit.append(events.ExecutionInterruptRequested(session_id=session_id, execution_id=execution_id, reason=reason))
    if waiting:
        recovery.withdraw(unit, session_id, waiting.execution_id, reason="interrupt")
    if session.execution_id and (session.parked or not claim):
        _end_unowned(unit, session_id, session.execution_id)
    return Requested(open_id is not None, claim.id if claim else None)


def _end_unowned(unit: Unit, session_id: str, execution_id: str) -> None:
    """A parked turn, or one an imported log left open."""
    recovery.fail_compaction(unit, session_id)
    current = recovery.end_parts(unit, session_id)
    if current:
        unit.append(
            events.StepInterrupted(session_id=session_id, assistant_message_id=current.id, error=recovery.INTERRUPTED)
        )
    recovery.end(unit, session_id, execution_id, "interrupted", reason="interrupt")
