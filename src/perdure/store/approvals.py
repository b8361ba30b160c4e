"""Rows of `session_approval`: calls that wait for a person.

Each turn ends by closing those of its session that still wait. In which sessions none does is kept, from unit to unit, until
another connection commits or something is rolled back (`group_commit.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.core import events, messages


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A call that needs approval; `decision` is None while it waits. Times in epoch ms."""

    session_id: str
    message_id: str
    call_id: str
    execution_id: str
    time_created: int
    deadline: int | None
    decision: messages.Decision | None
    by: str | None
    note: str | None


KEPT = 1024


class Approvals:
    """Verbs on approvals."""

    __slots__ = ("_c", "_closed", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection
        self.forget()

    def forget(self) -> None:
        """What is known may no longer be so."""
        self._closed: set[str] = set()

    def keep(self) -> None:
        """The unit ended; what is known serves the next ones, within bounds."""
        if len(self._closed) > KEPT:
            self.forget()

    def put(self, requested: events.ToolApprovalRequested, execution_id: str, time_created: int) -> None:
        """A call waits."""
        self._closed.discard(requested.session_id)
        self._q.approval_put(
            self._c,
            session_id=requested.session_id,
            message_id=requested.assistant_message_id,
            call_id=requested.call_id,
            execution_id=execution_id,
            time_created=time_created,
            deadline=requested.deadline,
        )

    def resolve(self, resolved: events.ToolApprovalResolved) -> None:
        """The first decision wins."""
        self._q.approval_resolve(
            self._c,
            message_id=resolved.assistant_message_id,
            call_id=resolved.call_id,
            decision=resolved.decision,
            by=resolved.by,
            note=resolved.note,
        )

    def close(self, session_id: str) -> None:
        """Nothing of the session waits any longer."""
        if session_id not in self._closed:
            self._q.approval_close(self._c, session_id=session_id)
            self._closed.add(session_id)

    def find(self, session_id: str, call_id: str, message_id: str | None = None) -> ApprovalRow | None:
        """The approval of a call id in a session, of one assistant if it is named: else the one that waits, else the newest."""
        row = self._q.approval_find(self._c, session_id=session_id, call_id=call_id, message_id=message_id)
        return ApprovalRow(*row) if row else None

    def of_message(self, message_id: str) -> list[ApprovalRow]:
        """The approvals one assistant asked for."""
        return [ApprovalRow(*row) for row in self._q.approval_of_message(self._c, message_id=message_id)]

    def waiting(self, session_id: str) -> list[ApprovalRow]:
        """Those of a session that nobody has decided."""
        return [ApprovalRow(*row) for row in self._q.approval_waiting(self._c, session_id=session_id)]

    def list(self) -> list[ApprovalRow]:
        """All that nobody has decided, the oldest first."""
        return [ApprovalRow(*row) for row in self._q.approval_list(self._c)]

    def overdue(self, now: int) -> list[ApprovalRow]:
        """Those whose deadline has passed."""
        return [ApprovalRow(*row) for row in self._q.approval_overdue(self._c, now=now)]

    def next_deadline(self, now: int) -> int | None:
        """The earliest deadline still ahead."""
        return self._q.approval_next_deadline(self._c, now=now)

    def decided_sessions(self) -> list[str]:
        """Parked sessions in which nothing waits for a decision any more."""
        return [row[0] for row in self._q.approval_decided_sessions(self._c)]
