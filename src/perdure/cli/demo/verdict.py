"""What the demo measured at each kill, and whether it is what was promised.

Lives here: `Figures`, frozen, and `problems`, a pure function over them. Not here: measuring (`story.py`) and showing
(`report.py`). A figure that is not as promised is a sentence; no sentence, no problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# A dead owner is known by its process, so nobody waits for its lease of 30 s to end. Most of this is a process's start.
RESUMED_WITHIN_S = 25.0
RECENT_S = 0.25


@dataclass(frozen=True, slots=True)
class Figures:
    """One kill. What is `due` is what the moment of the kill makes of the promise."""

    kill: str
    moment: str
    struck: bool
    """The database of the dead process shows the moment that was meant."""
    prompts: int
    answered: int
    """Prompts with one outcome, succeeded, and one final answer each."""
    calls: int
    effects: int
    effects_due: int
    saw: int
    kept: int
    recent: int
    """Characters that reached the reader in the 250 ms before the kill: the most that may be lost."""
    missed: int
    """Facts that the reader, reconnected, got twice or not at all."""
    notice: bool
    """The transcript says in so many words that the step's outcome is unknown."""
    told: bool
    told_due: bool
    """The next request told the model that the outcome of its call is unknown."""
    resumed_s: float

    @property
    def lost(self) -> int:
        """Characters the reader saw which the restarted server does not have."""
        return self.saw - self.kept


def problems(figures: Sequence[Figures], kills: Sequence[str], violations: int) -> list[str]:
    """Everything that is not as promised."""
    found = [f"kill {one.kill}: {words}" for one in figures for words in _problems(one)]
    if [one.kill for one in figures] != list(kills):
        found.append(f"kills {', '.join(kills)} were promised, not {', '.join(one.kill for one in figures) or 'none'}")
    if violations:
        found.append(f"the provider refused {violations} histories in which a call lacks its result")
    return found


def _problems(one: Figures) -> list[str]:
    checks = {
        "it did not strike where it was meant to": one.struck,
        f"of {one.prompts} prompts, {one.answered} were answered exactly once": one.answered == one.prompts,
        f"{one.effects} side effects where {one.effects_due} were due": one.effects == one.effects_due,
        f"{one.calls} calls where {one.effects_due} were due": one.calls == one.effects_due,
        f"{one.lost} characters lost, but only {one.recent} were younger than 250 ms": 0 <= one.lost <= one.recent,
        f"a reader who came back missed or repeated {one.missed} facts": one.missed == 0,
        "the transcript does not show the recovery": one.notice,
        "the model was not told that the outcome is unknown": one.told or not one.told_due,
        "the model was told of an unknown outcome that was known": one.told_due or not one.told,
        f"it went on only after {one.resumed_s:.1f} s": one.resumed_s <= RESUMED_WITHIN_S,
    }
    return [words for words, holds in checks.items() if not holds]


def as_json(figures: Sequence[Figures], violations: int, seconds: float, found: Sequence[str]) -> dict[str, Any]:
    """The figures for a program."""
    kills = [{**asdict(one), "lost": one.lost, "resumed_s": round(one.resumed_s, 3)} for one in figures]
    return {
        "ok": not found,
        "problems": list(found),
        "kills": kills,
        "pairing_violations": violations,
        "seconds": round(seconds, 1),
    }
