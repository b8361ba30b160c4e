"""Writes docs/reference/cli.md from the command line's own help; `--check` only says whether it is current."""

import importlib
import io
import re
import sys

import cyclopts
import pages
from rich.console import Console

from perdure.cli import main

HEAD = """# Command line

Written from the help that `perdure COMMAND --help` prints, by `make docs`.

Exit codes, where a command says nothing else: 0 done, 1 it failed, 2 called or configured wrongly, 130 stopped by Ctrl-C.
An error is one line on stderr: what is wrong, and what to do about it."""

SECTIONS = {"Arguments:": "argument", "Parameters:": "option"}
ROW = re.compile(r"^  (-[^:]+|[A-Z_]+): ?(.*)$")


def told(module: str, name: str) -> str:
    """The help of a command, each entry on one line."""
    command = importlib.import_module(module).command
    app = cyclopts.App(
        name=f"perdure {name}",
        usage=f"Usage: {main.usage_of(name, command)}",
        help_format="plaintext",
        help_formatter="plain",
        help_flags=[],
        version_flags=[],
    )
    app.default(command)
    out = io.StringIO()
    app.help_print([], console=Console(file=out, width=10_000, no_color=True, highlight=False))
    return out.getvalue()


def command(name: str, module: str) -> str:
    prose: list[str] = []
    tables: dict[str, list[list[str]]] = {}
    usage, *lines = told(module, name).splitlines()
    kind = ""
    for line in lines:
        if line in SECTIONS:
            kind = SECTIONS[line]
        elif not kind:
            prose.append(line.rstrip())
        elif row := ROW.match(line):
            tables.setdefault(kind, []).append([row[1], row[2]])
        elif line.strip():
            tables[kind][-1][1] += f" {line.strip()}"
    usage = usage.removeprefix("Usage: ")
    options = [
        pages.table([kind, "meaning"], [[f"`{word}`", " ".join(text.split())] for word, text in rows])
        for kind, rows in tables.items()
    ]
    return pages.joined(f"## perdure {name}", f"```text\n{usage}\n```", described(prose), *options)


def described(lines: list[str]) -> str:
    """The help's prose, its indented examples as blocks of text."""
    blocks = re.split(r"\n{2,}", "\n".join(lines).strip())
    examples = [block.startswith("  ") for block in blocks]
    out: list[str] = []
    for block, example in zip(blocks, examples, strict=True):
        out.append("\n".join(["```text", *(line.strip() for line in block.splitlines()), "```"]) if example else block)
    return "\n\n".join(out)


def page() -> str:
    overview = [[f"[`perdure {name}`](#perdure-{name})", about] for name, _, about in main.COMMANDS]
    commands = [command(name, module) for name, module, _ in main.COMMANDS]
    return pages.joined(HEAD, pages.table(["command", "does"], overview), *commands)


if __name__ == "__main__":
    sys.exit(pages.main("reference/cli.md", page()))
