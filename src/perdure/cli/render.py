"""How things look in a terminal, and as JSON.

Lives here: one line for a call, a result, an event; times and money; JSON of what the engine gives. Not here: what is
said when. Nothing that a model, a tool or a person wrote reaches a terminal with its control characters: they could
move the cursor, rename the window or hide what was said.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from perdure.core import budget, codec, events, messages

WIDTH = 100
NARROWEST = 6
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def console(*, stderr: bool = False) -> Console:
    """Colours on a terminal only, and none with NO_COLOR."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def table(out: Console, whole: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below the names of their columns.

    A terminal that is too narrow cuts texts, never what stands in the columns that must be `whole`, such as ids: a person
    copies them. Where nobody looks nothing is cut.
    """
    lines = [list(columns), *([" ".join(clean(cell).split()) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    if out.is_terminal:
        _narrow(widths, [name in whole for name in columns], out.width - 2 * (len(columns) - 1))
    for number, line in enumerate(lines):
        cells = (_fit(cell, width) for cell, width in zip(line, widths, strict=True))
        out.print("  ".join(cells).rstrip(), style=None if number else "bold", soft_wrap=True)


def _narrow(widths: list[int], whole: Sequence[bool], room: int) -> None:
    """Take from the widest that may be cut until all fit, or nothing more can be taken."""
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda one: 0 if whole[one] else widths[one])
        if whole[widest] or widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1


def _fit(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text)) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def clean(text: str) -> str:
    """Text that is safe to show: no control characters but newline and tab."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()


def clip(text: str, width: int = WIDTH) -> str:
    """The text in one line of at most that many characters."""
    line = " ".join(clean(text[: width * 4]).split())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1] + "…"


def say(text: str) -> None:
    """Print to stdout, whatever the text holds."""
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")
    sys.stdout.flush()


# -- JSON --------------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value of the engine as plain JSON values; what is None is left out."""
    return msgspec.json.decode(codec.dump(value))


def message(one: messages.Message) -> dict[str, Any]:
    """A message, an assistant with its parts, each with its type in front."""
    found: dict[str, Any] = {"type": codec.message_type(one), **json.loads(codec.dump_message(one))}
    if isinstance(one, messages.Assistant):
        found["parts"] = [{"type": messages.part_key(p)[0], **json.loads(codec.dump_part(p))} for p in one.parts]
    return found


def event(one: events.Event) -> str:
    """An event in its envelope, as the server sends it."""
    version = one.data.event_version if isinstance(one, events.Recorded) else 1
    told: dict[str, Any] = {"id": one.id, "type": one.data.event_type, "version": version, "created": one.created}
    told["data"] = plain(one.data)
    if isinstance(one, events.Recorded):
        if one.metadata is not None:
            told["metadata"] = one.metadata
        told["durable"] = {"aggregate_id": one.aggregate_id, "seq": one.seq, "version": version}
    return as_json(told)


def as_json(value: Any) -> str:
    """One line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- lines -------------------------------------------------------------------------------------------------------------------


def call(name: str, given: messages.JsonObject, width: int = WIDTH) -> str:
    """A call as a person would write it."""
    inside = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
    return clip(f"{name}({inside})", width)


def result(content: Sequence[messages.JsonObject], structured: messages.JsonObject | None, width: int = WIDTH) -> str:
    """What a call gave, in a line."""
    texts = [one["text"] if one.get("type") == "text" else f"[{one.get('type', 'part')}]" for one in content]
    said = "\n".join(str(text) for text in texts) or ("" if structured is None else as_json(structured))
    lines = said.strip().splitlines()
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return clip(lines[0], width - len(more)) + more if lines else "done"


def described(one: events.Event) -> str:
    """What a fact says, in a line: its own fields, without those that every fact has."""
    hidden = {"session_id", "assistant_message_id", "message_id", "prompt", "kind", "effect", "provider_executed"}
    data: dict[str, Any] = plain(one.data)
    words = [data["prompt"]["parts"][0].get("text", "")] if "prompt" in data else []
    words += [
        f"{key}={value if isinstance(value, str) else as_json(value)}"
        for key, value in data.items()
        if key not in hidden
    ]
    return clip("  ".join(words), 160)


def clock(ms: int) -> str:
    """A moment as local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(ms / 1000))


def moment(ms: int) -> str:
    """A moment as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))


def usage(used: messages.Usage) -> str:
    """Tokens and dollars; what nobody knows is said and not passed over as nothing."""
    tokens = f"{budget.total(used.tokens)} tokens" + (
        f" and {used.unknown_tokens} unknown" if used.unknown_tokens else ""
    )
    if not used.unknown_cost:
        return f"{tokens}, {money(used.cost)}"
    if not used.cost:
        return f"{tokens}, cost unknown"
    calls = "1 call" if used.unknown_cost == 1 else f"{used.unknown_cost} calls"
    return f"{tokens}, {money(used.cost)} and {calls} of unknown cost"


def money(micros: int) -> str:
    """Micro-dollars, in dollars."""
    return f"${micros / 1e6:.4f}"
