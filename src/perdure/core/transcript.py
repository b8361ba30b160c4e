"""A transcript in memory: the fold's other home beside the rows.

Lives here: `Transcript`, a frozen value that is also the fold's view of itself, with `apply` for a fact now and then, and
`Builder`, which folds in place: a whole log, or the facts of a session that is busy. Not here: the rules (`fold.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure import errors
from perdure.core import events, fold, messages, view
from perdure.core.value import Value, replace


class Transcript(Value):
    """A transcript in memory, as far as `seq`."""

    messages: tuple[messages.Message, ...] = ()
    seq: int = -1

    @property
    def size(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def since(self, place: int) -> tuple[messages.Message, ...]:
        """The messages from a place on."""
        return self.messages[place:]

    def freeze(self) -> Transcript:
        """Itself."""
        return self

    def newest_assistant(self) -> messages.Assistant | None:
        """The newest assistant, complete or not."""
        return next((m for m in reversed(self.messages) if isinstance(m, messages.Assistant)), None)

    def last_part(self, message_id: str, kind: messages.PartKind, part_id: str) -> tuple[int, messages.Part] | None:
        """The last part of that kind and id."""
        parts = self._parts(message_id)
        for ordinal in range(len(parts) - 1, -1, -1):
            if messages.part_key(parts[ordinal]) == (kind, part_id):
                return ordinal, parts[ordinal]
        return None

    def open_parts(self, message_id: str) -> list[tuple[int, messages.Part]]:
        """Parts not ended and calls not settled."""
        return [(ordinal, part) for ordinal, part in enumerate(self._parts(message_id)) if messages.part_is_open(part)]

    def next_ordinal(self, message_id: str) -> int:
        """How many parts the message has."""
        return len(self._parts(message_id))

    def message(self, message_id: str) -> messages.Message | None:
        """A message by id, looked for from the end."""
        return next((m for m in reversed(self.messages) if m.id == message_id), None)

    def _parts(self, message_id: str) -> tuple[messages.Part, ...]:
        message = self.message(message_id)
        return message.parts if isinstance(message, messages.Assistant) else ()


def apply(transcript: Transcript, recorded: events.Recorded[Any]) -> Transcript:
    """The transcript with one more fact; at or below its seq it stays as it is (MSG-5)."""
    if recorded.seq <= transcript.seq:
        return transcript
    held = transcript.messages
    for change in fold.changes(transcript, recorded):
        held = _apply(held, change)
    return Transcript(held, recorded.seq)


def _apply(held: tuple[messages.Message, ...], change: view.Change) -> tuple[messages.Message, ...]:
    if isinstance(change, view.Insert):
        return (*held, change.message)
    message_id = change.message.id if isinstance(change, view.Update) else change.message_id
    index = next(i for i in range(len(held) - 1, -1, -1) if held[i].id == message_id)
    was = held[index]
    if isinstance(change, view.Update):
        parts = {"parts": was.parts} if isinstance(was, messages.Assistant) else {}
        now: messages.Message = replace(change.message, **parts)
    elif isinstance(was, messages.Assistant):
        part = (change.part,)
        now = replace(was, parts=was.parts[: change.ordinal] + part + was.parts[change.ordinal + 1 :])
    else:
        return held
    return (*held[:index], now, *held[index + 1 :])


class Builder:
    """A transcript that grows in place: the thousandth fact costs what the first did. Whoever can do with its end asks for
    that alone: putting together all of it takes as long as it is.
    """

    __slots__ = ("_last", "_messages", "_newest", "_parts", "_places", "_thawed", "_whole", "seq")

    def __init__(self, held: Transcript) -> None:
        """Go on from a transcript, which stays as it is."""
        self.seq = held.seq
        self._whole: tuple[messages.Message, ...] | None = held.messages
        # In a list beside their places: of a long one a tuple is made in a quarter of the time that a dict's values take.
        self._messages = [*held.messages]
        self._places = {one.id: place for place, one in enumerate(held.messages)}
        self._newest = held.newest_assistant()
        # The parts of one message, taken apart: the one that changes, which is the newest assistant (MSG-4).
        self._thawed: str | None = None
        self._parts: list[messages.Part] = []
        self._last: dict[tuple[messages.PartKind, str], int] = {}

    @property
    def size(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def since(self, place: int) -> tuple[messages.Message, ...]:
        """The messages from a place on."""
        self._gather()
        return tuple(self._messages[place:])

    def newest_assistant(self) -> messages.Assistant | None:
        """The newest assistant, its parts perhaps behind."""
        return self._newest

    def last_part(self, message_id: str, kind: messages.PartKind, part_id: str) -> tuple[int, messages.Part] | None:
        """The last part of that kind and id."""
        parts = self._thaw(message_id)
        ordinal = self._last.get((kind, part_id))
        return None if ordinal is None else (ordinal, parts[ordinal])

    def open_parts(self, message_id: str) -> list[tuple[int, messages.Part]]:
        """Parts not ended and calls not settled."""
        return [(ordinal, part) for ordinal, part in enumerate(self._thaw(message_id)) if messages.part_is_open(part)]

    def next_ordinal(self, message_id: str) -> int:
        """How many parts the message has."""
        return len(self._thaw(message_id))

    def message(self, message_id: str) -> messages.Message | None:
        """A message by id, an assistant's parts perhaps behind."""
        place = self._places.get(message_id)
        return None if place is None else self._messages[place]

    def apply(self, recorded: events.Recorded[Any]) -> bool:
        """Bring it up to one more fact; one at or below its seq changes nothing (MSG-5). Whether a message changed."""
        if recorded.seq <= self.seq:
            return False
        changes = fold.changes(self, recorded)
        if changes:
            self.change(changes)
        self.seq = recorded.seq
        return bool(changes)

    def change(self, changes: Iterable[view.Change]) -> None:
        """Make the changes. Raises `LifecycleConflict` for a message whose id is taken, as the rows do."""
        for change in changes:
            self._whole = None
            if isinstance(change, view.PutPart):
                parts = self._thaw(change.message_id)
                if change.ordinal == len(parts):
                    self._last[messages.part_key(change.part)] = change.ordinal
                    parts.append(change.part)
                else:
                    parts[change.ordinal] = change.part
                continue
            message = change.message
            place = self._places.setdefault(message.id, len(self._messages))
            if isinstance(change, view.Update):
                self._thaw(message.id)
                self._messages[place] = message
            elif place < len(self._messages):
                msg = f"Message id {message.id} is already taken"
                raise errors.LifecycleConflict(msg)
            else:
                self._messages.append(message)
            if isinstance(message, messages.Assistant):  # only the newest is ever updated
                self._newest = message

    def freeze(self) -> Transcript:
        """The transcript so far; the builder may go on. Put together only where messages changed since the last time."""
        if self._whole is None:
            self._gather()
            self._whole = tuple(self._messages)
        return Transcript(self._whole, self.seq)

    def _thaw(self, message_id: str) -> list[messages.Part]:
        """The parts of that message, for changing."""
        if message_id != self._thawed:
            self._gather()
            now, self._thawed = self.message(message_id), message_id
            self._parts = [*now.parts] if isinstance(now, messages.Assistant) else []
            self._last = {messages.part_key(part): ordinal for ordinal, part in enumerate(self._parts)}
        return self._parts

    def _gather(self) -> None:
        """Put the message that was taken apart together again; its parts may go on changing."""
        was, parts = self.message(self._thawed or ""), tuple(self._parts)
        if isinstance(was, messages.Assistant) and was.parts != parts:
            self._messages[self._places[was.id]] = replace(was, parts=parts)


Either = Transcript | Builder
"""A transcript for whoever reads its end."""
