"""The thread from a turn to the one that goes on with it.

Lives here: finding, in the log, where in a trace an earlier owner's turn stood. Not here: spans (`telemetry.py`). Asked for
only where spans are recorded.
"""

from __future__ import annotations

from perdure import telemetry
from perdure.core import codec, events
from perdure.runner.turn import Parts
from perdure.session import claims
from perdure.store import port

STARTED = codec.versioned(events.ExecutionStarted)


async def turn_before(parts: Parts, held: claims.Held) -> str | None:
    """The traceparent of the turn that a dead owner left, or that was parked, where the next one goes on with it."""

    def work(tx: port.Tx) -> str | None:
        if not held.parked and tx.recoveries.waiting(held.session_id) is None:
            return None
        row = tx.events.at(held.session_id, tx.events.newest_of(held.session_id, STARTED))
        metadata = codec.load_object(row.metadata) if row else None
        found = (metadata or {}).get(telemetry.TRACEPARENT)
        return found if isinstance(found, str) else None

    return await parts.log.store.read(work)
