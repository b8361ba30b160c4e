"""What a turn has used, and whether another model call may leave (RUN-7, RUN-8).

Lives here: what a request that ended or failed used, reading a turn's facts again after a restart or a wait for people,
and the check of both budgets inside the unit that announces a call. Not here: the arithmetic (`core/budget.py`), what
follows from a budget that is used up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure import errors
from perdure.core import budget
from perdure.core.value import replace
from perdure.log.unit import Unit
from perdure.models import port
from perdure.runner.turn import Turn
from perdure.session import promotion
from perdure.store import events as rows

PAGE = 500
REFUSED = frozenset(
    {
        errors.ModelErrorKind.RATE_LIMIT,
        errors.ModelErrorKind.OVERLOADED,
        errors.ModelErrorKind.SERVER,
        errors.ModelErrorKind.AUTH,
        errors.ModelErrorKind.QUOTA,
        errors.ModelErrorKind.INVALID_REQUEST,
        errors.ModelErrorKind.CONTEXT_OVERFLOW,
    }
)
"""Kinds by which a provider answers that it does not answer: where nothing else came, nothing was used."""
COUNTED = ("session.step.ended.", "session.step.failed.", "session.usage.recorded.")


def cost(turn: Turn, finish: port.Finish | None) -> int | None:
    """What a request cost: what the provider says, else by its tokens; None where nobody knows."""
    if finish is None or finish.cost is not None or finish.tokens is None:
        return finish.cost if finish else None
    return turn.parts.price(finish.tokens, turn.model_name)


def refused(error: Exception, *, said: bool) -> bool:
    """Whether a failed request used nothing for sure; of any other that told no usage nobody knows."""
    return isinstance(error, errors.ModelError) and error.kind in REFUSED and not said


def nothing(finish: port.Finish | None) -> bool:
    """Whether a request told nothing of what it used."""
    return finish is None or (finish.tokens is None and finish.cost is None)


def so_far(unit: Unit, session_id: str) -> tuple[int, budget.Spent]:
    """When the open turn began and what it has used: next to nothing to read, unless it goes on after a crash."""
    first = min(promotion.running_since(unit.tx, session_id), default=None)
    if first is None or (unit.appended and first >= unit.appended[0].seq):  # it begins with this unit
        return unit.now, budget.Spent()
    began = unit.now
    facts: list[Any] = []
    for row in _rows(unit, session_id, first - 1):
        began = min(began, row.created)
        if row.type.startswith(COUNTED):
            facts.append(unit.registry.upcast(unit.registry.decode(row.type, row.data)))
    return began, budget.used(facts)


def _rows(unit: Unit, session_id: str, after: int) -> Iterator[rows.EventRow]:
    while page := unit.tx.events.page(session_id, after, PAGE):
        yield from page
        after = page[-1].seq


def reached(unit: Unit, turn: Turn) -> str | None:
    """Which budget is used up, in words; None while another call may be made."""
    seconds = (unit.now - turn.began) / 1000
    words = budget.exceeded(turn.policy.turn_budget, replace(turn.spent, seconds=seconds))
    limit = turn.policy.session_budget
    if words or limit is None:
        return words
    row = unit.tx.sessions.get(turn.session_id) or turn.session
    steps = 0 if limit.steps is None else unit.tx.messages.count_assistants(turn.session_id)
    whole = budget.Spent(budget.total(row.usage.tokens), row.usage.cost, (unit.now - row.time_created) / 1000, steps)
    return budget.exceeded(limit, whole)
