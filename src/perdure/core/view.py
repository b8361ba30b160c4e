"""What the fold looks at and what it answers with: the two small vocabularies between a transcript and its homes.

Lives here: `View`, five questions that memory and rows can both answer, and the three changes a fact can make. Not
here: the rules (`fold.py`) and the homes (`transcript.py`, `log/projections.py`).
"""

from __future__ import annotations

from typing import Protocol

from perdure.core import messages
from perdure.core.value import Value


class Insert(Value):
    """A new message."""

    message: messages.Message


class Update(Value):
    """Another header for a message that exists; its parts stay."""

    message: messages.Message


class PutPart(Value):
    """A part of an assistant, new or changed."""

    message_id: str
    ordinal: int
    part: messages.Part


Change = Insert | Update | PutPart


class View(Protocol):
    """What the fold needs to know of the transcript so far."""

    def newest_assistant(self) -> messages.Assistant | None:
        """The newest assistant; its parts are not looked at."""
        ...

    def last_part(self, message_id: str, kind: messages.PartKind, part_id: str) -> tuple[int, messages.Part] | None:
        """The last part of that kind and id in a message, with its ordinal."""
        ...

    def open_parts(self, message_id: str) -> list[tuple[int, messages.Part]]:
        """Parts not ended and calls not settled, in order."""
        ...

    def next_ordinal(self, message_id: str) -> int:
        """Where the next part of a message goes."""
        ...

    def message(self, message_id: str) -> messages.Message | None:
        """A message by id."""
        ...
