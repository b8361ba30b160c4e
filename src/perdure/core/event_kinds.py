"""What an event is: durable or ephemeral, decided by type, and the envelopes both travel in.

Lives here: the two declarations (`durable`, `ephemeral`) and the two envelopes (`Recorded`, `Announced`). Not here: any
particular event; the session's are in `events.py`, another aggregate may declare its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform

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
    """Declare a durable fact: a frozen dataclass stored as `event_type.version` under the aggregate its field names."""

    def declare(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, kw_only=True, slots=True)(cls)
        made.event_type, made.event_version, made.aggregate_field = event_type, version, aggregate  # pyright: ignore[reportAttributeAccessIssue]
        return made

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True)
def ephemeral(event_type: str) -> Callable[[type[T]], type[T]]:
    """Declare an ephemeral signal: announced live, never stored, without version or sequence."""

    def declare(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, kw_only=True, slots=True)(cls)
        made.event_type, made.event_version, made.aggregate_field = event_type, 0, None  # pyright: ignore[reportAttributeAccessIssue]
        return made

    return declare


@dataclass(frozen=True, slots=True)
class Recorded(Generic[D_co]):
    """A durable fact in its envelope: `seq` orders it within `aggregate_id`, `created` is epoch ms, `position` is its
    place in the store's commit order (-1 until it is stored there).
    """

    id: str
    aggregate_id: str
    seq: int
    created: int
    data: D_co
    metadata: JsonObject | None = None
    position: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Announced(Generic[D_co]):
    """An ephemeral signal in its envelope."""

    id: str
    created: int
    data: D_co


Event = Recorded[Any] | Announced[Any]
