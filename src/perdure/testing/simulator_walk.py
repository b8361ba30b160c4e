"""The crash walk: a scenario dies before and after every commit, and its recovery does too.

Lives here: counting the deaths there are to die, and dying each of them. Not here: what a scenario does, and what must
hold after it: both are the caller's. The points are found by counting, never named: a death that no longer comes is the
end of the walk, so a commit that is added to the engine is walked without anybody writing it down.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

from perdure.testing.simulator import Life


class Scenario(Protocol):
    """Something to live through: an engine's simulation and all that is outside of it."""

    def live(self, *, crash_at: int | None = None) -> Life:
        """Go on from where the last life ended, to the end or to a death."""
        ...

    def fork(self) -> Self:
        """The same once more, all that is outside included."""
        ...

    def problems(self, *, at_rest: bool) -> list[str]:
        """What does not hold now: after a death, or when all is over."""
        ...

    def remove(self) -> None:
        """It is not needed any more."""
        ...


@dataclass
class Walked:
    """How far a walk came: deaths of the first life, deaths of the life after it, and what did not hold after which."""

    points: int = 0
    pairs: int = 0
    failures: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        """In one line."""
        return f"{self.points} crash points and {self.pairs} pairs walked, {len(self.failures)} failures"


def walk(
    make: Callable[[], Scenario], *, step: int = 1, pair_step: int | None = None, enough: int = 5, first: int = 1
) -> Walked:
    """Die at every `step`-th edge from `first`, and with `pair_step` at every so-manieth edge of the life after each.

    Stops early after `enough` failures. A pair's first edge moves on from point to point, so that a stride does not
    leave out the same edges everywhere.
    """
    walked = Walked()
    for edge in itertools.count(first, step):
        one = make()
        died = one.live(crash_at=edge).died
        try:
            if not died or len(walked.failures) >= enough:
                return walked
            walked.points += 1
            _look(walked, one, f"death {edge}", at_rest=False)
            seconds = () if pair_step is None else itertools.count(1 + walked.points % pair_step, pair_step)
            for second in seconds:
                if not _die_again(walked, one, f"deaths {edge} and {second}", second):
                    break
            _finish(walked, one, f"death {edge}")
        finally:
            one.remove()
    return walked


def _die_again(walked: Walked, one: Scenario, where: str, second: int) -> bool:
    other = one.fork()
    try:
        if not other.live(crash_at=second).died:
            return False
        walked.pairs += 1
        _look(walked, other, where, at_rest=False)
        _finish(walked, other, where)
        return True
    finally:
        other.remove()


def _finish(walked: Walked, one: Scenario, where: str) -> None:
    one.live()
    _look(walked, one, where, at_rest=True)


def _look(walked: Walked, one: Scenario, where: str, *, at_rest: bool) -> None:
    when = "at rest" if at_rest else "right after"
    if found := one.problems(at_rest=at_rest):
        walked.failures.append(f"{where}, {when}:\n  " + "\n  ".join(found))
