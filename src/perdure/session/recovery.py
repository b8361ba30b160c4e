"""Turning a dead owner's claim into facts.

Lives here: the one transaction per dead claim (REC-2), what it writes by phase, purpose, policy and interrupt mark, and
the list of what a sweep should ring (REC-1, REC-4). Not here: running anything, the sweep's timing (`runner/sweep.py`),
taking claims. Everything is decided by rows inside the transaction and fenced by deleting the claim unchanged, so any
number of recoverers on any node make one set of facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure import ids
from perdure.core import events, messages
from perdure.log.unit import Unit
from perdure.session import owner, promotion
from perdure.store import claims as rows
from perdure.store import port
from perdure.store.approvals import ApprovalRow

CONTINUE_TEXT = (
    "The process working on this was stopped and a new one took over. Continue from what the transcript shows, without "
    "repeating what is already done. Where the outcome of a tool call is unknown, check before doing it again."
)
TOO_OLD = "too_old"
INTERRUPTED = messages.Failure("interrupted", "Interrupted")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one recovery did."""

    session_id: str
    execution_id: str
    phase: events.Phase
    result: Literal["nothing", "rung", "continued", "waiting", "ended"]


def is_dead(claim: rows.ClaimRow, now: int) -> bool:
    """Whether nobody can be executing under this claim any more."""
    due = claim.recovery_not_before is None or claim.recovery_not_before <= now
    return due and owner.has_left(claim.owner_id, claim.expires_at, now)


def recover(unit: Unit, claim: rows.ClaimRow) -> Outcome:
    """Recover one dead claim in the caller's unit. Safe to call twice, and by several at once: the loser changes
    nothing.
    """
    found = _remove(unit, claim)
    if found is None:
        return Outcome(claim.session_id, claim.id, claim.phase, "nothing")
    claim = found
    if claim.phase == "safe":
        if claim.interrupted:
            unit.tx.sessions.set_wake_attempts(claim.session_id, 0)
        return Outcome(claim.session_id, claim.id, claim.phase, "rung")
    return close(unit, claim)


def _remove(unit: Unit, judged: rows.ClaimRow) -> rows.ClaimRow | None:
    """Remove a claim that was judged dead, unless it is another's or renewed by now; the row as it was at the end: it may
    have been marked after it was judged (EX-8).
    """
    found = unit.tx.claims.of_session(judged.session_id)
    return found if found and found.id == judged.id and unit.tx.claims.delete_dead(judged) else None


def close(unit: Unit, claim: rows.ClaimRow) -> Outcome:
    """Write what an execution left behind when it lost its owner; the claim row itself is gone or never was."""
    session_id = claim.session_id
    left = open_request(unit, claim)
    if claim.interrupted:
        _interrupt_step(unit, left)
        end(unit, session_id, claim.id, "interrupted", reason="interrupt", settle=claim.purpose == "turn")
        return Outcome(session_id, claim.id, claim.phase, "ended")
    if claim.purpose == "compaction":
        record_usage(unit, left, "")
        end(unit, session_id, claim.id, "interrupted", settle=False, reason="restart")
        return Outcome(session_id, claim.id, claim.phase, "ended")
    return _continue(unit, claim, left)


def _continue(unit: Unit, claim: rows.ClaimRow, left: Left) -> Outcome:
    session_id, current = claim.session_id, left.current
    session = unit.tx.sessions.get(session_id)
    policy = session.policy if session else events.Policy()
    amid = current.id if current and claim.phase != "continue" else None
    recovered = events.StepRecovered(
        session_id=session_id,
        execution_id=claim.id,
        phase=claim.phase,
        assistant_message_id=amid,
        armed=policy.recovery == "auto",
    )
    unit.append(recovered, event_id=ids.recovered_event(claim.id))
    record_usage(unit, left, "step.recovered")
    continuation = events.PromptAdmitted(
        session_id=session_id,
        message_id=ids.continue_message(claim.id),
        kind="synthetic",
        prompt=messages.text_prompt(CONTINUE_TEXT),
        delivery="queue",
    )
    unit.append(continuation, event_id=ids.continue_event(claim.id))
    too_old = policy.recovery_max_age_ms is not None and unit.now - claim.time_created > policy.recovery_max_age_ms
    if policy.recovery == "never" or too_old:
        withdraw(unit, session_id, claim.id, reason=TOO_OLD if too_old else "policy")
        return Outcome(session_id, claim.id, claim.phase, "ended")
    return Outcome(session_id, claim.id, claim.phase, "continued" if policy.recovery == "auto" else "waiting")


def withdraw(unit: Unit, session_id: str, execution_id: str, *, reason: str) -> None:
    """Withdraw a recovery's continuation and end its execution interrupted (REC-7, EX-8)."""
    unit.append(
        events.PromptWithdrawn(session_id=session_id, message_id=ids.continue_message(execution_id), reason="cancelled")
    )
    end(unit, session_id, execution_id, "interrupted", reason=reason)


def end(
    unit: Unit,
    session_id: str,
    execution_id: str,
    outcome: Literal["failed", "interrupted"],
    *,
    reason: str,
    settle: bool = True,
    error: messages.Failure | None = None,
) -> None:
    """End an execution without a claim; the count of attempts starts anew."""
    unit.append(
        events.ExecutionEnded(
            session_id=session_id,
            execution_id=execution_id,
            outcome=outcome,
            message_ids=promotion.settled_by_turn(unit.tx, session_id) if settle else (),
            reason=reason,
            error=error,
        )
    )
    unit.tx.sessions.set_wake_attempts(session_id, 0)


@dataclass(frozen=True, slots=True)
class Left:
    """What an execution was doing when it stopped: its current assistant, and whether a request was on its way, which for
    a summary is not that assistant's.
    """

    session_id: str
    current: messages.Assistant | None
    summarising: bool
    in_flight: bool


def open_request(unit: Unit, claim: rows.ClaimRow) -> Left:
    """Fail a running compaction and end the open parts of the current assistant; what was going on."""
    summarising = fail_compaction(unit, claim.session_id)
    current = end_parts(unit, claim.session_id)
    in_flight = claim.phase == "unknown" and (summarising or current is not None)
    return Left(claim.session_id, current, summarising, in_flight)


def record_usage(
    unit: Unit, left: Left, source: str, tokens: messages.Tokens | None = None, cost: int | None = None
) -> None:
    """Record what the request on its way used. Where it has not said so, or died with its owner, nobody can tell any more,
    and zero would be a lie (RUN-8).
    """
    if left.in_flight and left.summarising:
        unit.append(events.UsageRecorded(session_id=left.session_id, source="compaction"))
    elif left.in_flight:
        unit.append(events.UsageRecorded(session_id=left.session_id, source=source, tokens=tokens, cost=cost))


def fail_compaction(unit: Unit, session_id: str) -> bool:
    """Fail a compaction that is still running; whether one was."""
    running = unit.tx.messages.newest_compaction(session_id)
    if running is None or running.status != "running":
        return False
    failure = messages.Failure("interrupted", "The summary was interrupted")
    unit.append(events.CompactionFailed(session_id=session_id, message_id=running.id, error=failure))
    return True


def end_parts(unit: Unit, session_id: str) -> messages.Assistant | None:
    """End the current assistant's open text and reasoning with their drafts; the assistant, if one is current."""
    newest = unit.tx.messages.newest_assistant(session_id)
    current = newest if newest and newest.time.completed is None else None
    if current:
        drafts = {(d.message_id, d.kind, d.part_id): d.text for d in unit.tx.context.drafts(session_id)}
        for _, part in unit.tx.messages.open_parts(session_id, current.id):
            if not isinstance(part, messages.ToolPart):
                kind, part_id = messages.part_key(part)
                unit.append(ended(session_id, current.id, part, drafts.get((current.id, kind, part_id), "")))
    unit.tx.context.clear_drafts(session_id)
    return current


def ended(
    session_id: str, message_id: str, part: messages.TextPart | messages.ReasoningPart, text: str
) -> events.TextEnded | events.ReasoningEnded:
    """The fact that ends an open part with the text a reader saw."""
    if isinstance(part, messages.TextPart):
        return events.TextEnded(session_id=session_id, assistant_message_id=message_id, text_id=part.id, text=text)
    return events.ReasoningEnded(
        session_id=session_id, assistant_message_id=message_id, reasoning_id=part.id, text=text
    )


def _interrupt_step(unit: Unit, left: Left) -> None:
    if left.current:
        interrupted = events.StepInterrupted(
            session_id=left.session_id, assistant_message_id=left.current.id, error=INTERRUPTED
        )
        unit.append(interrupted)
    record_usage(unit, left, "step.interrupted")


def abandon(unit: Unit, claim: rows.ClaimRow, reason: str, error: messages.Failure) -> Outcome:
    """Give up on recovering a dead claim: close what is open, end its execution failed, or interrupted where that was
    acknowledged, and let the session go on (REC-13, EX-8).
    """
    found = _remove(unit, claim)
    if found is None:
        return Outcome(claim.session_id, claim.id, claim.phase, "nothing")
    claim = found
    if claim.phase != "safe":
        _interrupt_step(unit, open_request(unit, claim))
        outcome, why = ("interrupted", "interrupt") if claim.interrupted else ("failed", reason)
        turn = claim.purpose == "turn"
        end(unit, claim.session_id, claim.id, outcome, reason=why, error=error, settle=turn)
    unit.tx.sessions.set_wake_attempts(claim.session_id, 0)
    return Outcome(claim.session_id, claim.id, claim.phase, "ended")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sweep found: dead claims to recover, sessions to ring once each, sessions this owner must interrupt
    because somebody asked for it elsewhere, with the marked execution, approvals to deny as their deadline has passed,
    deletions to finish, and when to look again at the latest (epoch ms).
    """

    dead: tuple[rows.ClaimRow, ...]
    ring: tuple[str, ...]
    marked: tuple[tuple[str, str], ...]
    overdue: tuple[ApprovalRow, ...]
    deleting: tuple[str, ...]
    look_again: int | None


def survey(tx: port.Tx, owner_id: str, now: int) -> Survey:
    """Look at every claim, recovery and woken input. Sessions under a live claim are not rung: their owner looks by
    itself.
    """
    claims = tx.claims.all()
    dead = tuple(claim for claim in claims if is_dead(claim, now))
    claimed = {claim.session_id for claim in claims}
    ring = dict.fromkeys([*tx.recoveries.scan(now), *tx.inbox.woken_sessions(), *tx.approvals.decided_sessions()])
    times = [max(claim.expires_at, claim.recovery_not_before or 0) for claim in claims if claim not in dead]
    ahead = (tx.recoveries.next_time(now), tx.approvals.next_deadline(now))
    times += [time for time in ahead if time is not None]
    return Survey(
        dead,
        tuple(session for session in ring if session not in claimed),
        tuple((claim.session_id, claim.id) for claim in claims if claim.interrupted and claim.owner_id == owner_id),
        tuple(tx.approvals.overdue(now)),
        tuple(session for session in tx.sessions.deleting() if session not in claimed),
        min(times, default=None),
    )
