"""What the writer of a store has done, in numbers.

Lives here: counting commits, how long they took and how many units they carried. Not here: what becomes of the numbers
(`server/metrics.py`). One thread writes them, any may read; a reader may see a commit in one number and not yet in
another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def _none() -> int:
    return 0


class Meter:
    """`counts` are commits by duration, up to each of `bounds` (seconds) and beyond, `seconds` their sum, `units` how many
    units they carried, `queued` how many wait.
    """

    __slots__ = ("counts", "queued", "seconds", "units")
    bounds = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

    def __init__(self, queued: Callable[[], int] = _none) -> None:
        """Nothing was committed yet."""
        self.counts = [0] * (len(self.bounds) + 1)
        self.seconds, self.units, self.queued = 0.0, 0, queued

    def committed(self, seconds: float, units: int) -> None:
        """One commit, from the first unit's begin to the disk's answer."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds
        self.units += units
