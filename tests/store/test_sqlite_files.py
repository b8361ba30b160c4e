"""Several users of one file, and what becomes of its WAL (DB-1, DB-2)."""

import asyncio
import collections

import apsw
import pytest

from perdure.core import codec, events
from perdure.store import group_commit
from perdure.store.sqlite import SqliteStore

PAGE = 4096


@pytest.fixture
async def pair(tmp_path):
    """Two stores on one file."""
    both = [await SqliteStore.open(tmp_path / "log.db") for _ in range(2)]
    yield both
    for store in both:
        await store.close()


async def test_one_process_may_open_a_file_several_times_db_2(pair, build):
    async def publisher(store, name):
        for number in range(25):
            await store.write(build.append(f"evt_{name}_{number}"))

    await asyncio.gather(
        *(publisher(store, f"{index}_{name}") for index, store in enumerate(pair) for name in range(4))
    )
    page = await pair[0].read(lambda tx: tx.events.page("a", -1, 999))
    assert [row.seq for row in page] == list(range(200))
    assert await pair[1].read(build.ids) == [row.id for row in page]


@pytest.mark.crash
async def test_processes_that_write_at_once_lose_nothing_db_2(tmp_path, processes, build):
    code = (
        "async def publisher(store, name):\n"
        "    return [await store.write(build.append(f'evt_{args[0]}_{name}_{n}')) for n in range(20)]\n"
        "async def main():\n"
        "    store = await sqlite.SqliteStore.open(path)\n"
        "    print(sum(await asyncio.gather(*(publisher(store, name) for name in range(5))), []))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    started = [processes.start(code, number) for number in range(3)]
    told = [await asyncio.to_thread(one.communicate) for one in started]
    seqs = [seq for said, _ in told for seq in map(int, said.strip("[]\n").split(", "))]
    assert sorted(seqs) == list(range(300)), "every number once, and each process told the truth"
    store = await SqliteStore.open(tmp_path / "log.db")
    page = await store.read(lambda tx: tx.events.page("a", -1, 999))
    assert [row.seq for row in page] == list(range(300))
    assert len({row.id for row in page}) == 300
    await store.close()


async def test_whether_an_interrupt_was_asked_for_is_found_by_an_index_of_just_those_ex_7(tmp_path, build):
    kind = codec.versioned(events.ExecutionInterruptRequested)
    store = await SqliteStore.open(tmp_path / "log.db")

    def work(tx):
        found = [tx.events.newest_interrupt("a")]
        for seq, one in enumerate(["x.1", kind, "x.1", kind, "x.1"]):
            tx.events.next_seq("a")
            tx.events.append(build.event(f"evt_{seq}", "a", seq, type=one))
        plan = f"EXPLAIN QUERY PLAN {tx.events._q.event_newest_interrupt.sql}"
        plans = tx.events._c.execute(plan, {"aggregate_id": "a"}).fetchall()
        return [*found, tx.events.newest_interrupt("a"), tx.events.newest_interrupt("b")], [row[-1] for row in plans]

    found, plans = await store.write(work)
    assert found == [-1, 3, -1]
    assert plans[0] == "SEARCH event USING COVERING INDEX event_interrupts (aggregate=?)"
    assert not any(plan.startswith("SCAN ") for plan in plans)
    await store.close()


# -- commits of others ---------------------------------------------------------------------------------------------------


async def test_a_commit_of_another_rings_db_2(pair, build):
    ours, theirs = pair
    rang = asyncio.Event()
    end = ours.on_foreign_commit(rang.set)
    for number in range(3):
        await theirs.write(build.append(f"evt_{number}"))
        async with asyncio.timeout(10):
            await rang.wait()
        rang.clear()
    end()
    end()


async def test_our_own_commits_do_not_ring(pair, build):
    ours, theirs = pair
    rings, rang = [], asyncio.Event()
    ours.on_foreign_commit(lambda: rings.append(1))
    ours.on_foreign_commit(rang.set)
    for number in range(20):
        await ours.write(build.append(f"evt_{number}"))
        ours.poll_foreign_commits()
    await ours.write(build.append("evt_last"))
    assert rings == []
    await theirs.write(build.append("evt_theirs"))
    ours.poll_foreign_commits()
    async with asyncio.timeout(10):
        await rang.wait()
    assert rings == [1]


async def test_a_commit_before_the_first_look_is_not_missed(pair, build):
    ours, theirs = pair
    rang = asyncio.Event()
    await theirs.write(build.append("evt_1"))
    ours.on_foreign_commit(rang.set)
    async with asyncio.timeout(10):
        await rang.wait()


async def test_a_bell_that_was_taken_down_is_silent(pair, build):
    ours, theirs = pair
    rings, rang = [], asyncio.Event()
    ours.on_foreign_commit(lambda: rings.append(1))()
    ours.on_foreign_commit(rang.set)
    await theirs.write(build.append("evt_1"))
    async with asyncio.timeout(10):
        await rang.wait()
    assert rings == []


async def test_on_the_inline_seam_a_bell_rings_when_asked(tmp_path, build):
    ours = await SqliteStore.open(tmp_path / "log.db", seam="inline")
    theirs = await SqliteStore.open(tmp_path / "log.db", seam="inline")
    rings = []
    end = ours.on_foreign_commit(lambda: rings.append(1))
    await ours.write(build.append("evt_1"))
    ours.poll_foreign_commits()
    assert rings == []
    await theirs.write(build.append("evt_2"))
    assert rings == []
    ours.poll_foreign_commits()
    assert rings == [1]
    end()
    await theirs.write(build.append("evt_3"))
    ours.poll_foreign_commits()
    assert rings == [1]
    await ours.close()
    await theirs.close()


# -- the WAL -------------------------------------------------------------------------------------------------------------


async def test_the_wal_is_bounded_under_readers_that_always_overlap_db_1(tmp_path, build, monkeypatch):
    """At any moment one of two readers is open; a checkpoint that never waits would never get to the end."""
    monkeypatch.setattr(group_commit, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(group_commit, "WAL_PAGES", 400)
    store = await SqliteStore.open(tmp_path / "log.db")
    await store.write(build.append("evt_first"))
    done, largest = asyncio.Event(), 0
    others = [apsw.Connection(str(tmp_path / "log.db")) for _ in range(2)]
    look = "BEGIN; SELECT position FROM event LIMIT 1"
    others[0].execute(look).fetchall()

    async def overlap():
        nonlocal largest
        while not done.is_set():
            others[1].execute(look).fetchall()
            await asyncio.sleep(0)
            others[0].execute("COMMIT")
            others.reverse()
            largest = max(largest, (tmp_path / "log.db-wal").stat().st_size)

    async def publish():
        for batch in range(100):
            works = [build.append(f"evt_{batch}_{number}", data="x" * PAGE) for number in range(25)]
            await asyncio.gather(*map(store.write, works))
        done.set()

    await asyncio.gather(overlap(), publish())
    assert largest < 2 * group_commit.WAL_PAGES * PAGE
    for other in others:
        other.close()
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.db"]


async def test_the_wal_shrinks_once_a_reader_that_held_it_has_ended(tmp_path, build):
    store = await SqliteStore.open(tmp_path / "log.db")
    await store.write(build.append("evt_1"))
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("BEGIN; SELECT count(*) FROM event").fetchall()
    wal = tmp_path / "log.db-wal"

    def large(number):
        def work(tx):
            tx.content.put(bytes([number]) * (PAGE * group_commit.CHECKPOINT_PAGES))

        return work

    for number in range(12):
        await store.write(large(number))
    held = wal.stat().st_size
    assert held > group_commit.WAL_PAGES * PAGE
    other.execute("COMMIT")
    other.close()
    number = 12
    while wal.stat().st_size >= held and number < 40:
        await store.write(large(number))
        number += 1
    assert wal.stat().st_size < held
    await store.close()


async def test_closing_leaves_one_file(tmp_path, build):
    store = await SqliteStore.open(tmp_path / "log.db")
    await store.write(build.append("evt_1"))
    await store.read(build.ids)
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.db"]


async def test_insert_or_replace_is_no_way_around_append_only_log_9(pair, build):
    """It deletes the row in its way; recursive triggers make the delete trigger fire."""
    store = pair[0]
    await store.write(build.append("evt_1"))
    for text in (
        "INSERT OR REPLACE INTO event (id, aggregate, seq, type, created, data) VALUES ('evt_1', 1, 7, 1, 1, '')",
        "REPLACE INTO event (id, aggregate, seq, type, created, data) VALUES ('evt_2', 1, 0, 1, 1, '')",
        "UPDATE OR REPLACE event SET data = ''",
    ):
        with pytest.raises(Exception, match="append-only"):
            await store.write(build.sql(text))
    assert await store.read(build.ids) == ["evt_1"]


EACH_TURN = (
    "event_append",
    "sequence_move",
    "session_move",
    "message_insert",
    "message_update",
    "part_put",
    "input_insert",
    "input_promote",
    "input_settle",
    "claim_insert",
    "claim_set_phase",
    "claim_delete",
)


async def test_no_statement_by_which_a_turn_writes_makes_a_table_of_its_own_first_db(tmp_path):
    """As a check of three values and more does that says IN, or a RETURNING."""
    store = await SqliteStore.open(tmp_path / "log.db")

    def work(tx):
        for name in EACH_TURN:
            explain = f"EXPLAIN {getattr(tx.events._q, name).sql}"
            steps = tx.events._c.execute(explain, collections.defaultdict(lambda: 1)).fetchall()
            yield name, [step[1] for step in steps]

    found = await store.write(lambda tx: dict(work(tx)))
    assert [name for name, steps in found.items() if "OpenEphemeral" in steps] == []
    await store.close()


async def test_no_statement_on_events_messages_and_parts_reads_them_all_db(tmp_path, build):
    """Whatever is asked while a session runs; checking and mending may."""
    store = await SqliteStore.open(tmp_path / "log.db")

    def work(tx):
        found = {}
        for name in tx.events._q:
            if name.startswith(("event_", "sequence_", "message_", "part_")):
                explain = f"EXPLAIN QUERY PLAN {getattr(tx.events._q, name).sql}"
                plans = tx.events._c.execute(explain, collections.defaultdict(lambda: 1)).fetchall()
                found[name] = [plan[-1] for plan in plans if plan[-1].startswith(("SCAN ", "USE TEMP"))]
        return found

    found = await store.write(work)
    assert len(found) > 20
    assert {name: plans for name, plans in found.items() if plans} == {
        "event_last_position": ["SCAN sqlite_sequence"],
        "event_type_insert": ["SCAN event"],  # for events whose type is missing, where there are any
    }
    await store.close()
