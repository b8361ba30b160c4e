"""Why a session does not go on, and what would free it.

Lives here: one explanation for each session that is not at rest and that no living owner executes. Not here: freeing any
(a server that runs on the file does most of it by itself), what is wrong with the file (`doctor.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.session import recovery, status
from perdure.store import port

LIMIT = 1000
SERVE = "start a server on this database: its sweep goes on by itself"


@dataclass(frozen=True, slots=True)
class Stuck:
    """A session that waits: its status, why, and what would free it."""

    session_id: str
    status: str
    why: str
    remedy: str


def explain(tx: port.Tx, now: int, *, budget: int) -> list[Stuck]:
    """Every session that waits for something, up to a thousand; `budget` as in `status.status_of`."""
    found = [_explain(tx, session_id, now, budget) for session_id in tx.sessions.stirring(LIMIT)]
    deleting = [
        Stuck(one, "deleting", "its deletion was asked for and is not finished", SERVE)
        for one in tx.sessions.deleting()
    ]
    known = {one.session_id for one in deleting}
    return [*deleting, *(one for one in found if one and one.session_id not in known)]


def _explain(tx: port.Tx, session_id: str, now: int, budget: int) -> Stuck | None:
    claim = tx.claims.of_session(session_id)
    if claim and not claim.recovery_error and not recovery.is_dead(claim, now):
        return None
    seen = status.status_of(tx, session_id, now, budget=budget)
    why = seen.reason or seen.status
    if seen.cause == "damaged":
        return Stuck(session_id, seen.status, why, f"perdure rebuild {session_id}")
    if claim and claim.recovery_error:
        return Stuck(session_id, seen.status, why, f"mend what it names, or: perdure recoveries dismiss {claim.id}")
    if claim:
        return Stuck(session_id, seen.status, f"{why}: its process died in phase {claim.phase}", SERVE)
    if seen.status == "held":
        return Stuck(session_id, seen.status, "it was imported", "resume it, or send it a prompt")
    if approvals := tx.approvals.waiting(session_id):
        calls = ", ".join(row.call_id for row in approvals)
        return Stuck(session_id, seen.status, f"calls wait for a person: {calls}", f"perdure approve {session_id} CALL")
    waiting = tx.recoveries.waiting(session_id)
    if waiting and not waiting.wake_pending:
        ways = f"perdure recoveries retry {waiting.execution_id}, or dismiss, or send a steering prompt"
        return Stuck(session_id, seen.status, "a recovered turn waits for a decision", ways)
    if seen.status == "waiting":
        return Stuck(session_id, seen.status, why, "resume it, or send it a prompt")
    return Stuck(session_id, seen.status, why, SERVE)
