"""The commits at a turn's boundaries: what is written between one model call and the next.

Lives here: beginning a turn, going on to its next step, ending it by each of its endings; every one a single fenced
unit, so that a crash sees either side and nothing in between. Not here: the order in which they happen (`drain.py`).
The context is read before the unit that promotes, so a blocked source leaves inputs where they were (RUN-2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.core import events, fold, inbox, messages
from perdure.log.unit import Unit
from perdure.runner import step
from perdure.runner.turn import Parts, Turn, append_all, choose_agent
from perdure.session import claims, context, promotion, recovery, sessions
from perdure.store import claims as rows

CUT_OFF = messages.Failure("unknown", fold.INTERRUPTED)
MAX_STEPS = messages.Failure("max_steps", "The turn used all the steps it is allowed")


async def begin(parts: Parts, held: claims.Held) -> Turn | None:
    """Open a turn: promote what is eligible and start the first step in the same commit.

    None where nothing was eligible any more, or the turn failed before it began; the claim is then let go or handed
    over.
    """
    session = await parts.log.store.read(lambda tx: sessions.get(tx, held.session_id))
    try:
        ready, model, model_name = choose_agent(parts, session.agent, session.model)
    except errors.PerdureError as error:
        await _fail_before_start(parts, held, error)
        return None
    await parts.histories.load(held.session_id)
    seen = await context.observe([context.Instructions(ready.agent.instructions)])
    turn = Turn(parts, held, ready, model, model_name, parts.mint("msg"))
    turn.steps, turn.max_steps = 1, session.policy.max_steps or ready.agent.max_steps
    note_id = parts.mint("msg")

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        choice = inbox.choose(promotion.waiting(unit.tx, held.session_id, unit.now), turn_open=False)
        turn.baseline = context.settle(unit, held.session_id, seen, note_id) if choice.promote else ""
        if not promotion.promote(unit, held.session_id, choice).ids:
            claims.let_go(unit.tx, claim)
            return ending.decide(went_on=False)
        started = events.ExecutionStarted(
            session_id=held.session_id,
            execution_id=claim.id,
            owner_id=claim.owner_id,
            purpose="turn",
            attempt=held.attempt,
        )
        unit.append(started)
        _start_step(unit, claim, turn)
        return ending.decide(went_on=True)

    ending = _Ending(held, held.execution_id, held.attempt)
    return turn if await turn.commit(work, durable=ending.take_effect) else None


async def next_step(turn: Turn, outcome: step.Outcome) -> Turn | None:
    """End a step that owes another and start that one in the same commit; steers that wait join it."""
    session = await turn.parts.log.store.read(lambda tx: sessions.get(tx, turn.session_id))
    try:
        ready, model, model_name = choose_agent(turn.parts, session.agent, session.model)
    except errors.PerdureError as error:
        return await end(turn, step.Failed(outcome.facts, messages.Failure(error.type, str(error))))
    seen = await context.observe([context.Instructions(ready.agent.instructions)])
    following = Turn(turn.parts, turn.held, ready, model, model_name, turn.parts.mint("msg"))
    note_id = turn.parts.mint("msg")
    max_steps = session.policy.max_steps or ready.agent.max_steps

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        append_all(unit, outcome.facts)
        following.baseline = context.settle(unit, turn.session_id, seen, note_id)
        choice = inbox.choose(promotion.waiting(unit.tx, turn.session_id, unit.now), turn_open=True)
        promoted = promotion.promote(unit, turn.session_id, choice)
        _start_step(unit, claim, following)
        return bool(promoted.ids)

    joined = await turn.commit(work)
    following.steps, following.max_steps = (1 if joined else turn.steps + 1), max_steps
    return following


def _start_step(unit: Unit, claim: rows.ClaimRow, turn: Turn) -> None:
    """A model call is about to leave: from here on a crash means that its outcome is unknown (EX-4)."""
    claims.move(unit, claim, "send", turn.message_id)
    unit.append(
        events.StepStarted(
            session_id=turn.session_id,
            assistant_message_id=turn.message_id,
            agent=turn.ready.agent.name,
            model=turn.model_name,
        )
    )


async def end(turn: Turn, outcome: step.Outcome) -> None:
    """End the step and the turn in one commit, then go on with what is eligible or let go."""
    held, next_id = turn.held, turn.parts.claims.next_id()
    error = outcome.failure if isinstance(outcome, step.Failed) else (MAX_STEPS if outcome.owes else None)

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        append_all(unit, outcome.facts)
        ended = events.ExecutionEnded(
            session_id=turn.session_id,
            execution_id=claim.id,
            outcome="failed" if error else "succeeded",
            message_ids=promotion.settled_by_turn(unit.tx, turn.session_id),
            error=error,
            reason=error.type if error else None,
        )
        unit.append(ended)
        return ending.decide(went_on=claims.hand_over_or_release(unit, claim, next_id, only_woken=False))

    ending = _Ending(held, next_id)
    await turn.commit(work, durable=ending.take_effect)


@dataclass(slots=True)
class _Ending:
    """What a unit decided about the claim, taken into memory by the commit itself: a drain cancelled meanwhile must
    know it too.
    """

    held: claims.Held
    next_id: str
    attempt: int = 1
    went_on: bool = False

    def decide(self, *, went_on: bool) -> bool:
        """Note the decision of this run of the unit."""
        self.went_on = went_on
        return went_on

    def take_effect(self, appended: Sequence[Any] = ()) -> None:
        """The unit is committed."""
        del appended
        if self.went_on:
            self.held.execution_id, self.held.attempt = self.next_id, self.attempt
        else:
            self.held.open = False


async def end_interrupted(parts: Parts, held: claims.Held, turn: Turn | None) -> None:
    """Settle an interrupt: what was shown stays, marked; the mark goes with the claim or its hand-over (EX-8)."""
    if turn and turn.publisher:
        turn.publisher.end_open(CUT_OFF)
    next_id = parts.claims.next_id()
    facts = _still_owed(turn)
    finish = turn.publisher.finish if turn and turn.publisher else None

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        session_id = claim.session_id
        if claim.phase == "safe":
            claims.let_go(unit.tx, claim)
            return ending.decide(went_on=False)
        append_all(unit, facts)
        recovery.fail_compaction(unit, session_id)
        current = recovery.end_parts(unit, session_id)
        if current:
            step_interrupted = events.StepInterrupted(
                session_id=session_id, assistant_message_id=current.id, error=recovery.INTERRUPTED
            )
            unit.append(step_interrupted)
            used = finish.tokens if finish else None
            unit.append(events.UsageRecorded(session_id=session_id, source="step.interrupted", tokens=used))
        recovery.end(unit, session_id, claim.id, "interrupted", reason="interrupt")
        return ending.decide(went_on=claims.hand_over_or_release(unit, claim, next_id, only_woken=True))

    ending = _Ending(held, next_id)
    await parts.claims.commit(held, work, settling=True, committed=ending.take_effect)


def _still_owed(turn: Turn | None) -> list[object]:
    """Facts of the cut-off step that are not durable yet. A call whose fact never became durable never ran:
    `step.interrupted` closes it, as it closes those that were never called.
    """
    if turn is None or turn.publisher is None:
        return []
    return [fact for fact in turn.publisher.pending if not isinstance(fact, events.ToolCalled) and not _cut_off(fact)]


def _cut_off(fact: object) -> bool:
    return isinstance(fact, events.ToolFailed) and fact.error == CUT_OFF


async def end_by_defect(parts: Parts, held: claims.Held, error: Exception) -> None:
    """The drain broke: end what is open as failed; where even that cannot be written, the lease ends and recovery does
    it.
    """
    failure = messages.Failure("defect", f"{type(error).__name__}: {error}")
    next_id = parts.claims.next_id()

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        session_id = claim.session_id
        if claim.phase == "safe":
            claims.let_go(unit.tx, claim)
            return ending.decide(went_on=False)
        recovery.fail_compaction(unit, session_id)
        current = recovery.end_parts(unit, session_id)
        if current:
            fail_tools(unit, session_id, current.id, failure)
            unit.append(events.StepFailed(session_id=session_id, assistant_message_id=current.id, error=failure))
        recovery.end(unit, session_id, claim.id, "failed", reason="defect", error=failure)
        return ending.decide(went_on=claims.hand_over_or_release(unit, claim, next_id, only_woken=False))

    ending = _Ending(held, next_id)
    await parts.claims.commit(held, work, settling=True, committed=ending.take_effect)


def fail_tools(unit: Unit, session_id: str, message_id: str, failure: messages.Failure) -> None:
    """Settle the calls of an assistant that fails with calls still open."""
    for _, part in unit.tx.messages.open_parts(session_id, message_id):
        if isinstance(part, messages.ToolPart):
            unit.append(
                events.ToolFailed(
                    session_id=session_id, assistant_message_id=message_id, call_id=part.call_id, error=failure
                )
            )


async def _fail_before_start(parts: Parts, held: claims.Held, error: errors.PerdureError) -> None:
    """Nobody can answer this session (its agent or model is unknown here): the eligible input fails, visibly."""
    failure = messages.Failure(error.type, str(error))

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        choice = inbox.choose(promotion.waiting(unit.tx, claim.session_id, unit.now), turn_open=False)
        for message_id in choice.promote:
            if waiting := unit.tx.recoveries.of_continuation(message_id):
                unit.append(
                    events.PromptWithdrawn(
                        session_id=claim.session_id, message_id=message_id, reason="failed", error=failure
                    )
                )
                recovery.end(unit, claim.session_id, waiting.execution_id, "failed", reason=failure.type, error=failure)
            else:
                unit.append(
                    events.PromptWithdrawn(
                        session_id=claim.session_id, message_id=message_id, reason="failed", error=failure
                    )
                )
        claims.let_go(unit.tx, claim)

    held.open = False
    await parts.claims.commit(held, work)
