"""One unit of work on the log: a transaction that facts can be appended to.

Lives here: `Unit`, whose `append` numbers a fact, projects it and stores it (LOG-1), all on the caller's transaction.
Not here: running units, announcing them (`log.py`). A unit may run again from the start; its time and its proof are
fixed before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perdure import ids
from perdure.core import codec, events
from perdure.store import events as rows
from perdure.store import port

D = TypeVar("D")
Projector = Callable[[port.Tx, events.Recorded[Any]], None]
CommitHook = Callable[[port.Tx, int], None]


@dataclass(slots=True)
class Unit:
    """A running unit of work: the transaction, its time (epoch ms), what proves that it was committed, and the facts it has
    appended so far.
    """

    tx: port.Tx
    now: int
    proof: int
    registry: codec.Registry
    projectors: Sequence[Projector]
    appended: list[events.Recorded[Any]] = field(default_factory=list[events.Recorded[Any]])
    removed: list[str] = field(default_factory=list[str])

    def append(
        self,
        payload: D,
        *,
        event_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        hook: CommitHook | None = None,
    ) -> events.Recorded[D]:
        """Number, project and store one durable fact.

        Raises whatever a projector or the hook raises; the whole unit is then rolled back, as it is at its end where an
        id turns out to be in the log already.
        """
        stored_type = self.registry.stored_type(payload)
        aggregate_id = codec.aggregate_of(payload)
        seq = self.tx.events.next_seq(aggregate_id)
        chosen = event_id or ids.event_at(aggregate_id, seq)
        latest: Any = self.registry.upcast(payload)
        recorded = events.Recorded(chosen, aggregate_id, seq, self.now, latest, metadata)
        text = codec.dump(payload)
        return self.record(recorded, stored_type, text, codec.dump_optional(metadata), hook=hook)

    def record(
        self,
        recorded: events.Recorded[Any],
        stored_type: str,
        data: str,
        metadata: str | None,
        *,
        hook: CommitHook | None = None,
    ) -> events.Recorded[Any]:
        """Project a numbered fact and store it with the JSON text given. What is projected is the latest version."""
        for project in self.projectors:
            project(self.tx, recorded)
        if hook:
            hook(self.tx, recorded.seq)
        row = rows.EventRow(
            recorded.id, recorded.aggregate_id, recorded.seq, stored_type, recorded.created, data, metadata
        )
        admitted = self._admitted(recorded) if isinstance(recorded.data, events.PromptPromoted) else None
        self.tx.events.append(row, None if self.appended else self.proof, admitted=admitted)
        self.appended.append(recorded)
        return recorded

    def _admitted(self, recorded: events.Recorded[events.PromptPromoted]) -> int | None:
        """Where a prompt that was just promoted was admitted; None where that is this very fact (IN-9)."""
        row = self.tx.inbox.get(recorded.data.message_id)
        return row.admitted_seq if row and row.admitted_seq < recorded.seq else None

    def finish(self) -> list[events.Recorded[Any]]:
        """Store what is not stored yet; the facts appended, with their commit positions. Raises `InvalidDurableEvent` where
        an id is in the log already.
        """
        self.tx.flush()
        places = zip(self.appended, self.tx.events.positions, strict=True)
        return [
            events.Recorded(one.id, one.aggregate_id, one.seq, one.created, one.data, one.metadata, position)
            for one, position in places
        ]

    def remove(self, aggregate_id: str) -> None:
        """Forget an aggregate's log; the last act of the unit that deletes it."""
        self.tx.events.remove(aggregate_id)
        self.removed.append(aggregate_id)
