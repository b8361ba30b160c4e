"""What a stream has open: parts whose text still grows, calls on their way to a result.

Lives here: the two values the publisher keeps of each. Not here: what may follow what (`publisher.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core import messages


@dataclass(slots=True)
class OpenPart:
    """An open part: the text that was announced, the fragments that wait to be, and how much was drafted (code points)."""

    kind: messages.PartKind
    id: str
    announced: str = ""
    waiting: list[str] = field(default_factory=list[str])
    drafted: int = 0

    def text(self) -> str:
        """All of it."""
        return "".join((self.announced, *self.waiting))

    def grew(self) -> bool:
        """Whether there is more than the last draft has; what a call writes is never drafted."""
        return self.kind != "tool" and len(self.announced) + sum(map(len, self.waiting)) > self.drafted


@dataclass(slots=True)
class OpenCall:
    """A tool call of this step: its name and how far it is."""

    name: str
    input: str | None = None
    state: str = "writing"  # writing, written, waiting, running, settled
    provider_executed: bool = False
