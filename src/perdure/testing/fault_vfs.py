"""A disk that fails on demand, under the very SQLite driver that is shipped.

Lives here: `FaultVFS`, the operating system's file layer with counters and with faults that are armed and cleared: a write
that finds the disk full, fails or is cut short, a sync that fails, a read that fails, a file that will not open. Not here:
anything of the store; a test opens its store with `vfs=disk.name`.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import Any, Literal

import apsw

Operation = Literal["open", "read", "write", "sync", "truncate"]
Kind = Literal["database", "wal", "other"]


@dataclass(slots=True, eq=False)
class Fault:
    """Operations of one kind fail with an SQLite code: after `skip` that pass, `times` of them (None: until cleared).

    `short` lets half of the bytes of a failing write through.
    """

    operation: Operation
    code: int
    on: Kind | None = None
    skip: int = 0
    times: int | None = None
    short: bool = False
    hits: int = 0

    def strikes(self, operation: Operation, kind: Kind) -> bool:
        """Whether this operation is one that fails; counts it."""
        if operation != self.operation or (self.on is not None and kind != self.on):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


class FaultVFS(apsw.VFS):
    """Register a file layer under `name`; it lives as long as this object does."""

    def __init__(self, name: str) -> None:
        """No fault is armed."""
        self.name = name
        self.counts: collections.Counter[tuple[Operation, Kind]] = collections.Counter()
        self._faults: list[Fault] = []
        super().__init__(name, "")

    def arm(self, fault: Fault) -> Fault:
        """Have it strike from now on."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """The disk is well again."""
        self._faults.clear()

    def happens(self, operation: Operation, kind: Kind) -> Fault | None:
        """Count an operation; the fault that strikes it."""
        self.counts[operation, kind] += 1
        return next((fault for fault in tuple(self._faults) if fault.strikes(operation, kind)), None)

    def syncs(self) -> int:
        """How often anything waited for the disk."""
        return sum(count for (operation, _), count in self.counts.items() if operation == "sync")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        """Open through this layer."""
        kind: Kind = "other"
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            kind = "database"
        elif flags[0] & apsw.SQLITE_OPEN_WAL:
            kind = "wal"
        fault = self.happens("open", kind)
        if fault:
            raise apsw.exception_for(fault.code)
        return _File(self, kind, name, flags)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: types.TracebackType | None
    ) -> bool:
        """A failure that SQLite passes over, as it does in a checkpoint at close, is none to print."""
        return True


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultVFS, kind: Kind, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._kind: Kind = kind
        super().__init__("", name, flags)

    def _pass(self, operation: Operation) -> None:
        fault = self._disk.happens(operation, self._kind)
        if fault:
            raise apsw.exception_for(fault.code)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._pass("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        fault = self._disk.happens("write", self._kind)
        if fault is None:
            self._write(data, offset)
            return
        if fault.short:
            self._write(bytes(data)[: len(data) // 2], offset)
        raise apsw.exception_for(fault.code)

    def _write(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - apsw's Buffer, before Python 3.12

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._pass("sync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._pass("truncate")
        super().xTruncate(newsize)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: types.TracebackType | None
    ) -> bool:
        return True
