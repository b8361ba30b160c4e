"""The commits that end a turn, one for each of its endings.

Lives here: ending by success or failure, by an interrupt, by a defect, and before anything began. Every one is a single
fenced unit that writes the last facts, settles the inputs and lets the claim go or hands it over. Not here: what leads
to an ending (`drain.py`, `boundary.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.core import events, fold, messages
from perdure.core.answers import Receipt
from perdure.log.unit import Unit
from perdure.runner import spending
from perdure.runner.turn import Parts, Turn
from perdure.session import admission, claims, promotion, recovery
from perdure.store import claims as rows

_logger = logging.getLogger("perdure.runner")
CUT_OFF = messages.Failure("unknown", fold.INTERRUPTED)


@dataclass(slots=True)
class Ending:
    """What a unit decided about the claim, taken into memory by the commit itself: a drain cancelled meanwhile must
    know it too. `attempt` is what the next execution counts as, `runs` are the inputs of its turn,
    `receipts` those of the turn that ends, for who waits for them here.
    """

    held: claims.Held
    next_id: str
    attempt: int = 1
    went_on: bool = False
    runs: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()

    def stay(self) -> None:
        """The claim stays as it is."""
        held = self.held
        self.next_id, self.attempt, self.runs, self.went_on = held.execution_id, held.attempt, held.runs, True

    def decide(self, *, went_on: bool) -> bool:
        """Note the decision of this run of the unit: another turn follows, or none."""
        self.went_on, self.runs = went_on, ()
        return went_on

    def take_effect(self, appended: Sequence[Any] = ()) -> None:
        """The unit is committed."""
        del appended
        held = self.held
        if self.went_on:
            held.execution_id, held.attempt, held.runs = self.next_id, self.attempt, self.runs
        else:
            held.open = False
        for receipt in self.receipts:
            if (told := held.told.pop(receipt.id, None)) is not None:
                told.append(receipt)


def end_turn(unit: Unit, claim: rows.ClaimRow, ending: Ending, failure: messages.Failure | None) -> None:
    """Append `execution.ended`, then hand the claim over or let it go; the last act of a unit."""
    ended = events.ExecutionEnded(
        session_id=claim.session_id,
        execution_id=claim.id,
        outcome="failed" if failure else "succeeded",
        message_ids=promotion.settled_by_turn(unit.tx, claim.session_id),
        error=failure,
        reason=failure.type if failure else None,
    )
    unit.append(ended)
    settled = ended.message_ids
    ending.receipts = tuple(admission.receipt_of(unit.tx, claim.session_id, one) for one in settled)
    ending.decide(went_on=claims.hand_over_or_release(unit, claim, ending.next_id, only_woken=False))


async def end(turn: Turn, facts: Sequence[Any], failure: messages.Failure | None) -> None:
    """End the step and the turn in one commit, then go on with what is eligible or let go."""
    ending = Ending(turn.held, turn.parts.claims.next_id())

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        turn.append(unit, facts)
        end_turn(unit, claim, ending, failure)

    await turn.commit(work, durable=ending.take_effect)


async def park(turn: Turn, facts: Sequence[Any], calls: Sequence[str]) -> None:
    """Let go of a turn that waits for people: no claim, no memory, no timer (APR-1)."""
    ending = Ending(turn.held, "")

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        turn.append(unit, facts)
        parked = events.ExecutionParked(session_id=turn.session_id, execution_id=claim.id, waiting=tuple(calls))
        unit.append(parked)
        claims.let_go(unit.tx, claim)
        ending.decide(went_on=False)
        return not unit.tx.approvals.waiting(turn.session_id)

    if await turn.commit(work, durable=ending.take_effect):
        turn.parts.ring(turn.session_id)


async def end_interrupted(parts: Parts, held: claims.Held, turn: Turn | None) -> None:
    """Settle an interrupt: what was shown stays, marked; the mark goes with the claim or its hand-over (EX-8)."""
    if turn and turn.publisher:
        turn.publisher.end_open(CUT_OFF)
    facts = _still_owed(turn)
    finish = turn.publisher.finish if turn and turn.publisher else None
    ending = Ending(held, parts.claims.next_id())

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        session_id = claim.session_id
        if claim.phase == "safe":
            _settle_unstarted(unit, claim, ending)
            return
        owed = turn is not None and claim.assistant_message_id == turn.message_id
        if turn and owed:
            turn.append(unit, facts)
        left = recovery.open_request(unit, claim)
        if left.current:
            step_interrupted = events.StepInterrupted(
                session_id=session_id, assistant_message_id=left.current.id, error=recovery.INTERRUPTED
            )
            unit.append(step_interrupted)
        used = finish if owed and finish else None
        recovery.record_usage(unit, left, "step.interrupted", used and used.tokens, turn and spending.cost(turn, used))
        settle = claim.purpose == "turn"
        recovery.end(unit, session_id, claim.id, "interrupted", reason="interrupt", settle=settle)
        ending.decide(went_on=claims.hand_over_or_release(unit, claim, ending.next_id, only_woken=True))

    await parts.claims.commit(held, work, settling=True, committed=ending.take_effect)


def _settle_unstarted(unit: Unit, claim: rows.ClaimRow, ending: Ending) -> None:
    """Nothing was started: a marked claim goes without a fact. One without a mark was handed over while its drain was
    being cancelled for the execution before, which nobody asked to stop.
    """
    if claim.interrupted or not ending.next_id:
        claims.let_go(unit.tx, claim)
        ending.decide(went_on=False)
    else:
        ending.stay()


def _still_owed(turn: Turn | None) -> list[object]:
    """Facts of the cut-off step that are not durable yet. A call whose fact never became durable never ran:
    `step.interrupted` closes it, as it closes those that were never called.
    """
    if turn is None or turn.publisher is None:
        return []
    return [fact for fact in turn.publisher.pending if not isinstance(fact, events.ToolCalled) and not _cut_off(fact)]


def _cut_off(fact: object) -> bool:
    return isinstance(fact, events.ToolFailed) and fact.error == CUT_OFF


async def end_by_defect(parts: Parts, held: claims.Held, error: Exception, turn: Turn | None = None) -> None:
    """The drain broke: keep what was shown, end what is open as failed. Where even that cannot be written, the lease ends
    and recovery does. Raises `Interrupted`.
    """
    failure = messages.Failure("defect", f"{type(error).__name__}: {error}")
    if turn is None and isinstance(error, errors.StoreError):
        await _end_failed(parts, held, failure, None, [], forgiving=True)
        return
    if turn and turn.publisher:
        turn.publisher.end_open(failure)
    owed = _still_owed(turn)
    try:
        await _end_failed(parts, held, failure, turn, owed)
    except (errors.ClaimLost, claims.Interrupted):
        raise
    except Exception:
        if not owed:
            raise
        _logger.exception("what the step still had to write is dropped", extra={"session_id": held.session_id})
        await _end_failed(parts, held, failure, None, [])


async def _end_failed(
    parts: Parts,
    held: claims.Held,
    failure: messages.Failure,
    turn: Turn | None,
    owed: Sequence[object],
    *,
    forgiving: bool = False,
) -> None:
    """The one commit of an ending by a defect; `owed` are facts of the step of `turn`. A `forgiving` one fails nothing that
    was not begun: it only lets go.
    """
    ending = Ending(held, parts.claims.next_id())

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        session_id = claim.session_id
        if claim.phase == "safe" and forgiving:
            claims.let_go(unit.tx, claim)
            ending.decide(went_on=False)
            return
        if claim.phase == "safe":
            _fail_unstarted(unit, claim, ending, failure)
            return
        owed_here = turn is not None and claim.assistant_message_id == turn.message_id
        if turn and owed_here:
            turn.append(unit, owed)
        left = recovery.open_request(unit, claim)
        used = turn.publisher.finish if owed_here and turn and turn.publisher else None
        recovery.record_usage(unit, left, "step.failed", used and used.tokens, turn and spending.cost(turn, used))
        if current := left.current:
            _fail_tools(unit, session_id, current.id, failure)
            unit.append(events.StepFailed(session_id=session_id, assistant_message_id=current.id, error=failure))
        if claim.purpose == "turn":
            end_turn(unit, claim, ending, failure)
        else:
            recovery.end(unit, session_id, claim.id, "failed", reason="defect", error=failure, settle=False)
            ending.decide(went_on=claims.hand_over_or_release(unit, claim, ending.next_id, only_woken=True))

    await parts.claims.commit(held, work, committed=ending.take_effect)


def _fail_tools(unit: Unit, session_id: str, message_id: str, failure: messages.Failure) -> None:
    """Settle the calls of an assistant that fails with calls still open."""
    for _, part in unit.tx.messages.open_parts(session_id, message_id):
        if isinstance(part, messages.ToolPart):
            unit.append(
                events.ToolFailed(
                    session_id=session_id, assistant_message_id=message_id, call_id=part.call_id, error=failure
                )
            )


async def fail_before_start(parts: Parts, held: claims.Held, error: errors.PerdureError) -> None:
    """Nobody can answer this session (its agent or model is unknown here): what was to run fails, visibly."""
    failure = messages.Failure(error.type, str(error))
    ending = Ending(held, parts.claims.next_id())

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        _fail_unstarted(unit, claim, ending, failure)

    held.parked = False
    await parts.claims.commit(held, work, committed=ending.take_effect)


def _fail_unstarted(unit: Unit, claim: rows.ClaimRow, ending: Ending, failure: messages.Failure) -> None:
    """Fail what a claim in phase `safe` was taken for, so that nothing is tried for ever: a parked turn, or the eligible
    inputs, with the recovery a continuation among them belongs to.
    """
    session = unit.tx.sessions.get(claim.session_id)
    if session and session.parked and session.execution_id:
        current = recovery.end_parts(unit, claim.session_id)
        if current:
            _fail_tools(unit, claim.session_id, current.id, failure)
            failed = events.StepFailed(session_id=claim.session_id, assistant_message_id=current.id, error=failure)
            unit.append(failed)
        recovery.end(unit, claim.session_id, session.execution_id, "failed", reason=failure.type, error=failure)
    else:
        _fail_eligible(unit, claim.session_id, failure)
    ending.decide(went_on=claims.hand_over_or_release(unit, claim, ending.next_id, only_woken=False))


def _fail_eligible(unit: Unit, session_id: str, failure: messages.Failure) -> None:
    choice = promotion.eligible(unit, session_id)
    for message_id in choice.supersede:
        unit.append(_withdrawn(session_id, message_id, "superseded"))
    for message_id in choice.promote:
        unit.append(_withdrawn(session_id, message_id, "failed", failure))
    for message_id in (*choice.promote, *choice.supersede):
        if dead := unit.tx.recoveries.of_continuation(message_id):
            recovery.end(unit, session_id, dead.execution_id, "failed", reason=failure.type, error=failure)


def _withdrawn(
    session_id: str, message_id: str, reason: Any, error: messages.Failure | None = None
) -> events.PromptWithdrawn:
    return events.PromptWithdrawn(session_id=session_id, message_id=message_id, reason=reason, error=error)
