"""A disk in trouble under the shipped driver: a typed error, nothing half done, and service once the trouble is over."""

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import apsw
import pytest

from perdure import errors
from perdure.store.sqlite import SqliteStore
from perdure.testing.fault_vfs import Fault

FAULTS = {
    "disk full": (Fault("write", apsw.SQLITE_FULL), errors.StoreFull),
    "disk full in the middle": (Fault("write", apsw.SQLITE_FULL, skip=1), errors.StoreFull),
    "short write": (Fault("write", apsw.SQLITE_FULL, short=True), errors.StoreFull),
    "write error": (Fault("write", apsw.SQLITE_IOERR_WRITE), errors.StoreFailed),
    "short write error": (Fault("write", apsw.SQLITE_IOERR_WRITE, short=True), errors.StoreFailed),
    "sync error": (Fault("sync", apsw.SQLITE_IOERR_FSYNC), errors.StoreFailed),
    "no permission": (Fault("write", apsw.SQLITE_PERM), errors.StoreFailed),
    "read-only": (Fault("write", apsw.SQLITE_READONLY), errors.StoreFailed),
}


@pytest.mark.parametrize("seam", ["thread", "inline"])
@pytest.mark.parametrize("name", FAULTS)
async def test_trouble_is_typed_leaves_nothing_behind_and_passes(tmp_path, disk, build, name, seam):
    pattern, expected = FAULTS[name]
    store = await SqliteStore.open(tmp_path / "log.db", vfs=disk.name, seam=seam)
    await store.write(build.append("evt_0"))
    disk.arm(Fault(pattern.operation, pattern.code, skip=pattern.skip, short=pattern.short))
    works = [build.append(f"evt_bad_{number}", data="x" * 9_000) for number in range(5)]
    outcomes = await asyncio.gather(*map(store.write, works), return_exceptions=True)
    assert [type(one) for one in outcomes] == [expected] * 5
    assert await store.read(build.ids) == ["evt_0"]
    disk.clear()
    assert await store.write(build.append("evt_1")) == 1
    assert await store.read(build.ids) == ["evt_0", "evt_1"]
    await store.close()
    again = await SqliteStore.open(tmp_path / "log.db")
    assert await again.read(build.ids) == ["evt_0", "evt_1"]
    await again.close()


@pytest.mark.parametrize("verb", ["read", "write"])
async def test_a_read_error_is_typed_and_passes(tmp_path, disk, verb):
    store = await SqliteStore.open(tmp_path / "log.db")
    digest = await store.write(lambda tx: tx.content.put(b"x" * 500_000))
    await store.close()
    store = await SqliteStore.open(tmp_path / "log.db", vfs=disk.name)
    disk.arm(Fault("read", apsw.SQLITE_IOERR_READ, on="database"))
    with pytest.raises(errors.StoreFailed):
        await getattr(store, verb)(lambda tx: tx.content.get(digest))
    disk.clear()
    assert len(await getattr(store, verb)(lambda tx: tx.content.get(digest))) == 500_000
    await store.close()


async def test_a_checkpoint_that_fails_fails_nobody(tmp_path, disk, build):
    store = await SqliteStore.open(tmp_path / "log.db", vfs=disk.name)
    fault = disk.arm(Fault("write", apsw.SQLITE_FULL, on="database"))
    for number in range(30):
        await store.write(build.append(f"evt_{number}", data="x" * 200_000))
    assert fault.hits
    disk.clear()
    await store.close()
    again = await SqliteStore.open(tmp_path / "log.db")
    assert len(await again.read(build.ids)) == 30
    await again.close()


# -- another process in the way ------------------------------------------------------------------------------------------


async def test_busy_beyond_the_deadline_is_store_busy_log_12(tmp_path, build):
    store = await SqliteStore.open(tmp_path / "log.db", busy_timeout_ms=5, deadline_ms=40)
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("BEGIN IMMEDIATE")
    works = [build.append(f"evt_{number}") for number in range(3)]
    outcomes = await asyncio.gather(*map(store.write, works), return_exceptions=True)
    assert [type(one) for one in outcomes] == [errors.StoreBusy] * 3
    assert await store.read(build.ids) == []
    other.execute("ROLLBACK")
    assert await store.write(build.append("evt_9")) == 0
    other.close()
    await store.close()


async def test_busy_before_the_deadline_is_waited_for_log_12(tmp_path, disk, build):
    store = await SqliteStore.open(tmp_path / "log.db", busy_timeout_ms=1, deadline_ms=10_000)
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("BEGIN IMMEDIATE")
    writing = [asyncio.ensure_future(store.write(build.append(f"evt_{number}"))) for number in range(3)]
    await store.read(build.ids)  # a round trip through another thread, in which the writer finds the file busy
    other.execute("ROLLBACK")
    assert await asyncio.gather(*writing) == [0, 1, 2]
    other.close()
    await store.close()


# -- what is wrong with a file -------------------------------------------------------------------------------------------


async def unusable(path, match):
    with pytest.raises(errors.StoreUnusable, match=match) as caught:
        await SqliteStore.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_missing_directory_is_named(tmp_path):
    await unusable(tmp_path / "no" / "log.db", "there is no directory")


async def test_a_directory_is_no_database(tmp_path):
    await unusable(tmp_path, "it is a directory")


@pytest.mark.parametrize("content", [b"hello world, this is no database at all. " * 30, b"x" * 5000])
async def test_a_file_that_is_no_database_is_left_alone(tmp_path, content):
    (tmp_path / "log.db").write_bytes(content)
    await unusable(tmp_path / "log.db", "not a database")
    assert (tmp_path / "log.db").read_bytes() == content


async def test_a_database_of_another_program_is_left_alone(tmp_path):
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("CREATE TABLE cake (flavour)")
    other.close()
    before = (tmp_path / "log.db").read_bytes()
    await unusable(tmp_path / "log.db", "another program")
    assert (tmp_path / "log.db").read_bytes() == before


async def test_a_file_that_went_away_does_not_come_back_empty(tmp_path, disk, build):
    store = await SqliteStore.open(tmp_path / "log.db", vfs=disk.name)
    await store.write(build.append("evt_1"))
    (tmp_path / "log.db").rename(tmp_path / "moved.db")
    disk.arm(Fault("write", apsw.SQLITE_IOERR_WRITE))
    with pytest.raises(errors.StoreError):
        await store.write(build.append("evt_2"))
    disk.clear()
    assert not (tmp_path / "log.db").exists()
    await store.close()


async def put_back(store, path, moved, build):
    """Once the file is back, what is written goes into it, behind what was there."""
    moved.rename(path)
    assert await store.write(build.append("evt_2")) == 1
    await store.close()
    again = await SqliteStore.open(path)
    assert await again.read(build.ids) == ["evt_1", "evt_2"]
    await again.close()


@pytest.mark.parametrize("seam", ["thread", "inline"])
@pytest.mark.parametrize("other", [None, "copy", "foreign"])
async def test_nothing_is_written_where_another_file_or_none_took_the_place_and_all_goes_on_once_it_is_back_db_1(
    tmp_path, build, other, seam
):
    path = tmp_path / "log.db"
    store = await SqliteStore.open(path, seam=seam)
    await store.write(build.append("evt_1"))
    if other == "copy":
        (tmp_path / "new.db").write_bytes(path.read_bytes())
    elif other == "foreign":
        apsw.Connection(str(tmp_path / "new.db")).execute("CREATE TABLE cake (flavour)").fetchall()
    path.rename(tmp_path / "moved.db")
    if other:
        (tmp_path / "new.db").rename(path)
    for _ in range(2):
        works = [build.append(f"evt_lost_{number}") for number in range(2)]
        outcomes = await asyncio.gather(*map(store.write, works), return_exceptions=True)
        assert [type(one) for one in outcomes] == [errors.StoreUnusable] * 2
        assert "taken away" in str(outcomes[0])
    with pytest.raises(errors.StoreUnusable):  # nor does a reader that opens now read another file
        await store.read(build.ids)
    await put_back(store, path, tmp_path / "moved.db", build)


async def test_a_failing_disk_is_no_way_into_a_file_that_took_the_place_db_1(tmp_path, disk, build):
    path = tmp_path / "log.db"
    store = await SqliteStore.open(path, vfs=disk.name)
    await store.write(build.append("evt_1"))
    (tmp_path / "new.db").write_bytes(path.read_bytes())
    path.rename(tmp_path / "moved.db")
    (tmp_path / "new.db").rename(path)
    fault = disk.arm(Fault("write", apsw.SQLITE_IOERR_WRITE))
    with pytest.raises(errors.StoreFailed):  # more than the page cache holds, so that the disk fails before the end
        await store.write(lambda tx: [build.append(f"evt_{n}", data="x" * 9_000)(tx) for n in range(3_000)])
    assert fault.hits
    disk.clear()
    await put_back(store, path, tmp_path / "moved.db", build)


async def test_a_new_file_is_its_owners_alone(tmp_path, build):
    before = os.umask(0)
    try:
        store = await SqliteStore.open(tmp_path / "log.db")
    finally:
        os.umask(before)
    await store.write(build.append("evt_1"))
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("log.db*")} == {
        "log.db": "0o600",
        "log.db-wal": "0o600",
        "log.db-shm": "0o600",
    }
    await store.close()


async def test_a_damaged_page_is_store_corrupt_and_a_restored_file_serves(tmp_path, build):
    path = tmp_path / "log.db"
    store = await SqliteStore.open(path)
    for number in range(20):
        await store.write(build.append(f"evt_{number}", data="x" * 3_000))
    ((page,),) = await store.read(build.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'event'"))
    await store.close()
    backup = path.read_bytes()
    path.write_bytes(backup[: (page - 1) * 4096] + b"\xff" * 4096 + backup[page * 4096 :])
    store = await SqliteStore.open(path)
    with pytest.raises(errors.StoreCorrupt):
        await store.read(build.ids)
    with pytest.raises(errors.StoreCorrupt):
        await store.write(build.append("evt_new"))
    await store.close()
    path.write_bytes(backup)
    store = await SqliteStore.open(path)
    assert len(await store.read(build.ids)) == 20
    await store.close()


async def test_a_damaged_schema_is_store_corrupt_at_the_door(tmp_path):
    path = tmp_path / "log.db"
    await (await SqliteStore.open(path)).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(errors.StoreCorrupt, match=r"log\.db is damaged"):
        await SqliteStore.open(path)


def as_nobody(path):
    """What opening says to a user who is not root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        return opening(path)
    finally:
        if root:
            os.seteuid(0)


def opening(path):
    async def attempt():
        try:
            store = await SqliteStore.open(path)
        except errors.PerdureError as error:
            return f"{type(error).__name__}: {error}"
        await store.close()
        return "opened"

    return asyncio.run(attempt())


@pytest.fixture
def public():
    """A directory that everybody reaches, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.mark.parametrize(
    ("file_mode", "directory_mode", "answer"),
    [
        (0o000, 0o777, "permission denied"),
        (0o444, 0o777, "read-only"),
        (0o666, 0o555, "no files can be created in"),
        (None, 0o555, "permission denied"),
        (0o666, 0o700, "permission denied"),
        (0o666, 0o777, "opened"),
    ],
)
def test_what_may_not_be_used_is_named(public, file_mode, directory_mode, answer):
    path = public / "log.db"
    if file_mode is not None:
        assert opening(path) == "opened"
        path.chmod(file_mode)
    public.chmod(directory_mode)
    said = as_nobody(path)
    assert answer in said
    if answer != "opened":
        assert said.startswith(f"StoreUnusable: Cannot open {path}")


# -- processes that die --------------------------------------------------------------------------------------------------

VICTIM = """
points = []

def probe(point):
    points.append(point)
    if point == args[0] and points.count("begin") > 5:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = await sqlite.SqliteStore.open(path, probe=probe)
    for number in range(9):
        await store.write(build.append(f"evt_{number}"))

asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "whole"), [("begin", 5), ("unit", 5), ("before_commit", 5), ("after_commit", 6), ("delivered", 6)]
)
async def test_a_killed_process_leaves_whole_units_and_a_wal_that_is_read(tmp_path, processes, build, point, whole):
    victim = processes.start(VICTIM, point)
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert (tmp_path / "log.db-wal").stat().st_size
    store = await SqliteStore.open(tmp_path / "log.db")
    assert await store.read(build.ids) == [f"evt_{number}" for number in range(whole)]
    assert await store.write(build.append("evt_new")) == whole
    await store.close()


@pytest.mark.crash
async def test_a_process_killed_in_a_transaction_lets_go_of_the_file(tmp_path, processes, build):
    holder = processes.start(
        "async def main():\n"
        "    store = await sqlite.SqliteStore.open(path)\n"
        "    def work(tx):\n"
        "        build.append('evt_lost')(tx)\n"
        "        print('inside', flush=True)\n"
        "        sys.stdin.read()\n"
        "    await store.write(work)\n"
        "asyncio.run(main())\n"
    )
    assert await asyncio.to_thread(holder.stdout.readline) == "inside\n"
    store = await SqliteStore.open(tmp_path / "log.db", busy_timeout_ms=5)
    writing = asyncio.ensure_future(store.write(build.append("evt_1")))
    await store.read(build.ids)
    assert not writing.done()
    holder.kill()
    assert await writing == 0
    assert await store.read(build.ids) == ["evt_1"]
    await store.close()
