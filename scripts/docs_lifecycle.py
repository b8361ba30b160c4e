"""Draws docs/lifecycle.md from the tables in core/lifecycle.py; `--check` only says whether the page is up to date.

A prose line above each diagram is the string that stands under its table in the source, so table, words and picture
have one home.
"""

import ast
import inspect
import itertools
import sys

import pages

from perdure.core import lifecycle

HEAD = """# Life cycles

Drawn from the tables in `src/perdure/core/lifecycle.py` by `make docs`; change them there. A move that is not drawn is illegal.
"""


def sayings() -> dict[str, str]:
    """The string below each table, by the table's name."""
    body = ast.parse(inspect.getsource(lifecycle)).body
    return {
        table.target.id: inspect.cleandoc(below.value.value)
        for table, below in itertools.pairwise(body)
        if isinstance(table, ast.AnnAssign) and isinstance(table.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def diagram(table: lifecycle.Table) -> str:
    """A Mermaid state diagram: moves between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, moves in table.items():
        for move, following in moves.items():
            arrows.setdefault((state, following), []).append(move)
    lines = [f"    [*] --> {next(iter(table))}"]
    lines += [f"    {state} --> {following}: {', '.join(moves)}" for (state, following), moves in arrows.items()]
    lines += [f"    {state} --> [*]" for state in table if state in lifecycle.terminal(table)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def page() -> str:
    said = sayings()
    names = {id(value): name for name, value in vars(lifecycle).items()}
    sections = [
        f"## {title.capitalize()}\n\n{said.get(names[id(table)], '')}\n\n{diagram(table)}\n"
        for title, table in lifecycle.TABLES.items()
    ]
    return "\n".join([HEAD, *sections])


if __name__ == "__main__":
    sys.exit(pages.main("lifecycle.md", page()))
