"""Fail the n-th operation on the disk, one run for each n: what was promised holds (LOG-3, LOG-12, LOG-13).

The run opens a file, commits some batches with a unit that fails among them, reads, checkpoints and closes. A fault strikes the
n-th operation of a kind, once or for good, and n goes up until no operation is left to fail. Of the many reads and writes only
some are taken, with a stride that meets every kind of page in time.
"""

import asyncio
import itertools

import apsw
import pytest

from perdure import errors
from perdure.store import group_commit
from perdure.store.sqlite import SqliteStore
from perdure.testing.fault_vfs import Fault, FaultVFS


class Refused(Exception):
    pass


class Run:
    """One run, and what it was told of each unit."""

    def __init__(self, path, build, disk, seam):
        self.path, self.build, self.disk, self.seam = path, build, disk, seam
        self.committed, self.failed, self.unknown = [], [], []

    async def all(self):
        try:
            store = await SqliteStore.open(self.path, vfs=self.disk.name, seam=self.seam, deadline_ms=50, readers=1)
        except errors.StoreError:
            return
        for batch in range(2):
            await asyncio.gather(*(self.unit(store, f"evt_{batch}_{number}") for number in range(3)))
            with pytest.raises((Refused, errors.StoreError)):
                await store.write(self.refusing)
            try:
                await store.read(self.build.ids)
            except errors.StoreError:
                continue
        self.disk.clear()
        await self.unit(store, "evt_last")
        assert self.committed[-1] == "evt_last", "there is service once the fault is gone"
        await store.close()

    async def unit(self, store, event_id):
        try:
            seq = await store.write(self.build.append(event_id, data="x" * 3_000))
        except errors.StoreFailed as error:
            (self.unknown if "not known" in str(error) else self.failed).append(event_id)
        except errors.StoreError:
            self.failed.append(event_id)
        else:
            self.committed.append(event_id)
            assert seq >= 0

    def refusing(self, tx):
        self.build.append("evt_refused", data="x" * 3_000)(tx)
        raise Refused

    async def promises(self):
        self.disk.clear()
        store = await SqliteStore.open(self.path)
        rows = await store.read(lambda tx: tx.events.page("a", -1, 99))
        check = await store.read(self.build.rows("PRAGMA integrity_check"))
        await store.close()
        found = [row.id for row in rows]
        assert check == [("ok",)]
        assert [row.seq for row in rows] == list(range(len(rows)))
        assert set(self.committed) <= set(found)
        assert set(found) <= {*self.committed, *self.unknown}


CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_FULL,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}


@pytest.fixture
def early(monkeypatch):
    """Checkpoints come early."""
    monkeypatch.setattr(group_commit, "CHECKPOINT_PAGES", 8)
    monkeypatch.setattr(group_commit, "WAL_PAGES", 16)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "for good"])
@pytest.mark.parametrize("seam", ["thread", "inline"])
@pytest.mark.parametrize("operation", CODES)
@pytest.mark.usefixtures("early")
async def test_whichever_operation_fails_what_was_promised_holds(tmp_path, build, operation, seam, times):
    disk = FaultVFS("every operation")
    stride = {"read": 7, "write": 11}.get(operation, 2 if seam == "inline" else 1)
    for number in itertools.count(0, stride):
        disk.clear()
        fault = disk.arm(Fault(operation, CODES[operation], skip=number, times=times, short=number % 2 == 0))
        run = Run(tmp_path / f"{number}.db", build, disk, seam)
        await run.all()
        await run.promises()
        if not fault.hits:
            assert number
            return
