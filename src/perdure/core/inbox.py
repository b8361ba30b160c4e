"""Which inputs enter the transcript at a boundary: the promotion rule, pure.

Lives here: `choose` and the shape of what it looks at (IN-8, RUN-1, REC-5, REC-7). Not here: reading or writing rows;
the same rule serves the check whether a drain should start at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.messages import Delivery
from perdure.core.value import Value


class Waiting(Value):
    """An input that is neither promoted nor settled. `continuation`: it belongs to a recovery; `armed`: that may go on
    now.
    """

    id: str
    delivery: Delivery
    wake_pending: bool
    continuation: bool = False
    armed: bool = False


class Choice(Value):
    """What is promoted, in admission order, and which continuation that supersedes."""

    promote: tuple[str, ...] = ()
    supersede: tuple[str, ...] = ()


def choose(waiting: Sequence[Waiting], *, turn_open: bool) -> Choice:
    """Choose from what waits, given in admission order.

    With a turn open only steers join. With none open: steers first, and they supersede a continuation; else the
    continuation, once it may go on, before anything queued; else the oldest queued input. An unarmed continuation holds
    queued inputs back.
    """
    steers = tuple(one.id for one in waiting if one.delivery == "steer" and not one.continuation)
    if turn_open:
        return Choice(steers)
    continuations = [one for one in waiting if one.continuation]
    if steers:
        return Choice(steers, tuple(one.id for one in continuations))
    if continuations:
        return Choice(tuple(one.id for one in continuations[:1] if one.armed))
    return Choice(tuple(one.id for one in waiting[:1]))


def wanted(waiting: Sequence[Waiting]) -> bool:
    """Whether stored intent starts a drain now (IN-15, REC-7)."""
    continuations = [one for one in waiting if one.continuation]
    if any(one.armed for one in continuations):
        return True
    woken = [one for one in waiting if one.wake_pending and not one.continuation]
    if continuations:
        return any(one.delivery == "steer" for one in woken)
    return bool(woken)
