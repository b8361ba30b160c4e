"""Who executes: the identity a process puts on its claims, and whether such an identity is surely dead (EX-5).

Lives here: making and reading owner ids. An id is `own_RANDOM@BOOT/NAMESPACE/PID/START`: the part after `@` says on
which boot of which machine, in which pid namespace, which process. Only where boot and namespace are ours may its
absence be judged; about any other owner nothing is known and the lease decides. A place that is no machine, such as a
simulated one, may have a judge of its own. Not here: claims themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

from perdure import ids

_PROC = Path("/proc")
_judges: dict[str, Callable[[str], bool]] = {}


@cache
def _here() -> str | None:
    """This boot and pid namespace, or None where the system does not tell."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return None
    return f"{boot}/{namespace.removeprefix('pid:').strip('[]')}"


def _started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None if it is gone or only its entry is left."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields are counted from the last closing one.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZXx" else fields[19]


def mint(entropy: ids.Entropy) -> str:
    """An owner id for this process."""
    pid = os.getpid()
    return f"{ids.mint('own', entropy)}@{_here() or 'unknown'}/{pid}/{_started(pid) or 0}"


def is_dead(owner_id: str) -> bool:
    """Whether the process behind an owner id surely no longer runs. False means only that nobody here can tell."""
    place, _, rest = owner_id.rpartition("@")[2].rpartition("/")[0].rpartition("/")
    start = owner_id.rpartition("/")[2]
    if judge := _judges.get(place):
        return judge(owner_id)
    here = _here()
    if here is None or place != here or not rest.isdigit():
        return False
    return _started(int(rest)) != start


def has_left(owner_id: str, expires_at: int, now: int) -> bool:
    """Whether nobody can be at work any more under a claim of that owner and lease."""
    return expires_at <= now or is_dead(owner_id)


@contextlib.contextmanager
def judged(place: str, judge: Callable[[str], bool]) -> Generator[None]:
    """While the body runs, have `judge(owner_id)` say which owners of a place are dead; `place` is BOOT/NAMESPACE."""
    _judges[place] = judge
    try:
        yield
    finally:
        del _judges[place]
