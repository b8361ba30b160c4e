"""A command as a tool.

Lives here: what the model sees of a command: its output as it comes, both ends of a long one, how it ended. Not here: the
process group and its end (`processes.py`). A command is not confined to the root as the file tools are: it starts there
and may do what its user may do. Secrets of this process are kept out of its environment, which is no confinement either.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pydantic

from perdure.agent import CallSettled, ToolContext, ToolError, ToolResult
from perdure.core.messages import JsonObject
from perdure.tools import processes

MAX_HEAD = 2**20
MAX_TAIL = 2**20
SHOWN = 4_000
SHOW_S = 0.1
_SECRET = re.compile(r"PERDURE_.*|.*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)", re.IGNORECASE)


class Shell:
    """The shell tool of one directory."""

    def __init__(self, directory: Path) -> None:
        """Commands start in `directory`."""
        self._directory = directory
        self._shell = shutil.which("bash") or "/bin/sh"

    def shell(
        self, command: str, context: ToolContext, timeout_s: Annotated[float, pydantic.Field(gt=0, le=3600)] = 120
    ) -> ToolResult:
        """Run a shell command in the working directory. It has no input, and nothing it starts outlives it.

        Args:
            command: for a POSIX shell
            timeout_s: after so many seconds it is ended
        """
        if "\0" in command:
            raise ToolError("A command holds no NUL")
        output = Output(context)
        try:
            ended = processes.run(
                [self._shell, "-c", command],
                cwd=self._directory,
                env=environment(),
                owner_id=context.owner_id,
                cancelled=context.cancelled,
                timeout_s=timeout_s,
                output=output.add,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}") from error
        words, replaced = output.text()
        how = {
            "exited": _code(ended.code),
            "timeout": f"Ended after {timeout_s:g} s without having finished; what it did so far stands",
            "cancelled": "Stopped before it had finished; what it did so far stands",
        }[ended.how]
        part: JsonObject = {"type": "text", "text": f"{words}\n[{how}]" if words else f"[{how}]"}
        if replaced:
            part["replaced"] = True
        about = {"exit_code": ended.code, "ended": ended.how}
        return ToolResult([part], about, failed=ended.how != "exited")


def _code(code: int) -> str:
    return f"Killed by signal {-code}" if code < 0 else f"Exit code {code}"


def environment() -> dict[str, str]:
    """This process's environment without what looks like a secret."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}


class Output:
    """The output of a command: its beginning and end within a bound, shown while it comes."""

    def __init__(self, context: ToolContext) -> None:
        """Show it as the call's progress."""
        self._context = context
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = self._left_out = 0
        self._next_show = 0.0

    def add(self, data: bytes) -> None:
        """More came."""
        room = MAX_HEAD - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail_size - len(self._tail[0] if self._tail else b"") > MAX_TAIL:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._left_out += gone
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + SHOW_S
            with suppress(CallSettled):
                self._context.progress(content=self._newest().decode("utf-8", "replace"))

    def _newest(self) -> bytes:
        tail = b"".join(list(self._tail)[-2:])
        return (tail if len(tail) >= SHOWN else bytes(self._head[-SHOWN:]) + tail)[-SHOWN:]

    def text(self) -> tuple[str, bool]:
        """All that was kept, and whether some of it was no UTF-8."""
        gap = f"\n[… {self._left_out} bytes left out …]\n".encode() if self._left_out else b""
        data = b"".join([bytes(self._head), gap, *self._tail])
        words = data.decode("utf-8", "replace")
        return words.removesuffix("\n"), "\N{REPLACEMENT CHARACTER}" in words
