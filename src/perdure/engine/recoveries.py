"""Turns that wait after a crash, as the public face shows them.

Lives here: listing them and deciding about one. Not here: the rules (`session/recoveries.py`).
"""

from __future__ import annotations

from perdure import ids
from perdure.core.answers import Recovery
from perdure.engine.engine import Engine
from perdure.session import recoveries


class Recoveries:
    """Turns that lost their owner and wait: for their continuation, for a decision, or for a recovery that fails."""

    def __init__(self, engine: Engine) -> None:
        """Work on `engine`."""
        self._engine = engine

    async def list(self) -> list[Recovery]:
        """Those of every session, the most hopeful first."""
        return await self._engine.store.read(recoveries.listed)

    async def retry(self, execution_id: str) -> None:
        """Go on with a turn that waits for a decision, or try a recovery that failed again at once.

        Raises `InvalidId`, `RecoveryNotFound`, `LifecycleConflict` where nothing waits any more, `SessionGone`.
        """
        ids.check_shape("Execution id", execution_id)
        session_id = await self._engine.log.transact(lambda unit: recoveries.retry(unit, execution_id))
        self._engine.sweep_soon()
        self._engine.ring(session_id)

    async def dismiss(self, execution_id: str) -> None:
        """End such a turn for good; its session takes new prompts. Raises as `retry`."""
        ids.check_shape("Execution id", execution_id)
        session_id = await self._engine.log.transact(lambda unit: recoveries.dismiss(unit, execution_id))
        self._engine.ring(session_id)
