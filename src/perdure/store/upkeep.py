"""Rows as maintenance sees them: all of a session at once, and the part of them that no log knows.

Lives here: reading every projected row of a session, and `Kept`, what a rebuild takes out and puts back. Not here: what
the rows should be (`maintenance/`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from perdure.store.approvals import ApprovalRow
from perdure.store.claims import ClaimRow, Claims
from perdure.store.context import Context, DraftRow, EpochRow
from perdure.store.inbox import InputRow, input_row
from perdure.store.recoveries import RecoveryRow, recovery_row
from perdure.store.sessions import SessionRow, Sessions


@dataclass(frozen=True, slots=True)
class Kept:
    """The operational rows of a session: held, deleting, attempts, the claim, recoveries' errors, epoch and drafts."""

    session: SessionRow | None
    claim: ClaimRow | None
    recoveries: tuple[RecoveryRow, ...]
    epoch: EpochRow | None
    drafts: tuple[DraftRow, ...]


class Upkeep:
    """Verbs of maintenance."""

    __slots__ = ("_c", "_claims", "_context", "_q", "_sessions")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection
        self._sessions, self._claims = Sessions(statements, connection), Claims(statements, connection)
        self._context = Context(statements, connection)

    def census(self) -> tuple[int, int]:
        """How many aggregates, and how many events they should have by their sequence rows."""
        row = self._q.upkeep_census(self._c)
        return row[0], row[1]

    def unnumbered(self, limit: int = 100) -> list[str]:
        """Aggregates with events and no sequence row."""
        return [row[0] for row in self._q.upkeep_unnumbered(self._c, limit=limit)]

    def unlogged(self, limit: int = 100) -> list[str]:
        """Sessions with rows and no log."""
        return [row[0] for row in self._q.upkeep_unlogged(self._c, limit=limit)]

    def inputs(self, session_id: str) -> list[InputRow]:
        """Every input of a session."""
        return [input_row(row) for row in self._q.upkeep_inputs(self._c, session_id=session_id)]

    def approvals(self, session_id: str) -> list[ApprovalRow]:
        """Every approval of a session."""
        return [ApprovalRow(*row) for row in self._q.upkeep_approvals(self._c, session_id=session_id)]

    def recoveries(self, session_id: str) -> list[RecoveryRow]:
        """Every recovery of a session."""
        return [recovery_row(row) for row in self._q.upkeep_recoveries(self._c, session_id=session_id)]

    def keep(self, session_id: str) -> Kept:
        """What a rebuild must put back."""
        return Kept(
            self._sessions.get(session_id),
            self._claims.of_session(session_id),
            tuple(self.recoveries(session_id)),
            self._context.epoch(session_id),
            tuple(self._context.drafts(session_id)),
        )

    def clear(self, session_id: str) -> None:
        """Take out every row of a session that its log decides, and its claim."""
        for clear in (
            self._q.upkeep_clear_approvals,
            self._q.upkeep_clear_recoveries,
            self._q.upkeep_clear_inputs,
            self._q.upkeep_clear_parts,
            self._q.upkeep_clear_messages,
            self._q.upkeep_clear_claims,
        ):
            clear(self._c, session_id=session_id)
        self._sessions.delete(session_id)

    def put_back(self, session_id: str, kept: Kept) -> None:
        """Put it back beside the rebuilt rows."""
        if kept.session:
            flags = {"held": int(kept.session.held), "deleting": int(kept.session.deleting)}
            attempts = kept.session.wake_attempts
            self._q.upkeep_restore_session(self._c, id=session_id, wake_attempts=attempts, **flags)
        if kept.claim:
            columns = dataclasses.asdict(kept.claim)
            self._q.upkeep_restore_claim(self._c, **{**columns, "interrupted": int(kept.claim.interrupted)})
        for recovery in kept.recoveries:
            self._q.upkeep_restore_recovery(
                self._c,
                execution_id=recovery.execution_id,
                wake_attempts=recovery.wake_attempts,
                recovery_error=recovery.recovery_error,
            )
        if kept.epoch:
            self._context.put_epoch(session_id, kept.epoch)
        for draft in kept.drafts:
            self._context.put_draft(session_id, draft)
