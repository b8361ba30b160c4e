"""Whether and when a failed provider attempt is made again: pure (RUN-4).

Lives here: which kinds are worth another attempt, how many, and after how long. Not here: waiting, writing. Jitter
takes its chance as an argument. A provider that asks to be left alone longer than the cap is not asked again at all:
the turn fails at once and says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.core import events
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
    """How attempts are spaced; times in ms. `attempts` counts the first one too, and `attempts_of` is the number for one
    kind of error.
    """

    attempts: int = 5
    base_ms: int = 2_000
    jitter: float = 0.2
    retry_after_cap_ms: int = 15 * 60 * 1000
    kinds: frozenset[ModelErrorKind] = RETRYABLE
    attempts_of: Mapping[str, int] = field(default_factory=dict[str, int])

    def limit(self, kind: ModelErrorKind) -> int:
        """How often a step may be asked if this is how it fails; an account that is used up no plan asks again."""
        if kind is ModelErrorKind.QUOTA:
            return 1
        return self.attempts_of.get(kind.value, self.attempts if kind in self.kinds else 1)


def chosen(plan: Plan, wanted: events.Retrying | None) -> Plan:
    """The plan of a session: what its policy says, else the engine's."""
    if wanted is None:
        return plan
    return dataclasses.replace(
        plan,
        attempts=plan.attempts if wanted.attempts is None else wanted.attempts,
        base_ms=plan.base_ms if wanted.base_ms is None else wanted.base_ms,
        retry_after_cap_ms=plan.retry_after_cap_ms if wanted.retry_after_cap_ms is None else wanted.retry_after_cap_ms,
        attempts_of={**plan.attempts_of, **(wanted.attempts_of or {})},
    )


def delay_ms(plan: Plan, attempt: int, error: ModelError, chance: float) -> int | None:
    """How long to wait after attempt number `attempt` (from 1) failed, None if it was the last.

    Exponential from `base_ms`, spread by ± `jitter` with `chance` in [0, 1); a longer Retry-After wins.
    """
    if attempt >= plan.limit(error.kind):
        return None
    asked = error.retry_after_ms or 0
    if asked > plan.retry_after_cap_ms:
        return None
    backoff = plan.base_ms * 2 ** (attempt - 1) * (1 + plan.jitter * (2 * chance - 1))
    return max(round(backoff), asked)
