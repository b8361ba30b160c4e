"""Hostile values made recordable, at the edge where they come in (SEC-2).

Lives here: `clean`, which turns whatever a tool returned into JSON that every store keeps alike, `clean_text` for a
stream, and `ends` for what is too long. A caller's own input is not replaced but refused: `unlike_json` says why. The
result of a tool that ran is always recordable: what cannot be kept as it is gets replaced, and the caller learns that
something was.
"""

from __future__ import annotations

import math
from typing import Any, cast

DEPTH = 64
LONG_INT = 10_000  # bits; Python writes no longer ones in decimal
NODES = 200_000  # lists and objects; a value may hold itself, and then has no end


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced and pairs of them joined; almost always the very same object."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def ends(text: str, room: int) -> str:
    """The two ends of a text, and between them how much is left out."""
    half = room // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} of {len(text)} characters left out …]\n{text[-half:]}"


def clean(value: Any) -> tuple[Any, bool]:
    """A JSON value equal to `value` as far as JSON can hold it, and whether anything had to be replaced."""
    replaced = _Seen()
    return _clean(value, DEPTH, replaced), bool(replaced)


class _Seen(list[bool]):
    """What had to be replaced, and how many containers there were."""

    nodes = 0


def _clean(value: Any, depth: int, replaced: _Seen) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str.__str__(value), replaced)  # of an enum too: its value, not its name
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int(value)
        replaced.append(True)
        return str(int(value)) if value.bit_length() < LONG_INT else hex(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        replaced.append(True)
        return None
    replaced.nodes += 1
    if depth == 0 or replaced.nodes > NODES:
        replaced.append(True)
        return "[nested too deeply]" if depth == 0 else "[too large]"
    if isinstance(value, dict):
        items = list(cast("dict[Any, Any]", value).items())
        kept = {_key(key, replaced): _clean(item, depth - 1, replaced) for key, item in items}
        replaced += [True] * (len(kept) < len(items))  # two keys became one
        return kept
    if isinstance(value, list | tuple):
        return [_clean(item, depth - 1, replaced) for item in cast("list[Any]", value)]
    replaced.append(True)
    return _words(value)


def _text(text: str, replaced: _Seen) -> str:
    cleaned = clean_text(text)
    if cleaned is not text:
        replaced.append(True)
    return cleaned


def _key(key: Any, replaced: _Seen) -> str:
    """A key as JSON has it; like its values, what only looks like text is flagged."""
    if isinstance(key, str):
        return _text(str.__str__(key), replaced)
    if not isinstance(key, int | float | None):
        replaced.append(True)
    return _words(key)


def _words(value: Any) -> str:
    try:
        return clean_text(str(value))
    except Exception:  # noqa: BLE001, a __str__ of someone else's may raise anything
        return f"[{type(value).__name__}]"


def unlike_json(value: Any, depth: int = DEPTH) -> str | None:
    """Why JSON would not give a value back as it is, or None; text that is not Unicode is the codec's to refuse."""
    if value is None or isinstance(value, str | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is no JSON number"
    if depth == 0:
        return f"it is nested deeper than {DEPTH} levels"
    if isinstance(value, dict):
        known = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in known):
            return "a key is no text"
        return next((why for item in known.values() if (why := unlike_json(item, depth - 1))), None)
    if isinstance(value, list | tuple):
        return next((why for item in cast("list[Any]", value) if (why := unlike_json(item, depth - 1))), None)
    return f"a {type(value).__name__} is no JSON value"
