"""What an event is: durable or ephemeral, decided by type, and the envelopes both travel in.

Lives here: the two declarations (`durable`, `ephemeral`) and the two envelopes (`Recorded`, `Announced`). Not here: any
particular event; the session's are in `events.py`, another aggregate may declare its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform

from perdure.core import value
from perdure.core.messages import JsonObject

T = TypeVar("T")


class Definition(Protocol):
    """What `durable` and `ephemeral` put on a class: its event type, version and the field that holds the aggregate id."""

    event_type: ClassVar[str]
    event_version: ClassVar[int]
    aggregate_field: ClassVar[str | None]


D_co = TypeVar("D_co", covariant=True)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def durable(event_type: str, version: int = 1, aggregate: str = "session_id") -> Callable[[type[T]], type[T]]:
    """Declare a durable fact: a value stored as `event_type.version` under the aggregate its field names."""

    def declare(cls: type[T]) -> type[T]:
        made: Any = _named(cls)
        made.event_type, made.event_version, made.aggregate_field = event_type, version, aggregate
        return made

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True)
def ephemeral(event_type: str) -> Callable[[type[T]], type[T]]:
    """Declare an ephemeral signal: announced live, never stored, without version or sequence."""

    def declare(cls: type[T]) -> type[T]:
        made: Any = _named(cls)
        made.event_type, made.event_version, made.aggregate_field = event_type, 0, None
        return made

    return declare


def _named(cls: type[Any]) -> Any:
    """The class as one of values, made by naming their fields. Raises `TypeError` for one with a base, whose fields it would
    lose.
    """
    if cls.__bases__ != (object,):
        msg = f"{cls.__name__} has a base class; a fact or signal declares all of its fields itself"
        raise TypeError(msg)
    body = {name: one for name, one in cls.__dict__.items() if name not in {"__dict__", "__weakref__"}}
    kind: Any = type(value.Value)
    return kind(cls.__name__, (value.Value,), body, kw_only=True)


def replace(fact: T, **changes: Any) -> T:
    """The fact with other values in some of its fields."""
    named: Any = fact
    return value.replace(named, **changes)


class Recorded(value.Value, Generic[D_co]):
    """A durable fact in its envelope: `seq` orders it within `aggregate_id`, `created` is epoch ms, `position` is its
    place in the store's commit order (-1 until it is stored there).
    """

    id: str
    aggregate_id: str
    seq: int
    created: int
    data: D_co
    metadata: JsonObject | None = None
    position: int = -1


class Announced(value.Value, Generic[D_co]):
    """An ephemeral signal in its envelope."""

    id: str
    created: int
    data: D_co


Event = Recorded[Any] | Announced[Any]
