"""The SQLite store: one writer that commits many units together, a few readers, and the seam they run through.

Lives here: `SqliteStore` and the inline seam: units on the caller's own thread, each write its own transaction, nothing else
between the call and its end, for a simulator that replays a schedule. Not here: the seam that threads make
(`sqlite_threads.py`), what a commit is and what becomes of a failed one (`group_commit.py`), pragmas (`sqlite_connection.py`),
errors (`driver.py`), SQL (`sql/`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from perdure import errors
from perdure.store import group_commit, looking, meter, port, sqlite_connection, sqlite_threads
from perdure.store.readers import Reader

T = TypeVar("T")

Ring = Callable[[], None]


class Seam(Protocol):
    """Where units run."""

    async def write(self, work: Callable[[port.Tx], T], committed: Callable[[T], None] | None) -> T:
        """As the port's."""
        ...

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        """As the port's."""
        ...

    def watch(self, ring: Ring) -> Callable[[], None]:
        """As the port's `on_foreign_commit`."""
        ...

    def poll(self) -> None:
        """Look for foreign commits now."""
        ...

    async def close(self) -> None:
        """As the port's."""
        ...


Wrap = Callable[[Seam], Seam]


class SqliteStore:
    """One SQLite file behind the port. `open` makes it; it belongs to the event loop it was opened on."""

    def __init__(self, seam: Seam, measured: meter.Meter | None = None) -> None:
        """Use `open`."""
        self._seam, self.meter = seam, measured or meter.Meter()
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        seam: Literal["thread", "inline"] | Wrap = "thread",
        busy_timeout_ms: int = 1_000,
        deadline_ms: int = 10_000,
        readers: int = 2,
        shared: bool = False,
        vfs: str | None = None,
        probe: group_commit.Probe | None = None,
    ) -> SqliteStore:
        """Open the file, creating or migrating it where need be.

        `busy_timeout_ms` is one wait for another process, `deadline_ms` how long a unit is tried for altogether; `probe` hears
        begin, unit, before_commit, after_commit and delivered in the writer; a function as `seam` is given the inline one and
        gives what to use in its place; `shared` takes a file on a network file system. Raises `StoreUnusable`, `SchemaTooNew`,
        `StoreBusy`.
        """
        place = sqlite_connection.Place(Path(path), busy_timeout_ms, deadline_ms, vfs, shared)
        if seam != "thread":
            inline = _Inline(place, probe)
            return cls(inline if seam == "inline" else seam(inline))
        threads = sqlite_threads.Threads(place, probe, readers)
        await threads.start()
        return cls(threads, threads.meter)

    @classmethod
    async def look(cls, path: str | os.PathLike[str]) -> SqliteStore:
        """A store that only reads, and neither creates nor changes a file; whoever else works on it may go on.

        Raises `StoreUnusable`, also for a schema that is old, `SchemaTooNew`, `StoreCorrupt`. What writes to it raises
        `ConfigError`.
        """
        seam = looking.Looking(sqlite_connection.Place(Path(path)))
        await seam.start()
        return cls(seam)

    async def write(self, work: Callable[[port.Tx], T], *, committed: Callable[[T], None] | None = None) -> T:
        """See the port. An exception of `committed` reaches the caller; the unit stays committed."""
        self._check()
        return await self._seam.write(work, committed)

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        """See the port."""
        self._check()
        return await self._seam.read(work)

    def on_foreign_commit(self, ring: Ring) -> Callable[[], None]:
        """See the port; several commits may ring once, and one may ring though nothing of interest happened."""
        self._check()
        return self._seam.watch(ring)

    def poll_foreign_commits(self) -> None:
        """Look for foreign commits now; on the inline seam nothing else does."""
        self._check()
        self._seam.poll()

    async def close(self) -> None:
        """See the port."""
        if not self._closed:
            self._closed = True
            await self._seam.close()

    def _check(self) -> None:
        if self._closed:
            msg = "The store is closed"
            raise errors.StoreUnusable(msg)


class _Inline:
    """Everything at once, on the caller's thread."""

    def __init__(self, place: sqlite_connection.Place, probe: group_commit.Probe | None) -> None:
        self._place, self._probe = place, probe
        self._committer = group_commit.Committer(place, probe)
        self._reader = Reader(place)
        self._rings: list[Ring] = []

    async def write(self, work: Callable[[port.Tx], T], committed: Callable[[T], None] | None) -> T:
        unit = group_commit.Unit(work, None, self._place.deadline())
        while not unit.settled:
            self._committer.attempt((unit,))
        if unit.error is not None:
            raise unit.error
        result: T = unit.result
        if committed:
            committed(result)
        if self._probe:
            self._probe("delivered")
        self._committer.checkpoint()
        return result

    async def read(self, work: Callable[[port.Tx], T]) -> T:
        return self._reader.run(work)

    def watch(self, ring: Ring) -> Callable[[], None]:
        self._rings.append(ring)
        return lambda: self._rings.remove(ring) if ring in self._rings else None

    def poll(self) -> None:
        if self._rings and self._committer.foreign_commit():
            for ring in tuple(self._rings):
                ring()

    async def close(self) -> None:
        self._reader.close()
        self._committer.close()
