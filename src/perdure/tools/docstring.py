"""What a docstring says of a function and of each parameter.

Lives here: cutting the `Args:` section of a Google-style docstring away from the rest, so that the model reads each
entry beside its parameter. Not here: types (`function.py`). A docstring laid out otherwise is kept whole: nothing a
person wrote for the model is lost.
"""

from __future__ import annotations

import inspect
import re

_HEAD = re.compile(r"(?:Args|Arguments|Parameters):")
_ENTRY = re.compile(r"(?P<name>\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(?P<words>.*)")


def split(docstring: str) -> tuple[str, dict[str, str]]:
    """The docstring without its `Args:` section, and the words of each parameter named there."""
    lines = inspect.cleandoc(docstring).split("\n")
    start = next(
        (number for number, line in enumerate(lines) if _HEAD.fullmatch(line.strip()) and line[0] != " "), None
    )
    if start is None:
        return "\n".join(lines), {}
    end = next((n for n in range(start + 1, len(lines)) if lines[n] and not lines[n].startswith(" ")), len(lines))
    found = _entries(lines[start + 1 : end])
    if not found:
        return "\n".join(lines), {}
    rest = "\n".join([*lines[:start], *lines[end:]])
    return re.sub(r"\n{3,}", "\n\n", rest).strip(), found


def _entries(lines: list[str]) -> dict[str, str]:
    """`name (type): words`, the words going on in lines that are indented further."""
    lines = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        entry = _ENTRY.fullmatch(line.strip()) if len(line) - len(line.lstrip()) == indent else None
        if entry:
            current = found.setdefault(entry["name"].lstrip("*"), [])
        current.append(entry["words"] if entry else line.strip())
    return {name: " ".join(words).strip() for name, words in found.items()}
