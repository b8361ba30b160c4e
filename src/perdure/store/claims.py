"""Rows of `session_execution`: the claim that lets exactly one owner execute a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.core import events


@dataclass(frozen=True, slots=True)
class ClaimRow:
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
    recovery_error: str | None
    recovery_attempts: int
    recovery_not_before: int | None


def _row(row: Any) -> ClaimRow:
    columns: list[Any] = [*row]
    columns[6] = bool(row[6])
    return ClaimRow(*columns)


class Claims:
    """Verbs on claims. Each that changes one names its owner, and answers whether it was still that owner's."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

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
        return (
            self._q.claim_insert(
                self._c,
                id=claim_id,
                session_id=session_id,
                owner_id=owner_id,
                purpose=purpose,
                phase=phase,
                time_created=now,
                expires_at=expires_at,
            )
            is not None
        )

    def of_session(self, session_id: str) -> ClaimRow | None:
        """The session's claim, whoever holds it."""
        row = self._q.claim_of_session(self._c, session_id=session_id)
        return _row(row) if row else None

    def fence(self, claim_id: str, owner_id: str) -> ClaimRow | None:
        """The claim, held still for the rest of the unit; None where it is no longer that owner's."""
        row = self._q.claim_fence(self._c, id=claim_id, owner_id=owner_id)
        return _row(row) if row else None

    def set_phase(self, claim_id: str, owner_id: str, phase: events.Phase, assistant_message_id: str | None) -> None:
        """What a crash would mean from here on."""
        self._q.claim_set_phase(
            self._c, id=claim_id, owner_id=owner_id, phase=phase, assistant_message_id=assistant_message_id
        )

    def hand_over(self, claim_id: str, owner_id: str, next_id: str, now: int) -> bool:
        """The row goes on to the next execution."""
        return (
            self._q.claim_hand_over(self._c, id=claim_id, owner_id=owner_id, next_id=next_id, time_created=now)
            is not None
        )

    def adopt(self, claim_id: str, owner_id: str, execution_id: str, assistant_message_id: str | None) -> bool:
        """A parked execution takes the claim under its own id again."""
        return (
            self._q.claim_adopt(
                self._c,
                id=claim_id,
                owner_id=owner_id,
                next_id=execution_id,
                assistant_message_id=assistant_message_id,
            )
            is not None
        )

    def renew(self, claim_id: str, owner_id: str, expires_at: int) -> bool:
        """A longer lease."""
        return self._q.claim_renew(self._c, id=claim_id, owner_id=owner_id, expires_at=expires_at) is not None

    def delete(self, claim_id: str, owner_id: str) -> bool:
        """Let go."""
        return self._q.claim_delete(self._c, id=claim_id, owner_id=owner_id) is not None

    def delete_dead(self, claim: ClaimRow) -> bool:
        """Remove a claim judged dead, if it is unchanged since."""
        return (
            self._q.claim_delete_dead(self._c, id=claim.id, owner_id=claim.owner_id, expires_at=claim.expires_at)
            is not None
        )

    def mark_interrupted(self, session_id: str) -> None:
        """Its owner must settle an interrupt."""
        self._q.claim_mark(self._c, session_id=session_id)

    def expire(self, claim_id: str, owner_id: str) -> bool:
        """Whoever comes next may recover at once."""
        return self._q.claim_expire(self._c, id=claim_id, owner_id=owner_id) is not None

    def try_again(self, claim_id: str) -> None:
        """A recovery that failed is due now, and starts its count anew."""
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
        self._q.claim_recovery_failed(self._c, id=claim_id, error=error, not_before=not_before)
