"""Verify: whether the log is whole, whether it can be read, and whether the rows are what it says.

Lives here: walking every aggregate, one consistent snapshot each, and what is found wrong. Nothing is changed and nobody
is waited for, so it may run beside a server. Not here: the file itself (`doctor.py`), mending (`rebuild.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.core import codec, events, projection
from perdure.log.log import Log
from perdure.maintenance import compare
from perdure.store import port
from perdure.store.events import EventRow

PAGE = 500
SOME = 20
"""Problems named an aggregate; beyond that they are many, and one line says so."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong: a gap, an event that cannot be read, or rows that are not what the log says."""

    aggregate_id: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One aggregate, looked at; `events` is how many it has."""

    aggregate_id: str
    events: int
    problems: tuple[Problem, ...]


async def verify(log: Log, only: str | None = None) -> AsyncGenerator[Checked]:
    """Look at every aggregate, or at one. Raises `SessionNotFound` for one that is not there."""
    stray = await log.store.read(strays)
    logged = only is not None and await log.last_seq(only) >= 0
    if only is not None and not logged and only not in stray:
        msg = f"Session {only} does not exist"
        raise errors.SessionNotFound(msg)
    for aggregate_id, number in stray.items():
        if only in {None, aggregate_id}:
            yield await log.store.read(lambda tx, one=aggregate_id, number=number: check(tx, log.registry, one, number))
    if only is not None:
        if logged:
            yield await log.store.read(lambda tx: check(tx, log.registry, only))
        return
    after = ""
    while page := await log.store.read(lambda tx, after=after: tx.events.aggregates(after, PAGE)):
        for aggregate_id, _ in page:
            after = aggregate_id
            yield await log.store.read(lambda tx, one=aggregate_id: check(tx, log.registry, one))


def strays(tx: port.Tx) -> dict[str, int | None]:
    """What no sequence row leads to: events without one, with the number they go by, and sessions without a log."""
    found = {**dict.fromkeys(tx.upkeep.unlogged()), **tx.upkeep.unnumbered()}
    return dict(sorted(found.items()))


def check(tx: port.Tx, registry: codec.Registry, aggregate_id: str, number: int | None = None) -> Checked:
    """Look at one aggregate in the caller's unit; at one without a sequence row by its number."""
    walk = Walk(tx, registry, aggregate_id, number)
    problems = [Problem(aggregate_id, kind, detail) for kind, detail in walk.problems()]
    if len(problems) > SOME:
        more = f"and {len(problems) - SOME} more"
        problems = [*problems[:SOME], Problem(aggregate_id, problems[-1].kind, more)]
    return Checked(aggregate_id, walk.count, tuple(problems))


class Walk:
    """One aggregate's events from the first to the last, folded on the way as far as they can be read."""

    def __init__(self, tx: port.Tx, registry: codec.Registry, aggregate_id: str, number: int | None) -> None:
        """Nothing is read yet."""
        self._tx, self._registry, self._aggregate_id, self._number = tx, registry, aggregate_id, number
        self.count, self._expected = 0, 0
        self._builder: projection.Builder | None = projection.Builder()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Kind and words of each."""
        after = -1
        while page := self._page(after):
            for row in page:
                yield from self._event(row)
            after = page[-1].seq
        last, _ = self._tx.events.sequence(self._aggregate_id)
        if last != self._expected - 1:
            yield "gap", f"the sequence row says {last}, the last event is {self._expected - 1}"
        folded = self._builder and self._builder.freeze()
        if folded and (folded.session or folded.gone is not None or self._has_rows()):
            for words in compare.differences(self._tx, self._aggregate_id, folded):
                yield "rows", words

    def _page(self, after: int) -> list[EventRow]:
        if self._number is None:
            return self._tx.events.page(self._aggregate_id, after, PAGE)
        return self._tx.upkeep.unnumbered_page(self._aggregate_id, self._number, after, PAGE)

    def _has_rows(self) -> bool:
        return self._tx.sessions.flags(self._aggregate_id) is not None

    def _event(self, row: EventRow) -> Iterator[tuple[str, str]]:
        self.count += 1
        if row.seq != self._expected:
            yield "gap", f"event {row.id} has sequence {row.seq}, expected {self._expected}"
            self._builder = None
        self._expected = row.seq + 1
        try:
            recorded = decoded(self._registry, row)
        except errors.PerdureError as error:
            yield "undecodable", f"event {row.id} at sequence {row.seq}: {error}"
            self._builder = None
            return
        if self._builder:
            try:
                self._builder.apply(recorded)
            except errors.Conflict as error:
                yield "rows", f"event {row.id} at sequence {row.seq} cannot be projected: {error}"
                self._builder = None


def decoded(registry: codec.Registry, row: EventRow) -> events.Recorded[Any]:
    """A stored event at its latest version. Raises `Undecodable`, `InvalidDurableEvent`."""
    payload = registry.decode(row.type, row.data)
    named = codec.aggregate_of(payload)
    if named != row.aggregate_id:
        msg = f"it names aggregate {row.aggregate_id}, its payload {named}"
        raise errors.Undecodable(msg)
    metadata = codec.load_object(row.metadata)
    latest = registry.upcast(payload)
    return events.Recorded(row.id, row.aggregate_id, row.seq, row.created, latest, metadata, row.position)
