"""Rows of the log: events and the sequence rows that number them. What an event means is above this room.

A sequence row is read when its aggregate first takes a number; what it says is then remembered for the units to come, as long
as no other connection commits and nothing is rolled back (`group_commit.py`). The statement that moves the row on names what
it must say, so that the database stays the judge.

An event that was given no id has one by its place, `evt_{aggregate}/{seq}`, and none is stored. An id that names another place
than its event's is refused, so that no two events ever have the same, whichever comes first (LOG-4).

A session's fact begins with the session's id, which its row tells by a number: from the second fact on, the text that is stored
does without it. The first keeps it, so that a log names itself even where its sequence row is lost. A fact of a step goes on
with the assistant, and a promoted prompt says again what was admitted: their rows name the earlier fact instead. Nothing is
left out but what that one was seen to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perdure import errors, ids
from perdure.core import columns
from perdure.core.value import Value


class EventRow(Value):
    """A stored event; `type` is versioned, `data` and `metadata` are JSON text, `position` the commit order."""

    id: str
    aggregate_id: str
    seq: int
    type: str
    created: int
    data: str
    metadata: str | None = None
    position: int = -1


KEPT = 1024
LONG = 16 * 1024

_TELLING = {columns.STEP_STARTED, columns.ADMITTED}

_Waiting = tuple[str | None, int, int, int, int, str, str | None, int | None, int | None]

Appended = tuple[int, int]
"""Where a unit's first event was stored: its commit position, and what proves that it is that very event."""


def duplicate(known: EventRow) -> errors.InvalidDurableEvent:
    """The refusal of an id that is in the log at another position (LOG-4)."""
    where = f"at aggregate {known.aggregate_id} sequence {known.seq}"
    return errors.InvalidDurableEvent(f"Event {known.id} already exists {where}")


@dataclass(slots=True)
class Sequence:
    """An aggregate that took numbers: the number its events name it by, what its row says, and the first and last number that
    the unit took.
    """

    aggregate: int
    stored: int
    first: int
    last: int


class Events:
    """Verbs on `event` and `event_sequence`.

    What a unit appends is kept here and stored together: when the unit ends (`flush`), or before anything else is asked of
    the two tables.
    """

    __slots__ = (
        "_c",
        "_kept",
        "_names",
        "_numbers",
        "_prompts",
        "_q",
        "_steps",
        "_types",
        "_waiting",
        "appended",
        "positions",
        "taken",
    )

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection
        self.begin()
        self.forget()

    def begin(self) -> None:
        """A unit begins, whatever became of the one before."""
        self._waiting: list[_Waiting] = []
        self.taken: dict[str, Sequence] = {}
        self._numbers: dict[str, int] = {}
        self.positions: list[int] = []
        # The unit's first event: by it a store tells whether a commit it got no answer to took place.
        self.appended: Appended | None = None

    def flush(self) -> None:
        """Store what was appended. Raises `InvalidDurableEvent` for an id that is in the log already (LOG-4)."""
        for aggregate_id, one in self.taken.items():
            if one.last != one.stored:
                self._move(aggregate_id, one)
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        if self._q.event_append(self._c, waiting) < len(waiting):
            raise self._duplicate(waiting)
        last = self._c.last_insert_rowid()
        self.positions += range(last - len(waiting) + 1, last + 1)
        if proof := waiting[0][-1]:
            self.appended = self.positions[0], proof

    def _duplicate(self, waiting: list[_Waiting]) -> errors.InvalidDurableEvent:
        """Which of them was there before: it stands at another place than the one it was given."""
        found = ((one[1:3], self.by_id(one[0])) for one in waiting if one[0] is not None)
        return duplicate(next(at for place, at in found if at and (self.number(at.aggregate_id), at.seq) != place))

    def _move(self, aggregate_id: str, one: Sequence) -> None:
        if self._q.sequence_move(self._c, aggregate=one.aggregate, before=one.stored, seq=one.last) != 1:
            raise errors.Defect(f"The sequence row of {aggregate_id} is not at {one.stored}, as was remembered")
        one.stored = one.last

    def keep(self) -> None:
        """The unit ended: what it knows of sequence rows serves the next."""
        for aggregate_id, one in self.taken.items():
            self._kept.pop(aggregate_id, None)
            self._kept[aggregate_id] = one
        for kept in (self._kept, self._steps, self._prompts):
            while len(kept) > KEPT:
                del kept[next(iter(kept))]

    def forget(self) -> None:
        """Units that ended may have been rolled back, or sequence rows moved."""
        self._kept: dict[str, Sequence] = {}
        # How the facts of an aggregate's newest step begin, and the seq of the one that it began with; None where it has none.
        self._steps: dict[str, tuple[str, int] | None] = {}
        # What the prompt last admitted to an aggregate says, unless it is long: seq, data, time.
        self._prompts: dict[str, tuple[int, str, int]] = {}
        self._types: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def next_seq(self, aggregate_id: str) -> int:
        """Lock (or insert) the aggregate's sequence row and take the next number, 0 for a new aggregate."""
        one = self.taken.get(aggregate_id)
        if one is None:
            one = self.taken[aggregate_id] = self._begun(aggregate_id)
        one.last += 1
        return one.last

    def _begun(self, aggregate_id: str) -> Sequence:
        """The aggregate before its first number of this unit is taken."""
        known = self._kept.get(aggregate_id)
        row = (known.aggregate, known.last) if known else self._q.sequence_lock(self._c, aggregate_id=aggregate_id)
        if row is None:
            aggregate = self._q.sequence_insert(self._c, aggregate_id=aggregate_id, seq=0, owner_id=None)
            return Sequence(aggregate, stored=0, first=0, last=-1)
        aggregate, seq = row
        return Sequence(aggregate, stored=seq, first=seq + 1, last=seq)

    def number(self, aggregate_id: str) -> int:
        """The number that events name their aggregate by. Raises `Defect` where no sequence row gives it one."""
        if one := self.taken.get(aggregate_id):
            return one.aggregate
        number = self._numbers.get(aggregate_id)
        if number is None:
            row = self._q.sequence_get(self._c, aggregate_id=aggregate_id)
            if row is None:
                raise errors.Defect(f"Aggregate {aggregate_id} has no sequence row")
            number = self._numbers[aggregate_id] = row[0]
        return number

    def lock(self, aggregate_id: str) -> int:
        """Lock the aggregate's sequence row; the last number taken, -1 where there is none."""
        self.flush()
        row = self._q.sequence_lock(self._c, aggregate_id=aggregate_id)
        return row[1] if row else -1

    def sequence(self, aggregate_id: str) -> tuple[int, str | None]:
        """Last number taken (-1 if none) and replication owner."""
        self.flush()
        row = self._q.sequence_get(self._c, aggregate_id=aggregate_id)
        return (row[1], row[2]) if row else (-1, None)

    def last(self, aggregate_id: str) -> int:
        """Last number taken (-1 if none)."""
        known = self.taken.get(aggregate_id) or self._kept.get(aggregate_id)
        return known.last if known else self.sequence(aggregate_id)[0]

    def put_sequence(self, aggregate_id: str, seq: int, owner_id: str | None) -> None:
        """Set number and owner."""
        self._let_go(aggregate_id)
        row = {"aggregate_id": aggregate_id, "seq": seq, "owner_id": owner_id}
        number = self._q.sequence_put(self._c, **row)
        self._numbers[aggregate_id] = self._q.sequence_insert(self._c, **row) if number is None else number

    def _let_go(self, aggregate_id: str) -> None:
        """What is known of a sequence row that somebody else is about to change."""
        self.flush()
        self.taken.pop(aggregate_id, None)
        self._kept.pop(aggregate_id, None)
        self._numbers.pop(aggregate_id, None)

    def own(self, aggregate_id: str, owner_id: str) -> None:
        """Give the aggregate another replication owner."""
        self._q.sequence_own(self._c, aggregate_id=aggregate_id, owner_id=owner_id)

    def append(self, row: EventRow, proof: int | None = None, *, admitted: int | None = None) -> None:
        """Append an event under a number taken or put before; its commit position comes into `positions` when it is stored.

        The unit's first event comes with a `proof`, random and not 0. `admitted` is where a prompt that is promoted was
        admitted. Raises `InvalidDurableEvent` for an id that names another place.
        """
        chosen = None if row.id == ids.event_at(row.aggregate_id, row.seq) else row.id
        if chosen and (place := ids.place_of(chosen)):
            if known := self.by_id(chosen):
                raise duplicate(known)
            msg = f"Event id {chosen} is that of aggregate {place[0]} sequence {place[1]}"
            raise errors.InvalidDurableEvent(msg)
        data, earlier = self._shortened(row, admitted) if row.seq else (f" {row.data}", None)
        kind, number = self._types.get(row.type) or self._type(row.type), self.number(row.aggregate_id)
        # In the order of the statement's columns.
        self._waiting.append((chosen, number, row.seq, kind, row.created, data, row.metadata, earlier, proof))

    def _type(self, name: str) -> int:
        """The number of a type, a new one where it has none."""
        number = self._q.event_type(self._c, name=name)
        if number is None:
            number = self._q.event_type_insert(self._c, name=name)
        self._types[name] = number
        return number

    def _shortened(self, row: EventRow, admitted: int | None) -> tuple[str, int | None]:
        """What is stored of a fact's JSON, and the seq of the fact that says the rest of it."""
        if row.type != columns.STEP_STARTED and (short := self._of_step(row, self._steps.get(row.aggregate_id))):
            return short
        data = columns.without_session(row.data, row.aggregate_id)
        if admitted is not None:
            said, created = self._said_at_admission(row.aggregate_id, admitted)
            same = said is not None and created is not None and columns.promoted(said, created) == data
            return ("{}", admitted) if same else (data, None)
        if row.type == columns.ADMITTED and len(data) <= LONG:
            self._prompts[row.aggregate_id] = row.seq, data, row.created
        elif head := columns.head(row.aggregate_id, data):
            if row.type == columns.STEP_STARTED:
                self._steps[row.aggregate_id] = head, row.seq
            elif row.aggregate_id not in self._steps:
                return self._of_step(row, self._newest_step(row.aggregate_id)) or (data, None)
        return data, None

    @staticmethod
    def _of_step(row: EventRow, step: tuple[str, int] | None) -> tuple[str, int] | None:
        """The same of a fact of that step; None for any other."""
        rest = columns.without(row.data, step[0]) if step else None
        return None if rest is None or step is None else (rest, step[1])

    def _newest_step(self, aggregate_id: str) -> tuple[str, int] | None:
        found = self._q.event_newest_step(self._c, aggregate=self.number(aggregate_id))
        head = columns.head(aggregate_id, found[1]) if found else ""
        self._steps[aggregate_id] = (head, found[0]) if found and head else None
        return self._steps[aggregate_id]

    def _said_at_admission(self, aggregate_id: str, seq: int) -> tuple[str, int] | tuple[None, None]:
        newest, said, created = self._prompts.get(aggregate_id, (-1, "", 0))
        if newest == seq:
            return said, created
        if any(one[2] == seq for one in self._waiting):
            self.flush()  # a fork or an import: both in one unit
        return self._said(self.number(aggregate_id), seq)

    def holds(self, appended: Appended) -> bool:
        """Whether that very event is in the log."""
        position, proof = appended
        return self._q.event_proof(self._c, position=position) == proof

    def whole(self, found: Iterable[Any]) -> list[EventRow]:
        """Events from their rows, with what these leave to other rows: to events that are often among them, and of a step's all
        to the same one.
        """
        whole: list[EventRow] = []
        said: dict[tuple[int, int], tuple[str, int]] = {}
        heads: dict[tuple[int, int], str] = {}
        for event_id, aggregate_id, seq, kind, created, data, metadata, position, aggregate, earlier in found:
            name = self._names.get(kind) or self._name(kind)
            if earlier is None:
                if name in _TELLING:
                    said[aggregate, seq] = data, created
                text = columns.with_session(data, aggregate_id)
            elif name == columns.PROMOTED:
                told = said.get((aggregate, earlier)) or self._said(aggregate, earlier)
                text = columns.with_earlier(data, name, aggregate_id, *told)
            else:
                head = heads.get((aggregate, earlier))
                if head is None:
                    told = said.get((aggregate, earlier)) or self._said(aggregate, earlier)
                    head = heads[aggregate, earlier] = columns.head(aggregate_id, told[0])
                text = columns.behind(data, head)
            chosen = ids.event_at(aggregate_id, seq) if event_id is None else event_id
            whole.append(EventRow(chosen, aggregate_id, seq, name, created, text, metadata, position))
        return whole

    def _said(self, aggregate: int, seq: int) -> tuple[str, int] | tuple[None, None]:
        """What an event says by itself, and when."""
        return self._q.event_stored(self._c, aggregate=aggregate, seq=seq) or (None, None)

    def _name(self, number: int) -> str:
        """The type of a number; what an event goes by whose number is lost is no type that anybody knows."""
        name = self._q.event_type_name(self._c, number=number)
        if name is None:
            return str(number)
        return self._names.setdefault(number, name)

    def by_id(self, event_id: str) -> EventRow | None:
        """The event of that id, wherever it is."""
        place = ids.place_of(event_id)
        if place:
            found = self.at(*place)
            return found if found and found.id == event_id else None
        self.flush()
        row = self._q.event_by_id(self._c, id=event_id)
        return self.whole([row])[0] if row else None

    def at(self, aggregate_id: str, seq: int) -> EventRow | None:
        """The event at that place."""
        self.flush()
        row = self._q.event_at(self._c, aggregate_id=aggregate_id, seq=seq)
        return self.whole([row])[0] if row else None

    def page(self, aggregate_id: str, after: int, limit: int) -> list[EventRow]:
        """Up to `limit` events of the aggregate after seq `after`, in order."""
        self.flush()
        page = self._q.event_page(self._c, aggregate_id=aggregate_id, after=after, limit=limit)
        return self.whole(page)

    def feed(self, after: int, limit: int) -> list[EventRow]:
        """Up to `limit` events of all aggregates after a commit position, in commit order."""
        self.flush()
        return self.whole(self._q.event_feed(self._c, after=after, limit=limit))

    def newest_interrupt(self, aggregate_id: str) -> int:
        """The seq at which an interrupt was last asked for, -1 if none was."""
        self.flush()
        seq = self._q.event_newest_interrupt(self._c, aggregate_id=aggregate_id)
        return -1 if seq is None else seq

    def newest_of(self, aggregate_id: str, stored_type: str) -> int:
        """The newest seq of a versioned type in the aggregate, -1 if it has none."""
        self.flush()
        seq = self._q.event_newest_of(self._c, aggregate_id=aggregate_id, type=stored_type)
        return -1 if seq is None else seq

    def last_position(self) -> int:
        """The newest commit position ever given, 0 for a new log; no removal takes it back."""
        self.flush()
        return self._q.event_last_position(self._c) or 0

    def aggregates(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Up to `limit` aggregates with their last seq, in id order after `after`."""
        self.flush()
        return [(row[0], row[1]) for row in self._q.sequence_aggregates(self._c, after=after, limit=limit)]

    def remove(self, aggregate_id: str) -> None:
        """Delete the sequence row, then the events."""
        self._let_go(aggregate_id)
        self._steps.pop(aggregate_id, None)
        self._prompts.pop(aggregate_id, None)
        number = self._q.sequence_delete(self._c, aggregate_id=aggregate_id)
        if number is not None:
            self._q.event_delete(self._c, aggregate=number)
