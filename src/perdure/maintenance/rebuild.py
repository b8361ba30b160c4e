"""Rebuild: every projected row of a session made again from its log, in one transaction (MSG-1).

Lives here: folding a session's log in memory, putting what that says in the place of its rows, with what no log knows, and
looking at the result before it is committed. Refused under a live claim: its owner holds in memory what the rows are. Not
here: what differs (`verify.py`), what a row looks like (`store/upkeep.py`).
"""

from __future__ import annotations

from perdure import errors
from perdure.core import projection
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.maintenance import compare, verify
from perdure.session import owner

PAGE = 500


async def rebuild(log: Log, session_id: str, *, claimed: bool = False) -> int:
    """Rebuild one session; how many events it was rebuilt from. `claimed` even under a claim: for a copy nobody runs.

    Raises `SessionNotFound`, `SessionBusy` under a live claim, `Undecodable` for a log that cannot be read; nothing is
    changed then.
    """
    return await log.transact(lambda unit: _rebuild(unit, session_id, claimed=claimed))


async def clear_strays(log: Log) -> None:
    """Take out parts that no message leads to, of whatever session they were; the rebuild of a session cannot find them."""
    await log.transact(lambda unit: unit.tx.upkeep.clear_stray_parts())


def _rebuild(unit: Unit, session_id: str, *, claimed: bool) -> int:
    tx = unit.tx
    kept = tx.upkeep.keep(session_id)
    live = kept.claim and not owner.has_left(kept.claim.owner_id, kept.claim.expires_at, unit.now)
    if kept.claim and live and not claimed:
        msg = f"Session {session_id} is executed by {kept.claim.owner_id}"
        raise errors.SessionBusy(msg)
    folded = _fold(unit, session_id)
    tx.upkeep.clear(session_id)
    tx.forget()
    tx.upkeep.put(session_id, folded)
    tx.upkeep.put_back(session_id, kept)
    for words in compare.differences(tx, session_id, folded):
        msg = f"The rebuilt rows of session {session_id} are not what its log says: {words}"
        raise errors.Defect(msg)
    return folded.seq + 1


def _fold(unit: Unit, session_id: str) -> projection.Projection:
    """What the log says, from the first event to the last."""
    builder, after = projection.Builder(), -1
    while page := unit.tx.events.page(session_id, after, PAGE):
        for row in page:
            if row.seq != after + 1:
                msg = f"The log of session {session_id} has no event {after + 1}"
                raise errors.Undecodable(msg)
            after = row.seq
            try:
                builder.apply(verify.decoded(unit.registry, row))
            except errors.Conflict as error:
                msg = f"Event {row.id} of session {session_id} at sequence {row.seq} cannot be projected: {error}"
                raise errors.Undecodable(msg) from error
    folded = builder.freeze()
    if folded.session is None and folded.gone is None:
        msg = f"Session {session_id} does not exist" if after < 0 else f"The log of {session_id} is no session's"
        raise errors.SessionNotFound(msg)
    return folded


async def sessions(log: Log) -> list[str]:
    """Every aggregate in the log that is a session."""
    found: list[str] = []
    after = ""
    created = "session.created."
    while page := await log.store.read(
        lambda tx, after=after: [(one, tx.events.at(one, 0)) for one, _ in tx.events.aggregates(after, PAGE)]
    ):
        found += [one for one, first in page if first and first.type.startswith(created)]
        after = page[-1][0]
    return found
