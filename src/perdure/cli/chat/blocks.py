"""Where growing Markdown may be cut: what stands before the cut looks the same whatever follows."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LIST = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


def settled(text: str) -> int:
    """How many characters from the start are whole blocks: up to the last blank line outside a fence after which
    something begins that is neither indented nor a list's next item.
    """
    fence, cut, candidate, at = "", 0, -1, 0
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if candidate >= 0 and line.strip():
            if not (line[0].isspace() or _LIST.match(line)):
                cut = candidate
            candidate = -1
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
        elif not line.strip() and line.endswith("\n"):
            candidate = at + len(line)
        at += len(line)
    return cut
