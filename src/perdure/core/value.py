"""Values that nobody changes: what messages, facts, changes and rows are made of.

Lives here: `Value`, their base, and `replace`. A value is written and used like a frozen dataclass. It is a struct of msgspec,
because a turn makes two hundred and fifty of them: one takes a tenth of the time that making a frozen dataclass takes, and the
garbage collector need not know of those that hold plain values alone. Not here: any particular value; JSON (`codec.py`).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast, dataclass_transform

import msgspec

field = msgspec.field


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """Its subclasses name their fields; equal are those of one class with equal fields."""


V = TypeVar("V", bound=Value)


class _Replace(Protocol):
    def __call__(self, value: V, /, **changes: Any) -> V: ...


replace: _Replace = cast("Any", msgspec.structs.replace)
"""`replace(value, name=other)`: the value with other fields."""


def names(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a class of values, or of a dataclass, in order; none of any other class."""
    return cls.__struct_fields__ if issubclass(cls, Value) else tuple(getattr(cls, "__dataclass_fields__", ()))
