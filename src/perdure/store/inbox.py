"""Rows of `session_input`: every input ever admitted, its promotion and its outcome.

Every change is written at once. What a connection has seen of the unsettled ones of a session is kept beside, from unit to unit
too, until another connection commits or something is rolled back (`group_commit.py`): each unit of a turn asks for them.
"""

from __future__ import annotations

from typing import Any

from perdure import errors
from perdure.core import bodies, codec, columns, messages
from perdure.core.value import Value, replace
from perdure.store.events import Events


class InputRow(Value):
    """An input; `prompt` is its JSON text, decoded only where it is used (IN-14), and empty where it stands in the fact that
    admitted it: `Inbox.prompt` finds it, `Inbox.whole` puts it in. `usage` is that of the settled turns it ran in, None where
    they used nothing.
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
    execution_requests: int = 0
    retries: int = 0
    retried_by: str | None = None
    outcome: messages.Outcome | None = None
    error: messages.Failure | None = None
    settled_seq: int | None = None
    usage: messages.Usage | None = None

    @property
    def pending(self) -> bool:
        """Neither promoted nor settled."""
        return self.promoted_seq is None and self.outcome is None


def input_row(row: Any) -> InputRow:
    """A row of the table, decoded. Raises `MessageUndecodable`."""
    held: list[Any] = [*row]
    held[9] = bool(row[9])
    try:
        held[14] = codec.load(row[14], messages.Failure) if row[14] else None
        held[16] = codec.load(row[16], messages.Usage) if row[16] else None
    except errors.Undecodable as error:
        raise errors.MessageUndecodable(row[1], row[0], str(error)) from error
    return InputRow(*held)


KEPT = 1024


class Inbox:
    """Verbs on inputs."""

    __slots__ = ("_c", "_events", "_found", "_q", "_rows", "_settled", "_unsettled")

    def __init__(self, statements: Any, connection: Any, events: Events) -> None:
        """Bind to a connection; `events` stores the facts that hold long prompts."""
        self._q, self._c, self._events = statements, connection, events
        self.forget()

    def forget(self) -> None:
        """What is known may no longer be so."""
        self._rows: dict[str, InputRow] = {}
        # All unsettled ones of a session, in admission order; each of them is in `_rows`.
        self._unsettled: dict[str, dict[str, InputRow]] = {}
        self._settled: list[str] = []  # in this unit; they stay in `_rows` as long as it runs
        # The long prompt last seen, by its input: who admits or promotes one is about to compare it.
        self._found: tuple[str, str] | None = None

    def keep(self) -> None:
        """The unit ended; what is known serves the next ones, within bounds."""
        self._found = None
        for message_id in self._settled:
            self._rows.pop(message_id, None)
        self._settled.clear()
        if len(self._rows) > KEPT or len(self._unsettled) > KEPT:
            self.forget()

    def _all_unsettled(self, session_id: str) -> dict[str, InputRow]:
        known = self._unsettled.get(session_id)
        if known is None:
            rows = self._q.input_unsettled(self._c, session_id=session_id)
            known = self._unsettled[session_id] = {row.id: row for row in map(input_row, rows)}
            self._rows.update(known)
        return known

    def _know(self, row: InputRow) -> None:
        """The row as it stands now."""
        unsettled = self._unsettled.get(row.session_id)
        self._rows[row.id] = row
        if row.outcome is None:
            if unsettled is not None:
                unsettled[row.id] = row
        else:
            self._settled.append(row.id)
            if unsettled is not None:
                unsettled.pop(row.id, None)

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
        """A new input, of the fact at `admitted_seq`; False where the id is taken."""
        text = codec.dump(prompt)
        row = InputRow(
            id=message_id,
            session_id=session_id,
            kind=kind,
            prompt=bodies.dump_prompt(text),
            delivery=delivery,
            admitted_delivery=delivery,
            time_created=time_created,
            admitted_seq=admitted_seq,
            promoted_seq=promoted_seq,
            wake_pending=wake_pending,
        )
        inserted = self._q.input_insert(
            self._c,
            id=message_id,
            session_id=session_id,
            kind=kind,
            prompt=row.prompt,
            delivery=delivery,
            time_created=time_created,
            admitted_seq=admitted_seq,
            promoted_seq=promoted_seq,
            wake_pending=int(wake_pending),
        )
        if inserted:
            self._know(row)
            self._found = (message_id, text)
        return inserted == 1

    def prompt(self, row: InputRow) -> str:
        """Its prompt as JSON text, wherever that stands. Raises `MessageUndecodable` where its fact is missing, cannot be read
        or is another's.
        """
        if row.prompt:
            return row.prompt
        if self._found and self._found[0] == row.id:
            return self._found[1]
        self._events.flush()
        fact = self._q.input_fact(self._c, id=row.id) or bodies.MISSING
        text = codec.dump(bodies.load_prompt(row.session_id, row.id, row.admitted_seq, fact))
        self._found = (row.id, text)
        return text

    def whole(self, row: InputRow) -> InputRow:
        """With its prompt, which stays empty, and is no JSON, where it cannot be read."""
        try:
            return replace(row, prompt=self.prompt(row))
        except errors.MessageUndecodable:
            return row

    def get(self, message_id: str) -> InputRow | None:
        """One input."""
        known = self._rows.get(message_id)
        if known is None and (row := self._q.input_get(self._c, id=message_id)):
            known = input_row(row)
            if known.outcome is None:
                self._rows[known.id] = known
        return known

    def target_of(self, retry_id: str) -> InputRow | None:
        """The prompt that a retry input runs again."""
        row = self._q.input_retried_by(self._c, retry_id=retry_id)
        return input_row(row) if row else None

    def pending(self, session_id: str) -> list[InputRow]:
        """Inputs neither promoted nor settled, in admission order, continuations and retry inputs included."""
        return [row for row in self._all_unsettled(session_id).values() if row.promoted_seq is None]

    def running(self, session_id: str) -> list[InputRow]:
        """The inputs whose turn is open, in admission order: a prompt that waits for its retry input is none of them."""
        unsettled = self._all_unsettled(session_id).values()
        return [row for row in unsettled if row.promoted_seq is not None and not self._waits(row)]

    def _waits(self, row: InputRow) -> bool:
        again = self.get(row.retried_by) if row.retried_by else None
        return again is not None and again.promoted_seq is None

    def promote(self, message_id: str, promoted_seq: int) -> bool:
        """Promoted, its wake settled in the same statement; False where it was not pending."""
        row = self.get(message_id)
        if row is None or not self._q.input_promote(self._c, id=message_id, promoted_seq=promoted_seq):
            return False
        self._know(replace(row, promoted_seq=promoted_seq, wake_pending=False))
        return True

    def request(self, message_id: str) -> None:
        """It is wanted to run."""
        self._q.input_request(self._c, id=message_id)
        self.forget()

    def count_request(self, message_id: str) -> None:
        """One more stored request to run it."""
        self._q.input_count_request(self._c, id=message_id)
        self.forget()

    def request_all(self, session_id: str) -> None:
        """Every waiting user and retry input is wanted to run (IN-15)."""
        if all(row.wake_pending for row in self.pending(session_id)):
            return
        self._q.input_wake_pending_all(self._c, session_id=session_id)
        self.forget()

    def clear_wakes(self, session_id: str, before_seq: int) -> None:
        """What was admitted before a sequence number waits for a person."""
        self._q.input_clear_wakes(self._c, session_id=session_id, before_seq=before_seq)
        self.forget()

    def settle(
        self,
        message_id: str,
        outcome: messages.Outcome,
        error: messages.Failure | None,
        seq: int,
        usage: messages.Usage | None = None,
    ) -> None:
        """Its outcome, if it has none; `usage` is that of every turn it ran in, None where the last one used nothing."""
        row = self.get(message_id)
        if row is None or row.outcome is not None:
            return
        told = {"error": codec.dump_optional(error), "usage": columns.dump_usage(usage)}
        self._q.input_settle(self._c, id=message_id, outcome=outcome, settled_seq=seq, **told)
        settled = {"outcome": outcome, "error": error, "settled_seq": seq, "usage": usage or row.usage}
        self._know(replace(row, **settled, wake_pending=False))

    def set_delivery(self, message_id: str, delivery: messages.Delivery) -> None:
        """Deliver it otherwise."""
        self._q.input_set_delivery(self._c, id=message_id, delivery=delivery)
        self.forget()

    def reopen(self, message_id: str, retried_by: str | None, *, wake_pending: bool) -> None:
        """Run it again: by a retry input, or as pending."""
        self._q.input_reopen(self._c, id=message_id, retried_by=retried_by, wake_pending=int(wake_pending))
        self.forget()

    def woken_sessions(self) -> list[str]:
        """Sessions with a waiting input that is wanted to run."""
        return [row[0] for row in self._q.input_woken_sessions(self._c)]
