"""The crash walk: a scenario dies before and after every commit, and its recovery does too.

Lives here: counting the deaths there are to die, and dying each of them. Not here: what a scenario does, and what must
hold after it: both are the caller's. The points are found by counting, never named: a death that no longer comes is the
end of the walk, so a commit that is added to the engine is walked without anybody writing it down.

A death right after a commit and one right before the next often leave the very same: the same file at the same time, and
the same outside. What follows is then the same too, so it is lived once and counted twice.
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

    def state(self) -> object:
        """What a death left, to compare: where two are equal, whatever follows is."""
        ...

    def problems(self, *, at_rest: bool) -> list[str]:
        """What does not hold now: after a death, or when all is over."""
        ...

    def remove(self) -> None:
        """It is not needed any more."""
        ...


@dataclass
class Walked:
    """How far a walk came: deaths of the first life, deaths of the life after it, how many pairs were not lived on since
    they left the same as the ones before, and what did not hold after which.
    """

    points: int = 0
    pairs: int = 0
    alike: int = 0
    failures: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        """In one line."""
        alike = f" ({self.alike} of them left exactly what the pair before had left)" if self.alike else ""
        return f"{self.points} crash points and {self.pairs} pairs walked{alike}, {len(self.failures)} failures"

    def add(self, other: Walked) -> None:
        """Count what another walk of the same came past."""
        self.points += other.points
        self.pairs += other.pairs
        self.alike += other.alike
        self.failures += other.failures


def walk(
    make: Callable[[], Scenario],
    *,
    step: int = 1,
    pair_step: int | None = None,
    enough: int = 5,
    first: int = 1,
    last: int | None = None,
) -> Walked:
    """Die at every `step`-th edge from `first` to `last`, and with `pair_step` at every so-manieth edge of the life after
    each.

    Stops early after `enough` failures. A pair's first edge moves on from point to point, so that a stride does not
    leave out the same edges everywhere.
    """
    walked = Walked()
    before: object = None
    pairs = 0
    for edge in itertools.count(first, step) if last is None else range(first, last + 1, step):
        one = make()
        try:
            if not one.live(crash_at=edge).died or len(walked.failures) >= enough:
                return walked
            walked.points += 1
            state = one.state()
            if pair_step == 1 and state == before:
                walked.pairs += pairs
                walked.alike += pairs
                continue
            before = state
            _look(walked, one, f"death {edge}", at_rest=False)
            pairs = 0 if pair_step is None else _die_again(walked, one, edge, pair_step)
            _finish(walked, one, f"death {edge}")
        finally:
            one.remove()
    return walked


def _die_again(walked: Walked, one: Scenario, edge: int, pair_step: int) -> int:
    """Die at every `pair_step`-th edge of the next life; how many there were."""
    before: object = None
    for number, second in enumerate(itertools.count(1 + walked.points % pair_step, pair_step)):
        other = one.fork()
        try:
            if not other.live(crash_at=second).died:
                return number
            walked.pairs += 1
            state = other.state()
            if state == before:
                walked.alike += 1
                continue
            before = state
            where = f"deaths {edge} and {second}"
            _look(walked, other, where, at_rest=False)
            _finish(walked, other, where)
        finally:
            other.remove()
    return 0


def _finish(walked: Walked, one: Scenario, where: str) -> None:
    one.live()
    _look(walked, one, where, at_rest=True)


def _look(walked: Walked, one: Scenario, where: str, *, at_rest: bool) -> None:
    when = "at rest" if at_rest else "right after"
    if found := one.problems(at_rest=at_rest):
        walked.failures.append(f"{where}, {when}:\n  " + "\n  ".join(found))
