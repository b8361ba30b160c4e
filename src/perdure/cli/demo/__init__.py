"""`perdure demo`: a server is killed five times and loses nothing, in under a minute, without a key and without a network.

Lives here: the command: a folder, an audience, the verdict as exit code, and an orderly end whenever it is interrupted.
Not here: the story (`story.py`), its moments (`scenes.py`), the verdict (`verdict.py`), the looks (`report.py`), the
served app (`../shop.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console

from perdure import errors
from perdure.cli.demo import report, scenes, story, verdict

INTERRUPTED = 130


def command(
    *,
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    keep: Annotated[Path | None, Parameter(show_default=False)] = None,
) -> int:
    """Kill a server at five moments and show what is left: nothing lost, nothing twice.

    Exits 0 if every figure is as promised, 1 otherwise.

    Parameters
    ----------
    json
        Print the figures as one JSON object, and nothing else.
    keep
        Keep the database, the ledger and the server's log in this folder, which must be empty or new.

    """
    try:
        return asyncio.run(_run(json=json, keep=keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED


async def _run(*, json: bool, keep: Path | None) -> int:
    _end_like_ctrl_c()
    narrator = report.Narrator(Console(highlight=False))
    began = time.monotonic()
    with _folder(keep) as folder, contextlib.closing(narrator):
        told = await story.tell(folder, report.Silent() if json else narrator)
    seconds = time.monotonic() - began
    found = verdict.problems(told.figures, [scene.key for scene in scenes.SCENES], told.violations)
    found += [told.broken] if told.broken else []
    if json:
        made = verdict.as_json(told.figures, told.violations, seconds, found)
        sys.stdout.write(msgspec.json.encode(made).decode() + "\n")
    else:
        narrator.table(told.figures, told.violations, seconds, found)
    return 1 if found else 0


def _end_like_ctrl_c() -> None:
    """Have the other polite signals end the demo as Ctrl-C does: with its children ended and its folder removed."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, task.cancel if task else lambda: None)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="perdure-demo-") as place:
            yield Path(place)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise errors.ConfigError(f"--keep {keep}: the folder is not empty")
        yield keep
