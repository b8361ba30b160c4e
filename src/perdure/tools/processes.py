"""Processes that a tool starts, and the promise that none outlives its call or its owner.

Lives here: running a command in a process group of its own, ending the group, and finding what a crash left behind. Not
here: what a command is for (`local/shell.py`). Three things hold the promise, each where the one before cannot:

- The call ends its group when the command is over, when it is cancelled, and at its time-out.
- A keeper, a shell in the same group, reads from a pipe of which only the owner has the other end. When the owner dies,
  even by SIGKILL, the pipe ends and the keeper ends the group at once.
- Every process carries a mark in its environment: owner and run. What left the group (a daemon) is found by the mark at
  the end of its run, or at the next start of an engine that can tell that the owner is dead. The mark is as durable as
  the process itself, needs no file, and cannot name a stranger, as a recorded process id can.

Where there is no /proc, marks cannot be read and only the first two hold.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

MARK = "PERDURE_TOOL"
TICK_S = 0.05
TERM_S = 0.5
_DRAIN_S = 1.0
_PROC = Path("/proc")

# The pipe comes as standard input. The keeper ignores what ends the command gently, so that the group keeps its number.
_KEEPER = (
    "exec 3<&0 </dev/null; (trap '' TERM INT HUP QUIT; read -r _ <&3; kill -s KILL 0) >/dev/null 2>&1 &"
    ' exec 3<&-; exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: by itself, because its call was cancelled, or at its time-out; `code` as subprocess has it."""

    how: Literal["exited", "cancelled", "timeout"]
    code: int


def mark(owner_id: str) -> str:
    """A mark for one run of this owner."""
    return f"{owner_id}#{secrets.token_hex(8)}"


def run(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    owner_id: str,
    cancelled: Event,
    timeout_s: float,
    output: Callable[[bytes], None],
) -> Ended:
    """Run a command in this thread until it ends or is ended; nothing of it runs on afterwards. Raises `OSError`."""
    marked = mark(owner_id)
    theirs, ours = os.pipe()
    try:
        try:
            process = subprocess.Popen(  # noqa: S603, to run what the model wrote is what the caller was asked for
                ["/bin/sh", "-c", _KEEPER, "sh", *command],
                cwd=cwd,
                env={**env, MARK: marked},
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        with process:
            how: Literal["exited", "cancelled", "timeout"] = "cancelled"
            try:
                how = _until_over(process, cancelled, time.monotonic() + timeout_s, output)
            finally:
                _end(process, marked, gently=how != "exited")
            _drain(process, output)
        return Ended(how, process.returncode)
    finally:
        os.close(ours)


def _until_over(
    process: subprocess.Popen[bytes], cancelled: Event, until: float, output: Callable[[bytes], None]
) -> Literal["exited", "cancelled", "timeout"]:
    """Pass output on until the command itself has exited, whoever of its children still writes."""
    assert process.stdout is not None  # noqa: S101, it was asked for
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not _exited(process):
            if cancelled.is_set():
                return "cancelled"
            if time.monotonic() >= until:
                return "timeout"
            if selector.get_map() and selector.select(TICK_S):
                data = os.read(process.stdout.fileno(), 65536)
                if data:
                    output(data)
                else:
                    selector.unregister(process.stdout)
            elif not selector.get_map():
                cancelled.wait(TICK_S / 5)
    return "exited"


def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited, without reaping it where possible: until then its number, the group's, is nobody else's."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end(process: subprocess.Popen[bytes], marked: str, *, gently: bool) -> None:
    """End the group, after a moment to tidy up if it did not end by itself, and what left the group."""
    if gently:
        _signal_group(process.pid, signal.SIGTERM)
        until = time.monotonic() + TERM_S
        while not _exited(process) and time.monotonic() < until:
            time.sleep(TICK_S / 5)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    end_all(lambda found: found == marked)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _drain(process: subprocess.Popen[bytes], output: Callable[[bytes], None]) -> None:
    """What was written before the end is still in the pipe."""
    assert process.stdout is not None  # noqa: S101, as above
    os.set_blocking(process.stdout.fileno(), False)
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until:
        try:
            data = os.read(process.stdout.fileno(), 65536)
        except BlockingIOError:
            time.sleep(TICK_S / 5)
            continue
        if not data:
            return
        output(data)


# -- marks -------------------------------------------------------------------------------------------------------------------


def end_leftovers(is_dead: Callable[[str], bool]) -> int:
    """End every process of a dead owner's runs; how many there were. An owner's id stands before the `#` of a mark."""
    verdicts: dict[str, bool] = {}

    def left_over(found: str) -> bool:
        owner_id = found.rpartition("#")[0]
        if owner_id not in verdicts:
            verdicts[owner_id] = bool(owner_id) and is_dead(owner_id)
        return verdicts[owner_id]

    return end_all(left_over)


def end_all(chosen: Callable[[str], bool]) -> int:
    """End every process whose mark is chosen; again, until none is left, since one may fork while it is looked for."""
    ended: set[int] = set()
    for _ in range(20):
        found = [pid for pid, marked in _marked() if chosen(marked)]
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended.update(found)
    return len(ended)


def _marked() -> Iterator[tuple[int, str]]:
    """Process id and mark of every marked process but those of our own group; the dead have no environment left."""
    wanted = f"{MARK}=".encode()
    ours = os.getpgrp()
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        try:
            environment = _environment(entry)
            if wanted not in environment or os.getpgid(int(entry.name)) == ours:
                continue
        except OSError:
            continue
        for line in environment.split(b"\0"):
            if line.startswith(wanted):
                yield int(entry.name), line[len(wanted) :].decode("ascii", "replace")


def _environment(entry: Path) -> bytes:
    """What a process was started with. A program being exchanged for another has none for a moment."""
    for _ in range(5):
        found = (entry / "environ").read_bytes()
        if found:
            return found
        (entry / "exe").readlink()  # raises for the dead and for the kernel's own, which never have any
        time.sleep(0.001)
    return b""
