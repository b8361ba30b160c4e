"""A store that only reads: it leaves no trace, reads what it may not write, and sees what others commit (DB-1, DB-2)."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import apsw
import pytest

from perdure import errors
from perdure.store import looking, schema, sqlite_connection
from perdure.store.sqlite import SqliteStore


@pytest.fixture
def place():
    """A directory that everybody reaches, unlike pytest's own; it and its files are anybody's again at the end."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


@pytest.fixture
async def database(place, build):
    """A file with one event, closed."""
    store = await SqliteStore.open(place / "log.db")
    await store.write(build.append("evt_1"))
    await store.close()
    return place / "log.db"


def names(place):
    return sorted(one.name for one in place.iterdir())


async def as_nobody(work):
    """What the work gives to a user who is not root, in a thread that ends before this does."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        return await work()
    finally:
        if root:
            os.seteuid(0)


async def looked_at(path, build):
    store = await SqliteStore.look(path)
    try:
        return await store.read(build.ids)
    finally:
        await store.close()


@pytest.mark.parametrize(("file_mode", "directory_mode"), [(0o444, 0o777), (0o444, 0o555), (0o644, 0o555)])
async def test_a_file_that_may_not_be_written_is_read_and_nothing_made_beside_it(
    database, build, file_mode, directory_mode
):
    before = database.read_bytes()
    database.chmod(file_mode)
    database.parent.chmod(directory_mode)
    assert await as_nobody(lambda: looked_at(database, build)) == ["evt_1"]
    assert names(database.parent) == ["log.db"]
    assert database.read_bytes() == before


async def test_a_unit_that_writes_is_refused(database, build):
    store = await SqliteStore.look(database)
    with pytest.raises(errors.ConfigError, match="reading only"):
        await store.write(build.append("evt_2"))
    with pytest.raises(errors.StoreError):
        await store.read(build.append("evt_2"))
    await store.close()
    assert await looked_at(database, build) == ["evt_1"]


async def test_a_file_in_use_is_read_together_with_its_users_and_commits_ring_db_2(database, build):
    store = await SqliteStore.look(database)
    rung = asyncio.Event()
    store.on_foreign_commit(rung.set)
    assert await store.read(build.ids) == ["evt_1"]
    for number in (2, 3):
        rung.clear()
        writer = await SqliteStore.open(database)
        await writer.write(build.append(f"evt_{number}"))
        await asyncio.wait_for(rung.wait(), 20)
        assert (await store.read(build.ids))[-1] == f"evt_{number}"
        await writer.close()
    await store.close()


async def test_what_was_read_while_somebody_came_counts_for_nothing(database, build):
    look = looking.Look(sqlite_connection.Place(database))
    seen = []

    def work(tx):
        seen.append(build.ids(tx))
        if len(seen) == 1:  # a whole other process comes and goes
            shutil.copy(database, database.with_name("other.db"))
            connection = apsw.Connection(str(database))
            connection.execute(
                "INSERT INTO event_sequence VALUES (7, 'b', 0, NULL);"
                "INSERT INTO event (id, aggregate, seq, type, created, data) VALUES ('e', 7, 0, 1, 1, '{}')"
            )
            connection.close()
        return seen[-1]

    assert look.run(work) == ["evt_1", "e"]
    assert seen == [["evt_1"], ["evt_1", "e"]]
    look.close()


async def test_what_a_dead_writer_left_in_its_wal_is_read_or_named_db_1(place, processes, build):
    code = (
        "async def main():\n"
        "    store = await sqlite.SqliteStore.open(path)\n"
        "    await store.write(build.append('evt_1'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    processes.path = path = place / "log.db"
    await asyncio.to_thread(processes.start(code).wait)
    assert names(place) == ["log.db", "log.db-shm", "log.db-wal"]
    left = {one.name: one.read_bytes() for one in place.iterdir() if one.suffix != ".db-shm"}
    for one in place.iterdir():
        one.chmod(0o444)
    place.chmod(0o555)
    assert await as_nobody(lambda: looked_at(path, build)) == ["evt_1"]
    assert left == {one.name: one.read_bytes() for one in place.iterdir() if one.suffix != ".db-shm"}
    (place / "log.db-shm").unlink()
    with pytest.raises(errors.StoreUnusable, match=r"lies in log\.db-wal"):
        await as_nobody(lambda: looked_at(path, build))


@pytest.mark.parametrize(
    ("version", "error", "words"),
    [(99, errors.SchemaTooNew, "99"), (schema.CURRENT - 1, errors.StoreUnusable, "is older than")],
)
async def test_another_schema_is_refused_and_left_as_it_is_db_1(database, build, version, error, words):
    connection = apsw.Connection(str(database))
    connection.pragma("user_version", version)
    connection.close()
    before = database.read_bytes()
    with pytest.raises(error, match=words):
        await looked_at(database, build)
    assert database.read_bytes() == before


async def test_a_file_that_goes_away_is_an_error_of_each_read_and_no_end_of_the_looking(database, build):
    look = looking.Look(sqlite_connection.Place(database))
    away = database.rename(database.with_name("away.db"))
    assert not look.changed()
    with pytest.raises(errors.StoreUnusable, match="no such file"):
        look.run(build.ids)
    away.rename(database)
    assert not look.changed()
    assert look.run(build.ids) == ["evt_1"]
    look.close()
