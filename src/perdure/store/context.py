"""Rows of `session_context_epoch` and `session_draft`: operational, never part of the log.

Every change is written at once. What a connection has seen of an epoch is kept beside, from unit to unit too, until another
connection commits or something is rolled back (`group_commit.py`): each step of a turn asks for it.
"""

from __future__ import annotations

from typing import Any

from perdure.core import messages
from perdure.core.value import Value


class EpochRow(Value):
    """A frozen system baseline, the values it was built from (JSON text) and the seq it starts after."""

    baseline: str
    snapshot: str
    baseline_seq: int


class DraftRow(Value):
    """Text a reader has seen of a part that is still open."""

    message_id: str
    part_id: str
    kind: messages.PartKind
    text: str


KEPT = 1024
LONG = 16 * 1024
"""An epoch with more characters is read again whenever it is asked for."""


class Context:
    """Verbs on epochs and drafts."""

    __slots__ = ("_c", "_epochs", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection
        self.forget()

    def forget(self) -> None:
        """What is known may no longer be so."""
        self._epochs: dict[str, EpochRow] = {}

    def keep(self) -> None:
        """The unit ended; what is known serves the next ones, within bounds."""
        if len(self._epochs) > KEPT:
            self.forget()

    def epoch(self, session_id: str) -> EpochRow | None:
        """The session's epoch."""
        known = self._epochs.get(session_id)
        if known is None and (row := self._q.epoch_get(self._c, session_id=session_id)):
            known = EpochRow(*row)
            if len(known.baseline) + len(known.snapshot) <= LONG:
                self._epochs[session_id] = known
        return known

    def put_epoch(self, session_id: str, epoch: EpochRow) -> None:
        """A new epoch, or a snapshot that moved on."""
        self._epochs.pop(session_id, None)
        self._q.epoch_put(
            self._c,
            session_id=session_id,
            baseline=epoch.baseline,
            snapshot=epoch.snapshot,
            baseline_seq=epoch.baseline_seq,
        )

    def delete_epoch(self, session_id: str) -> None:
        """The next boundary opens a new one."""
        self._epochs.pop(session_id, None)
        self._q.epoch_delete(self._c, session_id=session_id)

    def put_draft(self, session_id: str, draft: DraftRow) -> None:
        """The text so far."""
        self._q.draft_put(
            self._c,
            session_id=session_id,
            message_id=draft.message_id,
            part_id=draft.part_id,
            kind=draft.kind,
            text=draft.text,
        )

    def drafts(self, session_id: str) -> list[DraftRow]:
        """All drafts of a session."""
        return [DraftRow(*row) for row in self._q.draft_of_session(self._c, session_id=session_id)]

    def delete_draft(self, session_id: str, message_id: str, kind: messages.PartKind, part_id: str) -> None:
        """The part ended."""
        self._q.draft_delete(self._c, session_id=session_id, message_id=message_id, part_id=part_id, kind=kind)

    def clear_drafts(self, session_id: str) -> None:
        """No part of the session is open."""
        self._q.draft_clear(self._c, session_id=session_id)
