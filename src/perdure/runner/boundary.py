"""The commits between one model call and the next.

Lives here: beginning a turn, going on to its next step, making a failed attempt again, going on after a broken stream;
every one a single fenced unit, so that a crash sees either side and nothing in between. Not here: the order in which
they happen (`drain.py`), the endings (`endings.py`). The context is read before the unit that promotes, so a blocked
source leaves inputs where they were (RUN-2); budgets are looked at inside the unit, right before a model call is
announced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from perdure import errors, telemetry
from perdure.core import compaction, events, inbox, messages, request, transcript
from perdure.log.unit import Unit
from perdure.runner import endings, loops, retry, spending, step
from perdure.runner.turn import Approved, Parts, Turn, choose_agent
from perdure.session import claims, context, promotion, sessions
from perdure.store import claims as rows
from perdure.store.sessions import SessionRow

GO_ON = "Your last answer was cut off. What you said so far stands above: go on from there without repeating it."


async def begin(parts: Parts, held: claims.Held) -> Turn | None:
    """Open a turn: promote what is eligible and start the first step in the same commit.

    None where nothing was eligible any more, or the turn ended before it began; the claim is then let go or handed
    over.
    """
    session = await _session(parts, held)
    while True:
        try:
            turn = _turn(parts, held, session)
        except errors.PerdureError as error:
            await endings.fail_before_start(parts, held, error)
            return None
        outcome = await _start_first(turn)
        if not isinstance(outcome, SessionRow):
            parts.blocked.pop(held.session_id, None)
            return turn if outcome else None
        session = outcome


async def _start_first(turn: Turn) -> SessionRow | bool:
    """The commit of `begin`: whether the first step started, or the session's row where other settings hold by now."""
    parts, held = turn.parts, turn.held
    history = await _history(turn, held.seq)
    seen = await context.observe(turn.ready.sources)
    outlook = Outlook(history, seen, parts.mint("msg"), parts.mint("msg"), telemetry.traceparent())
    ending = endings.Ending(held, held.execution_id, held.attempt)

    def work(unit: Unit, claim: rows.ClaimRow) -> SessionRow | bool:
        ending.stay()
        session = sessions.get(unit.tx, held.session_id)
        if _settings(session) != _settings(turn.session):
            return session
        return open_turn(unit, claim, turn, outlook, ending)

    return await turn.commit(work, durable=ending.take_effect)


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """What is gathered before the unit that opens a turn: the transcript, what the sources say, ids for what it may append,
    where in a trace it stands.
    """

    history: transcript.Transcript
    seen: context.Observation
    note_id: str
    summary_id: str
    metadata: messages.JsonObject | None = None


def open_turn(unit: Unit, claim: rows.ClaimRow, turn: Turn, outlook: Outlook, ending: endings.Ending) -> bool:
    """Promote what is eligible and start the first step; False where nothing was, or a budget is used up: the claim is
    then let go or handed over.
    """
    choice = promotion.eligible(unit, turn.session_id)
    turn.baseline = context.settle(unit, turn.session_id, outlook.seen, outlook.note_id) if choice.promote else ""
    promoted = promotion.promote_next(unit, turn.session_id, choice)
    if not promoted.ids:
        claims.let_go(unit.tx, claim)
        return ending.decide(went_on=False)
    turn.attempt, ending.runs = promoted.attempt, promoted.ids
    turn.began, turn.spent = spending.so_far(unit, turn.session_id)
    unit.append(_started(claim, turn.held.attempt), metadata=outlook.metadata)
    turn.compaction_id = outlook.summary_id if _too_long(turn, outlook.history, unit) else None
    return start_or_end(unit, claim, turn, ending)


async def resume(parts: Parts, held: claims.Held) -> Turn | None:
    """Take up a parked turn whose calls are all decided: the approved ones become durable as called, in one commit.

    None where the turn was ended meanwhile; the claim is then let go.
    """
    session = await _session(parts, held)
    history = (await parts.histories.current(held.session_id, held.seq)).freeze()
    asked = history.newest_assistant()
    try:
        turn = _turn(parts, held, session, asked.agent if asked else None)
    except errors.PerdureError as error:
        await endings.fail_before_start(parts, held, error)
        return None
    held.parked = False
    ending = endings.Ending(held, session.execution_id or "", held.attempt)

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        row = unit.tx.sessions.get(held.session_id)
        current = unit.tx.messages.newest_assistant(held.session_id)
        execution_id = row.execution_id if row else None
        if row is None or not row.parked or execution_id is None or current is None:
            claims.let_go(unit.tx, claim)
            return ending.decide(went_on=False)
        unit.tx.claims.adopt(claim.id, claim.owner_id, execution_id, current.id)
        unit.append(events.ExecutionResumed(session_id=held.session_id, execution_id=execution_id))
        turn.message_id = current.id
        turn.resumed = _call_approved(unit, turn, current.id)
        turn.began, turn.spent = spending.so_far(unit, held.session_id)
        turn.step, turn.streak = _place(history.messages, promotion.running_since(unit.tx, held.session_id))
        ending.next_id = execution_id
        return ending.decide(went_on=True)

    return turn if await turn.commit(work, durable=ending.take_effect) else None


def _call_approved(unit: Unit, turn: Turn, message_id: str) -> tuple[Approved, ...]:
    """Make the approved calls of a message durable; what was asked is what runs."""
    approved: list[Approved] = []
    for row in unit.tx.approvals.of_message(message_id):
        found = unit.tx.messages.last_part(turn.session_id, message_id, "tool", row.call_id)
        part = found[1] if found else None
        if row.decision != "approve" or not isinstance(part, messages.ToolPart) or part.approval is None:
            continue
        if not isinstance(part.state, messages.Pending):
            continue
        bound = turn.ready.toolbox.get(part.name)
        call = Approved(row.call_id, part.name, part.approval.input)
        unit.append(
            events.ToolCalled(
                session_id=turn.session_id,
                assistant_message_id=message_id,
                call_id=call.call_id,
                name=call.name,
                input=call.input,
                effect=bound.tool.effect if bound else "write",
            )
        )
        approved.append(call)
    return tuple(approved)


async def _session(parts: Parts, held: claims.Held) -> SessionRow:
    """The session's row: as it was when the claim was taken just now, or read."""
    session, held.session = held.session, None
    return session or await parts.log.store.read(lambda tx: sessions.get(tx, held.session_id))


def _turn(parts: Parts, held: claims.Held, session: SessionRow, agent: str | None = None, **carried: Any) -> Turn:
    """A turn for who answers now, or for the agent that is named, with what it carries over from the step before. Raises
    `UnknownAgent`, `UnknownModel`.
    """
    ready, model, model_name = choose_agent(parts, agent or session.agent, session.model)
    return Turn(parts, held, ready, model, model_name, parts.mint("msg"), session, **carried)


def _started(claim: rows.ClaimRow, attempt: int) -> events.ExecutionStarted:
    return events.ExecutionStarted(
        session_id=claim.session_id,
        execution_id=claim.id,
        owner_id=claim.owner_id,
        purpose="turn",
        attempt=attempt,
    )


def _place(held: Sequence[messages.Message], promoted: Sequence[int]) -> tuple[int, loops.Streak]:
    """Where the open turn stands: which step since its last promotion the newest is, and the calls that failed before it."""
    steps = [one for one in held if isinstance(one, messages.Assistant) and one.seq > min(promoted, default=-1)]
    before = [one for one in steps[:-1] if one.finish != "error"]
    calls = [call for one in before for call in loops.outcomes(one.parts)]
    return 1 + sum(one.seq > max(promoted, default=-1) for one in before), loops.streak(calls)


async def next_step(turn: Turn, ended: step.Ended) -> Turn | None:
    """End a step that owes another and start that one in the same commit; steers that wait join it."""
    if turn.streak.times >= loops.LIMIT:
        failure = messages.Failure("loop", f"The same call failed {turn.streak.times} times in a row")
        return await endings.end(turn, ended.facts, failure)
    return await _go_on(turn, ended.facts, step=turn.step + 1, spent=turn.spent.plus(ended.facts))


async def _go_on(turn: Turn, facts: Sequence[Any], **carried: Any) -> Turn | None:
    """Write a step's last facts, let steers join and start the next step, unless a budget is used up.

    Who answers is chosen by the session's settings; the unit sees whether those still stand, else it is chosen again.
    """
    session = turn.session
    carried = {"began": turn.began, "streak": turn.streak, "unknown": turn.unknown} | carried
    while True:
        try:
            following = _turn(turn.parts, turn.held, session, **carried)
        except errors.PerdureError as error:
            return await endings.end(turn, facts, messages.Failure(error.type, str(error)))
        outcome = await _start_next(turn, following, facts)
        if not isinstance(outcome, SessionRow):
            return following if outcome else None
        session = outcome


async def _start_next(turn: Turn, following: Turn, facts: Sequence[Any]) -> SessionRow | bool:
    """The commit of `_go_on`: whether the next step started, or the session's row where other settings hold by now."""
    history = await _history(following)
    seen = await context.observe(following.ready.sources)
    note_id, summary_id = turn.parts.mint("msg"), turn.parts.mint("msg")
    ending = endings.Ending(turn.held, turn.held.execution_id, turn.held.attempt)

    def work(unit: Unit, claim: rows.ClaimRow) -> SessionRow | bool:
        ending.stay()
        session = sessions.get(unit.tx, turn.session_id)
        if _settings(session) != _settings(following.session):
            return session
        turn.append(unit, facts)
        following.baseline = context.settle(unit, turn.session_id, seen, note_id)
        choice = inbox.choose(promotion.waiting(unit.tx, turn.session_id, unit.now), turn_open=True)
        if joined := promotion.promote(unit, turn.session_id, choice).ids:
            following.step = 1
            ending.runs += joined
        following.compaction_id = summary_id if _too_long(following, history, unit) else None
        return start_or_end(unit, claim, following, ending)

    return await turn.commit(work, durable=ending.take_effect)


def _settings(session: SessionRow) -> tuple[str, str | None, events.Policy]:
    return session.agent, session.model, session.policy


def start_or_end(unit: Unit, claim: rows.ClaimRow, turn: Turn, ending: endings.Ending) -> bool:
    """Announce the model call, or end the turn where a budget is used up; whether the call may leave (RUN-7)."""
    reached = spending.reached(unit, turn)
    if reached:
        ending.next_id, ending.attempt = turn.parts.claims.next_id(), 1
        endings.end_turn(unit, claim, ending, messages.Failure("budget", f"The budget is used up: {reached}"))
        return False
    if turn.compaction_id:
        claims.move(unit, claim, "send", None)
        unit.append(events.CompactionStarted(session_id=turn.session_id, message_id=turn.compaction_id, reason="auto"))
    else:
        start_step(unit, claim, turn)
    return True


def start_step(unit: Unit, claim: rows.ClaimRow, turn: Turn) -> None:
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


async def _history(turn: Turn, upto: int = -1) -> transcript.Transcript:
    """The transcript for `_too_long`: nothing where no window is known, though it is at hand from here on."""
    held = await turn.parts.histories.current(turn.session_id, upto)
    return held.freeze() if turn.limit else transcript.Transcript()


def _too_long(turn: Turn, history: transcript.Transcript, unit: Unit) -> bool:
    """Whether the next request, with what the unit has appended, would not fit the model's window and can be cut."""
    limit = turn.limit
    if limit is None:
        return False
    grown = transcript.Transcript(tuple(request.visible(history)), history.seq)
    for recorded in unit.appended:
        grown = transcript.apply(grown, recorded)
    found = grown.messages
    return compaction.estimate(found) > limit.usable and compaction.cut(found, limit) is not None


# -- attempts that failed ----------------------------------------------------------------------------------------------


async def try_again(turn: Turn, failed: step.Failed) -> Turn | None:
    """After a failed attempt: wait and make it again, go on after a broken stream, or end the turn (RUN-4, RUN-5)."""
    parts, error = turn.parts, failed.error
    if error and error.kind is errors.ModelErrorKind.CONTEXT_OVERFLOW and not failed.visible and not turn.overflowed:
        return await _compact_and_retry(turn, failed)
    plan = retry.chosen(parts.retries, turn.policy.retry)
    wait = retry.delay_ms(plan, turn.attempt, error, parts.chance()) if error else None
    if wait is None:
        return await endings.end(turn, failed.facts, failed.failure)
    if failed.visible:
        return await _after_break(turn, failed, wait)
    return await _retry(turn, failed, wait)


async def _retry(turn: Turn, failed: step.Failed, wait: int) -> Turn | None:
    """Nothing was visible: the same assistant is tried again, at a time that survives a restart."""
    at = turn.parts.clock.now_ms() + wait
    failed, used = _used_apart(failed)

    def schedule(unit: Unit, claim: rows.ClaimRow) -> None:
        claims.move(unit, claim, "wait", turn.message_id)
        turn.append(unit, used)
        unit.append(
            events.RetryScheduled(
                session_id=turn.session_id,
                assistant_message_id=turn.message_id,
                attempt=turn.attempt + 1,
                at=at,
                error=failed.failure,
            )
        )

    await turn.commit(schedule)
    turn.publisher, turn.spent = None, turn.spent.plus(used)
    await turn.parts.clock.sleep_ms(wait)
    turn.attempt += 1
    return await _start_again(turn, failed)


def _used_apart(failed: step.Failed) -> tuple[step.Failed, list[events.UsageRecorded]]:
    """A failed attempt without what it used, and that apart: it is told at once, and its step may fail later (RUN-8)."""
    rest: list[Any] = []
    used: list[events.UsageRecorded] = []
    for fact in failed.facts:
        if not isinstance(fact, events.UsageRecorded | events.StepFailed):
            rest.append(fact)
            continue
        if isinstance(fact, events.UsageRecorded) or not (fact.tokens is None and fact.cost is None):
            one = events.UsageRecorded(
                session_id=fact.session_id, source="step.retried", tokens=fact.tokens, cost=fact.cost
            )
            used.append(one)
        if isinstance(fact, events.StepFailed):
            rest.append(events.replace(fact, tokens=None, cost=None))
    return dataclasses.replace(failed, facts=tuple(rest)), used


async def _start_again(turn: Turn, failed: step.Failed, used: Sequence[events.UsageRecorded] = ()) -> Turn | None:
    """The next attempt of the same assistant leaves, unless a budget is used up meanwhile. `used` is not durable yet."""
    ending = endings.Ending(turn.held, turn.held.execution_id, turn.held.attempt)

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        ending.stay()
        turn.append(unit, used)
        turn.session = sessions.get(unit.tx, turn.session_id)
        if spending.reached(unit, turn):
            turn.append(unit, failed.facts)
        return start_or_end(unit, claim, turn, ending)

    return turn if await turn.commit(work, durable=ending.take_effect) else None


async def _after_break(turn: Turn, failed: step.Failed, wait: int) -> Turn | None:
    """Something was visible: it stays, and a new assistant goes on from there."""
    note = events.SyntheticAdded(session_id=turn.session_id, message_id=turn.parts.mint("msg"), text=GO_ON)

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        turn.append(unit, (*failed.facts, note))
        claims.move(unit, claim, "settle", None)

    await turn.commit(work)
    turn.publisher = None
    await turn.parts.clock.sleep_ms(wait)
    return await _go_on(turn, (), step=turn.step, attempt=turn.attempt + 1, spent=turn.spent.plus(failed.facts))


async def _compact_and_retry(turn: Turn, failed: step.Failed) -> Turn | None:
    """The provider says that the request does not fit: summarise, once a step, then ask again."""
    history = (await turn.parts.histories.current(turn.session_id)).freeze()
    turn.overflowed = True
    if compaction.cut(visible := request.visible(history), turn.window(visible)) is None:
        return await endings.end(turn, failed.facts, failed.failure)
    turn.compaction_id, turn.publisher = turn.parts.mint("msg"), None
    failed, used = _used_apart(failed)
    turn.spent = turn.spent.plus(used)
    return await _start_again(turn, failed, used)
