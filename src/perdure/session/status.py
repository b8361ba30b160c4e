"""What a session is doing, derived on every look (EX-7).

Lives here: `status_of`, a function of rows. Nothing stores a status, so none can go stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from perdure import errors
from perdure.core import messages
from perdure.core.answers import State, Status
from perdure.session import exhaustion, sessions
from perdure.session import recovery as recovering
from perdure.store import port
from perdure.store import sessions as rows
from perdure.store.claims import ClaimRow

SCAN = 2000
"""How many sessions one page looks at to find those of a wanted status."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Sessions with their status, newest first, where the next page starts, and those of the page that cannot be decoded."""

    data: tuple[tuple[rows.SessionRow, Status], ...]
    next: tuple[int, str] | None
    damaged: tuple[rows.Damaged, ...] = ()


def page(
    tx: port.Tx,
    before: tuple[int, str],
    limit: int,
    now: int,
    wanted: State | None = None,
    *,
    budget: int = 3,
    blocked: Mapping[str, str] | None = None,
) -> Listed:
    """Up to `limit` sessions older than `before`, of one status if `wanted`; fewer where that takes too long to find.
    `blocked` are the sources this process could not read, by session.
    """
    found: list[tuple[rows.SessionRow, Status]] = []
    damaged: list[rows.Damaged] = []
    sources: Mapping[str, str] = blocked or {}
    looked, more = 0, True
    while more and looked < SCAN and len(found) + len(damaged) < limit:
        several = tx.sessions.page(before, limit + 1)
        for row in several[:limit]:
            before = (row.time_created, row.id)
            looked += 1
            if isinstance(row, rows.Damaged):
                damaged += [row] if wanted in {None, "blocked"} else []
            else:
                status = blocked_by(status_of(tx, row.id, now, budget=budget), sources.get(row.id))
                found += [(row, status)] if wanted in {None, status.status} else []
            if len(found) + len(damaged) == limit:
                break
        more = bool(several) and before != (several[-1].time_created, several[-1].id)
    return Listed(tuple(found), before if more else None, tuple(damaged))


def tally(
    tx: port.Tx, now: int, *, budget: int = 3, limit: int = 500, blocked: Mapping[str, str] | None = None
) -> dict[State, int]:
    """How many sessions there are of each status, `blocked` as in `page`; beyond `limit` that are not idle, those not looked
    at count as idle.
    """
    found: dict[State, int] = dict.fromkeys(get_args(State), 0)
    stirring = tx.sessions.stirring(limit)
    for session_id in stirring:
        seen = blocked_by(status_of(tx, session_id, now, budget=budget), (blocked or {}).get(session_id))
        found[seen.status] += 1
    found["idle"] += tx.sessions.count() - len(stirring)
    return found


def status_of(tx: port.Tx, session_id: str, now: int, *, budget: int = 3) -> Status:
    """The status by rows alone; `budget` is how many crashes a turn may survive where its session's policy says nothing. One
    whose rows cannot be decoded is blocked by that (MSG-8).

    Raises `SessionNotFound`, `SessionGone`.
    """
    try:
        return _by_rows(tx, session_id, now, budget)
    except errors.Undecodable as error:
        return Status("blocked", str(error), cause="damaged")


def _by_rows(tx: port.Tx, session_id: str, now: int, budget: int) -> Status:
    session = sessions.get(tx, session_id)
    if session.held:
        return Status("held", "imported: resume it or send a prompt", cause="imported")
    claim = tx.claims.of_session(session_id)
    if claim:
        return _claimed(tx, claim, now)
    if session.parked:
        return Status("waiting", "approval", since=session.time_updated, cause="approval")
    return _unclaimed(tx, session, exhaustion.budget_of(session, budget))


def _claimed(tx: port.Tx, claim: ClaimRow, now: int) -> Status:
    since, owner = claim.time_created, claim.owner_id
    if claim.recovery_error:
        return Status(
            "recovering",
            f"recovery failed: {claim.recovery_error}",
            since,
            claim.recovery_not_before,
            owner,
            cause="recovery_failed",
        )
    if recovering.is_dead(claim, now):
        return Status("recovering", "owner gone", since, None, owner, cause="owner_gone")
    if claim.interrupted:
        return Status("running", "interrupt", since, None, owner, cause="interrupt")
    if claim.phase == "safe":
        return Status("running", "context", since, None, owner, cause="context")
    if claim.assistant_message_id is None:
        summary = claim.purpose == "compaction" or claim.phase == "unknown"
        if summary:
            return Status("running", "compaction", since, None, owner, cause="compaction")
        return Status("running", "next step", since, None, owner, cause="next_step")
    current = tx.messages.newest_assistant(claim.session_id)
    if current and current.retry:
        return Status("retrying", current.retry.error.message, since, current.retry.at, owner, cause="provider")
    calls = [
        part
        for _, part in tx.messages.open_parts(claim.session_id, claim.assistant_message_id)
        if isinstance(part, messages.ToolPart) and isinstance(part.state, messages.Running)
    ]
    if calls:
        first = min(part.time.ran or part.time.created for part in calls)
        return Status("running", "tool " + ", ".join(part.name for part in calls), first, None, owner, cause="tool")
    return Status("running", "model", current.time.created if current else since, None, owner, cause="model")


def _unclaimed(tx: port.Tx, session: rows.SessionRow, budget: int) -> Status:
    recovery = tx.recoveries.waiting(session.id)
    if recovery and recovery.wake_pending:
        attempt = f"attempt {max(session.wake_attempts, 1)} of {budget}"
        return Status("recovering", attempt, recovery.time_created, recovery.not_before, cause="attempt")
    if recovery:
        return Status("waiting", "decision: retry or dismiss", recovery.time_created, cause="decision")
    pending = tx.inbox.pending(session.id)
    if any(row.wake_pending for row in pending):
        return Status("running", "owner", min(row.time_created for row in pending if row.wake_pending), cause="owner")
    if pending:
        asked = tx.events.newest_interrupt(session.id) > pending[0].admitted_seq
        why = "held by interrupt" if asked else "not wanted to run yet"
        return Status("waiting", f"resume: the inputs are {why}", pending[0].time_created, cause="resume")
    return Status("idle", since=session.time_updated)


def at_rest(tx: port.Tx, session_id: str) -> bool:
    """Whether nothing is owed: no turn is open, none waits to go on, no input is wanted. Changes with facts only.

    Raises `SessionNotFound`, `SessionGone`.
    """
    session = sessions.get(tx, session_id)
    if session.execution_id or tx.recoveries.waiting(session_id) or tx.inbox.running(session_id):
        return False
    return not any(row.wake_pending for row in tx.inbox.pending(session_id))


def blocked_by(found: Status, source: str | None) -> Status:
    """The status of a session whose context source this process could not read, as long as it still waits for that."""
    if source is None or found.cause not in {"owner", "context", "next_step"}:
        return found
    return Status("blocked", source, found.since, None, found.owner, cause="source")
