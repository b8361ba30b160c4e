"""Rows of `session_approval`: calls that wait for a person."""

from __future__ import annotations

from typing import Any

from perdure.core import events


class Approvals:
    """Verbs on approvals."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

    def put(self, requested: events.ToolApprovalRequested, execution_id: str, time_created: int) -> None:
        """A call waits."""
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
        self._q.approval_close(self._c, session_id=session_id)
