"""Group commit on SQLite: units share a wait for the disk and nothing else (LOG-12, LOG-13)."""

import asyncio
import threading

import apsw
import pytest

from perdure import errors
from perdure.core import events
from perdure.store import group_commit, sqlite_connection, sqlite_threads
from perdure.store.sqlite import SqliteStore
from perdure.testing.fault_vfs import Fault


class Refused(Exception):
    pass


class Gate:
    """A probe that holds the writer in its first transaction until opened, and counts what it passes."""

    def __init__(self):
        self.open = threading.Event()
        self.passed = []

    def __call__(self, point):
        self.passed.append(point)
        if point == "begin":
            assert self.open.wait(10)

    def count(self, point):
        return self.passed.count(point)


@pytest.fixture
async def gate():
    return Gate()


@pytest.fixture
async def store(tmp_path, gate, disk):
    store = await SqliteStore.open(tmp_path / "log.db", probe=gate, vfs=disk.name)
    yield store
    gate.open.set()
    await store.close()


def counted(work):
    """The work, and how often it ran."""
    runs = []

    def wrapped(tx):
        runs.append(1)
        return work(tx)

    return wrapped, runs


async def together(store, gate, works):
    """Run the works in one transaction; their outcomes."""
    writing = [asyncio.ensure_future(store.write(work)) for work in works]
    await asyncio.sleep(0)  # every task has put its unit into the queue, and the first is held at the gate
    gate.open.set()
    return await asyncio.gather(*writing, return_exceptions=True)


async def test_fifty_units_wait_for_the_disk_once_log_13(store, gate, disk, build):
    before = disk.syncs()
    seqs = await together(store, gate, [build.append(f"evt_{number}") for number in range(50)])
    assert seqs == list(range(50))
    assert gate.count("after_commit") == 1
    assert disk.syncs() - before <= 2, "one for the first frames of a new WAL, one for the commit"


async def test_the_outcomes_of_a_batch_reach_the_loop_in_one_call(store, gate, build, monkeypatch):
    calls = []
    tell = store._seam._tell
    monkeypatch.setattr(store._seam, "_tell", lambda *args: (calls.append(args), tell(*args)))
    await together(store, gate, [build.append(f"evt_{number}") for number in range(50)])
    assert len(calls) == 1


async def test_a_batch_is_bounded(store, gate, build):
    many = sqlite_threads.MAX_UNITS + 10
    await together(store, gate, [build.append(f"evt_{number}") for number in range(many)])
    assert gate.count("unit") == many
    assert gate.count("after_commit") >= 2


async def test_fifty_publishers_share_their_syncs(store, gate, disk, build):
    gate.open.set()
    before = disk.syncs()

    async def publisher(name):
        for number in range(20):
            await store.write(build.append(f"evt_{name}_{number}", f"a{name}"))

    await asyncio.gather(*(publisher(name) for name in range(50)))
    assert (disk.syncs() - before) / 1000 <= 0.1


async def test_a_lone_unit_is_committed_at_once(store, gate, build):
    gate.open.set()
    for number in range(5):
        await store.write(build.append(f"evt_{number}"))
    assert gate.passed[:5] == ["begin", "unit", "before_commit", "after_commit", "delivered"]
    assert gate.count("after_commit") == 5


async def test_a_failing_unit_costs_its_batch_nothing_log_13(store, gate, build):
    def failing(tx):
        build.append("evt_bad")(tx)
        raise Refused

    outcomes = await together(store, gate, [build.append("evt_1"), failing, build.append("evt_2")])
    assert [type(one) for one in outcomes] == [int, Refused, int]
    assert gate.count("after_commit") == 1
    assert await store.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_dangling_reference_costs_its_batch_nothing_log_13(store, gate, build):
    """It would otherwise be found by COMMIT, for all members."""

    def dangling(tx):
        build.session(tx)
        recovered = events.StepRecovered(session_id="ses_1", execution_id="exe_1", phase="safe")
        tx.recoveries.insert(recovered, "msg_nowhere", 1)

    other, runs = counted(build.append("evt_1"))
    outcomes = await together(store, gate, [other, dangling, build.append("evt_2")])
    assert [type(one) for one in outcomes] == [int, errors.Defect, int]
    assert gate.count("after_commit") == len(runs) == 1


# -- a transaction that vanishes under a unit ----------------------------------------------------------------------------


async def test_when_the_transaction_vanishes_innocent_units_run_again_log_13(store, gate, build):
    first, first_runs = counted(build.append("evt_1"))
    last, last_runs = counted(build.append("evt_2"))

    def vanishing(tx):
        build.append("evt_bad")(tx)
        tx.events._c.execute("ROLLBACK")
        raise apsw.FullError

    outcomes = await together(store, gate, [first, vanishing, last])
    assert [type(one) for one in outcomes] == [int, errors.StoreFull, int]
    assert (len(first_runs), len(last_runs)) == (2, 1)
    assert await store.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_unit_that_fills_the_disk_fails_alone(store, gate, disk, build):
    """Its pages spill into the WAL before the commit, where the disk is full."""
    first, first_runs = counted(build.append("evt_1"))

    def large(tx):
        disk.arm(Fault("write", apsw.SQLITE_FULL, on="wal"))
        try:
            build.append("evt_bad")(tx)
            for number in range(24):
                tx.content.put(bytes([number]) * 1_000_000)
        finally:
            disk.clear()

    outcomes = await together(store, gate, [first, large, build.append("evt_2")])
    assert [type(one) for one in outcomes] == [int, errors.StoreFull, int]
    assert len(first_runs) == 2
    assert await store.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_unit_that_filled_the_disk_once_is_given_a_second_chance(store, gate, disk, build):
    faults = [Fault("write", apsw.SQLITE_FULL, on="wal", times=1)]

    def large(tx):
        if faults:
            disk.arm(faults.pop())
        for number in range(24):
            tx.content.put(bytes([number]) * 1_000_000)
        return build.append("evt_large")(tx)

    assert await together(store, gate, [build.append("evt_1"), large]) == [0, 1]
    assert await store.read(build.ids) == ["evt_1", "evt_large"]


# -- a COMMIT that raises ------------------------------------------------------------------------------------------------


async def test_a_failed_commit_that_did_not_take_place_runs_again_log_12(store, gate, disk, build):
    works = [counted(build.append(f"evt_{number}")) for number in range(5)]
    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal", times=1))
    assert await together(store, gate, [work for work, _ in works]) == list(range(5))
    assert [len(runs) for _, runs in works] == [2] * 5
    assert await store.read(build.ids) == [f"evt_{number}" for number in range(5)]


async def test_a_failed_commit_that_did_take_place_is_told_by_what_its_event_proves_log_12(store, gate, build):
    connections = []

    def breaking(tx):
        """SQLite calls the hook once the commit is made, and an error of it becomes an error of COMMIT."""
        connections.append(tx.events._c)
        tx.events._c.set_wal_hook(fail)
        return build.append("evt_1")(tx)

    def fail(*args):
        raise apsw.IOError

    other, runs = counted(build.append("evt_2"))
    told = []
    outcomes = await together(store, gate, [breaking, other])
    assert outcomes == [0, 1]
    assert (len(connections), len(runs)) == (1, 1)
    assert await store.read(build.ids) == ["evt_1", "evt_2"]
    assert await store.write(build.append("evt_3"), committed=told.append) == 2
    assert told == [2]


async def test_another_process_s_event_of_the_same_id_proves_nothing_log_12(
    store, gate, disk, build, tmp_path, monkeypatch
):
    """Derived ids are the same everywhere: recovery's facts may come from another process while a COMMIT is in doubt."""
    genuine = sqlite_connection.open_writer

    def after_the_other_process(place, *, create):
        other = genuine(place, create=False)
        other.execute(
            "INSERT INTO event_sequence VALUES (7, 'b', 0, NULL);"
            "INSERT INTO event (id, aggregate, seq, type, created, data) VALUES ('evt_1', 7, 0, 1, 7, '{}')"
        )
        other.close()
        monkeypatch.undo()
        return genuine(place, create=create)

    works = [build.append("evt_1"), build.append("evt_2")]
    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal", times=1))
    monkeypatch.setattr(sqlite_connection, "open_writer", after_the_other_process)
    await together(store, gate, works)
    assert "evt_2" in await store.read(build.ids)


async def test_another_process_s_event_that_is_alike_in_everything_proves_nothing_log_12(
    store, gate, disk, build, monkeypatch
):
    """An id by place, the time and what is said may all come again; the proof does not."""
    genuine = sqlite_connection.open_writer

    def after_the_other_process(place, *, create):
        other = genuine(place, create=False)
        other.execute(
            "INSERT INTO event_sequence VALUES (1, 'a', 0, NULL);"
            "INSERT INTO event (aggregate, seq, type, created, data, proof) VALUES (1, 0, 1, 1, ' {}', 7)"
        )
        other.close()
        monkeypatch.undo()
        return genuine(place, create=create)

    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal", times=1))
    monkeypatch.setattr(sqlite_connection, "open_writer", after_the_other_process)
    assert await together(store, gate, [build.append(), build.append()]) == [1, 2]
    assert await store.read(build.ids) == ["evt_a/0", "evt_a/1", "evt_a/2"]


async def test_a_failed_commit_without_an_event_is_simply_run_again(store, gate, disk, build):
    gate.open.set()
    await store.write(build.session)
    work, runs = counted(lambda tx: tx.sessions.set_held("ses_1", held=True))
    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal", times=1))
    await store.write(work)
    assert len(runs) == 2
    assert (await store.read(lambda tx: tx.sessions.get("ses_1"))).held


async def test_a_failure_judged_by_rows_that_vanished_is_judged_again(store, gate, disk, build):
    runs = []

    def once(tx):
        runs.append(1)
        if len(runs) > 1:
            raise Refused
        return build.append("evt_1")(tx)

    def needs_an_empty_log(tx):
        if build.ids(tx):
            raise Refused
        return build.append("evt_2")(tx)

    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal", times=1))
    outcomes = await together(store, gate, [once, needs_an_empty_log])
    assert isinstance(outcomes[0], Refused)
    assert outcomes[1] == 0


async def test_a_failed_commit_whose_outcome_cannot_be_read_says_so(store, gate, disk, build):
    disk.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, on="wal"))
    disk.arm(Fault("open", apsw.SQLITE_CANTOPEN, on="database"))
    (outcome,) = await together(store, gate, [build.append("evt_1")])
    assert isinstance(outcome, errors.StoreFailed)
    assert "not known" in str(outcome)
    disk.clear()
    assert await store.write(build.append("evt_2")) == 0
    assert await store.read(build.ids) == ["evt_2"]


async def test_nobody_waits_for_ever_for_a_writer_that_failed_log_12(tmp_path, monkeypatch, build):
    store = await SqliteStore.open(tmp_path / "a.db")
    told = []
    monkeypatch.setattr(group_commit.Committer, "checkpoint", lambda self: 1 / 0)
    async with asyncio.timeout(10):
        assert await store.write(build.append("evt_1"), committed=told.append) == 0
        outcomes = await asyncio.gather(
            *(store.write(build.append(f"evt_{n}")) for n in (2, 3)), return_exceptions=True
        )
        assert [type(one) for one in outcomes] == [errors.StoreFailed] * 2
        assert "ZeroDivisionError" in str(outcomes[0])
        assert await store.read(build.ids) == ["evt_1"]
        await store.close()
    assert told == [0], "what was committed is told once"
