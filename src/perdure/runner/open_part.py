"""What a stream has open: parts whose text still grows, calls on their way to a result.

Lives here: the two values the publisher keeps of each. Not here: what may follow what (`publisher.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core import messages, text


@dataclass(slots=True)
class OpenPart:
    """An open part: its text so far, the fragments that wait to be added to it as the model gave them, and how much of it
    was announced and drafted (code points).
    """

    kind: messages.PartKind
    id: str
    gathered: str = ""
    waiting: list[str] = field(default_factory=list[str])
    announced: int = 0
    drafted: int = 0

    def text(self, *, ended: bool = False) -> str:
        """All of it, recordable; but for half a surrogate pair at its end, as long as the other half may follow."""
        if self.waiting:
            more = "".join(self.waiting)
            self.waiting.clear()
            if not ended and "\ud800" <= more[-1:] <= "\udbff":
                self.waiting.append(more[-1])
                more = more[:-1]
            self.gathered += text.clean_text(more)
        return self.gathered

    def grew(self) -> bool:
        """Whether there is more than the last draft has; what a call writes is never drafted."""
        return self.kind != "tool" and len(self.text()) > self.drafted


@dataclass(slots=True)
class OpenCall:
    """A tool call of this step: its name and how far it is."""

    name: str
    input: str | None = None
    state: str = "writing"  # writing, written, waiting, running, settled
    provider_executed: bool = False
