"""How things look on the wire: events, messages, sessions, receipts.

Lives here: the views (dataclasses, so that FastAPI describes exactly what is sent) and their rendering to JSON. Not
here: what the values mean (`core/`, `session/`) and what callers send (`requests.py`). Everything is written by
`core/codec.py`: what is None is left out, and a stored message or part is embedded as it is stored, with its type in
front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from perdure import errors
from perdure.core import codec, events, messages
from perdure.core.answers import Receipt, Recovery
from perdure.session import status as statuses
from perdure.session.approvals import Asked

MEDIA_TYPE = "application/json"


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A view as a response."""
    return Response(codec.dump(value), status, headers, MEDIA_TYPE)


def _page(items: Iterable[str], **rest: Any) -> Response:
    """Items already rendered, in an envelope."""
    tail = "".join(f",{codec.dump(name)}:{codec.dump(value)}" for name, value in rest.items() if value is not None)
    return Response(f'{{"data":[{",".join(items)}]{tail}}}', media_type=MEDIA_TYPE)


# -- events ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Durable:
    """Where a durable event stands in the log."""

    aggregate_id: str
    seq: int
    version: int


@dataclass(frozen=True, slots=True)
class EventView:
    """An event in its envelope; an ephemeral one has no `durable`."""

    id: str
    type: str
    version: int
    created: int
    data: dict[str, Any]
    metadata: dict[str, Any] | None = None
    durable: Durable | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some of a session's log, and the seq it ends with now."""

    data: tuple[EventView, ...]
    last_seq: int


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some facts of all sessions in commit order; `position` is where the page ends, `last_position` where the log does."""

    data: tuple[EventView, ...]
    position: int
    last_position: int


def event(one: events.Event) -> str:
    """An event as JSON."""
    kind, version = one.data.event_type, one.data.event_version
    if isinstance(one, events.Announced):
        return codec.dump(EventView(one.id, kind, 1, one.created, one.data))
    durable = Durable(one.aggregate_id, one.seq, version)
    return codec.dump(EventView(one.id, kind, version, one.created, one.data, one.metadata, durable))


def event_page(found: Iterable[events.Event], last_seq: int) -> Response:
    """A page of the log."""
    return _page((event(one) for one in found), last_seq=last_seq)


def feed_page(found: Sequence[events.Recorded[Any]], after: int, last: int) -> Response:
    """A page of the log of all sessions."""
    return _page(map(event, found), position=found[-1].position if found else max(after, last), last_position=last)


# -- transcript ------------------------------------------------------------------------------------------------------------


def _typed(kind: str, stored: str) -> str:
    """A stored object with its type in front."""
    return f'{{"type":"{kind}",{stored[1:]}'


def message(one: messages.Message) -> str:
    """A message as JSON, an assistant with its parts."""
    head = _typed(codec.message_type(one), codec.dump_message(one))
    if not isinstance(one, messages.Assistant):
        return head
    parts = ",".join(_typed(messages.part_key(part)[0], codec.dump_part(part)) for part in one.parts)
    return f'{head[:-1]},"parts":[{parts}]}}'


def message_page(found: Iterable[messages.Message], cursor: str | None) -> Response:
    """A page of the transcript."""
    return _page(map(message, found), next=cursor)


# -- sessions --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """Epoch ms."""

    created: int
    updated: int


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session: its settings, its totals and what it is doing."""

    id: str
    agent: str
    policy: events.Policy
    archived: bool
    time: Times
    usage: messages.Usage
    status: statuses.Status
    model: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    forked_from: events.Origin | None = None


@dataclass(frozen=True, slots=True)
class DamagedView:
    """A session that cannot be decoded, why, and what to do about it."""

    id: str
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some sessions, newest first; `next` where there are more, `damaged` those of the page that cannot be decoded."""

    data: tuple[SessionView, ...]
    next: str | None = None
    damaged: tuple[DamagedView, ...] | None = None


def session_page(listed: statuses.Listed, following: str | None) -> SessionPage:
    """A page of stored sessions."""
    remedy = errors.SessionUndecodable.remedy
    damaged = tuple(DamagedView(one.id, one.why, remedy) for one in listed.damaged)
    return SessionPage(tuple(session(row, status) for row, status in listed.data), following, damaged or None)


def session(row: Any, status: statuses.Status) -> SessionView:
    """A stored session with its status."""
    return SessionView(
        row.id,
        row.agent,
        row.policy,
        row.archived,
        Times(row.time_created, row.time_updated),
        row.usage,
        status,
        row.model,
        row.title,
        row.metadata,
        row.forked_from,
    )


# -- what waits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputView:
    """An input that waits; without a `prompt` where the stored one cannot be read."""

    id: str
    kind: messages.InputKind
    delivery: messages.Delivery
    wake_pending: bool
    admitted_seq: int
    time_created: int
    prompt: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InboxView:
    """Inputs that wait, in admission order."""

    data: tuple[InputView, ...]


def inbox(rows: Iterable[Any]) -> InboxView:
    """Stored inputs."""
    return InboxView(tuple(_input(row) for row in rows))


def _input(row: Any) -> InputView:
    try:
        prompt = codec.load_object(row.prompt)
    except errors.Undecodable:
        prompt = None
    return InputView(row.id, row.kind, row.delivery, row.wake_pending, row.admitted_seq, row.time_created, prompt)


@dataclass(frozen=True, slots=True)
class RecoveriesView:
    """Every turn that lost its owner and waits."""

    data: tuple[Recovery, ...]


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """A call that needs approval, and exactly what would run; without a `decision` while it waits, and in a list without
    `name` and `input` where the stored call cannot be read.
    """

    session_id: str
    message_id: str
    call_id: str
    execution_id: str
    time_created: int
    name: str | None = None
    input: dict[str, Any] | None = None
    deadline: int | None = None
    decision: messages.Decision | None = None
    by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalsView:
    """Every call that waits, the oldest first."""

    data: tuple[ApprovalView, ...]


def approvals(asked: Iterable[Asked]) -> ApprovalsView:
    """Calls that wait."""
    return ApprovalsView(tuple(map(approval, asked)))


def approval(asked: Asked) -> ApprovalView:
    """A stored approval with the call it is about."""
    row = asked.row
    return ApprovalView(
        row.session_id,
        row.message_id,
        row.call_id,
        row.execution_id,
        row.time_created,
        asked.name,
        asked.input,
        row.deadline,
        row.decision,
        row.by,
        row.note,
    )


# -- small ones ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Whether there was anything to stop."""

    interrupted: bool


@dataclass(frozen=True, slots=True)
class Compacting:
    """A compaction began; the summary comes under this message id."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Waited:
    """What waiting came to: `done` once the prompt is settled, or without one, once nothing is owed."""

    done: bool
    status: statuses.Status
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The server answers; `epoch` changes with every process."""

    status: str
    version: str
    epoch: str
