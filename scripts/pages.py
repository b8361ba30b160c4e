"""What the programs that write pages of docs/ share: writing one, or with `--check` only saying whether it is current."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(name: str, text: str) -> int:
    """Write the page of that name below docs/; the exit code of the program."""
    path = DOCS / name
    current = path.exists() and path.read_text() == text
    if "--check" in sys.argv:
        print(f"{name} is {'up to date' if current else 'stale: make docs'}")
        return not current
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    print(f"docs/{name}: {'unchanged' if current else 'written'}")
    return 0


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a `|` in a cell is kept from ending it."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def joined(*blocks: str) -> str:
    """Blocks with an empty line between them; empty ones are left out."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip()) + "\n"
