"""What a session or a turn may use, and whether it has: pure (RUN-7).

Lives here: `spent`, a fold over the assistants of a turn, and the check before each model call. Not here: prices,
ending a turn. A call whose cost nobody knows counts its tokens; its cost is unknown and cannot be held against a limit,
which the status says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.core import messages
from perdure.core.session_facts import Budget


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used: tokens of all kinds, micro-dollars, wall seconds, steps."""

    tokens: int = 0
    cost: int = 0
    seconds: float = 0.0
    steps: int = 0


def total(tokens: messages.Tokens) -> int:
    """Tokens of all kinds."""
    return tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write


def spent_since(transcript: Iterable[messages.Message], first_seq: int, now_ms: int) -> Spent:
    """What the turn that began at `first_seq` has used by now. `transcript` in reverse order; read only as far as that
    seq.
    """
    tokens = cost = steps = 0
    began = now_ms
    for message in transcript:
        if message.seq < first_seq:
            break
        if isinstance(message, messages.Assistant):
            steps += 1
            began = min(began, message.time.created)
            tokens += total(message.tokens) if message.tokens else 0
            cost += message.cost or 0
    return Spent(tokens, cost, (now_ms - began) / 1000, steps)


def exceeded(limit: Budget | None, spent: Spent) -> str | None:
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
