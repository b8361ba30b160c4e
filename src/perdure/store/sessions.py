"""Rows of `session` and `tombstone`.

A turn looks at its session's row a dozen times and changes its totals and its execution in every unit. What a connection has
seen of a row is kept, from unit to unit too, until another connection commits or something is rolled back
(`group_commit.py`); what a unit changes so is written once, when it ends (`flush`) or before anything else is asked of the
table. Settings change rarely and are written at once.
"""

from __future__ import annotations

from typing import Any

from perdure import errors
from perdure.core import codec, columns, events, messages
from perdure.core.value import Value, replace
from perdure.store.events import Events


class SessionRow(Value):
    """A session: settings, totals, the open execution and the operational flags. `turn_usage` is what the turn that is not
    settled yet used, None where that is nothing.
    """

    id: str
    agent: str
    model: str | None
    title: str | None
    metadata: messages.JsonObject | None
    policy: events.Policy
    archived: bool
    forked_from: events.Origin | None
    time_created: int
    time_updated: int
    usage: messages.Usage
    turn_usage: messages.Usage | None
    execution_id: str | None
    execution_purpose: events.Purpose | None
    parked: bool
    held: bool
    deleting: bool
    wake_attempts: int


class Flags(Value):
    """What is operational of a session, and stands in columns that always read."""

    held: bool
    deleting: bool
    wake_attempts: int


class Damaged(Value):
    """A session whose row cannot be decoded, and why."""

    id: str
    time_created: int
    why: str


def _listed(row: Any) -> SessionRow | Damaged:
    """A row of a page, which hides no other (MSG-8)."""
    try:
        return _row(row)
    except errors.SessionUndecodable as error:
        return Damaged(row[0], row[8], str(error))


def _row(row: Any) -> SessionRow:
    try:
        return _decoded(row)
    except errors.Undecodable as error:
        raise errors.SessionUndecodable(row[0], str(error)) from error


def _decoded(row: Any) -> SessionRow:
    usage = messages.Usage(messages.Tokens(row[10], row[11], row[12], row[13], row[14]), *row[15:18])
    return SessionRow(
        id=row[0],
        agent=row[1],
        model=row[2],
        title=row[3],
        metadata=codec.load_object(row[4]),
        policy=codec.load(row[5], events.Policy),
        archived=bool(row[6]),
        forked_from=codec.load(row[7], events.Origin) if row[7] else None,
        time_created=row[8],
        time_updated=row[9],
        usage=usage,
        turn_usage=codec.load(row[18], messages.Usage) if row[18] else None,
        execution_id=row[19],
        execution_purpose=row[20],
        parked=bool(row[21]),
        held=bool(row[22]),
        deleting=bool(row[23]),
        wake_attempts=row[24],
    )


KEPT = 1024
LONG = 16 * 1024
"""A row with more characters of settings is read again by each unit that asks for it, as a long prompt is (`inbox.py`)."""


class Sessions:
    """Verbs on `session` and `tombstone`."""

    __slots__ = ("_c", "_changed", "_events", "_long", "_q", "_rows")

    def __init__(self, statements: Any, connection: Any, events: Events) -> None:
        """Bind to a connection; `events` tells the numbers of logs."""
        self._q, self._c, self._events = statements, connection, events
        self.forget()

    def forget(self) -> None:
        """What is known may no longer be so."""
        self._rows: dict[str, SessionRow] = {}
        self._changed: set[str] = set()
        self._long: set[str] = set()

    def keep(self) -> None:
        """The unit ended, and all is written; what is known serves the next ones, within bounds."""
        for session_id in self._long:
            self._rows.pop(session_id, None)
        self._long.clear()
        if len(self._rows) > KEPT:
            self.forget()

    def flush(self) -> None:
        """Write what was changed."""
        for session_id in self._changed:
            self._move(self._rows[session_id])
        self._changed.clear()

    def _move(self, row: SessionRow) -> None:
        """Write what running a session changes of its row."""
        usage, tokens = row.usage, row.usage.tokens
        self._q.session_move(
            self._c,
            id=row.id,
            time=row.time_updated,
            input=tokens.input,
            output=tokens.output,
            reasoning=tokens.reasoning,
            cache_read=tokens.cache_read,
            cache_write=tokens.cache_write,
            cost=usage.cost,
            unknown_cost=usage.unknown_cost,
            unknown_tokens=usage.unknown_tokens,
            turn_usage=columns.dump_usage(row.turn_usage),
            execution_id=row.execution_id,
            purpose=row.execution_purpose,
            parked=int(row.parked),
            wake_attempts=row.wake_attempts,
        )

    def _change(self, session_id: str, **changes: Any) -> SessionRow | None:
        """Change a row, if there is one."""
        row = self.get(session_id)
        if row:
            row = self._rows[session_id] = replace(row, **changes)
            self._changed.add(session_id)
        return row

    def _written(self, session_id: str) -> None:
        """The row is about to be changed by a statement."""
        self.flush()
        self._rows.pop(session_id, None)

    def insert(self, created: events.SessionCreated, time: int) -> bool:
        """A new row, under the number of the session's log; False where the id is already projected."""
        self._written(created.session_id)
        inserted = self._q.session_insert(
            self._c,
            number=self._events.number(created.session_id),
            id=created.session_id,
            agent=created.agent,
            model=created.model,
            title=created.title,
            metadata=codec.dump_optional(created.metadata),
            policy=codec.dump(created.policy or events.Policy()),
            forked_from=codec.dump_optional(created.forked_from),
            time_created=time,
        )
        return inserted == 1

    def get(self, session_id: str) -> SessionRow | None:
        """One session. Raises `SessionUndecodable`."""
        known = self._rows.get(session_id)
        if known is None and (row := self._q.session_get(self._c, id=session_id)):
            known = self._rows[session_id] = _row(row)
            if len(row[4] or "") + len(row[5]) > LONG:
                self._long.add(session_id)
        return known

    def flags(self, session_id: str) -> Flags | None:
        """What is operational of one session, whether or not the rest can be decoded; None where there is none."""
        self.flush()
        row = self._q.session_flags(self._c, id=session_id)
        return Flags(bool(row[0]), bool(row[1]), row[2]) if row else None

    def page(self, before: tuple[int, str], limit: int) -> list[SessionRow | Damaged]:
        """Up to `limit` sessions older than (time_created, id), newest first."""
        self.flush()
        return [
            _listed(row) for row in self._q.session_page(self._c, time_created=before[0], id=before[1], limit=limit)
        ]

    def count(self) -> int:
        """How many there are."""
        return self._q.session_count(self._c)

    def stirring(self, limit: int) -> list[str]:
        """Up to `limit` sessions that may be doing or awaiting something; each other one is idle."""
        self.flush()
        return [row[0] for row in self._q.session_stirring(self._c, limit=limit)]

    def update(self, session_id: str, changes: events.Changes, time: int) -> None:
        """Change the settings that are given."""
        self._written(session_id)
        self._q.session_update(
            self._c,
            id=session_id,
            title=changes.title,
            metadata=codec.dump_optional(changes.metadata),
            archived=None if changes.archived is None else int(changes.archived),
            policy=codec.dump_optional(changes.policy),
            time=time,
        )

    def set_agent(self, session_id: str, agent: str, time: int) -> None:
        """Another agent answers."""
        self._written(session_id)
        self._q.session_set_agent(self._c, id=session_id, agent=agent, time=time)

    def set_model(self, session_id: str, model: str, time: int) -> None:
        """Another model answers."""
        self._written(session_id)
        self._q.session_set_model(self._c, id=session_id, model=model, time=time)

    def set_usage(self, session_id: str, usage: messages.Usage, turn_usage: messages.Usage) -> None:
        """The totals, and those of the turn that is not settled yet."""
        self._change(session_id, usage=usage, turn_usage=turn_usage)

    def open_execution(self, session_id: str, execution_id: str, purpose: events.Purpose, time: int) -> None:
        """An execution is open."""
        opened = {"execution_id": execution_id, "execution_purpose": purpose, "parked": False}
        self._change(session_id, **opened, time_updated=time)

    def close_execution(self, session_id: str, execution_id: str, time: int, *, settled: bool = False) -> None:
        """It is over; of another than the open one this changes nothing. Where its turn is `settled`, the next one has used
        nothing.
        """
        changes: dict[str, Any] = {"turn_usage": None} if settled else {}
        if self._runs(session_id, execution_id):
            changes |= {"execution_id": None, "execution_purpose": None, "parked": False, "time_updated": time}
        if changes:
            self._change(session_id, **changes)

    def set_parked(self, session_id: str, execution_id: str, *, parked: bool) -> None:
        """The open execution waits for approvals, or no longer."""
        if self._runs(session_id, execution_id):
            self._change(session_id, parked=parked)

    def _runs(self, session_id: str, execution_id: str) -> bool:
        row = self.get(session_id)
        return row is not None and row.execution_id == execution_id

    def set_held(self, session_id: str, *, held: bool) -> None:
        """Nothing may start it, or no longer."""
        self._written(session_id)
        self._q.session_set_held(self._c, id=session_id, held=int(held))

    def set_deleting(self, session_id: str) -> None:
        """Nothing is admitted or claimed from now on."""
        self._written(session_id)
        self._q.session_set_deleting(self._c, id=session_id)

    def deleting(self) -> list[str]:
        """Sessions whose deletion is not finished."""
        return [row[0] for row in self._q.session_deleting(self._c)]

    def set_wake_attempts(self, session_id: str, attempts: int) -> None:
        """Claims taken since the session last made an end."""
        row = self.get(session_id)
        if row and row.wake_attempts != attempts:
            self._change(session_id, wake_attempts=attempts)

    def add_wake_attempt(self, session_id: str) -> int:
        """One more claim; the new count, 0 for a session that does not exist."""
        row = self.get(session_id)
        changed = self._change(session_id, wake_attempts=row.wake_attempts + 1) if row else None
        return changed.wake_attempts if changed else 0

    def drop_wake_attempt(self, session_id: str) -> None:
        """A claim gives its attempt back."""
        row = self.get(session_id)
        if row and row.wake_attempts:
            self._change(session_id, wake_attempts=row.wake_attempts - 1)

    def delete(self, session_id: str) -> None:
        """All rows of the session, of every table; whoever keeps some has to forget them (`Tx.forget`)."""
        self._written(session_id)
        self._q.session_delete(self._c, id=session_id)

    def put_tombstone(self, session_id: str, time: int) -> None:
        """It existed and is gone."""
        self._q.tombstone_put(self._c, session_id=session_id, time=time)

    def tombstone(self, session_id: str) -> int | None:
        """When it went."""
        return self._q.tombstone_get(self._c, session_id=session_id)
