"""Whether and when a failed provider attempt is made again: pure (RUN-4).

Lives here: which kinds are worth another attempt, how many, and after how long. Not here: waiting, writing. Jitter
takes its chance as an argument. A provider that asks to be left alone longer than the cap is not asked again at all:
the turn fails at once and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.errors import ModelError, ModelErrorKind

RETRYABLE = frozenset(
    {
        ModelErrorKind.RATE_LIMIT,
        ModelErrorKind.OVERLOADED,
        ModelErrorKind.SERVER,
        ModelErrorKind.TRANSPORT,
        ModelErrorKind.INCOMPLETE,
        ModelErrorKind.TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How attempts are spaced; times in ms. `attempts` counts the first one too."""

    attempts: int = 5
    base_ms: int = 2_000
    jitter: float = 0.2
    retry_after_cap_ms: int = 15 * 60 * 1000
    kinds: frozenset[ModelErrorKind] = RETRYABLE


def delay_ms(plan: Plan, attempt: int, error: ModelError, chance: float) -> int | None:
    """How long to wait after attempt number `attempt` (from 1) failed, None if it was the last.

    Exponential from `base_ms`, spread by ± `jitter` with `chance` in [0, 1); a longer Retry-After wins.
    """
    if error.kind not in plan.kinds or attempt >= plan.attempts:
        return None
    asked = error.retry_after_ms or 0
    if asked > plan.retry_after_cap_ms:
        return None
    backoff = plan.base_ms * 2 ** (attempt - 1) * (1 + plan.jitter * (2 * chance - 1))
    return max(round(backoff), asked)
