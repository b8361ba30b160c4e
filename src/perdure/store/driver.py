"""What we use of apsw, and what its exceptions mean above the store.

Lives here: the connection as our code sees it (apsw's own stubs are half unknown to a type checker before Python 3.12) and the
one table from SQLite's complaints to our errors. Not here: opening (`sqlite_connection.py`), retrying (`group_commit.py`,
`readers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import apsw

from perdure import errors

BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
PHYSICAL = (
    apsw.IOError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.NoMemError,
    apsw.InterruptError,
)
UNSTORABLE = (UnicodeEncodeError, OverflowError)
"""Text that is not Unicode, a number beyond 64 bits."""


class Connection(Protocol):
    """The part of an apsw connection that is used here."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; an error may have ended it."""
        ...

    def execute(self, statements: str, bindings: Any = None) -> Any:
        """Run SQL; a cursor."""
        ...

    def pragma(self, name: str, value: Any = None) -> Any:
        """Ask or set."""
        ...

    def status(self, op: int) -> tuple[int, int]:
        """A counter and its highest value."""
        ...

    def config(self, op: int, *args: int) -> int:
        """Switch a behaviour."""
        ...

    def readonly(self, name: str) -> bool:
        """Whether the file could only be opened for reading."""
        ...

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None:
        """Ask this whether to try a lock again."""
        ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None:
        """Call after each commit with the number of pages in the WAL."""
        ...

    def wal_autocheckpoint(self, n: int) -> None:
        """Checkpoint by itself every `n` pages."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = ...) -> tuple[int, int]:
        """Move the WAL into the file."""
        ...

    def read(self, schema: str, which: int, offset: int, amount: int) -> tuple[bool, bytes]:
        """Bytes of the file, and whether there were so many."""
        ...

    def backup(self, databasename: str, sourceconnection: Any, sourcedatabasename: str) -> Any:
        """Begin to copy the source into this one."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


def translated(error: BaseException) -> BaseException:
    """What a caller above the store gets for an exception: apsw's become ours, the rest stay as they are."""
    if isinstance(error, StopIteration):  # which neither a future nor a coroutine can raise
        return errors.Defect("A unit of work raised StopIteration")
    if isinstance(error, UNSTORABLE):  # of a value that was to be bound
        return errors.InvalidInput(f"The database holds no such value: {error}")
    if not isinstance(error, apsw.Error):
        return error
    found = _typed(error)
    found.__cause__ = error
    return found


def is_physical(error: apsw.Error) -> bool:
    """Whether the disk failed and not the statement."""
    return isinstance(_typed(error), errors.StoreError)


def _typed(error: apsw.Error) -> errors.PerdureError:
    if isinstance(error, BUSY):
        return errors.StoreBusy()
    if isinstance(error, apsw.FullError):
        return errors.StoreFull()
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return errors.StoreCorrupt(f"The database file is damaged ({str(error) or type(error).__name__})")
    if isinstance(error, PHYSICAL):
        return errors.StoreFailed(f"The disk failed to read or write ({str(error) or type(error).__name__})")
    if isinstance(error, apsw.TooBigError):
        return errors.TooLarge("A value is larger than the database holds")
    return errors.Defect(f"The database refused a statement: {error}")
