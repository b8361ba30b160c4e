"""What a server sends, as the values the embedded engine gives.

Lives here: reading events, messages, sessions, receipts; the views that only the wire has; parts of a prompt as they
are sent. Not here: requests (`transport.py`). A field that this version does not know is left out, a fact that it does
not know is an error: nothing that happened in a session is passed over in silence.
"""

from __future__ import annotations

import base64
import typing
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure import errors
from perdure.core import answers, codec, events, messages

T = typing.TypeVar("T")
_SIGNALS: dict[str, type[Any]] = {one.event_type: one for one in typing.get_args(events.Signal)}


# -- events ------------------------------------------------------------------------------------------------------------------


class _Durable(msgspec.Struct):
    aggregate_id: str
    seq: int


class _Event(msgspec.Struct):
    id: str
    type: str
    version: int
    created: int
    data: msgspec.Raw
    metadata: dict[str, Any] | None = None
    durable: _Durable | None = None


class EventPage(msgspec.Struct):
    """Some of a log, unread, and the seq it ends with."""

    data: list[msgspec.Raw]
    last_seq: int


def event(raw: bytes | msgspec.Raw) -> events.Event | None:
    """An event in its envelope; None for a signal that this version does not know. Raises `InvalidDurableEvent`."""
    one = read(raw, _Event)
    if one.durable is None:
        signal = _SIGNALS.get(one.type)
        return None if signal is None else events.Announced(one.id, one.created, codec.load(bytes(one.data), signal))
    registry = codec.session_registry()
    fact = registry.upcast(registry.decode(f"{one.type}.{one.version}", bytes(one.data).decode()))
    return events.Recorded(one.id, one.durable.aggregate_id, one.durable.seq, one.created, fact, one.metadata)


def read(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode a value. Raises `Undecodable`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.Undecodable(f"The server sent no {kind.__name__}: {error}") from error


# -- transcript --------------------------------------------------------------------------------------------------------------


class MessagePage(msgspec.Struct):
    """Some messages, unread, and the cursor of the next page."""

    data: list[msgspec.Raw]
    next: str | None = None


class _Message(msgspec.Struct):
    id: str
    type: str
    parts: list[msgspec.Raw] = []


class _PartKind(msgspec.Struct):
    type: str


def message(session_id: str, raw: msgspec.Raw) -> messages.Message:
    """A message, an assistant with its parts. Raises `MessageUndecodable`."""
    head = read(raw, _Message)
    found = codec.load_message(session_id, head.id, head.type, bytes(raw).decode())
    if not isinstance(found, messages.Assistant):
        return found
    parts = (codec.load_part(session_id, head.id, read(one, _PartKind).type, bytes(one).decode()) for one in head.parts)
    return codec.with_parts(found, tuple(parts))


# -- sessions and what waits in them -------------------------------------------------------------------------------------------


class _Times(msgspec.Struct):
    created: int
    updated: int


class SessionView(msgspec.Struct):
    """A session as it is sent."""

    id: str
    agent: str
    policy: events.Policy
    archived: bool
    time: _Times
    usage: messages.Usage
    status: answers.Status
    model: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    forked_from: events.Origin | None = None

    def info(self) -> SessionInfo:
        """With the names it has in the embedded engine."""
        return SessionInfo(
            self.id,
            self.agent,
            self.model,
            self.title,
            self.metadata,
            self.policy,
            self.archived,
            self.forked_from,
            self.time.created,
            self.time.updated,
            self.usage,
            self.status,
        )


class DamagedView(msgspec.Struct):
    """A session that cannot be decoded, as it is sent."""

    id: str
    detail: str


class SessionPage(msgspec.Struct):
    """Some sessions and the cursor of the next page."""

    data: list[SessionView]
    next: str | None = None
    damaged: list[DamagedView] = []


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session: settings, totals, and what it is doing; times in epoch ms."""

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
    status: answers.Status


@dataclass(frozen=True, slots=True)
class Damaged:
    """A session that cannot be decoded, and why."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class ApprovalInfo:
    """A call that needs approval; `decision` is None while it waits. Times in epoch ms."""

    session_id: str
    message_id: str
    call_id: str
    execution_id: str
    time_created: int
    deadline: int | None = None
    decision: messages.Decision | None = None
    by: str | None = None
    note: str | None = None


class ApprovalList(msgspec.Struct):
    """Calls that wait."""

    data: list[ApprovalInfo]


class RecoveryList(msgspec.Struct):
    """Turns that wait."""

    data: list[answers.Recovery]


class _Input(msgspec.Struct):
    id: str
    kind: messages.InputKind
    delivery: messages.Delivery
    wake_pending: bool
    admitted_seq: int
    time_created: int
    prompt: msgspec.Raw = msgspec.Raw(b"null")


class InputList(msgspec.Struct):
    """Inputs that wait."""

    data: list[_Input]


@dataclass(frozen=True, slots=True)
class InputInfo:
    """An input that waits; `prompt` is its JSON text, "null" where the stored one cannot be read."""

    id: str
    session_id: str
    kind: messages.InputKind
    prompt: str
    delivery: messages.Delivery
    time_created: int
    admitted_seq: int
    wake_pending: bool


def inputs(session_id: str, found: InputList) -> list[InputInfo]:
    """With the names they have in the embedded engine."""
    return [
        InputInfo(
            one.id,
            session_id,
            one.kind,
            bytes(one.prompt).decode(),
            one.delivery,
            one.time_created,
            one.admitted_seq,
            one.wake_pending,
        )
        for one in found.data
    ]


class Waited(msgspec.Struct):
    """What waiting came to."""

    done: bool
    receipt: answers.Receipt | None = None


class Interrupted(msgspec.Struct):
    """Whether there was anything to stop."""

    interrupted: bool


class Started(msgspec.Struct):
    """A compaction that began."""

    message_id: str


# -- what is sent --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt: text, or the bytes of an image or file."""

    type: str
    text: str | None = None
    data: bytes | None = None
    mime: str | None = None
    name: str | None = None


def part(one: Any) -> dict[str, Any]:
    """A part, ours or the embedded engine's, as it is sent."""
    data = None if one.data is None else base64.b64encode(one.data).decode()
    return given(type=one.type, text=one.text, data=data, mime=one.mime, name=one.name)


def given(**fields: Any) -> dict[str, Any]:
    """A body of what is given: nothing that is None, on no level, for a server refuses what it does not know."""
    return {name: msgspec.json.decode(codec.dump(value)) for name, value in fields.items() if value is not None}
