"""The claim: one owner executes a session, for a leased time, and every commit checks it.

Lives here: taking, fencing, renewing, handing over and letting go of the claim row (EX-1..5, EX-10), and `keep`, which
cancels its body when trust in the lease ends. Not here: what a dead claim means (`recovery.py`), what a turn does
(`runner/`). The row is the only truth; a process trusts its lease less long than the database does, by a clock that
counts suspend.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from perdure import clock as clocks
from perdure import errors, ids
from perdure.core import events, inbox, lifecycle
from perdure.core.answers import Receipt
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.session import exhaustion, keeping, owner, promotion, sessions
from perdure.store import claims as rows
from perdure.store import port
from perdure.store.sessions import SessionRow

T = TypeVar("T")
_logger = logging.getLogger("perdure.session")


class Interrupted(Exception):
    """The owner's commit found the interrupt mark and wrote nothing: a signal to its drain, never an error anyone sees."""


@dataclass(slots=True)
class Held:
    """A claim this process holds. `execution_id` changes at a hand-over; `trusted_until` is on the suspend-counting
    clock (ms); `seq` is the session's last when the claim was taken, `session` its row then, until somebody makes use of
    that; `runs` are inputs that its turn promoted and has not settled yet, as far as is known, `told` where some of their
    receipts are waited for; `marked`: an interrupt was asked for before a drain began with it.
    """

    session_id: str
    owner_id: str
    execution_id: str
    attempt: int
    trusted_until: int
    seq: int = -1
    session: SessionRow | None = None
    compaction_id: str | None = None
    parked: bool = False
    runs: tuple[str, ...] = ()
    told: dict[str, list[Receipt]] = field(default_factory=dict[str, list[Receipt]])
    marked: bool = False
    open: bool = True
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Outcome of an attempt to take the claim: the claim, or why not. `exhausted`: the budget is spent, or with `late` the
    time in which a dead turn may go on, which is still to be settled.
    """

    attempt: int = 0
    seq: int = -1
    session: SessionRow | None = None
    refused_by: str | None = None
    dead: bool = False
    exhausted: bool = False
    late: bool = False


@dataclass(slots=True)
class Taking:
    """An attempt to take a session's claim, inside a unit that may do more and may run more than once: its last run
    counts. `held` is the claim as it will be, should it be taken.
    """

    claims: Claims
    held: Held
    taken: Taken = Taken()

    def run(self, unit: Unit, *, forced: bool = False) -> Taken:
        """Take the claim if something is eligible (or `forced`) and nobody has it; what came of it."""
        held = self.held
        self.taken = taken = self.claims.take(unit, held.session_id, held.execution_id, forced=forced)
        held.attempt, held.seq, held.session = taken.attempt, taken.seq, taken.session
        held.parked = taken.session is not None and taken.session.parked
        return taken

    def won(self) -> Held | None:
        """The claim, once the unit is committed; None where it was not taken."""
        return self.held if self.taken.attempt else None


class Claims:
    """Claims of one process. `lease_ms` is the lease, renewed at a third; trust ends `margin_ms` before it does."""

    def __init__(
        self, log: Log, clock: clocks.Clock, entropy: ids.Entropy, owner_id: str, *, lease_ms: int, budget: int
    ) -> None:
        """Claim as `owner_id`; `budget` is how many crashes a turn may survive unless its session's policy says
        otherwise.
        """
        self.owner_id, self.lease_ms, self.budget = owner_id, lease_ms, budget
        self.margin_ms = max(lease_ms // 6, 1)
        self.stopping = False
        self.losses = 0
        self._log, self._clock, self._entropy = log, clock, entropy
        self._kept: dict[str, Held] = {}
        self._keeper = keeping.Keeper(clock, self._renew)

    def executing(self, session_id: str) -> str | None:
        """The execution of a session that runs in this process now."""
        held = self._kept.get(session_id)
        return held.execution_id if held and held.open else None

    def told(self, session_id: str, message_id: str) -> list[Receipt] | None:
        """Where the receipt of an input is put when the turn ends that runs it in this process; None where none does."""
        held = self._kept.get(session_id)
        if held is None or not held.open or message_id not in held.runs or not self.trusts(held):
            return None
        return held.told.setdefault(message_id, [])

    def trusts(self, held: Held) -> bool:
        """Whether nobody else can have the claim yet, by this process's own clock."""
        return not held.lost and self._clock.suspend_ms() < held.trusted_until

    # -- taking ------------------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str, *, forced: bool) -> Held | None:
        """Take the claim in phase `safe` if something is eligible (or `forced`), counting the attempt in the same
        commit.

        None: nothing to do, or a dead claim that recovery must turn into facts first. Raises `ClaimRefused` for a live
        owner. Where the budget is spent, what that settles makes room for what waits behind it.
        """
        while (taken := await self._acquire(session_id, forced=forced)) is None:
            pass
        return taken or None

    async def _acquire(self, session_id: str, *, forced: bool) -> Held | Literal[False] | None:
        """One try; False where there is nothing to take, None where another try may find something."""
        taking = self.taking(session_id)

        def work(unit: Unit) -> Taken:
            taken = taking.run(unit, forced=forced)
            if taken.exhausted and taken.session:
                exhaustion.give_up(unit, taken.session, late=taken.late)
            return taken

        try:
            taken = await self._log.transact(work)
        except asyncio.CancelledError:
            if held := taking.won():
                await self.release(held)
            raise
        if taken.refused_by:
            raise errors.ClaimRefused(session_id, taken.refused_by)
        return taking.won() or (None if taken.exhausted else False)

    def taking(self, session_id: str) -> Taking:
        """An attempt that begins now."""
        trusted = self._clock.suspend_ms() + self.lease_ms - self.margin_ms
        return Taking(self, Held(session_id, self.owner_id, ids.mint("exe", self._entropy), 0, trusted))

    def take(self, unit: Unit, session_id: str, claim_id: str, *, forced: bool) -> Taken:
        """Take the claim under that id inside the caller's unit, counting the attempt (REC-6)."""
        tx = unit.tx
        claim = tx.claims.of_session(session_id)
        session = tx.sessions.get(session_id)
        if session is None or session.held or session.deleting:
            return Taken()
        if claim:
            if claim.id == claim_id:  # this unit ran before, and its commit took place
                return Taken(session.wake_attempts, tx.events.last(session_id), session)
            dead = owner.has_left(claim.owner_id, claim.expires_at, unit.now)
            return Taken(dead=True) if dead else Taken(refused_by=claim.owner_id)
        waiting = promotion.waiting(tx, session_id, unit.now)
        choice = inbox.choose(waiting, turn_open=False)
        eligible = inbox.wanted(waiting) or (forced and bool(choice.promote))
        if session.parked:
            eligible = not tx.approvals.waiting(session_id)
        if not eligible:
            return Taken()
        late = exhaustion.too_late(tx, session, choice, unit.now)
        if late or session.wake_attempts >= 1 + exhaustion.budget_of(session, self.budget):
            return Taken(session=session, exhausted=True, late=late)
        tx.claims.insert(
            claim_id,
            session_id,
            self.owner_id,
            purpose="turn",
            phase="safe",
            now=unit.now,
            expires_at=unit.now + self.lease_ms,
        )
        continued = any(one.continuation for one in waiting)
        if continued and (recovery := tx.recoveries.waiting(session_id)):
            tx.recoveries.add_attempt(recovery.execution_id)
        return Taken(tx.sessions.add_wake_attempt(session_id), tx.events.last(session_id), session)

    async def acquire_compaction(self, session_id: str, message_id: str) -> Held:
        """Take the claim for a compaction somebody asked for; its start is durable when this returns (CMP-3).

        Raises `SessionBusy` on a session that is claimed, parked, held, in a turn or in recovery, `SessionNotFound`.
        """
        execution_id = ids.mint("exe", self._entropy)
        started = self._clock.suspend_ms()

        def work(unit: Unit) -> None:
            tx = unit.tx
            claim = tx.claims.of_session(session_id)
            if claim and claim.id == execution_id:
                return
            session = sessions.usable(tx, session_id)
            busy = claim or session.held or session.execution_id or tx.recoveries.waiting(session_id)
            if busy or tx.inbox.running(session_id):
                raise errors.SessionBusy(f"Session {session_id} is busy")
            tx.claims.insert(
                execution_id,
                session_id,
                self.owner_id,
                purpose="compaction",
                phase="unknown",
                now=unit.now,
                expires_at=unit.now + self.lease_ms,
            )
            unit.append(
                events.ExecutionStarted(
                    session_id=session_id,
                    execution_id=execution_id,
                    owner_id=self.owner_id,
                    purpose="compaction",
                    attempt=1,
                )
            )
            unit.append(events.CompactionStarted(session_id=session_id, message_id=message_id, reason="manual"))

        await self._log.transact(work)
        trusted = started + self.lease_ms - self.margin_ms
        return Held(session_id, self.owner_id, execution_id, 1, trusted, compaction_id=message_id)

    # -- the fence ---------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        held: Held,
        work: Callable[[Unit, rows.ClaimRow], T],
        *,
        settling: bool = False,
        committed: Callable[[Sequence[events.Recorded[Any]]], None] | None = None,
    ) -> T:
        """Run a unit fenced by the claim (EX-2); `committed` as in `Log.transact`.

        Raises `ClaimLost`, with nothing written, where the claim is gone, another's, given up or no longer trusted: whoever
        takes it over removes the row, whatever the wall clock says. Raises `Interrupted` where it is marked, unless this is
        the commit that settles the interrupt.
        """
        execution_id = held.execution_id

        def fenced(unit: Unit) -> T:
            claim = unit.tx.claims.fence(execution_id, held.owner_id)
            if claim is None or not claim.expires_at or not self.trusts(held):
                raise errors.ClaimLost
            if claim.interrupted and not settling:
                raise Interrupted
            return work(unit, claim)

        try:
            return await self._log.transact(fenced, committed=committed)
        except errors.ClaimLost:
            self._lose(held)
            raise

    def _lose(self, held: Held) -> None:
        self.losses += not held.lost
        held.lost, held.open = True, False
        self._log.live.ring_all()  # whoever waits to be told has to look now

    # -- keeping -----------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def keep(self, held: Held) -> AsyncGenerator[None, None]:
        """Renew the lease while the body runs; cancel the body and raise `ClaimLost` when trust in the lease ends."""
        body = asyncio.current_task()
        assert body is not None  # noqa: S101, an async context manager always runs in a task
        self._kept[held.session_id] = held
        kept = self._keeper.keep((held, body), self._due(held, self._clock.suspend_ms()))
        try:
            yield
        except asyncio.CancelledError:
            if held.lost and body.uncancel() == 0:
                raise errors.ClaimLost from None
            raise
        finally:
            self._kept.pop(held.session_id, None)
            await self._keeper.drop(kept)

    def close(self) -> None:
        """Nothing is kept any more."""
        self._keeper.close()

    def _due(self, held: Held, since: int) -> float:
        """When to renew what was good at `since`: at a third of the lease, or when trust in it ends."""
        return min(since + self.lease_ms / 3, held.trusted_until)

    async def _renew(self, lease: tuple[Held, asyncio.Task[Any]]) -> float:
        held, body = lease
        started = self._clock.suspend_ms()
        if held.open and (started >= held.trusted_until or not await self._renew_once(held, started)) and held.open:
            self._lose(held)
            body.cancel()
        return self._due(held, started) if held.open else math.inf

    async def _renew_once(self, held: Held, started: int) -> bool:
        """Renew, and whether trust goes on. A commit that is still under way when trust ends is waited for no longer."""
        execution_id = held.execution_id

        def work(unit: Unit) -> bool:
            return held.open and unit.tx.claims.renew(execution_id, held.owner_id, unit.now + self.lease_ms)

        trusting = max(held.trusted_until - started, 1) / 1000
        renewing = await keeping.in_time(trusting, self._log.transact(work))
        error = renewing.exception() if renewing else None
        if error:  # whatever it is, the lease is as old as it was
            _logger.warning("lease not renewed", extra={"session_id": held.session_id}, exc_info=error)
        if renewing is None or error:
            return self._clock.suspend_ms() < held.trusted_until
        renewed = renewing.result()
        if renewed:
            held.trusted_until = started + self.lease_ms - self.margin_ms
        # A hand-over may have moved the row to its next id while this renewal was on its way.
        return renewed or held.execution_id != execution_id

    # -- letting go --------------------------------------------------------------------------------------------------------

    async def release(self, held: Held) -> None:
        """Let go with nothing recorded: nothing was eligible, a source was blocked, or an interrupt found nothing
        started.
        """

        def work(unit: Unit, claim: rows.ClaimRow) -> None:
            let_go(unit.tx, claim)

        held.open = False
        await self.commit(held, work, settling=True)

    async def expire(self, held: Held) -> None:
        """Graceful stop: keep the phase, let anyone recover at once, take the attempt back (EX-9)."""

        def work(unit: Unit, claim: rows.ClaimRow) -> None:
            unit.tx.claims.expire(claim.id, claim.owner_id)
            unit.tx.sessions.drop_wake_attempt(claim.session_id)

        held.open = False
        await self.commit(held, work, settling=True)

    def next_id(self) -> str:
        """An id for an execution that may follow by hand-over; minted outside the unit, so that a second run uses it
        again. Empty while stopping: then nothing follows (EX-9).
        """
        return "" if self.stopping else ids.mint("exe", self._entropy)


def move(unit: Unit, claim: rows.ClaimRow, how: str, assistant_message_id: str | None) -> None:
    """Move the claim's phase inside the commit of the fact it describes (EX-4). Raises `IllegalTransition`."""
    phase: events.Phase = lifecycle.require(lifecycle.PHASE, claim.phase, how)  # pyright: ignore[reportAssignmentType]
    unit.tx.claims.set_phase(claim.id, claim.owner_id, phase, assistant_message_id)


def let_go(tx: port.Tx, claim: rows.ClaimRow) -> None:
    """Delete the row; a living owner's release starts the count of attempts anew."""
    tx.claims.delete(claim.id, claim.owner_id)
    tx.sessions.set_wake_attempts(claim.session_id, 0)


def hand_over_or_release(unit: Unit, claim: rows.ClaimRow, next_id: str, *, only_woken: bool) -> bool:
    """End of an execution: the row goes on if something is eligible, else it goes (EX-10). True where it went on; with
    an empty `next_id` it never does.
    """
    waiting = promotion.waiting(unit.tx, claim.session_id, unit.now)
    eligible = bool(inbox.choose(waiting, turn_open=False).promote)
    if only_woken:
        eligible = eligible and inbox.wanted(waiting)
    if not eligible or not next_id:
        let_go(unit.tx, claim)
        return False
    unit.tx.claims.hand_over(claim.id, claim.owner_id, next_id, unit.now)
    unit.tx.sessions.set_wake_attempts(claim.session_id, 1)
    return True
