"""Rows of `session_execution`: the claim that lets exactly one owner execute a session.

Every change is written at once. What a connection has seen is kept beside, from unit to unit too, until another connection
commits or something is rolled back (`group_commit.py`): each unit of a turn is fenced by it.
"""

from __future__ import annotations

from typing import Any

from perdure.core import events
from perdure.core.value import Value, replace


class ClaimRow(Value):
    """A claim; its id is the execution's. `interrupted` is the mark its owner must settle first."""

    id: str
    session_id: str
    owner_id: str
    purpose: events.Purpose
    assistant_message_id: str | None
    phase: events.Phase
    interrupted: bool
    time_created: int
    expires_at: int
    recovery_error: str | None = None
    recovery_attempts: int = 0
    recovery_not_before: int | None = None


def _row(row: Any) -> ClaimRow:
    columns: list[Any] = [*row]
    columns[6] = bool(row[6])
    return ClaimRow(*columns)


KEPT = 1024


class Claims:
    """Verbs on claims. Each that changes one names its owner, and answers whether it was still that owner's."""

    __slots__ = ("_c", "_claimed", "_of", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection
        self.forget()

    def forget(self) -> None:
        """What is known may no longer be so."""
        self._of: dict[str, ClaimRow | None] = {}  # by session, None where it has none
        self._claimed: dict[str, str] = {}  # session by claim

    def keep(self) -> None:
        """The unit ended; what is known serves the next ones, within bounds."""
        if len(self._of) > KEPT:
            self.forget()

    def _know(self, session_id: str, claim: ClaimRow | None) -> ClaimRow | None:
        before = self._of.get(session_id)
        if before:
            del self._claimed[before.id]
        self._of[session_id] = claim
        if claim:
            self._claimed[claim.id] = session_id
        return claim

    def _drop(self, claim_id: str) -> None:
        """The claim is about to be changed."""
        session_id = self._claimed.pop(claim_id, None)
        if session_id:
            del self._of[session_id]

    def _known(self, claim_id: str) -> ClaimRow | None:
        session_id = self._claimed.get(claim_id)
        return self._of[session_id] if session_id else None

    def insert(
        self,
        claim_id: str,
        session_id: str,
        owner_id: str,
        *,
        purpose: events.Purpose,
        phase: events.Phase,
        now: int,
        expires_at: int,
    ) -> bool:
        """Take the claim; False where the session has one."""
        inserted = self._q.claim_insert(
            self._c,
            id=claim_id,
            session_id=session_id,
            owner_id=owner_id,
            purpose=purpose,
            phase=phase,
            time_created=now,
            expires_at=expires_at,
        )
        if inserted:
            claim = ClaimRow(claim_id, session_id, owner_id, purpose, None, phase, False, now, expires_at)
            self._know(session_id, claim)
        return inserted == 1

    def of_session(self, session_id: str) -> ClaimRow | None:
        """The session's claim, whoever holds it."""
        if session_id in self._of:
            return self._of[session_id]
        row = self._q.claim_of_session(self._c, session_id=session_id)
        return self._know(session_id, _row(row) if row else None)

    def fence(self, claim_id: str, owner_id: str) -> ClaimRow | None:
        """The claim, held still for the rest of the unit; None where it is no longer that owner's."""
        claim = self._known(claim_id)
        if claim is None and (row := self._q.claim_fence(self._c, id=claim_id, owner_id=owner_id)):
            claim = self._know(row[1], _row(row))
        return claim if claim and claim.owner_id == owner_id else None

    def set_phase(self, claim_id: str, owner_id: str, phase: events.Phase, assistant_message_id: str | None) -> None:
        """What a crash would mean from here on."""
        self._q.claim_set_phase(
            self._c, id=claim_id, owner_id=owner_id, phase=phase, assistant_message_id=assistant_message_id
        )
        claim = self._known(claim_id)
        if claim and claim.owner_id == owner_id:
            self._know(claim.session_id, replace(claim, phase=phase, assistant_message_id=assistant_message_id))

    def hand_over(self, claim_id: str, owner_id: str, next_id: str, now: int) -> bool:
        """The row goes on to the next execution."""
        self._drop(claim_id)
        moved = self._q.claim_hand_over(self._c, id=claim_id, owner_id=owner_id, next_id=next_id, time_created=now)
        return moved == 1

    def adopt(self, claim_id: str, owner_id: str, execution_id: str, assistant_message_id: str | None) -> bool:
        """A parked execution takes the claim under its own id again."""
        self._drop(claim_id)
        adopted = self._q.claim_adopt(
            self._c,
            id=claim_id,
            owner_id=owner_id,
            next_id=execution_id,
            assistant_message_id=assistant_message_id,
        )
        return adopted == 1

    def renew(self, claim_id: str, owner_id: str, expires_at: int) -> bool:
        """A longer lease."""
        self._drop(claim_id)
        return self._q.claim_renew(self._c, id=claim_id, owner_id=owner_id, expires_at=expires_at) == 1

    def delete(self, claim_id: str, owner_id: str) -> bool:
        """Let go."""
        claim = self._known(claim_id)
        deleted = self._q.claim_delete(self._c, id=claim_id, owner_id=owner_id) == 1
        if deleted and claim:
            self._know(claim.session_id, None)
        return deleted

    def delete_dead(self, claim: ClaimRow) -> bool:
        """Remove a claim judged dead, if it is unchanged since."""
        self._drop(claim.id)
        judged = {"id": claim.id, "owner_id": claim.owner_id, "expires_at": claim.expires_at}
        return self._q.claim_delete_dead(self._c, **judged) == 1

    def mark_interrupted(self, session_id: str) -> None:
        """Its owner must settle an interrupt."""
        if claim := self._of.get(session_id):
            self._drop(claim.id)
        self._q.claim_mark(self._c, session_id=session_id)

    def expire(self, claim_id: str, owner_id: str) -> bool:
        """Whoever comes next may recover at once."""
        self._drop(claim_id)
        return self._q.claim_expire(self._c, id=claim_id, owner_id=owner_id) == 1

    def try_again(self, claim_id: str) -> None:
        """A recovery that failed is due now, and starts its count anew."""
        self._drop(claim_id)
        self._q.claim_try_again(self._c, id=claim_id)

    def get(self, claim_id: str) -> ClaimRow | None:
        """One claim."""
        row = self._q.claim_get(self._c, id=claim_id)
        return _row(row) if row else None

    def all(self) -> list[ClaimRow]:
        """Every claim there is, the earliest expiry first."""
        return [_row(row) for row in self._q.claim_all(self._c)]

    def recovery_failed(self, claim_id: str, error: str, not_before: int) -> None:
        """Its recovery failed and is tried again later."""
        self._drop(claim_id)
        self._q.claim_recovery_failed(self._c, id=claim_id, error=error, not_before=not_before)
