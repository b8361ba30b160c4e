"""A page of documentation as what it tells its reader to do: its blocks of code, in order.

`console` blocks hold commands after `$ `, and below each what it prints; `…` stands for whatever. A block of any kind is
saved under the name that the line before it gives: "Save this as `shop.py`:".
"""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"[Ss]ave [^\n]*`([\w.]+)`[^\n]*:\n+\Z")
EXIT = re.compile(r"\s+# exit code (\d+)\b.*$")


@dataclass(frozen=True)
class Command:
    """One command, the lines it is said to print, and the exit code it is said to have."""

    text: str
    prints: tuple[str, ...]
    code: int


@dataclass(frozen=True)
class Block:
    """One block of code, and the line of the page it begins at."""

    kind: str
    text: str
    line: int
    saved_as: str | None

    def commands(self) -> list[Command]:
        """The commands of a console block."""
        found: list[tuple[list[str], list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(([line[2:]], []))
            elif found and found[-1][0][-1].endswith("\\") and not found[-1][1]:
                found[-1][0].append(line)
            elif found and line.strip():
                found[-1][1].append(line)
        return [_command("\n".join(words), prints) for words, prints in found]


def _command(text: str, prints: list[str]) -> Command:
    said = EXIT.search(text)
    bare = EXIT.sub("", text) if said else re.sub(r"\s{2,}# .*$", "", text)
    return Command(bare, tuple(prints), int(said[1]) if said else 0)


def blocks(page: Path) -> list[Block]:
    """Those of a page."""
    text = page.read_text()
    found = []
    for fence in FENCE.finditer(text):
        before = text[: fence.start()]
        saved = SAVED.search(before)
        found.append(Block(fence[1], fence[2], before.count("\n") + 1, saved and saved[1]))
    return found
