"""A new session from another's log, as far as a seq (API-3).

Lives here: rewriting the parent's facts for the child, with ids derived from the child's and the old one, and closing
what was open there. Not here: sessions without a past (`sessions.py`). One transaction, and the same fork asked for again
gives the same child, event by event.
"""

from __future__ import annotations

import hashlib
from typing import Any

from perdure import errors, ids
from perdure.core import codec, events
from perdure.log.unit import Unit
from perdure.session import recovery, sessions
from perdure.store.events import EventRow
from perdure.store.sessions import SessionRow

PAGE = 500
_ID_FIELDS = ("message_id", "assistant_message_id", "execution_id", "retry_message_id")


def fork(unit: Unit, registry: codec.Registry, parent_id: str, child_id: str, seq: int | None) -> SessionRow:
    """Create `child_id` with the parent's facts up to `seq` (its last by default).

    Raises `SessionNotFound`, `SessionGone`, `CursorBeyondEnd`, `SessionConflict` where the id is another session's.
    """
    tx = unit.tx
    last = tx.events.lock(parent_id)
    sessions.get(tx, parent_id)
    upto = last if seq is None else seq
    if upto > last or upto < 0:
        raise errors.CursorBeyondEnd(upto, last)
    existing = tx.sessions.get(child_id)
    if existing:
        if existing.forked_from == events.Origin(parent_id, upto):
            return existing
        raise errors.SessionConflict(f"Session {child_id} exists and is no fork of {parent_id} at {upto}")
    if tx.sessions.tombstone(child_id) is not None:
        raise errors.SessionGone(f"Session {child_id} is deleted; its id is never used again")
    _copy(unit, registry, parent_id, child_id, upto)
    _close(unit, child_id)
    tx.content.lend(parent_id, child_id)
    return sessions.get(tx, child_id)


def _copy(unit: Unit, registry: codec.Registry, parent_id: str, child_id: str, upto: int) -> None:
    after = -1
    while after < upto:
        page = unit.tx.events.page(parent_id, after, min(PAGE, upto - after))
        for row in page:
            _copy_one(unit, registry, row, child_id, events.Origin(parent_id, upto))
        after = page[-1].seq


def _copy_one(unit: Unit, registry: codec.Registry, row: EventRow, child_id: str, origin: events.Origin) -> None:
    payload = rewrite(registry.upcast(registry.decode(row.type, row.data)), child_id)
    if isinstance(payload, events.SessionCreated):
        payload = events.replace(payload, forked_from=origin)
    seq = unit.tx.events.next_seq(child_id)
    metadata = codec.load_object(row.metadata)
    own = row.id != ids.event_at(row.aggregate_id, row.seq)
    event_id = derive(child_id, row.id) if own else ids.event_at(child_id, seq)
    copied = events.Recorded(event_id, child_id, seq, row.created, payload, metadata)
    unit.record(copied, codec.versioned(payload.__class__), codec.dump(payload), row.metadata)


def rewrite(payload: Any, child_id: str) -> Any:
    """A fact of the parent as a fact of the child."""
    changes: dict[str, Any] = {"session_id": child_id}
    for name in _ID_FIELDS:
        value = getattr(payload, name, None)
        if value is not None:
            changes[name] = derive(child_id, value)
    if isinstance(payload, events.ExecutionEnded):
        changes["message_ids"] = tuple(derive(child_id, one) for one in payload.message_ids)
    if isinstance(payload, events.CompactionEnded) and payload.recent:
        changes["recent"] = derive(child_id, payload.recent)
    return events.replace(payload, **changes)


def derive(child_id: str, old: str) -> str:
    """The child's id for one of the parent's; ids that name another id go on naming its counterpart."""
    for prefix in ("msg_recovered_", "msg_continue_", "evt_recovered_", "evt_continue_", "evt_prompt_execution_"):
        if old.startswith(prefix):
            body, mark, count = old.removeprefix(prefix).partition("#")
            return f"{prefix}{derive(child_id, body)}{mark}{count}"
    if old.startswith("msg_retry_"):
        body, _, count = old.removeprefix("msg_retry_").rpartition("_")
        return f"msg_retry_{derive(child_id, body)}_{count}"
    digest = hashlib.sha256(f"{child_id}\x00{old}".encode()).digest()
    kind = old.partition("_")[0] if old.startswith(("msg_", "exe_", "evt_")) else "msg"
    return ids.mint(kind, lambda size: digest[:size])


def _close(unit: Unit, child_id: str) -> None:
    """Withdraw what waits and close what is open at the cut."""
    recovery.fail_compaction(unit, child_id)
    current = recovery.end_parts(unit, child_id)
    if current:
        unit.append(
            events.StepInterrupted(session_id=child_id, assistant_message_id=current.id, error=recovery.INTERRUPTED)
        )
    waiting = unit.tx.recoveries.waiting(child_id)
    for row in unit.tx.inbox.pending(child_id):
        unit.append(events.PromptWithdrawn(session_id=child_id, message_id=row.id, reason="cancelled"))
    session = unit.tx.sessions.get(child_id)
    if session and session.execution_id:
        settle = session.execution_purpose == "turn"
        recovery.end(unit, child_id, session.execution_id, "interrupted", reason="forked", settle=settle)
    elif waiting:
        recovery.end(unit, child_id, waiting.execution_id, "interrupted", reason="forked")
