"""A whole engine under virtual time, that dies where it is told and is followed by another on the same file.

Lives here: `Simulation`, life after life of one database: each is a new `Perdure` on a new loop with a seeded entropy, in
one thread, so that the same seed gives the same bytes. Not here: what must hold of what is left (`invariants.py`), which
deaths to try (`simulator_walk.py`).

A death is what SIGKILL is: at one edge of a commit, or at one instant, the file is taken as it lies there, with its
write-ahead log, and everything in memory is dropped. What runs while that unwinds writes to a file nobody reads again.
What is not the engine's (models, tools' effects, what a client knows) belongs to the caller, and survives.

    simulation = Simulation(lambda: [Agent("main", model=ScriptedModel([[Text("Hello")]]))], directory=tmp_path)
    life = simulation.live(script, crash_at=3)      # dies before its second commit; `script(app)` was running
    simulation.live(script)                         # another process finds what is left
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perdure import agent as agents
from perdure import config, ids
from perdure.engine.engine import World
from perdure.engine.perdure import Perdure
from perdure.session import owner
from perdure.store import sqlite
from perdure.testing import simulator_disk, virtual_time

START_MS = 1_700_000_000_000
PLACE = "simulated/node"
WAL = "-wal"
_numbers = iter(range(1, 1 << 62))

Script = Callable[[Perdure], Awaitable[Any]]


class Died(KeyboardInterrupt):
    """The process is killed here. A loop stops at once for this kind, and no `except Exception` sees it."""


@dataclass(frozen=True, slots=True)
class Life:
    """How one life went: what its script returned, whether it died, how many edges of commits (one before and one
    after each) it came past, when it ended (epoch ms), and what its loop complained of.
    """

    value: Any
    died: bool
    edges: int
    ended_ms: int
    complaints: tuple[str, ...] = ()


@dataclass
class Simulation:
    """One database and the lives it goes through. `agents` is called once a life; `directory` holds the file.

    With `deaths` "seen" a dead owner is known to be dead at once, as on the same machine; with "lease" its claims last
    until their lease ends. Reads and commits take up to `disk_ms` before and after they take place; 0 is at once, which
    hides what happens while one is on its way. `limit_s` of virtual time is the longest life.
    """

    agents: Callable[[], Sequence[agents.Agent]]
    directory: Path
    seed: int | str = 0
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    deaths: Literal["seen", "lease"] = "seen"
    disk_ms: float = 0
    now_ms: int = START_MS
    limit_s: float = 3_600.0
    lives: int = 0
    trace: list[str] = field(default_factory=list[str])
    path: Path = field(init=False)
    chosen: config.Settings = field(init=False)

    def __post_init__(self) -> None:
        """Begin with an empty database."""
        self.chosen = config.settings(**self.settings)
        self.path = self.another_path()
        self.path.write_bytes(_empty())

    def fork(self) -> Simulation:
        """The same simulation once more, from here on its own."""
        other = copy.copy(self)
        other.trace, other.path = list(self.trace), self.another_path()
        _copy(self.path, other.path)
        return other

    def live(self, script: Script, *, crash_at: int | None = None, crash_after_ms: float | None = None) -> Life:
        """Start an engine, run the script, stop; or die at edge number `crash_at` (from 1), or after so long.

        Raises what the script raises, and `Stuck`.
        """
        self.lives += 1
        life = _Running(self, crash_at)
        collecting = gc.isenabled()
        gc.disable()  # it runs finalizers whenever it likes
        try:
            with owner.judged(PLACE, life.is_dead):
                return life.run(script, crash_after_ms)
        finally:
            life.end()
            if collecting:
                gc.enable()

    def remove(self) -> None:
        """Forget the file."""
        _unlink(self.path)

    def another_path(self) -> Path:
        """A file that is not there yet."""
        return self.directory / f"simulated-{next(_numbers)}.db"


class _Running:
    """One life while it lasts."""

    def __init__(self, simulation: Simulation, crash_at: int | None) -> None:
        self._of, self._crash_at = simulation, crash_at
        self.path, self.number = simulation.path, simulation.lives
        self.loop = virtual_time.VirtualLoop(simulation.limit_s)
        self.clock = virtual_time.VirtualClock(self.loop, simulation.now_ms)
        self.edges, self.dead = 0, False
        self._entropy = random.Random(f"{simulation.seed}/{self.number}")  # noqa: S311, chance that can be had again
        self._app: Perdure | None = None

    def is_dead(self, owner_id: str) -> bool:
        return self._of.deaths == "seen" and not owner_id.endswith(f"/{self.number}/0")

    def _owner(self, entropy: ids.Entropy) -> str:
        return f"{ids.mint('own', entropy)}@{PLACE}/{self.number}/0"

    def _seam(self, inline: sqlite.Seam) -> sqlite.Seam:
        disk_ms = self._of.disk_ms
        chance = random.Random(f"{self._of.seed}/{self.number}/disk")  # noqa: S311, as above
        return simulator_disk.Slow(inline, self.loop, chance, disk_ms) if disk_ms else inline

    def _probe(self, where: str) -> None:
        if self.dead:
            raise Died
        if where in {"before_commit", "after_commit"}:
            self.edges += 1
            if self.edges == self._crash_at:
                self._die()

    def _die(self) -> None:
        """Take the file as it is now; what happens to this one from here on is nobody's."""
        self.dead = True
        self._of.path = self._of.another_path()
        _copy(self.path, self._of.path)
        raise Died

    def run(self, script: Script, crash_after_ms: float | None) -> Life:
        world = World(self.clock, self._entropy.randbytes, self._owner, self._seam, self._probe)
        given = self._of.chosen.model_copy(update={"database_url": str(self.path)})
        self._app = app = Perdure(self._of.agents(), settings=given, world=world)
        if crash_after_ms is not None:
            self.loop.call_later(crash_after_ms / 1000, self._die)

        async def main() -> Any:
            async with app:
                return await script(app)

        value = None
        with contextlib.suppress(Died):
            value = self.loop.run_until_complete(main())
        return self._ended(value)

    def _ended(self, value: Any) -> Life:
        ended = Life(value, self.dead, self.edges, self.clock.now_ms(), tuple(self.loop.complaints))
        how = f"died at edge {self.edges}" if self.dead else f"ended after {self.edges} edges"
        since = ended.ended_ms - START_MS
        self._of.trace.append(f"life {self.number}: {how}, {since} ms after the start")
        self._of.now_ms = ended.ended_ms
        return ended

    def end(self) -> None:
        """Drop what is in memory."""
        gone, self.dead = self.dead, True
        self.loop.abandon()
        store = getattr(self._app.engine, "store", None) if self._app else None
        if store:
            _now(store.close())
        if gone:
            _unlink(self.path)


def _now(coroutine: Any) -> None:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()


def _copy(source: Path, target: Path) -> None:
    """The file as a killed process leaves it: what lies in the write-ahead log stays there."""
    shutil.copyfile(source, target)
    log = source.with_name(source.name + WAL)
    if log.exists():
        shutil.copyfile(log, target.with_name(target.name + WAL))


def _unlink(path: Path) -> None:
    for end in ("", WAL, "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@functools.cache
def _empty() -> bytes:
    """A database with its schema and nothing in it."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "empty.db"
        loop = virtual_time.VirtualLoop()

        async def make() -> None:
            await (await sqlite.SqliteStore.open(path, seam="inline")).close()

        loop.run_until_complete(make())
        loop.close()
        return path.read_bytes()
