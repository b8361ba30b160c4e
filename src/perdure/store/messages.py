"""Rows of `session_message` and `session_part`: a header a message, a row a part, so that no event rewrites a whole
message.
"""

from __future__ import annotations

from typing import Any

from perdure import errors
from perdure.core import codec, messages


def _decoded(row: Any) -> messages.Message:
    message = codec.load_message(row[1], row[0], row[2], row[5])
    if (message.id, message.seq) != (row[0], row[3]):  # whoever pages by seq would go in a circle
        raise errors.MessageUndecodable(row[1], row[0], "its columns and its data name different messages")
    return message


class Messages:
    """Verbs on messages and parts. Raises `MessageUndecodable` for a row that cannot be read."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

    def insert(self, session_id: str, message: messages.Message) -> bool:
        """A new message without its parts; False where the id is taken."""
        return (
            self._q.message_insert(
                self._c,
                id=message.id,
                session_id=session_id,
                type=codec.message_type(message),
                seq=message.seq,
                time_created=message.time.created,
                data=codec.dump_message(message),
            )
            is not None
        )

    def update(self, message: messages.Message) -> None:
        """Another header."""
        self._q.message_update(self._c, id=message.id, data=codec.dump_message(message))

    def owner(self, message_id: str) -> str | None:
        """The session a message id belongs to."""
        row = self._q.message_get(self._c, id=message_id)
        return row[1] if row else None

    def get(self, message_id: str) -> messages.Message | None:
        """One message, an assistant without its parts."""
        row = self._q.message_get(self._c, id=message_id)
        return _decoded(row) if row else None

    def newest_assistant(self, session_id: str) -> messages.Assistant | None:
        """The newest assistant, complete or not, without its parts."""
        row = self._q.message_newest(self._c, session_id=session_id, type="assistant")
        message = _decoded(row) if row else None
        return message if isinstance(message, messages.Assistant) else None

    def newest_compaction(self, session_id: str) -> messages.Compaction | None:
        """The newest compaction, whatever became of it."""
        row = self._q.message_newest(self._c, session_id=session_id, type="compaction")
        message = _decoded(row) if row else None
        return message if isinstance(message, messages.Compaction) else None

    def count(self, session_id: str, kind: str) -> int:
        """How many messages of a kind the session has."""
        return self._q.message_count(self._c, session_id=session_id, type=kind)

    def page(self, session_id: str, after: int, limit: int) -> list[messages.Message]:
        """Up to `limit` messages after seq `after`, in order, assistants with their parts."""
        rows = self._q.message_page(self._c, session_id=session_id, after=after, limit=limit)
        return [self._whole(row) for row in rows]

    def _whole(self, row: Any) -> messages.Message:
        message = _decoded(row)
        if not isinstance(message, messages.Assistant):
            return message
        parts = self._q.part_of_message(self._c, message_id=message.id)
        return codec.with_parts(
            message, tuple(codec.load_part(row[1], message.id, kind, data) for _, kind, data in parts)
        )

    def put_part(self, session_id: str, message_id: str, ordinal: int, part: messages.Part) -> None:
        """A part, new or changed."""
        kind, part_id = messages.part_key(part)
        self._q.part_put(
            self._c,
            session_id=session_id,
            message_id=message_id,
            ordinal=ordinal,
            kind=kind,
            part_id=part_id,
            open=int(messages.part_is_open(part)),
            data=codec.dump_part(part),
        )

    def last_part(
        self, session_id: str, message_id: str, kind: messages.PartKind, part_id: str
    ) -> tuple[int, messages.Part] | None:
        """The last part of that kind and id, with its ordinal."""
        row = self._q.part_last(self._c, message_id=message_id, kind=kind, part_id=part_id)
        return (row[0], codec.load_part(session_id, message_id, row[1], row[2])) if row else None

    def next_ordinal(self, message_id: str) -> int:
        """Where the next part goes."""
        last = self._q.part_last_ordinal(self._c, message_id=message_id)
        return 0 if last is None else last + 1

    def open_parts(self, session_id: str, message_id: str) -> list[tuple[int, messages.Part]]:
        """Parts not ended and calls not settled, in order."""
        rows = self._q.part_open(self._c, message_id=message_id)
        return [(row[0], codec.load_part(session_id, message_id, row[1], row[2])) for row in rows]
