"""Creating, reading and changing sessions.

Lives here: the units behind create, get, update and switch. Not here: prompts (`admission.py`), running. A caller may
choose the id, so that creating can be retried safely: the same settings give the same session, others a conflict.
"""

from __future__ import annotations

import dataclasses
from typing import NoReturn

from perdure import errors
from perdure.core import codec, events
from perdure.log.unit import Unit
from perdure.session import settings
from perdure.store import port, sessions

CREATED = codec.versioned(events.SessionCreated)


def create(unit: Unit, wanted: events.SessionCreated) -> sessions.SessionRow:
    """Create, or return the session recorded with the very same settings.

    Raises `InvalidInput`, `SessionConflict` for other settings and `SessionGone` where the id belonged to a deleted
    session.
    """
    settings.check(wanted.title, wanted.metadata, wanted.policy)
    tx, session_id = unit.tx, wanted.session_id
    existing = tx.sessions.get(session_id)
    if existing is None:
        if tx.sessions.tombstone(session_id) is not None:
            msg = f"Session {session_id} is deleted; its id is never used again"
            raise errors.SessionGone(msg)
        unit.append(wanted)
        return get(tx, session_id)
    if existing.deleting:
        msg = f"Session {session_id} is being deleted"
        raise errors.SessionGone(msg)
    first = tx.events.at(session_id, 0)
    if first is None or first.type != CREATED or not codec.same_json(first.data, codec.dump(wanted)):
        msg = f"Session {session_id} exists with different settings"
        raise errors.SessionConflict(msg)
    return existing


def get(tx: port.Tx, session_id: str) -> sessions.SessionRow:
    """One session. Raises `SessionNotFound`, `SessionGone`, `SessionUndecodable`."""
    return tx.sessions.get(session_id) or _absent(tx, session_id)


def flags(tx: port.Tx, session_id: str) -> sessions.Flags:
    """What is operational of one session, whether or not the rest of its row can be decoded. Raises as `get` for one that is
    not there.
    """
    return tx.sessions.flags(session_id) or _absent(tx, session_id)


def _absent(tx: port.Tx, session_id: str) -> NoReturn:
    if tx.sessions.tombstone(session_id) is not None:
        msg = f"Session {session_id} is deleted"
        raise errors.SessionGone(msg)
    msg = f"Session {session_id} does not exist"
    raise errors.SessionNotFound(msg)


def usable(tx: port.Tx, session_id: str) -> sessions.SessionRow:
    """One session of which something may still be asked. Raises `SessionNotFound`, `SessionGone`."""
    session = get(tx, session_id)
    if session.deleting:
        msg = f"Session {session_id} is being deleted"
        raise errors.SessionGone(msg)
    return session


def update(unit: Unit, session_id: str, changes: events.Changes) -> sessions.SessionRow:
    """Change settings; nothing is written where nothing changes. Raises `SessionNotFound`, `SessionGone`,
    `InvalidInput`.
    """
    row = usable(unit.tx, session_id)
    settings.check(changes.title, changes.metadata, changes.policy)
    wanted = {name: value for name, value in dataclasses.asdict(changes).items() if value is not None}
    if any(getattr(row, name) != getattr(changes, name) for name in wanted):
        unit.append(events.SessionUpdated(session_id=session_id, changes=changes))
    return get(unit.tx, session_id)


def switch_agent(unit: Unit, session_id: str, message_id: str, agent: str) -> None:
    """From here on another agent answers; the same one publishes nothing."""
    if get(unit.tx, session_id).agent != agent:
        unit.append(events.AgentSwitched(session_id=session_id, message_id=message_id, agent=agent))


def switch_model(unit: Unit, session_id: str, message_id: str, model: str) -> None:
    """From here on another model answers; the same one publishes nothing."""
    previous = get(unit.tx, session_id).model
    if previous != model:
        fact = events.ModelSwitched(session_id=session_id, message_id=message_id, model=model, previous=previous)
        unit.append(fact)
