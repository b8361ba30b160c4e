"""Rows of `session_message` and `session_part`: a header a message, a row a part, so that no event rewrites a whole
message.

A unit changes the newest assistant of one session again and again. What it knows of that one is kept while the unit runs, and
what it changed is written once: when the unit ends (`flush`), or before anything else is asked of the rows. What it knows then
serves the next unit too, as long as the session's sequence says that nothing else happened to it and no other connection
committed (`group_commit.py`): a rebuild takes no number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure.core import bodies, codec, columns, messages
from perdure.store.events import Events

KEPT = 256

_Key = tuple[messages.PartKind, str]
_Placed = tuple[int, messages.Part]


def _decoded(row: Any) -> messages.Message:
    message_id, session_id, kind, seq, created, data = row
    return columns.load_message(session_id, message_id, kind, data, seq=seq, created=created)


def _prompted(row: Any, fact: bodies.Fact) -> messages.Message:
    message_id, session_id, _, seq, created, data = row
    prompt = bodies.load_prompt(session_id, message_id, seq, fact)
    return columns.load_prompted(session_id, message_id, data, seq=seq, created=created, prompt=prompt)


@dataclass(slots=True)
class _Newest:
    """The newest assistant of a session as it was left at `seq`; `last` is the last part of each kind and id asked for."""

    session_id: str
    message: messages.Assistant | None
    seq: int = -1
    changed: bool = False
    last: dict[_Key, _Placed | None] = field(default_factory=dict[_Key, "_Placed | None"])
    parts: dict[int, tuple[messages.Part, int | None]] = field(
        default_factory=dict[int, "tuple[messages.Part, int | None]"]
    )
    next_ordinal: int | None = None


class Messages:
    """Verbs on messages and parts. Raises `MessageUndecodable` for a row that cannot be read."""

    __slots__ = ("_c", "_events", "_kept", "_newest", "_q")

    def __init__(self, statements: Any, connection: Any, events: Events) -> None:
        """Bind to a connection; `events` tells which numbers a unit took."""
        self._q, self._c, self._events = statements, connection, events
        self.begin()
        self.forget()

    def begin(self) -> None:
        """A unit begins, whatever became of the one before."""
        self._newest: _Newest | None = None

    def flush(self) -> None:
        """Write what was changed."""
        newest = self._newest
        if newest is None or newest.message is None or not (newest.changed or newest.parts):
            return
        if newest.changed:
            self._q.message_update(self._c, id=newest.message.id, data=bodies.dump_message(newest.message))
            newest.changed = False
        for ordinal, (part, held_by) in newest.parts.items():
            self._write(newest.message.id, ordinal, part, held_by)
            if not messages.part_is_open(part):  # only open parts change, and they are small
                newest.last.pop(messages.part_key(part), None)
        newest.parts.clear()

    def keep(self) -> None:
        """The unit ended: what it knows serves until something else happens to the session."""
        for session_id, taken in self._events.taken.items():
            newest = self._newest if self._newest and self._newest.session_id == session_id else None
            newest = newest or self._at(session_id, taken.first - 1)
            if newest is None:
                continue
            newest.seq = taken.last
            if newest.message is None or newest.message.time.completed is not None:
                newest.last.clear()
            self._kept[session_id] = newest
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def forget(self) -> None:
        """Units that ended may have been rolled back."""
        self._kept: dict[str, _Newest] = {}

    def _at(self, session_id: str, seq: int | None) -> _Newest | None:
        """What is kept of a session, if it was left at that number; only `keep` puts it back."""
        kept = self._kept.pop(session_id, None)
        return kept if kept and kept.seq == seq else None

    def _of(self, session_id: str) -> _Newest:
        """The newest assistant of a session, looked up once."""
        if self._newest is None or self._newest.session_id != session_id:
            self.flush()
            taken = self._events.taken.get(session_id)
            self._newest = self._at(session_id, taken.first - 1 if taken else None)
        if self._newest is None:
            row = self._q.message_newest_assistant(self._c, session_id=session_id)
            message = _decoded(row) if row else None
            self._newest = _Newest(session_id, message if isinstance(message, messages.Assistant) else None)
        return self._newest

    def _known(self, message_id: str) -> _Newest | None:
        """What is kept of that message."""
        newest = self._newest
        return newest if newest and newest.message and newest.message.id == message_id else None

    # -- headers -----------------------------------------------------------------------------------------------------------

    def insert(self, session_id: str, message: messages.Message) -> bool:
        """A new message without its parts; False where the id is taken."""
        inserted = self._q.message_insert(
            self._c,
            id=message.id,
            session_id=session_id,
            type=codec.message_type(message),
            seq=message.seq,
            time_created=message.time.created,
            data=bodies.dump_message(message),
        )
        if inserted and isinstance(message, messages.Assistant):
            self.flush()
            self._kept.pop(session_id, None)
            self._newest = _Newest(session_id, message, next_ordinal=0)
        return inserted == 1

    def update(self, message: messages.Message) -> None:
        """Another header."""
        if isinstance(message, messages.Assistant) and (newest := self._known(message.id)):
            newest.message, newest.changed = message, True
            return
        if isinstance(message, messages.Assistant):
            self.forget()  # whosever it is
        self._q.message_update(self._c, id=message.id, data=bodies.dump_message(message))

    def owner(self, message_id: str) -> str | None:
        """The session a message id belongs to."""
        if newest := self._known(message_id):
            return newest.session_id
        row = self._q.message_get(self._c, id=message_id)
        return row[1] if row else None

    def get(self, message_id: str) -> messages.Message | None:
        """One message, an assistant without its parts."""
        if newest := self._known(message_id):
            return newest.message
        row = self._q.message_get(self._c, id=message_id)
        return self._all_decoded([row])[0] if row else None

    def newest_assistant(self, session_id: str) -> messages.Assistant | None:
        """The newest assistant, complete or not, without its parts."""
        return self._of(session_id).message

    def newest_compaction(self, session_id: str) -> messages.Compaction | None:
        """The newest compaction, whatever became of it."""
        row = self._q.message_newest_compaction(self._c, session_id=session_id)
        message = _decoded(row) if row else None
        return message if isinstance(message, messages.Compaction) else None

    def count_assistants(self, session_id: str) -> int:
        """How many assistants the session has."""
        return self._q.message_count_assistants(self._c, session_id=session_id)

    def page(self, session_id: str, after: int, limit: int, before: int | None = None) -> list[messages.Message]:
        """Up to `limit` messages after seq `after`, in order, assistants with their parts; the last ones where they must be
        `before` a seq.
        """
        self._settle()
        if before is None:
            rows = self._q.message_page(self._c, session_id=session_id, after=after, limit=limit)
        else:
            page = self._q.message_page_before
            rows = page(self._c, session_id=session_id, after=after, before=before, limit=limit)[::-1]
        return self._whole(session_id, rows)

    def _whole(self, session_id: str, rows: list[Any]) -> list[messages.Message]:
        """Messages in order, with what parts they have."""
        if not rows:
            return []
        found = self._all_decoded(rows)
        parts: dict[str, list[messages.Part]] = {row[0]: [] for row in rows}
        for row in self._q.part_page(self._c, session_id=session_id, first=rows[0][3], last=rows[-1][3]):
            parts[row[0]].append(bodies.load(session_id, row[0], row[1:]))
        return [codec.with_parts(m, tuple(parts[m.id])) if isinstance(m, messages.Assistant) else m for m in found]

    def _all_decoded(self, rows: list[Any]) -> list[messages.Message]:
        """Messages of one session in order, users with their prompts and assistants without their parts."""
        left = {row[0] for row in rows if columns.leaves_prompt(row[2], row[5])}
        if not left:
            return [_decoded(row) for row in rows]
        self._events.flush()
        asked = self._q.message_prompts(self._c, session_id=rows[0][1], first=rows[0][3], last=rows[-1][3])
        facts: dict[str, bodies.Fact] = {message_id: (*fact,) for message_id, *fact in asked}
        return [_prompted(row, facts.get(row[0], bodies.MISSING)) if row[0] in left else _decoded(row) for row in rows]

    # -- parts -------------------------------------------------------------------------------------------------------------

    def put_part(
        self, session_id: str, message_id: str, ordinal: int, part: messages.Part, held_by: int | None = None
    ) -> None:
        """A part, new or changed; its body stands in the session's fact `held_by`, if anywhere else."""
        newest = self._known(message_id)
        if newest is None:
            self._kept.pop(session_id, None)
            self._write(message_id, ordinal, part, held_by)
            return
        newest.parts[ordinal] = part, held_by
        key = messages.part_key(part)
        last = newest.last.get(key)
        if newest.next_ordinal is not None and ordinal >= newest.next_ordinal:
            newest.next_ordinal = ordinal + 1
        elif last is None:
            newest.last.pop(key, None)  # perhaps not the last of its kind and id: ask the rows
            return
        elif last[0] > ordinal:
            return
        newest.last[key] = (ordinal, part)

    def _write(self, message_id: str, ordinal: int, part: messages.Part, held_by: int | None) -> None:
        kind, part_id = messages.part_key(part)
        data, held_by = bodies.dump(part, held_by)
        self._q.part_put(
            self._c,
            message_id=message_id,
            ordinal=ordinal,
            kind=kind,
            part_id=part_id,
            open=int(messages.part_is_open(part)),
            data=data,
            held_by=held_by,
        )

    def _settle(self) -> None:
        """Write what was changed, and the facts that hold the bodies of it."""
        self.flush()
        self._events.flush()

    def last_part(
        self, session_id: str, message_id: str, kind: messages.PartKind, part_id: str
    ) -> tuple[int, messages.Part] | None:
        """The last part of that kind and id, with its ordinal."""
        newest = self._known(message_id)
        if newest and (kind, part_id) in newest.last:
            return newest.last[kind, part_id]
        self._settle()
        row = self._q.part_last(self._c, message_id=message_id, kind=kind, part_id=part_id)
        found = (row[0], bodies.load(session_id, message_id, row[1:])) if row else None
        if newest:
            newest.last[kind, part_id] = found
        return found

    def next_ordinal(self, message_id: str) -> int:
        """Where the next part goes."""
        newest = self._known(message_id)
        if newest and newest.next_ordinal is not None:
            return newest.next_ordinal
        self.flush()
        last = self._q.part_last_ordinal(self._c, message_id=message_id)
        following = 0 if last is None else last + 1
        if newest:
            newest.next_ordinal = following
        return following

    def open_parts(self, session_id: str, message_id: str) -> list[tuple[int, messages.Part]]:
        """Parts not ended and calls not settled, in order."""
        self.flush()
        rows = self._q.part_open(self._c, message_id=message_id)
        return [(row[0], columns.load_part(session_id, message_id, *row[1:])) for row in rows]
