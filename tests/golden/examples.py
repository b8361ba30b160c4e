"""One value of every durable definition, made from its annotations, and the files that pin how each is stored.

`python tests/golden/examples.py` writes the file of a definition that has none and adds a line to one whose definition
grew a field. It changes no line that is there: what is stored is stored.
"""

import dataclasses
import types
import typing
from pathlib import Path

import msgspec

from perdure.core import codec

FOLDER = Path(__file__).parent / "events"
OBJECT = {"text": 'é\u2028"\\\n\x00\U0001f9ff', "list": [1, 1.5, -0.0, 1e300, True, None, {}], "n": 9007199254740993}


def path_of(definition):
    return FOLDER / f"{codec.versioned(definition)}.json"


def lines_of(path):
    """The stored texts that a file pins: one a line of a JSON array."""
    return [line.removesuffix(",") for line in path.read_text("utf-8").split("\n")[1:-2]]


def of(definition, *, full):
    """A value with every field set, or with those only that have to be."""
    hints = typing.get_type_hints(definition)
    return definition(
        **{
            field.name: _value(hints[field.name], field.name)
            for field in _fields(definition)
            if full or _required(field)
        }
    )


def _fields(cls):
    return msgspec.structs.fields(cls) if issubclass(cls, msgspec.Struct) else dataclasses.fields(cls)


def _required(field):
    nothing = {dataclasses.MISSING, msgspec.NODEFAULT}
    return field.default in nothing and field.default_factory in nothing


def _value(hint, name):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _value(arguments[0], name)
    if origin is typing.Literal:
        return arguments[-1]
    if origin is tuple:
        return (_value(arguments[0], name), _value(arguments[0], name))
    if origin is dict:
        return OBJECT if arguments[1] is typing.Any else {name: _value(arguments[1], name)}
    if dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct):
        return of(hint, full=True)
    return {str: f"{name} é\u2028", int: 1_700_000_000_123, bool: True, float: 0.5}[hint]


def write():
    for definition in codec.session_registry():
        path = path_of(definition)
        lines = lines_of(path) if path.exists() else []
        wanted = [codec.dump(of(definition, full=full)) for full in (True, False)]
        missing = [line for line in wanted if line not in lines]
        if missing:
            path.write_text("[\n" + ",\n".join(lines + missing) + "\n]\n", "utf-8")


if __name__ == "__main__":
    write()
