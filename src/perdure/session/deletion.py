"""Deleting a session, also while it runs.

Lives here: the request, from which on nothing is admitted or claimed, and the one transaction in which every row goes and
a tombstone stays. Not here: waiting for the owner to settle (the engine does, within the grace period; the sweep finishes
what its caller did not).
"""

from __future__ import annotations

from perdure.core import events
from perdure.log.unit import Unit
from perdure.session import interruption, owner, sessions
from perdure.store import port


def request(unit: Unit, session_id: str) -> None:
    """Refuse everything new and interrupt what runs. Raises `SessionNotFound`, `SessionGone` where it is gone already."""
    tx = unit.tx
    tx.claims.of_session(session_id)
    if sessions.flags(tx, session_id).deleting:
        return
    tx.sessions.set_deleting(session_id)
    interruption.request(unit, session_id, "deleted")


def request_damaged(unit: Unit, session_id: str) -> None:
    """The same where rows of the session cannot be decoded, so that no fact can be projected any more (MSG-8): whoever
    executes it finds the mark alone.
    """
    claim = unit.tx.claims.of_session(session_id)
    sessions.flags(unit.tx, session_id)
    unit.tx.sessions.set_deleting(session_id)
    if claim:
        unit.tx.claims.mark_interrupted(session_id)


def settled(tx: port.Tx, session_id: str, now: int) -> bool:
    """Whether nobody executes a session that is being deleted."""
    claim = tx.claims.of_session(session_id)
    return claim is None or owner.has_left(claim.owner_id, claim.expires_at, now)


def finish(unit: Unit, session_id: str) -> bool:
    """All rows go, the tombstone stays; False where somebody finished before. An owner still at work loses its claim."""
    session = unit.tx.sessions.flags(session_id)
    if session is None or not session.deleting:
        return False
    unit.append(events.SessionDeleted(session_id=session_id))
    unit.remove(session_id)
    return True
