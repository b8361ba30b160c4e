"""One SQLite file: how a connection to it is opened and set up.

Lives here: the checks before opening, pragmas, recognising our file and its schema. Not here: transactions
(`group_commit.py`), threads (`sqlite_threads.py`), how a schema grows (`migrate.py`). Nothing here opens the file by other
means than SQLite: closing any descriptor of it would drop this process's POSIX locks, so only a file that does not exist yet is
created by hand, for the sake of its mode.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from perdure import errors
from perdure.store import driver, filesystem, schema

T = TypeVar("T")

STATEMENTS = 256
PAUSE = 0.002
SMALLEST = 512
"""Bytes; SQLite writes no smaller file."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file and how patient one is with it."""

    path: Path
    busy_timeout_ms: int = 1_000
    deadline_ms: int = 10_000
    vfs: str | None = None
    shared: bool = False
    """Whether the file may lie where other machines have it too."""

    def deadline(self) -> float:
        """Until when (monotonic seconds) something begun now may wait for other processes."""
        return time.monotonic() + self.deadline_ms / 1000


def which(path: Path) -> tuple[int, int] | None:
    """What file stands at a path, whatever its name was; None for none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def check_same(path: Path, file: tuple[int, int] | None) -> None:
    """Raise `StoreUnusable` where another file than `file`, or none, stands at a path by now."""
    now = which(path)
    if now != file:
        what = "another file stands in its place" if now else "it is no longer there"
        msg = f"The database {path} was taken away under its users: {what}, and this one serves again once it is back"
        raise errors.StoreUnusable(msg)


def patiently(place: Place, action: Callable[[], T]) -> T:
    """Run `action`, again while another process is in the way, until the deadline."""
    deadline = place.deadline()
    while True:
        try:
            return action()
        except driver.BUSY:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE)


def open_writer(place: Place, *, create: bool) -> driver.Connection:
    """A connection that writes, and the only one of its store that checkpoints; migrates a schema that is old.

    Without `create` a missing file stays missing; with it one on a network file system is refused. Raises `StoreUnusable`,
    `SchemaTooNew` (nothing is changed then), `StoreBusy`, or another `StoreError`.
    """
    if create and not place.shared:
        filesystem.refuse_shared(place.path)
    _look_at(place.path, create=create)
    connection = _connect(place)
    try:
        _understand(place, connection)
    except BaseException as error:
        with suppress(apsw.Error):
            connection.close()
        if isinstance(error, apsw.Error):
            raise unusable(place.path, error) from error
        raise
    return connection


def open_reader(place: Place) -> driver.Connection:
    """A connection that cannot write."""
    connection = _connect(place)
    connection.wal_autocheckpoint(0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("query_only", True)
    return connection


def open_looker(place: Place, *, alone: bool) -> driver.Connection:
    """A connection to a file of ours that leaves no trace of itself; `alone` where nobody has the file open.

    Raises `StoreUnusable` and its kind.
    """
    name = os.fspath(place.path.absolute())
    flags = apsw.SQLITE_OPEN_READONLY
    if alone:
        name, flags = f"{place.path.absolute().as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    _look_at(place.path, create=False)
    try:
        connection = bare(name, flags, place.vfs)
    except apsw.Error as error:
        raise unusable(place.path, error) from error
    try:
        wait_for_others(connection, place.deadline_ms)
        if connection.pragma("application_id") != schema.APPLICATION_ID:
            raise _not_ours(place.path)
    except BaseException as error:
        cut = _cut(place.path, connection) if isinstance(error, apsw.CorruptError) else None
        with suppress(apsw.Error):
            connection.close()
        if isinstance(error, apsw.Error):
            raise cut or _unreadable(place.path, error) from error
        raise
    return connection


def _cut(path: Path, connection: driver.Connection) -> errors.StoreCorrupt | None:
    """What to say of a file whose head tells of more pages than there are."""
    with suppress(apsw.Error):
        _, head = connection.read("main", 0, 0, 100)
        size, should = path.stat().st_size, int.from_bytes(head[16:18]) * int.from_bytes(head[28:32])
        if size < should:
            fill = f"a copy can be read in part once 'truncate --size {should}' filled it up"
            return errors.StoreCorrupt(
                f"The database {path} is cut off: {size} of its {should} bytes are there; {fill}"
            )
    return None


def _not_ours(path: Path) -> errors.StoreUnusable:
    size = path.stat().st_size
    what = "it is a database of another program" if size >= SMALLEST else "it is too short to be a database"
    what = what if size else "it is empty, and no Perdure database"
    return errors.StoreUnusable(f"Cannot open {path}: {what}")


def _unreadable(path: Path, error: apsw.Error) -> errors.StoreError:
    """Why a file that could be opened could not be read."""
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError):
        why = f"what was last written lies in {path.name}-wal, which cannot be read without making files beside it"
        return errors.StoreUnusable(f"Cannot open {path}: {why}; copy both to a folder of your own")
    return unusable(path, error)


def _connect(place: Place) -> driver.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE  # and never CREATE: a file that went away must not come back empty
    try:
        connection = bare(os.fspath(place.path), flags, place.vfs)
    except apsw.Error as error:
        raise unusable(place.path, error) from error
    # A plan does not depend on what is bound: else every statement that a partial index might serve is planned at each call.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    wait_for_others(connection, place.busy_timeout_ms)
    return connection


def bare(name: str, flags: int, vfs: str | None = None) -> driver.Connection:
    """A connection with nothing set up."""
    return apsw.Connection(name, flags, vfs=vfs, statementcachesize=STATEMENTS)


def wait_for_others(connection: driver.Connection, milliseconds: int) -> None:
    """Have the connection try a lock again and again for that long.

    SQLite's own waiting looks ten times a second, so one that commits without pause would keep another process out for long.
    """
    until = 0.0

    def look_again(looks: int) -> bool:
        nonlocal until
        now = time.monotonic()
        if not looks:
            until = now + milliseconds / 1000
        if now >= until:
            return False
        time.sleep(min(looks + 1, 8) * PAUSE / 4)
        return True

    connection.set_busy_handler(look_again)


def _understand(place: Place, connection: driver.Connection) -> None:
    """Find out what the file is before anything is written to it, then set the connection up."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    version = patiently(place, lambda: _schema_version(place, connection))
    if connection.readonly("main"):
        msg = f"Cannot open {place.path}: the file is read-only"
        raise errors.StoreUnusable(msg)
    if connection.pragma("journal_mode") != "wal":
        mode = patiently(place, lambda: connection.pragma("journal_mode", "wal"))
        if mode != "wal":
            msg = f"Cannot open {place.path}: its file system keeps no write-ahead log"
            raise errors.StoreUnusable(msg)
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("recursive_triggers", True)
    connection.pragma("temp_store", "memory")  # where savepoints keep what they may have to put back
    connection.pragma("cache_size", -16_384)
    connection.pragma("journal_size_limit", 16 << 20)
    connection.wal_autocheckpoint(0)  # the committer does it, once the callers have their answers
    if version < schema.CURRENT:
        migrator = importlib.import_module("perdure.store.migrate")  # a door: most files are up to date
        patiently(place, lambda: migrator.migrate(connection))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def _schema_version(place: Place, connection: driver.Connection) -> int:
    version: int = connection.pragma("user_version")
    if connection.pragma("application_id") != schema.APPLICATION_ID and connection.pragma("schema_version"):
        raise _not_ours(place.path)
    schema.refuse_newer(version)
    return version


# -- what can be wrong with a path ---------------------------------------------------------------------------------------


def _look_at(path: Path, *, create: bool) -> None:
    """Say in one line what is wrong with the path, and create a missing file for its owner alone."""
    if os.path.isdir(path):  # noqa: PTH112 - which answers where the path's own raises
        msg = f"Cannot open {path}: it is a directory"
        raise errors.StoreUnusable(msg)
    if not create:
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: Path, error: Exception) -> errors.StoreError:
    """What is wrong with a path, from the error that opening it raised."""
    if isinstance(error, driver.BUSY):
        return errors.StoreBusy(f"The database {path} stayed busy beyond the deadline")
    if isinstance(error, apsw.NotADBError):
        return errors.StoreUnusable(f"Cannot open {path}: it is not a database")
    if isinstance(error, apsw.CorruptError):
        return errors.StoreCorrupt(f"The database {path} is damaged: {error}")
    if isinstance(error, apsw.FullError):
        return errors.StoreFull(f"The disk of {path} is full")
    if isinstance(error, apsw.IOError | apsw.NoMemError):
        return errors.StoreFailed(f"Cannot open {path}: the disk failed to read or write")
    return errors.StoreUnusable(f"Cannot open {path}: {_why(path, error)}")


def _why(path: Path, error: Exception) -> str:
    """The reason in a few words; SQLite's own are only 'unable to open database file'."""
    try:
        if not path.parent.is_dir():
            return f"there is no directory {path.parent}"
        if not path.exists():
            return (error.strerror or str(error)).lower() if isinstance(error, OSError) else "the file is gone"
    except PermissionError:
        return "permission denied"
    if not _allowed(path, os.R_OK):
        return "permission denied"
    if not _allowed(path, os.W_OK):
        return "the file is read-only"
    if not _allowed(path.parent, os.W_OK):
        return f"no files can be created in {path.parent}"
    return str(error)


def _allowed(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
