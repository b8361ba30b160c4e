"""One busy period of a session: promote, step, again, until nothing is eligible.

Lives here: the order of things, as a short list of steps. Each commit it asks for stands in `boundary.py` or
`endings.py`, what happens inside a step in `step.py`, how a period ends that cannot just go on in `period.py`. Not here:
when a drain starts (`coordinator.py`, `sweep.py`).
"""

from __future__ import annotations

import logging

from perdure import errors, telemetry
from perdure.core import messages
from perdure.runner import boundary, compaction, endings, outset, step, tracing
from perdure.runner.coordinator import Busy
from perdure.runner.period import Period
from perdure.runner.turn import Parts, Turn

MAX_STEPS = messages.Failure("max_steps", "The turn used all the steps it is allowed")
_logger = logging.getLogger("perdure.runner")


async def drain(parts: Parts, busy: Busy[str]) -> None:
    """Run a session until nothing is eligible. A live owner elsewhere is no failure: it goes on there."""
    try:
        handed = parts.handed.pop(busy.key, None)
        held = handed.held if handed else await parts.claims.acquire(busy.key, forced=busy.forced)
        if held:
            with parts.histories.busy(busy.key):
                async with parts.claims.keep(held):
                    await _run(Period(parts, busy, held, handed.turn if handed else None))
        else:
            parts.blocked.pop(busy.key, None)
    except errors.ClaimRefused:
        parts.blocked.pop(busy.key, None)
    except errors.ClaimLost:
        _logger.warning("claim lost", extra={"session_id": busy.key})


async def _run(period: Period) -> None:
    """Turn after turn under one claim."""
    while period.held.open:
        await period.settling(period.stop() if period.parts.claims.stopping else _run_turn(period))


async def _run_turn(period: Period) -> None:
    """Promote, then step until no step is owed; the last commit hands the claim over or lets it go."""
    parts, held = period.parts, period.held
    begun, period.begun, period.turn = period.begun, None, None
    if held.compaction_id:
        message_id, held.compaction_id = held.compaction_id, None
        await compaction.manual(parts, held, message_id)
        return
    with telemetry.turn(held.session_id) as span:
        before = await tracing.turn_before(parts, held) if span.recording else None
        turn = period.turn = await (
            outset.take_up(begun) if begun else (boundary.resume if held.parked else boundary.begin)(parts, held)
        )
        if turn:
            span.open_turn(turn.ready.agent.name, turn.model_name, held.execution_id)
            span.follow(before)
        while turn:
            again = compaction.auto(turn) if turn.compaction_id else _after(turn, await step.run(turn))
            over = turn
            turn = period.turn = await again
            over.publisher = None  # it knows the turn too: what goes round in a circle waits for the garbage collector


async def _after(turn: Turn, outcome: step.Outcome) -> Turn | None:
    """What follows a step: another, another attempt, or the turn's end."""
    if isinstance(outcome, step.Failed):
        return await boundary.try_again(turn, outcome)
    if isinstance(outcome, step.Waiting):
        return await endings.park(turn, outcome.facts, outcome.calls)
    if outcome.owes and not turn.last_step:
        return await boundary.next_step(turn, outcome)
    return await endings.end(turn, outcome.facts, MAX_STEPS if outcome.owes else None)
