"""A transcript in memory: the fold's other home beside the rows.

Lives here: `Transcript`, a frozen value that is also the fold's view of itself, and `apply`. Not here: the rules
(`fold.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from perdure.core import events, fold, messages, view


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript in memory, as far as `seq`."""

    messages: tuple[messages.Message, ...] = ()
    seq: int = -1

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
        now: messages.Message = dataclasses.replace(change.message, **parts)
    elif isinstance(was, messages.Assistant):
        part = (change.part,)
        now = replace(was, parts=was.parts[: change.ordinal] + part + was.parts[change.ordinal + 1 :])
    else:
        return held
    return (*held[:index], now, *held[index + 1 :])
