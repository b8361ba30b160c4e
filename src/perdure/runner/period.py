"""What a drain runs under: the claim of one busy period, its turn, and how the period ends when it cannot just go on.

Lives here: `Period` and its ways out: an interrupt settled, a graceful stop, a context that cannot be read, the claim lost.
Whatever else goes wrong ends the turn failed; a defect is never left to recovery if the database still answers. Not here: the
order of a turn (`drain.py`), the commits of its endings (`endings.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass

from perdure import errors
from perdure.runner import endings
from perdure.runner.coordinator import Busy
from perdure.runner.turn import Parts, Turn
from perdure.session import claims

_logger = logging.getLogger("perdure.runner")


@dataclass(slots=True)
class Period:
    """One busy period: `begun` is a turn that began as the claim was taken, `turn` the one in progress, as far as it is
    known.
    """

    parts: Parts
    busy: Busy[str]
    held: claims.Held
    begun: Turn | None = None
    turn: Turn | None = None

    async def settling(self, work: Awaitable[None]) -> None:
        """Await a part of the period and settle what cuts it short; raise what this process may not settle."""
        try:
            await work
        except claims.Interrupted:
            await self._settle_interrupt()
        except asyncio.CancelledError:
            if self.held.lost or self.busy.reason is None:
                raise
            await (self._leave() if self.busy.reason == "shutdown" else self._settle_interrupt())
        except errors.ContextBlocked as blocked:
            _logger.warning("context blocked", extra={"session_id": self.busy.key, "cause": str(blocked)})
            self.parts.blocked[self.busy.key] = str(blocked)
            await self.parts.claims.release(self.held)
        except errors.ClaimLost:
            raise
        except Exception as error:
            _logger.exception("turn failed by a defect", extra={"session_id": self.busy.key})
            await self._end_by_defect(error)

    async def stop(self) -> None:
        """The process stops before anything ran: let go, but for what began with the claim."""
        began = self.begun or self.held.compaction_id
        await (self._leave() if began else self.parts.claims.release(self.held))

    async def _settle_interrupt(self) -> None:
        """Settle an interrupt; the period goes on with what is wanted to run after it."""
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

    async def _leave(self) -> None:
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
