"""Rows as maintenance sees them: all of a session at once, and the part of them that no log knows.

Lives here: reading every projected row of a session, writing all of them at once, and `Kept`, what a rebuild takes out and
puts back. Not here: what the rows should be (`core/projection.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.core import bodies, codec, columns, messages, projection, rows
from perdure.core.value import names
from perdure.store.approvals import ApprovalRow
from perdure.store.claims import ClaimRow, Claims
from perdure.store.content import Content
from perdure.store.context import Context, DraftRow, EpochRow
from perdure.store.events import EventRow, Events
from perdure.store.inbox import Inbox, InputRow, input_row
from perdure.store.recoveries import RecoveryRow, recovery_row
from perdure.store.sessions import Flags, Sessions


@dataclass(frozen=True, slots=True)
class Kept:
    """The operational rows of a session: held, deleting, attempts, the claim, recoveries' errors, epoch, drafts and the
    bytes it refers to.
    """

    session: Flags | None
    claim: ClaimRow | None
    recoveries: tuple[RecoveryRow, ...]
    epoch: EpochRow | None
    drafts: tuple[DraftRow, ...]
    content: tuple[str, ...]


class Upkeep:
    """Verbs of maintenance."""

    __slots__ = ("_c", "_claims", "_content", "_context", "_events", "_inbox", "_q", "_sessions")

    def __init__(
        self,
        statements: Any,
        connection: Any,
        sessions: Sessions,
        claims: Claims,
        *,
        events: Events,
        inbox: Inbox,
        context: Context,
        content: Content,
    ) -> None:
        """Bind to a connection and to other groups of it."""
        self._q, self._c = statements, connection
        self._sessions, self._claims, self._inbox = sessions, claims, inbox
        self._events, self._context, self._content = events, context, content

    def census(self) -> tuple[int, int]:
        """How many aggregates, and how many events they should have by their sequence rows."""
        row = self._q.upkeep_census(self._c)
        return row[0], row[1]

    def unnumbered(self, limit: int = 100) -> dict[str, int]:
        """Aggregates with events and no sequence row: the name that the first of these tells, and their number."""
        return {_named(number, data): number for number, _, data in self._q.upkeep_unnumbered(self._c, limit=limit)}

    def unnumbered_page(self, name: str, number: int, after: int, limit: int) -> list[EventRow]:
        """Up to `limit` events of one of them after seq `after`, in order."""
        rows = self._q.upkeep_unnumbered_page(self._c, aggregate=number, aggregate_id=name, after=after, limit=limit)
        return self._events.whole(rows)

    def unlogged(self, limit: int = 100) -> list[str]:
        """Sessions with rows and no log."""
        return [row[0] for row in self._q.upkeep_unlogged(self._c, limit=limit)]

    def other_number(self, session_id: str) -> tuple[int, int] | None:
        """The number a session goes by and that of its log, where they differ."""
        row = self._q.upkeep_other_number(self._c, session_id=session_id)
        return (row[0], row[1]) if row else None

    def inputs(self, session_id: str) -> list[InputRow]:
        """Every input of a session."""
        rows = self._q.upkeep_inputs(self._c, session_id=session_id)
        return [self._inbox.whole(input_row(row)) for row in rows]

    def approvals(self, session_id: str) -> list[ApprovalRow]:
        """Every approval of a session."""
        return [ApprovalRow(*row) for row in self._q.upkeep_approvals(self._c, session_id=session_id)]

    def recoveries(self, session_id: str) -> list[RecoveryRow]:
        """Every recovery of a session."""
        return [recovery_row(row) for row in self._q.upkeep_recoveries(self._c, session_id=session_id)]

    def keep(self, session_id: str) -> Kept:
        """What a rebuild must put back."""
        return Kept(
            self._sessions.flags(session_id),
            self._claims.of_session(session_id),
            tuple(self.recoveries(session_id)),
            self._context.epoch(session_id),
            tuple(self._context.drafts(session_id)),
            tuple(self._content.uses(session_id)),
        )

    def clear(self, session_id: str) -> None:
        """Take out every row of a session that its log decides, and its claim."""
        for clear in (
            self._q.upkeep_clear_approvals,
            self._q.upkeep_clear_recoveries,
            self._q.upkeep_clear_inputs,
            self._q.upkeep_clear_parts,
            self._q.upkeep_clear_messages,
            self._q.upkeep_clear_claims,
        ):
            clear(self._c, session_id=session_id)
        self._sessions.delete(session_id)

    def clear_stray_parts(self) -> None:
        """Take out the parts whose message is lost, and with it the session they were of."""
        self._q.upkeep_clear_stray_parts(self._c)

    def put(self, session_id: str, folded: projection.Projection) -> None:
        """Write every row that the log decides, where none is; the same that the projectors would have left."""
        if folded.gone is not None:
            self._sessions.put_tombstone(session_id, folded.gone)
        if folded.session is None:
            return
        held = folded.transcript.messages
        self._q.upkeep_put_session(self._c, number=self._events.number(session_id), **_session(folded.session))
        self._q.upkeep_put_messages(self._c, (_message(session_id, one) for one in held))
        self._q.upkeep_put_parts(self._c, (part for one in held for part in _parts(one, folded.holders)))
        self._q.upkeep_put_inputs(self._c, map(_input, folded.inputs.values()))
        self._q.upkeep_put_approvals(self._c, map(dataclasses.asdict, folded.approvals.values()))
        self._q.upkeep_put_recoveries(self._c, map(_recovery, folded.recoveries.values()))

    def put_back(self, session_id: str, kept: Kept) -> None:
        """Put it back beside the rebuilt rows."""
        if kept.session:
            flags = {"held": int(kept.session.held), "deleting": int(kept.session.deleting)}
            attempts = kept.session.wake_attempts
            self._q.upkeep_restore_session(self._c, id=session_id, wake_attempts=attempts, **flags)
        if kept.claim:
            claim = {**_columns(kept.claim), "interrupted": int(kept.claim.interrupted)}
            self._q.upkeep_restore_claim(self._c, **claim)
        for recovery in kept.recoveries:
            self._q.upkeep_restore_recovery(
                self._c,
                execution_id=recovery.execution_id,
                wake_attempts=recovery.wake_attempts,
                recovery_error=recovery.recovery_error,
            )
        if kept.epoch:
            self._context.put_epoch(session_id, kept.epoch)
        for draft in kept.drafts:
            self._context.put_draft(session_id, draft)
        for digest in kept.content:
            self._content.use(session_id, digest)


def _named(number: int, data: str) -> str:
    """What a fact says whose it is, a session's at any rate."""
    try:
        name = (codec.load_object(data) or {}).get("session_id")
    except errors.Undecodable:
        name = None
    return name if isinstance(name, str) else f"(number {number})"


# -- values as columns -------------------------------------------------------------------------------------------------------


def _columns(value: Any) -> dict[str, Any]:
    """The fields as they are."""
    return {name: getattr(value, name) for name in names(value.__class__)}


def _session(one: rows.Session) -> dict[str, Any]:
    held = _columns(one)
    usage: messages.Usage = held.pop("usage")
    return {
        **held,
        **{f"tokens_{kind}": count for kind, count in _columns(usage.tokens).items()},
        "cost": usage.cost,
        "unknown_cost": usage.unknown_cost,
        "unknown_tokens": usage.unknown_tokens,
        "turn_usage": columns.dump_usage(one.turn_usage),
        "metadata": codec.dump_optional(one.metadata),
        "policy": codec.dump(one.policy),
        "archived": int(one.archived),
        "forked_from": codec.dump_optional(one.forked_from),
        "parked": int(one.parked),
    }


def _message(session_id: str, one: messages.Message) -> dict[str, Any]:
    return {
        "id": one.id,
        "session_id": session_id,
        "type": codec.message_type(one),
        "seq": one.seq,
        "time_created": one.time.created,
        "data": bodies.dump_message(one),
    }


def _parts(one: messages.Message, holders: Mapping[projection.Place, int]) -> Iterator[dict[str, Any]]:
    for ordinal, part in enumerate(one.parts if isinstance(one, messages.Assistant) else ()):
        kind, part_id = messages.part_key(part)
        data, held_by = bodies.dump(part, holders.get((one.id, ordinal)))
        yield {
            "message_id": one.id,
            "ordinal": ordinal,
            "kind": kind,
            "part_id": part_id,
            "open": int(messages.part_is_open(part)),
            "data": data,
            "held_by": held_by,
        }


def _input(one: rows.Input) -> dict[str, Any]:
    return {
        **_columns(one),
        "prompt": bodies.dump_prompt(one.prompt),
        "wake_pending": int(one.wake_pending),
        "error": codec.dump_optional(one.error),
        "usage": columns.dump_usage(one.usage),
    }


def _recovery(one: rows.Recovery) -> dict[str, Any]:
    return {**_columns(one), "wake_pending": int(one.wake_pending)}
