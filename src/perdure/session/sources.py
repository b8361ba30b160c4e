"""Context sources ready to use: a file, today's date, a function of the user's.

Lives here: reading them, each once per boundary. Not here: what a change of one means (`context.py`). What cannot be read
now raises `SourceUnavailable` and keeps its last value; what is gone is gone, and the model is told.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from perdure import clock as clocks
from perdure import errors

MAX_BYTES = 256 * 1024


@dataclass(slots=True)
class FileSource:
    """A text file in the manner of AGENTS.md, read again when it changed; a file that does not exist is no source."""

    path: Path | str
    name: str = ""
    _seen: tuple[int, int, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Name it for its file."""
        self.name = self.name or Path(self.path).name

    async def read(self) -> str | None:
        """The file's text, cut at 256 KiB. Raises `SourceUnavailable` where it exists and cannot be read."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> str | None:
        path = Path(self.path)
        try:
            stat = path.stat()
            if self._seen is None or self._seen[:2] != (stat.st_mtime_ns, stat.st_size):
                with path.open("rb") as file:
                    text = file.read(MAX_BYTES).decode("utf-8", "replace")
                self._seen = (stat.st_mtime_ns, stat.st_size, text)
        except (FileNotFoundError, NotADirectoryError):
            self._seen = None
            return None
        except OSError as error:
            raise errors.SourceUnavailable(f"{path}: {error.strerror}") from error
        return self._seen[2] or None


@dataclass(frozen=True, slots=True)
class DateSource:
    """Today's date; told to the model when the day turns."""

    zone: tzinfo = UTC
    name: str = "date"
    clock: clocks.Clock = field(default_factory=clocks.SystemClock)

    async def read(self) -> str | None:
        """The date in words: weekday and ISO day."""
        today = datetime.fromtimestamp(self.clock.now_ms() / 1000, self.zone)
        return f"Today is {today:%A, %Y-%m-%d}."


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """Whatever a function returns, which may be a coroutine; None is nothing."""

    name: str
    function: Callable[[], str | Awaitable[str | None] | None]

    async def read(self) -> str | None:
        """Call it. Raises `SourceUnavailable` for anything it raises."""
        try:
            value = self.function()
            return await value if inspect.isawaitable(value) else value
        except errors.SourceUnavailable:
            raise
        except Exception as error:
            raise errors.SourceUnavailable(f"{type(error).__name__}: {error}") from error
