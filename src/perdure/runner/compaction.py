"""Summarising an older prefix: one model call of its own.

Lives here: asking for the summary whose start is durable, announcing it live, and the commit it ends with (CMP-2). Not
here: when and where to cut (`core/compaction.py`). The call declares no tools, so it can execute none; a failure leaves
history as it was.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from perdure import errors, telemetry
from perdure.core import compaction, events, messages, request, text
from perdure.log.unit import Unit
from perdure.models import port
from perdure.runner import boundary, endings, retry, spending
from perdure.runner.turn import Parts, Turn, choose_agent
from perdure.session import claims, context, sessions
from perdure.store import claims as rows

BLOCKED_MS = 1_000
LEAST = 1_000
"""Characters below which a conversation is short: a provider that finds it too long will find any too long."""
_logger = logging.getLogger("perdure.runner")


@dataclass(frozen=True, slots=True)
class Summary:
    """What the call gave: the facts that end the compaction, and why it failed if it did."""

    facts: tuple[Any, ...]
    failure: messages.Failure | None = None


async def auto(turn: Turn) -> Turn | None:
    """Summarise in the middle of a turn, then start the step that waits for it; a failure ends the turn."""
    assert turn.compaction_id  # noqa: S101, the drain asks only for a compaction that was started
    summary = await _summarise(turn, turn.compaction_id)
    if summary.failure:
        return await endings.end(turn, (*summary.facts, *_open_step_failed(turn, summary.failure)), summary.failure)

    def ended(unit: Unit, claim: rows.ClaimRow) -> None:
        for fact in summary.facts:
            unit.append(fact)
        unit.tx.context.delete_epoch(turn.session_id)
        claims.move(unit, claim, "wait", claim.assistant_message_id)

    await turn.commit(ended)
    turn.compaction_id, turn.spent = None, turn.spent.plus(summary.facts)
    while (started := await _start(turn)) is None:
        await turn.parts.clock.sleep_ms(BLOCKED_MS)
    return turn if started else None


async def _start(turn: Turn) -> bool | None:
    """Open the new epoch and start the step. False where a budget is used up and the turn has ended; None where a source
    cannot be read yet, and the turn keeps its claim.
    """
    seen = await context.observe(turn.ready.sources)
    note_id = turn.parts.mint("msg")
    used_up = messages.Failure("budget", "The budget is used up")
    ending = endings.Ending(turn.held, turn.held.execution_id, turn.held.attempt)

    def work(unit: Unit, claim: rows.ClaimRow) -> bool:
        ending.stay()
        turn.session = sessions.get(unit.tx, turn.session_id)
        turn.baseline = context.settle(unit, turn.session_id, seen, note_id)
        if spending.reached(unit, turn):
            for fact in _open_step_failed(turn, used_up):
                unit.append(fact)
        return boundary.start_or_end(unit, claim, turn, ending)

    try:
        going = await turn.commit(work, durable=ending.take_effect)
    except errors.ContextBlocked as blocked:
        turn.parts.blocked[turn.session_id] = str(blocked)
        return None
    turn.parts.blocked.pop(turn.session_id, None)
    return going


def _open_step_failed(turn: Turn, failure: messages.Failure) -> list[Any]:
    """After an overflow the assistant that could not be asked is still open."""
    if not turn.overflowed:
        return []
    return [events.StepFailed(session_id=turn.session_id, assistant_message_id=turn.message_id, error=failure)]


async def manual(parts: Parts, held: claims.Held, message_id: str) -> None:
    """Run a compaction somebody asked for; its start is durable already."""
    session = await parts.log.store.read(lambda tx: sessions.get(tx, held.session_id))
    try:
        ready, model, name = choose_agent(parts, session.agent, session.model)
        turn = Turn(parts, held, ready, model, name, parts.mint("msg"), session, compaction_id=message_id)
        summary = await _summarise(turn, message_id)
    except (errors.UnknownAgent, errors.UnknownModel, errors.ConfigError) as error:
        summary = _failed(held.session_id, message_id, messages.Failure(error.type, str(error)))
    ending = endings.Ending(held, parts.claims.next_id())

    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        for fact in summary.facts:
            unit.append(fact)
        if summary.failure is None:
            unit.tx.context.delete_epoch(held.session_id)
        unit.append(
            events.ExecutionEnded(
                session_id=held.session_id,
                execution_id=claim.id,
                outcome="failed" if summary.failure else "succeeded",
                error=summary.failure,
                reason=summary.failure.type if summary.failure else None,
            )
        )
        ending.decide(went_on=claims.hand_over_or_release(unit, claim, ending.next_id, only_woken=True))

    await parts.claims.commit(held, work, committed=ending.take_effect)


async def _summarise(turn: Turn, message_id: str) -> Summary:
    """Ask for the summary. Raises `ClaimLost`, `Interrupted` and cancellation."""
    history = (await turn.parts.histories.load(turn.session_id)).freeze()
    visible = [m for m in request.visible(history) if m.id != message_id]
    if not any(map(compaction.length, visible)):
        failure = messages.Failure("nothing_to_compact", "There is no conversation yet")
        return _failed(turn.session_id, message_id, failure)
    cut = compaction.cut(visible, turn.window(visible)) or compaction.Cut(len(visible))
    said: list[str] = []
    try:
        finish = await _ask_what_fits(turn, message_id, compaction.transcript_text(visible[: cut.index]), said)
    except (errors.ClaimLost, errors.StoreError, claims.Interrupted):
        raise
    except errors.PerdureError as error:
        failed = _failed(turn.session_id, message_id, messages.Failure(error.type, str(error)))
        return dataclasses.replace(failed, facts=(*failed.facts, _lost(turn, "compaction", error, said)))
    words, cost = "".join(said), spending.cost(turn, finish)
    used = events.UsageRecorded(session_id=turn.session_id, source="compaction", tokens=finish.tokens, cost=cost)
    if problem := _problem(words, finish):
        failure = messages.Failure("unusable_summary", problem)
        failed = _failed(turn.session_id, message_id, failure)
        return Summary((*failed.facts, used), failure)
    fact = events.CompactionEnded(
        session_id=turn.session_id,
        message_id=message_id,
        summary=words,
        recent=visible[cut.index].id if cut.index < len(visible) else "",
        prompts=cut.prompts or None,
    )
    return Summary((fact, used))


def _problem(words: str, finish: port.Finish) -> str | None:
    """Why a summary cannot take the place of what it summarises, None if it can."""
    if finish.reason in {"length", "content_filter"}:
        return f"The summary is not whole: it ended by {finish.reason}"
    return None if words.strip() else "The model gave no summary"


def _failed(session_id: str, message_id: str, failure: messages.Failure) -> Summary:
    return Summary((events.CompactionFailed(session_id=session_id, message_id=message_id, error=failure),), failure)


def _lost(turn: Turn, source: str, error: Exception, said: list[str]) -> events.UsageRecorded:
    """What a summary request used that failed: nothing where it was refused, else nobody knows."""
    if spending.refused(error, said=bool(said)):
        return events.UsageRecorded(session_id=turn.session_id, source=source, tokens=messages.Tokens(), cost=0)
    return events.UsageRecorded(session_id=turn.session_id, source=source)


async def _ask_what_fits(turn: Turn, message_id: str, words: str, said: list[str]) -> port.Finish:
    """Ask for the summary; where what it is of does not fit the window itself, of its two ends, of half as much each time."""
    while True:
        asked = request.Request(
            session_id=turn.session_id,
            model=turn.model.name,
            system="",
            messages=(
                request.UserMessage((request.TextContent(words),)),
                request.UserMessage((request.TextContent(compaction.SUMMARISE),)),
            ),
            tool_choice="none",
            settings=turn.ready.agent.settings,
        )
        try:
            return await _ask(turn, message_id, asked, said)
        except errors.ModelError as error:
            if error.kind is not errors.ModelErrorKind.CONTEXT_OVERFLOW or said or len(words) < LEAST:
                raise
            used = _lost(turn, "compaction.retried", error, said)
        await _record(turn, used)
        words = text.ends(words, len(words) // 2)


async def _ask(turn: Turn, message_id: str, asked: request.Request, said: list[str]) -> port.Finish:
    """Ask for the summary, again as a step would be asked; `said` is its text, that of an attempt that broke is dropped."""
    plan, attempt = retry.chosen(turn.parts.retries, turn.policy.retry), 1
    while True:
        try:
            with telemetry.chat(turn.session_id, turn.model.provider, turn.model.name) as span:
                finish = await _stream(turn, message_id, asked, said)
                span.used(finish.reason, finish.tokens, finish.cost)
                return finish
        except errors.ModelError as error:
            wait = retry.delay_ms(plan, attempt, error, turn.parts.chance())
            if wait is None:
                raise
            used = _lost(turn, "compaction.retried", error, said)
        await _record(turn, used)
        said.clear()
        await turn.parts.clock.sleep_ms(wait)
        attempt += 1


async def _record(turn: Turn, used: events.UsageRecorded) -> None:
    def work(unit: Unit, claim: rows.ClaimRow) -> None:
        del claim
        unit.append(used)

    await turn.commit(work)


async def _stream(turn: Turn, message_id: str, asked: request.Request, said: list[str]) -> port.Finish:
    offset = 0
    async with aclosing(cast("Any", turn.model.stream(asked))) as stream:
        async for event in cast("AsyncIterator[port.ModelEvent]", stream):
            if isinstance(event, port.TextDelta):
                delta = text.clean_text(event.text)
                turn.announce(
                    events.CompactionDelta(
                        session_id=turn.session_id, message_id=message_id, delta=delta, offset=offset
                    )
                )
                said.append(delta)
                offset += len(delta)
            elif isinstance(event, port.Finish):
                return event
    raise errors.ModelError(errors.ModelErrorKind.INCOMPLETE, "The summary's stream ended without its end")
