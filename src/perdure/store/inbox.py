"""Rows of `session_input`: every input ever admitted, its promotion and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.core import codec, messages


@dataclass(frozen=True, slots=True)
class InputRow:
    """An input; `prompt` is its canonical JSON text, decoded only where it is used (IN-14). `usage` is that of the settled
    turns it ran in, None where they used nothing.
    """

    id: str
    session_id: str
    kind: messages.InputKind
    prompt: str
    delivery: messages.Delivery
    admitted_delivery: messages.Delivery
    time_created: int
    admitted_seq: int
    promoted_seq: int | None
    wake_pending: bool
    execution_requests: int
    retries: int
    retried_by: str | None
    outcome: messages.Outcome | None
    error: messages.Failure | None
    settled_seq: int | None
    usage: messages.Usage | None

    @property
    def pending(self) -> bool:
        """Neither promoted nor settled."""
        return self.promoted_seq is None and self.outcome is None


def input_row(row: Any) -> InputRow:
    """A row of the table, decoded."""
    columns: list[Any] = [*row]
    columns[9] = bool(row[9])
    columns[14] = codec.load(row[14], messages.Failure) if row[14] else None
    columns[16] = codec.load(row[16], messages.Usage) if row[16] else None
    return InputRow(*columns)


class Inbox:
    """Verbs on inputs."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

    def insert(
        self,
        message_id: str,
        session_id: str,
        kind: messages.InputKind,
        prompt: messages.Prompt,
        delivery: messages.Delivery,
        *,
        time_created: int,
        admitted_seq: int,
        promoted_seq: int | None = None,
        wake_pending: bool = False,
    ) -> bool:
        """A new input; False where the id is taken."""
        return (
            self._q.input_insert(
                self._c,
                id=message_id,
                session_id=session_id,
                kind=kind,
                prompt=codec.dump(prompt),
                delivery=delivery,
                time_created=time_created,
                admitted_seq=admitted_seq,
                promoted_seq=promoted_seq,
                wake_pending=int(wake_pending),
            )
            is not None
        )

    def get(self, message_id: str) -> InputRow | None:
        """One input."""
        row = self._q.input_get(self._c, id=message_id)
        return input_row(row) if row else None

    def target_of(self, retry_id: str) -> InputRow | None:
        """The prompt that a retry input runs again."""
        row = self._q.input_retried_by(self._c, retry_id=retry_id)
        return input_row(row) if row else None

    def pending(self, session_id: str) -> list[InputRow]:
        """Inputs neither promoted nor settled, in admission order, continuations and retry inputs included."""
        return [input_row(row) for row in self._q.input_pending(self._c, session_id=session_id)]

    def running(self, session_id: str) -> list[str]:
        """Ids of the inputs whose turn is open, in admission order."""
        return [row[0] for row in self._q.input_running(self._c, session_id=session_id)]

    def promote(self, message_id: str, promoted_seq: int) -> bool:
        """Promoted, its wake settled in the same statement; False where it was not pending."""
        return self._q.input_promote(self._c, id=message_id, promoted_seq=promoted_seq) is not None

    def request(self, message_id: str) -> None:
        """It is wanted to run."""
        self._q.input_request(self._c, id=message_id)

    def count_request(self, message_id: str) -> None:
        """One more stored request to run it."""
        self._q.input_count_request(self._c, id=message_id)

    def request_all(self, session_id: str) -> None:
        """Every waiting user and retry input is wanted to run (IN-15)."""
        self._q.input_wake_pending_all(self._c, session_id=session_id)

    def clear_wakes(self, session_id: str, before_seq: int) -> None:
        """What was admitted before a sequence number waits for a person."""
        self._q.input_clear_wakes(self._c, session_id=session_id, before_seq=before_seq)

    def settle(
        self,
        message_id: str,
        outcome: messages.Outcome,
        error: messages.Failure | None,
        seq: int,
        usage: messages.Usage | None = None,
    ) -> None:
        """Its outcome, if it has none; `usage` is that of every turn it ran in, None where the last one used nothing."""
        told = {"error": codec.dump_optional(error), "usage": codec.dump_optional(usage)}
        self._q.input_settle(self._c, id=message_id, outcome=outcome, settled_seq=seq, **told)

    def set_delivery(self, message_id: str, delivery: messages.Delivery) -> None:
        """Deliver it otherwise."""
        self._q.input_set_delivery(self._c, id=message_id, delivery=delivery)

    def reopen(self, message_id: str, retried_by: str | None, *, wake_pending: bool) -> None:
        """Run it again: by a retry input, or as pending."""
        self._q.input_reopen(self._c, id=message_id, retried_by=retried_by, wake_pending=int(wake_pending))

    def woken_sessions(self) -> list[str]:
        """Sessions with a waiting input that is wanted to run."""
        return [row[0] for row in self._q.input_woken_sessions(self._c)]
