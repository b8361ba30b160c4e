"""Looking at a SQLite file without changing it, and copying it while others work on it.

Lives here: a connection that can only read, what SQLite itself says of the file, and the backup. Not here: what the log
and its rows say of each other (`maintenance/`).
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure import errors
from perdure.store import driver, looking, port, schema, sqlite_connection

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""`progress(done, total)`."""

PAGES = 1_000
COMPLAINTS = 100
TRIGGERS = ("event_is_append_only_delete", "event_is_append_only_update")


@dataclass(frozen=True, slots=True)
class Findings:
    """What SQLite says of a file; `complaints` is empty where all is well. Sizes in bytes."""

    sqlite: str
    schema: int
    program_schema: int
    journal_mode: str
    size: int
    wal_size: int
    free_pages: int
    complaints: tuple[str, ...]


class ReadOnly:
    """A file opened for reading only."""

    def __init__(self, path: Path, look: looking.Look) -> None:
        """Use `open_read_only`."""
        self.path, self._look = path, look

    def run(self, work: Callable[[port.Tx], T]) -> T:
        """Run a unit that reads. Raises the store's errors."""
        return self._look.run(work)

    def examine(self) -> Findings:
        """Ask SQLite for everything that can be wrong with the file itself; reads all of it."""
        return self._look.ask(self._examine)

    def schema(self) -> int:
        """Which schema the file has."""
        return self._look.ask(lambda connection: connection.pragma("user_version"))

    def copy(self, target: Path, progress: Progress | None) -> None:
        """Copy it over an empty file. Raises `StoreCorrupt` where the copy is damaged."""
        self._look.ask(lambda connection: _copy(connection, self.path, target, progress))

    def _examine(self, connection: driver.Connection) -> Findings:
        wal = self.path.with_name(self.path.name + "-wal")
        checks = (_complaints(connection, name) for name in ("integrity_check", "foreign_key_check"))
        return Findings(
            sqlite=apsw.sqlite_lib_version(),
            schema=_ask(connection, "user_version", -1),
            program_schema=schema.CURRENT,
            journal_mode=_journal_mode(connection),
            size=self.path.stat().st_size,
            wal_size=wal.stat().st_size if wal.exists() else 0,
            free_pages=_ask(connection, "freelist_count", -1),
            complaints=(*itertools.chain(*checks), *_missing_triggers(connection)),
        )


def _ask(connection: driver.Connection, pragma: str, unknown: Any) -> Any:
    try:
        return connection.pragma(pragma)
    except apsw.Error:
        return unknown


def _journal_mode(connection: driver.Connection) -> str:
    """What the file's head says: of one that is read as it lies, SQLite itself says `delete`."""
    whole, head = connection.read("main", 0, 0, 100)
    return "wal" if whole and head[18:20] == b"\x02\x02" else _ask(connection, "journal_mode", "unknown")


def _complaints(connection: driver.Connection, check: str) -> list[str]:
    try:
        rows = connection.execute(f"PRAGMA {check}").fetchall()
    except apsw.Error as error:
        return [f"{check}: {error}"]
    return [f"{check}: {' '.join(map(str, row))}" for row in rows if row != ("ok",)][:COMPLAINTS]


def _missing_triggers(connection: driver.Connection) -> list[str]:
    try:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    except apsw.Error as error:
        return [f"schema: {error}"]
    return [f"schema: trigger {name} is missing" for name in TRIGGERS if name not in found]


@contextmanager
def open_read_only(path: Path) -> Generator[ReadOnly]:
    """A file of ours, for reading only. Raises `StoreUnusable` and its kind; of another program's file too."""
    look = looking.Look(sqlite_connection.Place(path))
    try:
        yield ReadOnly(path, look)
    finally:
        look.close()


# -- backup ------------------------------------------------------------------------------------------------------------------


def backup(source: Path, target: Path, progress: Progress | None = None) -> int:
    """Copy a database that may be in use, as it is at one moment; the copy's size in bytes.

    The copy is checked, and appears under its name only when it is complete and on disk. Raises `StoreUnusable` where
    `target` exists, `StoreCorrupt` where the copy is damaged, or another `StoreError`.
    """
    if target.exists():
        msg = f"Cannot write {target}: it exists already"
        raise errors.StoreUnusable(msg)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        msg = f"Cannot write {target}: {(error.strerror or str(error)).lower()}"
        raise errors.StoreUnusable(msg) from error
    try:
        with open_read_only(source) as reading:
            reading.copy(partial, progress)
        _settle(partial, target)
        return target.stat().st_size
    except apsw.Error as error:
        raise driver.translated(error) from error
    finally:
        for left in (partial, *(partial.with_name(partial.name + end) for end in ("-wal", "-shm", "-journal"))):
            left.unlink(missing_ok=True)


def _copy(reading: driver.Connection, source: Path, partial: Path, progress: Progress | None) -> None:
    """All pages of one snapshot: a commit of another connection would otherwise start it over."""
    writing = sqlite_connection.bare(os.fspath(partial), apsw.SQLITE_OPEN_READWRITE)
    try:
        reading.pragma("schema_version")
        with writing.backup("main", reading, "main") as copying:
            while not copying.done:
                copying.step(PAGES)
                if progress:
                    progress(copying.page_count - copying.remaining, copying.page_count)
        (verdict,) = writing.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            msg = f"The copy of {source} is damaged: {verdict}"
            raise errors.StoreCorrupt(msg)
    finally:
        writing.close()


def _settle(partial: Path, target: Path) -> None:
    """On disk first, then under its name."""
    _sync(partial, os.O_RDONLY)
    if target.exists():
        msg = f"Cannot write {target}: it exists already"
        raise errors.StoreUnusable(msg)
    partial.rename(target)
    _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(place: Path, flags: int) -> None:
    descriptor = os.open(place, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
