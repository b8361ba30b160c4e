"""Replay: events in their stored form enter a log again, as they are (LOG-20 to LOG-28).

Lives here: the checks, in their order, and ownership of an aggregate, which says where its events come from and is no
execution claim. Not here: files of events and holding an imported session (`maintenance/`). A replayed event keeps its
id, its time and the very text of its JSON; what is projected is its latest version. Every refusal is
`InvalidDurableEvent` and leaves nothing behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.core import codec, events
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.store.events import EventRow, duplicate


@dataclass(frozen=True, slots=True)
class Checked:
    """A stored event whose type is known, whose payload is decoded and which belongs where it says."""

    row: EventRow
    payload: Any
    metadata: dict[str, Any] | None


async def replay(
    log: Log, event: EventRow, *, owner_id: str | None = None, strict: bool = False, publish: bool = False
) -> events.Recorded[Any] | None:
    """Replay one event; what was appended, or None where it was in the log already or is another owner's to append.

    With `publish` an appended event is announced to listeners too. Raises `InvalidDurableEvent`.
    """
    appended = await replay_all(log, [event], owner_id=owner_id, strict=strict, publish=publish)
    return appended[0] if appended else None


async def replay_all(
    log: Log, batch: Sequence[EventRow], *, owner_id: str | None = None, strict: bool = False, publish: bool = False
) -> list[events.Recorded[Any]]:
    """Replay contiguous events of one aggregate in one transaction; those that were appended (LOG-26).

    Everything that can be seen from the events alone is checked before any write. Raises `InvalidDurableEvent`.
    """
    checked = check(log.registry, batch)

    def work(unit: Unit) -> None:
        append(unit, checked, owner_id=owner_id, strict=strict)

    appended: list[events.Recorded[Any]] = []
    if checked:
        await log.transact(work, committed=appended.extend, notify=publish)
    return appended


async def claim(log: Log, aggregate_id: str, owner_id: str) -> None:
    """Make `owner_id` the owner of an aggregate, whoever was."""
    await log.transact(lambda unit: unit.tx.events.own(aggregate_id, owner_id))


async def remove(log: Log, aggregate_id: str) -> None:
    """Forget an aggregate's sequence and events; seq 0 may then come again. Rows are not touched."""
    await log.transact(lambda unit: unit.remove(aggregate_id))


# -- what the events alone tell --------------------------------------------------------------------------------------------


def check(registry: codec.Registry, batch: Sequence[EventRow]) -> list[Checked]:
    """Decode each event (LOG-20), then see that they are one aggregate's and contiguous."""
    checked = [check_one(registry, row) for row in batch]
    for before, row in itertools.pairwise(batch):
        if row.aggregate_id != before.aggregate_id:
            msg = f"Replay of aggregate {before.aggregate_id} holds an event of aggregate {row.aggregate_id}"
            raise errors.InvalidDurableEvent(msg)
        if row.seq != before.seq + 1:
            raise gap(row, before.seq + 1)
    return checked


def check_one(registry: codec.Registry, row: EventRow) -> Checked:
    """Decode an event and see that payload and envelope name the same aggregate (LOG-20)."""
    try:
        payload = registry.decode(row.type, row.data)
        metadata = codec.load_object(row.metadata)
    except errors.Undecodable as error:
        msg = f"Event {row.id} of type {row.type} cannot be decoded: {error}"
        raise errors.InvalidDurableEvent(msg) from error
    named = codec.aggregate_of(payload)
    if named != row.aggregate_id:
        msg = f"Event {row.id} names aggregate {row.aggregate_id}, its payload {named}"
        raise errors.InvalidDurableEvent(msg)
    return Checked(row, payload, metadata)


def gap(row: EventRow, expected: int) -> errors.InvalidDurableEvent:
    """The refusal of an event that does not come next (LOG-24)."""
    return errors.InvalidDurableEvent(
        f"Sequence mismatch for aggregate {row.aggregate_id}: expected {expected}, got {row.seq}"
    )


# -- what the log tells ----------------------------------------------------------------------------------------------------


def append(
    unit: Unit, checked: Sequence[Checked], *, owner_id: str | None = None, strict: bool = False
) -> list[events.Recorded[Any]]:
    """Replay checked events in the caller's unit; those that were appended."""
    taken = unit.tx.claims.of_session(checked[0].row.aggregate_id)  # the claim is locked before the sequence
    appended = [_append_one(unit, one, owner_id, strict=strict, claimed=taken is not None) for one in checked]
    return [recorded for recorded in appended if recorded]


def _append_one(
    unit: Unit, one: Checked, owner_id: str | None, *, strict: bool, claimed: bool
) -> events.Recorded[Any] | None:
    row, log = one.row, unit.tx.events
    log.lock(row.aggregate_id)
    latest, owner = log.sequence(row.aggregate_id)
    foreign = owner is not None and owner != owner_id
    if strict and foreign:
        msg = f"Aggregate {row.aggregate_id} is owned by {owner}"
        raise errors.InvalidDurableEvent(msg)
    if row.seq <= latest:
        if not _same(log.at(row.aggregate_id, row.seq), row):
            msg = f"Replay diverged at aggregate {row.aggregate_id} sequence {row.seq}"
            raise errors.InvalidDurableEvent(msg)
        if owner is None and owner_id is not None:
            log.own(row.aggregate_id, owner_id)
        return None
    if foreign:
        return None
    if row.seq != latest + 1:
        raise gap(row, latest + 1)
    if known := log.by_id(row.id):
        raise duplicate(known)
    if claimed:
        msg = f"Session {row.aggregate_id} is claimed: nothing is replayed into it"
        raise errors.InvalidDurableEvent(msg)
    log.put_sequence(row.aggregate_id, row.seq, owner_id)
    latest_form = unit.registry.upcast(one.payload)
    recorded = events.Recorded(row.id, row.aggregate_id, row.seq, row.created, latest_form, one.metadata)
    try:
        unit.record(recorded, row.type, row.data, row.metadata)
    except errors.Conflict as error:
        msg = f"Event {row.id} at aggregate {row.aggregate_id} sequence {row.seq} cannot be projected: {error}"
        raise errors.InvalidDurableEvent(msg) from error
    if isinstance(recorded.data, events.SessionDeleted):
        unit.remove(row.aggregate_id)
    return recorded


def _same(stored: EventRow | None, row: EventRow) -> bool:
    """Whether the event in the log is this one: id, type, time and data, metadata not counting (LOG-22)."""
    return (
        stored is not None
        and (stored.id, stored.type, stored.created) == (row.id, row.type, row.created)
        and codec.same_json(stored.data, row.data)
    )
