"""One SQLite file: how a connection to it is opened, set up and understood when it fails.

Lives here: the checks before opening, pragmas, recognising our file and its schema, and the table from apsw's exceptions to ours.
Not here: transactions (`group_commit.py`), threads (`sqlite.py`), how a schema grows (`migrate.py`). Nothing here opens the file
by other means than SQLite: closing any descriptor of it would drop this process's POSIX locks, so only a file that does not exist
yet is created by hand, for the sake of its mode.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from perdure import errors
from perdure.store import migrate

T = TypeVar("T")

BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
STATEMENTS = 256
PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class Place:
    """A file and how patient one is with it."""

    path: Path
    busy_timeout_ms: int = 1_000
    deadline_ms: int = 10_000
    vfs: str | None = None

    def deadline(self) -> float:
        """Until when (monotonic seconds) something begun now may wait for other processes."""
        return time.monotonic() + self.deadline_ms / 1000


def translated(error: BaseException) -> BaseException:
    """What a caller above the store gets for an exception raised in a unit: apsw's become ours, the rest stay as they are."""
    if not isinstance(error, apsw.Error):
        return error
    found = _typed(error)
    found.__cause__ = error
    return found


def _typed(error: apsw.Error) -> errors.PerdureError:
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return errors.StoreBusy()
        case apsw.FullError():
            return errors.StoreFull()
        case apsw.CorruptError() | apsw.NotADBError():
            return errors.StoreCorrupt(f"The database file is damaged: {error}")
        case apsw.TooBigError():
            return errors.TooLarge("A value is larger than the database holds")
        case (
            apsw.IOError()
            | apsw.CantOpenError()
            | apsw.ReadOnlyError()
            | apsw.PermissionsError()
            | apsw.NoMemError()
            | apsw.InterruptError()
        ):
            return errors.StoreFailed(f"The disk failed to read or write: {error}")
        case _:
            return errors.Defect(f"The database refused a statement: {error}")


def is_physical(error: BaseException) -> bool:
    """Whether the disk failed and not the unit."""
    return isinstance(error, apsw.Error) and isinstance(_typed(error), errors.StoreError)


def patiently(place: Place, action: Callable[[], T]) -> T:
    """Run `action`, again while another process is in the way, until the deadline. Raises `StoreBusy`."""
    deadline = place.deadline()
    while True:
        try:
            return action()
        except BUSY as error:
            if time.monotonic() >= deadline:
                raise errors.StoreBusy from error
            time.sleep(PAUSE)


def open_writer(place: Place) -> apsw.Connection:
    """A connection that writes and is the only one of this store that checkpoints; migrates the schema where it is old.

    Raises `StoreUnusable`, `SchemaTooNew` (nothing is changed then), `StoreBusy`, or another `StoreError`.
    """
    _look_at(place.path)
    connection = _connect(place)
    try:
        _understand(place, connection)
    except BaseException as error:
        with suppress(apsw.Error):
            connection.close(force=True)
        if isinstance(error, apsw.Error):
            raise _unusable(place.path, error) from error
        raise
    return connection


def open_reader(place: Place) -> apsw.Connection:
    """A connection that cannot write."""
    connection = _connect(place)
    connection.wal_autocheckpoint(0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("query_only", True)
    return connection


def _connect(place: Place) -> apsw.Connection:
    try:
        connection = apsw.Connection(
            os.fspath(place.path), apsw.SQLITE_OPEN_READWRITE, vfs=place.vfs, statementcachesize=STATEMENTS
        )
    except apsw.Error as error:
        raise _unusable(place.path, error) from error
    connection.set_busy_timeout(place.busy_timeout_ms)
    return connection


def _understand(place: Place, connection: apsw.Connection) -> None:
    """Find out what the file is before anything is written to it, then set the connection up."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    version = patiently(place, lambda: _schema_version(place, connection))
    if connection.readonly("main"):
        msg = f"Cannot open {place.path}: the file is read-only"
        raise errors.StoreUnusable(msg)
    if connection.pragma("journal_mode") != "wal":
        patiently(place, lambda: connection.pragma("journal_mode", "wal"))
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("recursive_triggers", True)
    connection.pragma("temp_store", "memory")
    connection.pragma("cache_size", -16_384)
    connection.pragma("journal_size_limit", 16 << 20)
    connection.wal_autocheckpoint(0)
    if version < migrate.CURRENT:
        patiently(place, lambda: migrate.migrate(connection))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def _schema_version(place: Place, connection: apsw.Connection) -> int:
    version: int = connection.pragma("user_version")
    mark: int = connection.pragma("application_id")
    if mark != migrate.APPLICATION_ID and (version or connection.pragma("schema_version")):
        msg = f"Cannot open {place.path}: it is a database of another program"
        raise errors.StoreUnusable(msg)
    migrate.refuse_newer(version)
    return version


# -- what can be wrong with a path ---------------------------------------------------------------------------------------


def _look_at(path: Path) -> None:
    """Say in one line what is wrong with the path, and create a missing file for its owner alone."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        if path.is_dir():
            msg = f"Cannot open {path}: it is a directory"
            raise errors.StoreUnusable(msg) from None
    except OSError as error:
        raise _unusable(path, error) from error
    else:
        os.close(descriptor)


def _unusable(path: Path, error: Exception) -> errors.StoreError:
    if isinstance(error, BUSY):
        return errors.StoreBusy(f"The database {path} stayed busy beyond the deadline")
    if isinstance(error, apsw.NotADBError):
        return errors.StoreUnusable(f"Cannot open {path}: it is not a database")
    if isinstance(error, apsw.CorruptError):
        return errors.StoreCorrupt(f"The database {path} is damaged: {error}")
    if isinstance(error, apsw.FullError):
        return errors.StoreFull(f"The disk of {path} is full")
    return errors.StoreUnusable(f"Cannot open {path}: {_why(path, error)}")


def _why(path: Path, error: Exception) -> str:
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not path.exists():
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        return "the file is gone"
    if not os.access(path, os.R_OK):
        return "permission denied"
    if not os.access(path, os.W_OK):
        return "the file is read-only"
    if not os.access(path.parent, os.W_OK):
        return f"no files can be created in {path.parent}"
    return str(error)
