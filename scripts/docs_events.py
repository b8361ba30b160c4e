"""Writes docs/reference/events.md: every event, from the declarations in core/; `--check` only says whether it is current.

What an event means is its docstring, its section the comment above it in the source: words and page have one home.
"""

import ast
import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union

import msgspec
import pages

from perdure.core import events, session_facts, step_facts
from perdure.core.value import Value, names

HEAD = """# Events

Written from `src/perdure/core/session_facts.py` and `step_facts.py` by `make docs`; change them there. What each does to the
transcript and to rows is in [spec.md](../spec.md), section 3.

A **durable** event is stored under the session's id with a gap-free `seq`; an **ephemeral** one reaches whoever follows
the session and is then gone. Over HTTP both look like this, an ephemeral one without `durable`:

```json
{
  "id": "evt_first/0",
  "type": "session.created",
  "version": 1,
  "created": 1796058135833,
  "data": {"session_id": "first", "agent": "default"},
  "durable": {"aggregate_id": "first", "seq": 0, "version": 1}
}
```

In an export the same event is one line, `{"id","aggregate_id","seq","type","created","data","metadata"}`, whose type carries
the version: `session.created.1`. A field marked `?` is left out where it has no value. Times are epoch milliseconds, costs
micro-dollars."""

PLAIN = {str: "text", int: "number", float: "number", bool: "true or false", dict: "object"}
COMMENT = re.compile(r"^# -- (.+?) -+$")


def sections() -> Iterator[tuple[str, list[str]]]:
    """Section by section, the names of the classes declared there."""
    for module in (session_facts, step_facts):
        source = inspect.getsource(module)
        heads = {
            number: found[1] for number, line in enumerate(source.splitlines(), 1) if (found := COMMENT.match(line))
        }
        found: dict[str, list[str]] = {title: [] for title in heads.values()}
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                found[heads[max(line for line in heads if line < node.lineno)]].append(node.name)
        yield from found.items()


class Values:
    """What types are called, and which values of our own they are made of."""

    def __init__(self) -> None:
        self.met: dict[str, type] = {}

    def called(self, kind: Any) -> str:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in {Union, types.UnionType}:
            return " or ".join(self.called(one) for one in arguments if one is not types.NoneType)
        if origin is Literal:
            return " · ".join(f"`{one}`" for one in arguments)
        if origin is tuple:
            return f"list of {self.called(arguments[0])}"
        if origin is dict:
            values = self.called(arguments[1])
            return "object" if arguments[1] is Any else f"object of {values}"
        if isinstance(kind, type) and names(kind):
            self.met.setdefault(kind.__name__, kind)
            return f"[{kind.__name__}](#{kind.__name__.lower()})"
        return PLAIN.get(kind, "any")

    def fields(self, cls: type) -> str:
        """The fields of a class, as a table."""
        hints = typing.get_type_hints(cls)
        rows = []
        for field in msgspec.structs.fields(cls) if issubclass(cls, Value) else dataclasses.fields(cls):
            optional = types.NoneType in typing.get_args(hints[field.name])
            default = field.default
            usual = "" if default in {dataclasses.MISSING, msgspec.NODEFAULT, None} else f", usually `{_json(default)}`"
            rows.append([f"`{field.name}`{'?' if optional else ''}", self.called(hints[field.name]) + usual])
        return pages.table(["field", "value"], rows)


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def event(cls: type, values: Values) -> str:
    kind = "durable" if cls.event_version else "ephemeral"
    version = f", version {cls.event_version}" if cls.event_version else ""
    return pages.joined(f"### {cls.event_type}", f"{inspect.getdoc(cls)} *{kind}{version}*", values.fields(cls))


def described(values: Values) -> Iterator[str]:
    """The values met so far and those met on the way, each once."""
    done: set[str] = set()
    while waiting := [name for name in values.met if name not in done]:
        for name in waiting:
            done.add(name)
            cls = values.met[name]
            yield pages.joined(f"### {name}", inspect.getdoc(cls) or "", values.fields(cls))


def page() -> str:
    values, blocks, listed = Values(), [], set()
    for title, declared in sections():
        classes = [cls for name in declared if hasattr(cls := getattr(events, name), "event_type")]
        listed |= set(classes)
        if classes:
            blocks.append(f"## {title.capitalize()}")
            blocks += [event(cls, values) for cls in classes]
    missing = {*typing.get_args(events.Fact), *typing.get_args(events.Signal)} - listed
    if missing:
        raise SystemExit(f"no section has {', '.join(sorted(cls.__name__ for cls in missing))}")
    return pages.joined(HEAD, *blocks, "## Values", *described(values))


if __name__ == "__main__":
    sys.exit(pages.main("reference/events.md", page()))
