"""What a session is doing, derived on every look (EX-7).

Lives here: `status_of`, a function of rows. Nothing stores a status, so none can go stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.core import messages
from perdure.session import sessions
from perdure.store import port
from perdure.store import sessions as rows
from perdure.store.claims import ClaimRow

State = Literal["idle", "running", "waiting", "retrying", "recovering", "blocked", "held"]


@dataclass(frozen=True, slots=True)
class Status:
    """What a session does and what it waits for; times in epoch ms."""

    status: State
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    owner: str | None = None


SCAN = 2000
"""How many sessions one page looks at to find those of a wanted status."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Sessions with their status, newest first, and where the next page starts."""

    data: tuple[tuple[rows.SessionRow, Status], ...]
    next: tuple[int, str] | None


def page(tx: port.Tx, before: tuple[int, str], limit: int, now: int, wanted: State | None = None) -> Listed:
    """Up to `limit` sessions older than `before`, of one status if `wanted`; fewer where that takes too long to find."""
    found: list[tuple[rows.SessionRow, Status]] = []
    looked, more = 0, True
    while more and looked < SCAN and len(found) < limit:
        several = tx.sessions.page(before, limit + 1)
        for row in several[:limit]:
            before = (row.time_created, row.id)
            looked += 1
            status = status_of(tx, row.id, now)
            if wanted is None or status.status == wanted:
                found.append((row, status))
            if len(found) == limit:
                break
        more = bool(several) and before != (several[-1].time_created, several[-1].id)
    return Listed(tuple(found), before if more else None)


def status_of(tx: port.Tx, session_id: str, now: int) -> Status:
    """The status by rows alone. Raises `SessionNotFound`, `SessionGone`."""
    session = sessions.get(tx, session_id)
    if session.held:
        return Status("held", "imported: resume it or send a prompt")
    claim = tx.claims.of_session(session_id)
    if claim:
        return _claimed(tx, claim, now)
    if session.parked:
        return Status("waiting", "approval", since=session.time_updated)
    return _unclaimed(tx, session)


def _claimed(tx: port.Tx, claim: ClaimRow, now: int) -> Status:
    since, owner = claim.time_created, claim.owner_id
    if claim.recovery_error:
        return Status("recovering", f"recovery failed: {claim.recovery_error}", since, claim.recovery_not_before, owner)
    if claim.expires_at <= now:
        return Status("recovering", "owner gone", since, None, owner)
    if claim.interrupted:
        return Status("running", "interrupt", since, None, owner)
    if claim.phase == "safe":
        return Status("running", "context", since, None, owner)
    if claim.assistant_message_id is None:
        return Status("running", "compaction" if claim.purpose == "compaction" else "next step", since, None, owner)
    current = tx.messages.newest_assistant(claim.session_id)
    if current and current.retry:
        return Status("retrying", current.retry.error.message, since, current.retry.at, owner)
    calls = [
        part
        for _, part in tx.messages.open_parts(claim.session_id, claim.assistant_message_id)
        if isinstance(part, messages.ToolPart) and isinstance(part.state, messages.Running)
    ]
    if calls:
        first = min(part.time.ran or part.time.created for part in calls)
        return Status("running", "tool " + ", ".join(part.name for part in calls), first, None, owner)
    return Status("running", "model", current.time.created if current else since, None, owner)


def _unclaimed(tx: port.Tx, session: rows.SessionRow) -> Status:
    recovery = tx.recoveries.waiting(session.id)
    if recovery and recovery.wake_pending:
        attempt = f"attempt {recovery.wake_attempts + 1}"
        return Status("recovering", attempt, recovery.time_created, recovery.not_before)
    if recovery:
        return Status("waiting", "decision: resume or dismiss", recovery.time_created)
    pending = tx.inbox.pending(session.id)
    if any(row.wake_pending for row in pending):
        return Status("running", "owner", min(row.time_created for row in pending if row.wake_pending))
    if pending:
        return Status("waiting", "resume: the inputs are not wanted to run yet", pending[0].time_created)
    return Status("idle", since=session.time_updated)


def blocked_by(found: Status, source: str | None) -> Status:
    """The status of a session whose context source this process could not read, as long as it still waits for that."""
    if source is None or found.status != "running" or found.reason not in {"owner", "context", "next step"}:
        return found
    return Status("blocked", source, found.since, None, found.owner)
