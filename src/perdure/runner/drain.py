"""One busy period of a session: promote, step, again, until nothing is eligible.

Lives here: the order of things, as a short list of steps. Each commit it asks for stands in `boundary.py` or
`endings.py`; what happens inside a step in `step.py`. Not here: when a drain starts (`coordinator.py`, `sweep.py`).
Ways out: nothing left, the claim lost, an interrupt settled, a graceful stop. Whatever else goes wrong ends the turn
failed; a defect is never left to recovery if the database still answers.
"""

from __future__ import annotations

import asyncio
import logging

from perdure import errors, telemetry
from perdure.core import messages
from perdure.runner import boundary, compaction, endings, step, tracing
from perdure.runner.coordinator import Busy
from perdure.runner.turn import Parts, Turn
from perdure.session import claims

MAX_STEPS = messages.Failure("max_steps", "The turn used all the steps it is allowed")
_logger = logging.getLogger("perdure.runner")


async def drain(parts: Parts, busy: Busy[str]) -> None:
    """Run a session until nothing is eligible. A live owner elsewhere is no failure: it goes on there."""
    try:
        held = parts.handed.pop(busy.key, None) or await parts.claims.acquire(busy.key, forced=busy.forced)
        if held:
            with parts.histories.busy(busy.key):
                async with parts.claims.keep(held):
                    await _Drain(parts, busy, held).run()
        else:
            parts.blocked.pop(busy.key, None)
    except errors.ClaimRefused:
        parts.blocked.pop(busy.key, None)
    except errors.ClaimLost:
        _logger.warning("claim lost", extra={"session_id": busy.key})


class _Drain:
    """The busy period while it runs."""

    def __init__(self, parts: Parts, busy: Busy[str], held: claims.Held) -> None:
        self.parts, self.busy, self.held = parts, busy, held
        self.turn: Turn | None = None

    async def run(self) -> None:
        """Turn after turn under one claim."""
        while self.held.open:
            try:
                if self.parts.claims.stopping:
                    await (self._stop() if self.held.compaction_id else self.parts.claims.release(self.held))
                    return
                await self._run_turn()
            except claims.Interrupted:
                await self._settle_interrupt()
            except asyncio.CancelledError:
                if self.held.lost or self.busy.reason is None:
                    raise
                await (self._stop() if self.busy.reason == "shutdown" else self._settle_interrupt())
            except errors.ContextBlocked as blocked:
                _logger.warning("context blocked", extra={"session_id": self.busy.key, "cause": str(blocked)})
                self.parts.blocked[self.busy.key] = str(blocked)
                await self.parts.claims.release(self.held)
            except errors.ClaimLost:
                raise
            except Exception as error:
                _logger.exception("turn failed by a defect", extra={"session_id": self.busy.key})
                await self._end_by_defect(error)

    async def _run_turn(self) -> None:
        """Promote, then step until no step is owed; the last commit hands the claim over or lets it go."""
        self.turn = None
        if self.held.compaction_id:
            message_id, self.held.compaction_id = self.held.compaction_id, None
            await compaction.manual(self.parts, self.held, message_id)
            return
        with telemetry.turn(self.held.session_id) as span:
            before = await tracing.turn_before(self.parts, self.held) if span.recording else None
            open_turn = boundary.resume if self.held.parked else boundary.begin
            turn = self.turn = await open_turn(self.parts, self.held)
            if turn:
                span.open_turn(turn.ready.agent.name, turn.model_name, self.held.execution_id)
                span.follow(before)
            while turn:
                if turn.compaction_id:
                    turn = self.turn = await compaction.auto(turn)
                else:
                    turn = self.turn = await self._after(turn, await step.run(turn))

    async def _after(self, turn: Turn, outcome: step.Outcome) -> Turn | None:
        """What follows a step: another, another attempt, or the turn's end."""
        if isinstance(outcome, step.Failed):
            return await boundary.try_again(turn, outcome)
        if isinstance(outcome, step.Waiting):
            return await endings.park(turn, outcome.facts, outcome.calls)
        if outcome.owes and not turn.last_step:
            return await boundary.next_step(turn, outcome)
        return await endings.end(turn, outcome.facts, MAX_STEPS if outcome.owes else None)

    async def _settle_interrupt(self) -> None:
        """Settle an interrupt; the loop goes on with what is wanted to run after it."""
        task = asyncio.current_task()
        while task and task.cancelling():
            task.uncancel()
        if self.held.open:
            await endings.end_interrupted(self.parts, self.held, self.turn)
        self.busy.reason = None

    async def _end_by_defect(self, error: Exception) -> None:
        """A defect ends the turn failed, unless somebody interrupted it before."""
        try:
            await endings.end_by_defect(self.parts, self.held, error, self.turn)
        except claims.Interrupted:
            await self._settle_interrupt()

    async def _stop(self) -> None:
        """A graceful stop: keep what is known, let anyone take over at once (EX-9)."""
        if not self.held.open:
            return
        try:
            if self.turn and self.turn.publisher:
                await self.turn.publisher.flush(draft=True)
        except claims.Interrupted:
            await self._settle_interrupt()
        else:
            await self.parts.claims.expire(self.held)
