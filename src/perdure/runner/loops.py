"""A model that makes the same failing call again and again: pure (RUN-6).

Lives here: `Streak`, how often the same call has failed in a row, counted over calls as they come and over a transcript
where a turn goes on in another process. A call of unknown outcome has not failed. Not here: ending the turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.core import codec, messages

LIMIT = 3


@dataclass(frozen=True, slots=True)
class Streak:
    """The same failing call, so many times in a row."""

    call: str = ""
    times: int = 0

    def after(self, call: str, *, failed: bool) -> Streak:
        """With one more call."""
        if not failed:
            return Streak()
        return Streak(call, self.times + 1 if call == self.call else 1)


def key(name: str, given: messages.JsonObject) -> str:
    """A call as far as its being the same is concerned: its name and canonical input."""
    return f"{name} {codec.canonical(given)}"


def outcomes(parts: Iterable[messages.Part]) -> list[tuple[str, bool]]:
    """The calls among parts that have an outcome, and whether they failed."""
    calls = [(part.name, part.state) for part in parts if isinstance(part, messages.ToolPart)]
    return [
        (key(name, state.input), isinstance(state, messages.Errored) and state.error.type != "unknown")
        for name, state in calls
        if not isinstance(state, messages.Pending | messages.Running)
    ]


def streak(calls: Iterable[tuple[str, bool]], start: Streak | None = None) -> Streak:
    """The streak that calls end with."""
    found = start or Streak()
    for call, failed in calls:
        found = found.after(call, failed=failed)
    return found
