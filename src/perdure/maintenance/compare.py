"""Rows against the fold: where the projections of a session are not what its log says (MSG-1).

Lives here: reading every projected row of a session and naming each difference. Not here: folding (`core/projection.py`)
and what is done about it (`verify.py`, `rebuild.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from perdure import errors
from perdure.core import messages, projection, rows
from perdure.core.value import names
from perdure.store import port

PAGE = 200


def differences(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    """What differs, in words, rows first: "input msg_1: outcome is 'failed', the log says None"."""
    try:
        yield from _session(tx, session_id, folded)
        yield from _inputs(tx, session_id, folded)
        yield from _approvals(tx, session_id, folded)
        yield from _recoveries(tx, session_id, folded)
        yield from _transcript(tx, session_id, folded)
    except errors.Undecodable as error:
        yield str(error)


def _session(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    yield from _one("session", tx.sessions.get(session_id), folded.session)
    if numbers := tx.upkeep.other_number(session_id):
        yield "session: number is {}, the log says {}".format(*numbers)
    if folded.gone is not None and tx.sessions.tombstone(session_id) is None:
        yield "tombstone: missing"


def _inputs(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    yield from _each("input", {one.id: one for one in tx.upkeep.inputs(session_id)}, folded.inputs)


def _approvals(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    found = {f"{one.message_id} {one.call_id}": one for one in tx.upkeep.approvals(session_id)}
    wanted = {f"{message_id} {call_id}": one for (message_id, call_id), one in folded.approvals.items()}
    yield from _each("approval", found, wanted)


def _recoveries(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    """One that was given up wakes nobody, whatever its log says: that is an error, and operational."""
    found = {one.execution_id: one for one in tx.upkeep.recoveries(session_id)}
    wanted: dict[str, rows.Recovery] = {}
    for key, one in folded.recoveries.items():
        given_up = key in found and found[key].recovery_error is not None
        wanted[key] = dataclasses.replace(one, wake_pending=False) if given_up else one
    yield from _each("recovery", found, wanted)


def _transcript(tx: port.Tx, session_id: str, folded: projection.Projection) -> Iterator[str]:
    wanted = {one.id: one for one in folded.transcript.messages}
    after = -1
    while page := tx.messages.page(session_id, after, PAGE):
        after = page[-1].seq
        for message in page:
            yield from _message(message, wanted.pop(message.id, None))
    yield from (f"message {one}: missing" for one in wanted)


def _message(found: messages.Message, wanted: messages.Message | None) -> Iterator[str]:
    if wanted is None:
        yield f"message {found.id}: the log knows none"
    elif found.__class__ is not wanted.__class__:
        yield f"message {found.id}: is of another kind than the log says"
    elif found != wanted:
        yield from _one(f"message {found.id}", found, wanted)


def _each(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*wanted, *found]):
        yield from _one(f"{what} {key}", found.get(key), wanted.get(key))


def _one(what: str, found: Any, wanted: Any) -> Iterator[str]:
    """Column by column; the row may have more of them than the log decides."""
    if wanted is None or found is None:
        if found is not wanted:
            yield f"{what}: missing" if found is None else f"{what}: the log knows none"
        return
    for name in names(wanted.__class__):
        is_, should = getattr(found, name), getattr(wanted, name)
        if is_ != should or is_.__class__ is not should.__class__:
            yield f"{what}: {name} is {_short(is_)}, the log says {_short(should)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
