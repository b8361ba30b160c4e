"""What the commands that look after a database share.

Lives here: which file, how long work shows how far it is, and how an answer is said to a person or as one line of JSON.
Not here: any command (`verify.py`, `rebuild.py`, `export.py`, `importing.py`, `backup.py`, `doctor.py`), any work
(`maintenance/`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from perdure import config

Json = Annotated[bool, Parameter(name="--json", negative=(), show_default=False)]
Database = Annotated[str | None, Parameter(show_default=False)]
Advance = Callable[[int, int], None]
"""`advance(done, total)`."""

DONE, FAILED = 0, 1


def database(named: str | None) -> Path:
    """The file that is meant. Raises `ConfigError`."""
    return config.settings(database_url=named).database_path


@contextmanager
def progress(what: str) -> Generator[Advance]:
    """A bar on stderr where that is a terminal; elsewhere nothing is shown."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _unseen
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _unseen(done: int, total: int) -> None:
    """Nobody looks."""


def answer(values: Mapping[str, Any], sentence: str, *, as_json: bool, stream: Any = None) -> None:
    """Say it."""
    text = json.dumps(values, ensure_ascii=False) if as_json else sentence
    out = stream or sys.stdout
    print(text.encode(errors="replace").decode(), file=out)


def counted(number: int, noun: str) -> str:
    """A number and its noun, `1 event`, `2 events`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
