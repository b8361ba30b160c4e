"""Looking at a SQLite file without changing it, and copying it while others work on it.

Lives here: a connection that can only read, what SQLite itself says of the file, and the backup. Not here: what the log
and its rows say of each other (`maintenance/`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure import errors
from perdure.store import driver, port, schema, sqlite_connection, statements

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""`progress(done, total)`."""

PAGES = 1_000
BUSY_MS = 10_000
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

    def __init__(self, path: Path, connection: driver.Connection) -> None:
        """Use `open_read_only`."""
        self.path, self._connection = path, connection
        self._tx = port.Tx(statements.load("sqlite"), connection)

    def run(self, work: Callable[[port.Tx], T]) -> T:
        """Run a unit that reads. Raises the store's errors."""
        try:
            return work(self._tx)
        except apsw.Error as error:
            raise driver.translated(error) from error

    def examine(self) -> Findings:
        """Ask SQLite for everything that can be wrong with the file itself; reads all of it."""
        wal = self.path.with_name(self.path.name + "-wal")
        complaints = [*self._complaints("integrity_check"), *self._complaints("foreign_key_check"), *self._triggers()]
        return Findings(
            sqlite=apsw.sqlite_lib_version(),
            schema=self._ask("user_version", -1),
            program_schema=schema.CURRENT,
            journal_mode=self._ask("journal_mode", "unknown"),
            size=self.path.stat().st_size,
            wal_size=wal.stat().st_size if wal.exists() else 0,
            free_pages=self._ask("freelist_count", -1),
            complaints=tuple(complaints),
        )

    def _ask(self, pragma: str, unknown: Any) -> Any:
        try:
            return self._connection.pragma(pragma)
        except apsw.Error:
            return unknown

    def _complaints(self, check: str) -> list[str]:
        try:
            rows = self._connection.execute(f"PRAGMA {check}").fetchall()
        except apsw.Error as error:
            return [f"{check}: {error}"]
        return [f"{check}: {' '.join(map(str, row))}" for row in rows if row != ("ok",)][:COMPLAINTS]

    def _triggers(self) -> list[str]:
        try:
            found = {
                name for (name,) in self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            }
        except apsw.Error as error:
            return [f"schema: {error}"]
        return [f"schema: trigger {name} is missing" for name in TRIGGERS if name not in found]


def _open(path: Path, flags: int) -> driver.Connection:
    connection = apsw.Connection(os.fspath(path), flags)
    connection.set_busy_timeout(BUSY_MS)
    return connection


@contextmanager
def open_read_only(path: Path) -> Generator[ReadOnly]:
    """A file of ours, for reading only. Raises `StoreUnusable` and its kind; of another program's file too."""
    if not path.is_file():
        msg = f"Cannot open {path}: {'it is a directory' if path.is_dir() else 'there is no such file'}"
        raise errors.StoreUnusable(msg)
    try:
        connection = _open(path, apsw.SQLITE_OPEN_READONLY)
        known = connection.pragma("application_id") == schema.APPLICATION_ID
    except apsw.Error as error:
        raise sqlite_connection.unusable(path, error) from error
    try:
        if not known:
            msg = f"Cannot open {path}: it is a database of another program"
            raise errors.StoreUnusable(msg)
        yield ReadOnly(path, connection)
    finally:
        with suppress(apsw.Error):
            connection.close()


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
        with open_read_only(source):
            _copy(source, partial, progress)
        _settle(partial, target)
        return target.stat().st_size
    except apsw.Error as error:
        raise driver.translated(error) from error
    finally:
        for left in (partial, *(partial.with_name(partial.name + end) for end in ("-wal", "-shm", "-journal"))):
            left.unlink(missing_ok=True)


def _copy(source: Path, partial: Path, progress: Progress | None) -> None:
    reading = _open(source, apsw.SQLITE_OPEN_READONLY)
    writing = _open(partial, apsw.SQLITE_OPEN_READWRITE)
    try:
        # One snapshot from the first page to the last: a commit of another connection would otherwise start it over.
        reading.execute("BEGIN")
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
        reading.close()


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
