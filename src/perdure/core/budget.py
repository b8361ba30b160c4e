"""What a session or a turn may use, and whether it has: pure (RUN-7).

Lives here: `used`, a fold over facts, and the check before each model call. Not here: prices, ending a turn, reading
the facts of a turn that goes on after a restart (`runner/spending.py`). A step counts when it ends, so that a crash in it
counts it once. A call whose cost nobody knows counts its tokens; its cost cannot be held against a limit, and the
session's totals say how many such there were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.core import events, messages
from perdure.core.value import Value


class Spent(Value):
    """What was used: tokens of all kinds, micro-dollars, wall seconds, steps."""

    tokens: int = 0
    cost: int = 0
    seconds: float = 0.0
    steps: int = 0

    def plus(self, facts: Iterable[Any]) -> Spent:
        """This and what more facts say, which know nothing of seconds."""
        more = used(facts)
        return Spent(self.tokens + more.tokens, self.cost + more.cost, self.seconds, self.steps + more.steps)


def total(tokens: messages.Tokens) -> int:
    """Tokens of all kinds."""
    return tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write


def used(facts: Iterable[Any]) -> Spent:
    """What facts say was used: by steps that ended, and by what is recorded apart (summaries, interrupted and parked
    steps).
    """
    tokens = cost = steps = 0
    for fact in facts:
        if isinstance(fact, events.StepEnded | events.StepFailed | events.UsageRecorded):
            tokens += total(fact.tokens) if fact.tokens else 0
            cost += fact.cost or 0
            steps += not isinstance(fact, events.UsageRecorded)
    return Spent(tokens, cost, 0.0, steps)


def exceeded(limit: events.Budget | None, spent: Spent) -> str | None:
    """Which limit is reached, in words; None while another call may be made."""
    if limit is None:
        return None
    if limit.tokens is not None and spent.tokens >= limit.tokens:
        return f"{spent.tokens} of {limit.tokens} tokens"
    if limit.cost is not None and spent.cost >= limit.cost:
        return f"{spent.cost} of {limit.cost} micro-dollars"
    if limit.seconds is not None and spent.seconds >= limit.seconds:
        return f"{spent.seconds:.0f} of {limit.seconds:g} seconds"
    if limit.steps is not None and spent.steps >= limit.steps:
        return f"{spent.steps} of {limit.steps} steps"
    return None
