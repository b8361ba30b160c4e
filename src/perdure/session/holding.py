"""Leaving the held state of an imported session (LOG-28).

Lives here: the one step by which a held session becomes an ordinary one, recovering what its log left open like a dead
claim. Not here: how it became held (`maintenance/`).
"""

from __future__ import annotations

from perdure.core import codec, events
from perdure.log.unit import Unit
from perdure.session import recovery
from perdure.store import claims, sessions

STARTED = codec.versioned(events.ExecutionStarted)


def leave(unit: Unit, session: sessions.SessionRow) -> None:
    """Take a held session back into service; of any other session this changes nothing."""
    if not session.held:
        return
    unit.tx.sessions.set_held(session.id, held=False)
    if session.execution_id is None or session.parked or session.execution_purpose is None:
        return
    newest = unit.tx.messages.newest_assistant(session.id)
    compaction = unit.tx.messages.newest_compaction(session.id)
    open_step = newest is not None and newest.time.completed is None
    summarising = compaction is not None and compaction.status == "running"
    left = claims.ClaimRow(
        id=session.execution_id,
        session_id=session.id,
        owner_id="",
        purpose=session.execution_purpose,
        assistant_message_id=newest.id if newest and open_step else None,
        phase="unknown" if open_step or summarising else "continue",
        interrupted=interrupt_asked(unit, session.id),
        time_created=unit.now,
        expires_at=0,
        recovery_error=None,
        recovery_attempts=0,
        recovery_not_before=None,
    )
    recovery.close(unit, left)


def interrupt_asked(unit: Unit, session_id: str) -> bool:
    """Whether the log holds an interrupt request for the open execution: one after its start."""
    log = unit.tx.events
    return log.newest_interrupt(session_id) > log.newest_of(session_id, STARTED)
