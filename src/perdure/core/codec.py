"""JSON, both ways: the only place that knows how facts, messages and prompts are written.

Lives here: the registry of durable definitions ((type, version) ↔ class, with upcasts to the latest), the encoding of
facts and messages, canonical JSON for equality. Not here: what anything means, what a row leaves out (`columns.py`).
Encoding is msgspec over values and dataclasses; fields that are None are left out, so an added optional field changes no
stored byte. What cannot be decoded raises `Undecodable`, never reads as empty.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from perdure import errors
from perdure.core import events, messages
from perdure.core.value import names, replace

T = TypeVar("T")
Upcast = Callable[[Any], Any]

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="deterministic")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


# -- values ------------------------------------------------------------------------------------------------------------------


_plain: set[type[Any]] = {str, int, float, bool, dict, list, type(None)}
"""Of what is written as it stands: it has no field that may be None or hold a value that has one."""
_names: dict[type[Any], tuple[str, ...]] = {}


def _is_plain(cls: type[Any]) -> bool:
    scalar = {str, int, float, bool, messages.JsonObject}
    hints = typing.get_type_hints(cls).values() if names(cls) else ()
    return all(hint in scalar or typing.get_origin(hint) is typing.Literal for hint in hints)


def _fields(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a class, none of one that is plain."""
    if _is_plain(cls):
        _plain.add(cls)
        return ()
    return _names.setdefault(cls, names(cls))


def bare(value: Any) -> Any:
    """A value, or a dataclass, as a dict without its None fields, all the way down; what is plain as it is."""
    cls: type[Any] = value.__class__
    if cls is tuple:
        return [item if item.__class__ in _plain else bare(item) for item in value]
    fields = () if cls in _plain else _names.get(cls) or _fields(cls)
    if not fields:
        return value
    found: dict[str, Any] = {}
    for name in fields:
        item = getattr(value, name)
        if item is not None:
            found[name] = item if item.__class__ in _plain else bare(item)
    return found


def dump(value: Any) -> str:
    """Encode a value of ours or of JSON. Raises `InvalidInput` for text that is not Unicode or a value JSON cannot hold."""
    try:
        return _encoder.encode(value if value.__class__ in _plain else bare(value)).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"The value cannot be written as JSON: {error}"
        raise errors.InvalidInput(msg) from error


def refuse_unlike(what: str, value: Any) -> None:
    """Raise `InvalidInput` for a value that would not come back as it is: of other types than declared, or with NaN."""
    try:
        if load(dump(value), value.__class__) == value:
            return
        why = "it would not come back as it is"
    except errors.Undecodable as error:
        why = str(error.__cause__)
    raise errors.InvalidInput(f"{what} is not valid: {why}")


def dump_optional(value: Any) -> str | None:
    """Encode, None staying None."""
    return None if value is None else dump(value)


def canonical(value: Any) -> str:
    """Encode JSON with sorted keys: equal values give equal text."""
    return _sorted_encoder.encode(value).decode()


def load(text: str | bytes, kind: type[T]) -> T:
    """Decode and validate. Raises `Undecodable`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        name = getattr(kind, "__name__", str(kind))
        msg = f"Not a stored {name}: {error}"
        raise errors.Undecodable(msg) from error


def load_object(text: str | None) -> messages.JsonObject | None:
    """Decode a JSON object, None staying None."""
    return None if text is None else load(text, dict[str, Any])


def same_json(left: str, right: str) -> bool:
    """Whether two JSON texts hold deeply equal values; 1 and 1.0 and true are three different values.

    What is no JSON, or nested beyond reading, equals only itself.
    """
    try:
        return left == right or canonical(msgspec.json.decode(left)) == canonical(msgspec.json.decode(right))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


# -- events ------------------------------------------------------------------------------------------------------------------


class Registry:
    """The durable definitions a log knows, by type and version; stored events of older versions are upcast to the
    latest.
    """

    def __init__(self, definitions: Iterable[type[Any]] = (), older: Iterable[tuple[type[Any], Upcast]] = ()) -> None:
        """Define each of `definitions`, and the `older` ones with the step of each to the next version."""
        self._classes: dict[str, type[Any]] = {}
        self._upcasts: dict[type[Any], Upcast] = {}
        self._stored: dict[type[Any], str] = {}
        self._latest: dict[str, int] = {}
        for definition in definitions:
            self.define(definition)
        for definition, upcast in older:
            self.define(definition, upcast)

    def define(self, cls: type[Any], upcast: Upcast | None = None) -> None:
        """Add a definition; `upcast` turns a value of it into one of the next version.

        Raises `Defect` for a (type, version) already defined, or a class that `events.durable` never saw.
        """
        if getattr(cls, "aggregate_field", None) is None:
            msg = f"{cls.__name__} is not declared durable"
            raise errors.Defect(msg)
        key = versioned(cls)
        if key in self._classes:
            msg = f"{key} is defined twice"
            raise errors.Defect(msg)
        self._classes[key] = cls
        if upcast:
            self._upcasts[cls] = upcast
        self._latest[cls.event_type] = max(cls.event_version, self._latest.get(cls.event_type, 0))

    def __iter__(self) -> typing.Iterator[type[Any]]:
        """Every definition, in order of declaration."""
        return iter(self._classes.values())

    def __contains__(self, stored_type: str) -> bool:
        """Whether that versioned type is known."""
        return stored_type in self._classes

    def latest(self, event_type: str) -> type[Any]:
        """The highest version of a type, in whatever order they were declared."""
        return self._classes[f"{event_type}.{self._latest[event_type]}"]

    def decode(self, stored_type: str, data: str) -> Any:
        """Decode the payload of a stored event as it was stored. Raises `InvalidDurableEvent` for an unknown type."""
        cls = self._classes.get(stored_type)
        if cls is None:
            msg = f"Unknown durable event type {stored_type}"
            raise errors.InvalidDurableEvent(msg)
        return load(data, cls)

    def stored_type(self, payload: Any) -> str:
        """The versioned type of a payload. Raises `InvalidDurableEvent` for a class that is not defined here."""
        cls = payload.__class__
        known = self._stored.get(cls)
        if known:
            return known
        if getattr(cls, "aggregate_field", None) is None:
            msg = "Only durable events enter the log"
            raise errors.InvalidDurableEvent(msg)
        if self._classes.get(versioned(cls)) is not cls:
            msg = f"Unknown durable event type {versioned(cls)}"
            raise errors.InvalidDurableEvent(msg)
        return self._stored.setdefault(cls, versioned(cls))

    def upcast(self, payload: Any) -> Any:
        """Lift a decoded payload to the latest version of its type."""
        while payload.event_version < self._latest[payload.event_type]:
            step = self._upcasts.get(payload.__class__)
            if step is None:
                msg = f"{versioned(payload.__class__)} has no upcast to the next version"
                raise errors.Defect(msg)
            payload = step(payload)
        return payload


def versioned(cls: type[Any]) -> str:
    """The stored type of a definition, `session.step.ended.1`."""
    return f"{cls.event_type}.{cls.event_version}"


def aggregate_of(payload: Any) -> str:
    """The aggregate a durable payload belongs to."""
    return getattr(payload, payload.aggregate_field)


SESSION_FACTS: tuple[type[Any], ...] = typing.get_args(events.Fact)
OLDER_FACTS: tuple[tuple[type[Any], Upcast], ...] = ()
"""Definitions of earlier versions, each with the step to the next one. They stay for ever, as the events do."""

_session = Registry(SESSION_FACTS, OLDER_FACTS)  # made at import, so that a duplicate definition is an error there


def session_registry() -> Registry:
    """The registry of the session's own facts."""
    return _session


# -- messages ----------------------------------------------------------------------------------------------------------------

_MESSAGES: dict[str, type[Any]] = {
    "user": messages.User,
    "synthetic": messages.Synthetic,
    "system": messages.System,
    "assistant": messages.Assistant,
    "agent_switched": messages.AgentSwitched,
    "model_switched": messages.ModelSwitched,
    "compaction": messages.Compaction,
}
_MESSAGE_TYPES = {cls: name for name, cls in _MESSAGES.items()}
_STATES: dict[str, type[Any]] = {
    "pending": messages.Pending,
    "running": messages.Running,
    "completed": messages.Completed,
    "error": messages.Errored,
}
_PARTS: dict[str, type[Any]] = {"text": messages.TextPart, "reasoning": messages.ReasoningPart}


def message_type(message: messages.Message) -> str:
    """The kind of a message, as rows and the API name it."""
    return _MESSAGE_TYPES[type(message)]


def dump_message(message: messages.Message) -> str:
    """A message's header; an assistant's parts stand in rows of their own."""
    held = bare(message)
    held.pop("parts", None)
    return dump(held)


def load_message(session_id: str, message_id: str, kind: str, data: str) -> messages.Message:
    """Decode a stored header. Raises `MessageUndecodable` naming session and message (MSG-8)."""
    try:
        if kind != "assistant":
            return load(data, _MESSAGES[kind])
        row = load(data, _AssistantRow)
        return messages.Assistant(**{name: getattr(row, name) for name in _ASSISTANT_FIELDS})
    except (errors.Undecodable, KeyError) as error:
        raise errors.MessageUndecodable(session_id, message_id, str(error)) from error


def with_parts(message: messages.Assistant, parts: tuple[messages.Part, ...]) -> messages.Assistant:
    """The assistant with its parts."""
    return replace(message, parts=parts)


def dump_part(part: messages.Part) -> str:
    """A part, whole."""
    held = bare(part)
    if isinstance(part, messages.ToolPart):
        held["status"] = messages.tool_status(part)
    return dump(held)


def load_part(session_id: str, message_id: str, kind: str, data: str) -> messages.Part:
    """Decode a stored part. Raises `MessageUndecodable`."""
    try:
        if kind != "tool":
            return load(data, _PARTS[kind])
        raw = load(data, dict[str, Any])
        state_class = _STATES[raw.pop("status")]
        state = msgspec.convert(raw.pop("state"), state_class)
        rest = msgspec.convert(raw, _ToolPartRow)
        return messages.ToolPart(
            rest.call_id, rest.name, state, rest.time, rest.effect, rest.provider_executed, rest.approval
        )
    except (errors.Undecodable, msgspec.MsgspecError, KeyError) as error:
        raise errors.MessageUndecodable(session_id, message_id, str(error)) from error


# msgspec takes no union of two of these classes: what holds one in `messages` has a row of its own here.


@dataclasses.dataclass(frozen=True, slots=True)
class _AssistantRow:
    """An assistant's header."""

    id: str
    seq: int
    time: messages.MessageTime
    agent: str
    model: str
    finish: str | None = None
    tokens: messages.Tokens | None = None
    cost: int | None = None
    error: messages.Failure | None = None
    retry: messages.Retry | None = None


_ASSISTANT_FIELDS = tuple(field.name for field in dataclasses.fields(_AssistantRow))


@dataclasses.dataclass(frozen=True, slots=True)
class _ToolPartRow:
    """A tool part's columns beside its state, whose class `status` names."""

    call_id: str
    name: str
    time: messages.PartTime
    effect: messages.Effect = "write"
    provider_executed: bool = False
    approval: messages.Approval | None = None
