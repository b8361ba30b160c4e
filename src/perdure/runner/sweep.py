"""The sweep: nothing stays "running" for ever.

Lives here: when dead claims are recovered and waiting sessions rung: at start, every few seconds, at the earliest
expiry, and when another process committed something (REC-1). Not here: what recovery writes (`session/recovery.py`).
Every node runs one; they do not coordinate, the database does. One failing item never ends a sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure import clock as clocks
from perdure import errors
from perdure.core import messages
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.session import approvals, deletion, recovery
from perdure.store import claims as rows

PERIOD_MS = 5_000
BACK_OFF_MS = 1_000
GIVEN_UP = "recovery_failed"
_logger = logging.getLogger("perdure.recovery")


class Sweep:
    """One node's sweep; `ring(session_id)` wakes a session here, `interrupt(session_id, execution_id)` stops an execution
    that runs here, `executing(session_id)` names it, `budget` is how often a recovery that failed is tried again.
    """

    def __init__(
        self,
        log: Log,
        clock: clocks.Clock,
        owner_id: str,
        *,
        ring: Callable[[str], None],
        interrupt: Callable[[str, str], object],
        executing: Callable[[str], str | None],
        budget: int = 3,
    ) -> None:
        """Sweep what `log` holds, as `owner_id`."""
        self._log, self._clock, self._owner_id = log, clock, owner_id
        self._ring, self._interrupt, self._executing, self._budget = ring, interrupt, executing, budget
        self._bell = asyncio.Event()

    def soon(self) -> None:
        """Sweep as soon as possible, for instance because another process wrote."""
        self._bell.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            pause = PERIOD_MS
            try:
                pause = await self.once()
            except Exception:
                _logger.exception("sweep failed; it is tried again")
            await self._pause(pause)
            self._bell.clear()

    async def _pause(self, ms: int) -> None:
        """Wait so long, or until the bell rings."""
        bell = asyncio.create_task(self._bell.wait())
        clock = asyncio.ensure_future(self._clock.sleep_ms(ms))
        try:
            await asyncio.wait({bell, clock}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            bell.cancel()
            clock.cancel()
            await asyncio.gather(bell, clock, return_exceptions=True)

    async def once(self) -> int:
        """Recover every dead claim, ring every session that waits; how long to pause (ms)."""
        now = self._clock.now_ms()
        found = await self._log.store.read(lambda tx: recovery.survey(tx, self._owner_id, now))
        for session_id, execution_id in found.marked:
            self._interrupt(session_id, execution_id)
        rung = dict.fromkeys(found.ring)
        for claim in found.dead:
            if self._executing(claim.session_id) == claim.id:  # the wall clock was set: its next renewal mends that
                continue
            outcome = await self._recover(claim)
            if outcome and outcome.result != "nothing":
                rung[claim.session_id] = None
        for row in found.overdue:
            await self._isolated(row.session_id, lambda unit, row=row: approvals.deny_overdue(unit, row))
            rung[row.session_id] = None
        for session_id in found.deleting:
            await self._isolated(session_id, lambda unit, gone=session_id: deletion.finish(unit, gone))
        for session_id in rung:
            self._ring(session_id)
        if found.look_again is None:
            return PERIOD_MS
        return min(max(found.look_again - self._clock.now_ms(), 1), PERIOD_MS)

    async def _isolated(self, session_id: str, work: Callable[[Unit], object]) -> None:
        """Run one item of the sweep; its failure is logged and never ends the others."""
        try:
            await self._log.transact(work)
        except Exception:
            _logger.exception("an item of the sweep failed; it is tried again", extra={"session_id": session_id})

    async def _recover(self, claim: rows.ClaimRow) -> recovery.Outcome | None:
        given_up = claim.recovery_attempts > self._budget
        try:
            if given_up:
                failure = messages.Failure(GIVEN_UP, f"Recovery failed too often: {claim.recovery_error}")
                outcome = await self._log.transact(lambda unit: recovery.abandon(unit, claim, GIVEN_UP, failure))
            else:
                outcome = await self._log.transact(lambda unit: recovery.recover(unit, claim))
        except Exception as error:
            _logger.exception("recovery failed; it is tried again", extra={"session_id": claim.session_id})
            await self._note_failure(claim, error)
            return None
        _logger.info(
            "recovered",
            extra={"session_id": outcome.session_id, "execution_id": outcome.execution_id, "phase": outcome.phase},
        )
        return outcome

    async def _note_failure(self, claim: rows.ClaimRow, error: Exception) -> None:
        """Say on the claim why its recovery failed, and wait longer each time before the next try."""
        not_before = self._clock.now_ms() + BACK_OFF_MS * 2 ** min(claim.recovery_attempts, 8)
        words = f"{type(error).__name__}: {error}"[:500]

        def work(unit: Unit) -> None:
            unit.tx.claims.recovery_failed(claim.id, words, not_before)

        try:
            await self._log.transact(work)
        except errors.StoreError:
            _logger.exception("the failure of a recovery could not be noted")
