"""Rows of `session_recovery`: a dead execution, its continuation and how often that was tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.core import events


@dataclass(frozen=True, slots=True)
class RecoveryRow:
    """A recovered execution; `wake_pending` is armed and not yet promoted or withdrawn."""

    execution_id: str
    session_id: str
    assistant_message_id: str | None
    continuation_message_id: str
    phase: events.Phase
    wake_pending: bool
    wake_attempts: int
    recovery_error: str | None
    not_before: int | None
    attempt: int
    time_created: int


def recovery_row(row: Any) -> RecoveryRow:
    """A row of the table, decoded."""
    columns: list[Any] = [*row]
    columns[5] = bool(row[5])
    return RecoveryRow(*columns)


class Recoveries:
    """Verbs on recoveries."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

    def insert(self, recovered: events.StepRecovered, continuation_message_id: str, time_created: int) -> bool:
        """A recovered execution; False where it is known."""
        inserted = self._q.recovery_insert(
            self._c,
            execution_id=recovered.execution_id,
            session_id=recovered.session_id,
            assistant_message_id=recovered.assistant_message_id,
            continuation_message_id=continuation_message_id,
            phase=recovered.phase,
            wake_pending=int(recovered.armed),
            time_created=time_created,
        )
        return inserted == 1

    def get(self, execution_id: str) -> RecoveryRow | None:
        """One recovery."""
        row = self._q.recovery_get(self._c, execution_id=execution_id)
        return recovery_row(row) if row else None

    def of_continuation(self, message_id: str) -> RecoveryRow | None:
        """The recovery whose continuation that is."""
        row = self._q.recovery_of_continuation(self._c, continuation_message_id=message_id)
        return recovery_row(row) if row else None

    def waiting(self, session_id: str) -> RecoveryRow | None:
        """The session's recovery whose continuation is neither promoted nor withdrawn."""
        row = self._q.recovery_waiting(self._c, session_id=session_id)
        return recovery_row(row) if row else None

    def scan(self, now: int) -> list[str]:
        """Sessions whose continuation is to be woken, most hopeful first (REC-4)."""
        return [row[0] for row in self._q.recovery_scan(self._c, now=now)]

    def list(self) -> list[RecoveryRow]:
        """Recoveries whose continuation waits."""
        return [recovery_row(row) for row in self._q.recovery_list(self._c)]

    def arm(self, continuation_message_id: str) -> None:
        """Go on."""
        self._q.recovery_arm(self._c, continuation_message_id=continuation_message_id)

    def settle_wake(self, session_id: str, continuation_message_id: str) -> None:
        """The continuation was promoted or withdrawn."""
        self._q.recovery_settle_wake(self._c, session_id=session_id, continuation_message_id=continuation_message_id)

    def add_attempt(self, execution_id: str) -> None:
        """One more claim taken for it."""
        self._q.recovery_add_attempt(self._c, execution_id=execution_id)

    def set_error(self, execution_id: str, error: str) -> None:
        """Given up."""
        self._q.recovery_set_error(self._c, execution_id=execution_id, error=error)

    def set_back_off(self, execution_id: str, not_before: int, attempt: int) -> None:
        """The retry back-off it died in."""
        self._q.recovery_set_back_off(self._c, execution_id=execution_id, not_before=not_before, attempt=attempt)

    def next_time(self, now: int) -> int | None:
        """The earliest time at which one more may be woken."""
        return self._q.recovery_next_time(self._c, now=now)
