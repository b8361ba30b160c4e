"""Units of work: each in one transaction, each alone in its failure, in one order for all (LOG-3, LOG-7, LOG-13)."""

import asyncio
import threading

import pytest

from perdure import errors


class Refused(Exception):
    pass


async def test_a_unit_answers_what_its_work_returned(store, build):
    assert await store.write(build.append("evt_1")) == 0
    assert await store.write(build.append("evt_2")) == 1
    assert await store.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_unit_that_raises_leaves_nothing_behind_log_3(store, build):
    heard = []

    def work(tx):
        build.append("evt_1")(tx)
        build.session(tx)
        raise Refused

    with pytest.raises(Refused):
        await store.write(work, committed=heard.append)
    assert await store.read(build.ids) == []
    assert await store.read(lambda tx: (tx.sessions.get("ses_1"), tx.events.sequence("a"))) == (None, (-1, None))
    assert heard == []


async def test_a_failing_unit_fails_alone_log_13(store, build):
    def failing(tx):
        build.append("evt_bad")(tx)
        raise Refused

    works = [failing if number % 3 == 0 else build.append(f"evt_{number}") for number in range(30)]
    outcomes = await asyncio.gather(*(store.write(work) for work in works), return_exceptions=True)
    assert [isinstance(one, Refused) for one in outcomes] == [number % 3 == 0 for number in range(30)]
    assert [one for one in outcomes if not isinstance(one, Refused)] == list(range(20)), (
        "no number is lost to a failure"
    )
    assert await store.read(build.ids) == [f"evt_{number}" for number in range(30) if number % 3]


async def test_a_unit_sees_the_units_before_it(store, build):
    def count(tx):
        seen = len(build.ids(tx))
        build.append(f"evt_{seen}")(tx)
        return seen

    assert await asyncio.gather(*(store.write(count) for _ in range(20))) == list(range(20))


async def test_committed_is_called_in_commit_order_before_any_caller_goes_on_log_7(store, build):
    told = []

    async def one(number):
        def work(tx):
            tx.events.next_seq(f"a{number}")
            tx.events.append(build.event(f"evt_{number}", f"a{number}"))
            tx.flush()
            return tx.events.positions[0]

        position = await store.write(work, committed=told.append)
        assert position in told
        return position

    positions = await asyncio.gather(*(one(number) for number in range(100)))
    assert told == sorted(positions)


async def test_an_exception_of_committed_reaches_its_caller_alone_and_the_unit_stays(store, build):
    def failing(result):
        raise Refused

    outcomes = await asyncio.gather(
        store.write(build.append("evt_1")),
        store.write(build.append("evt_2"), committed=failing),
        store.write(build.append("evt_3")),
        return_exceptions=True,
    )
    assert [type(one) for one in outcomes] == [int, Refused, int]
    assert await store.read(build.ids) == ["evt_1", "evt_2", "evt_3"]


async def test_a_reference_left_without_its_row_fails_its_unit_alone_log_13(store, build):
    """The reference is deferred: checked at the end of the unit, not at the end of the batch."""

    def dangling(tx):
        build.session(tx, "ses_bad")
        build.sql(
            "INSERT INTO session_recovery (execution_id, session_id, continuation_message_id, phase, time_created)"
            " VALUES ('exe_1', 'ses_bad', 'msg_nowhere', 'safe', 1)"
        )(tx)

    good, bad, other = await asyncio.gather(
        store.write(build.append("evt_1")),
        store.write(dangling),
        store.write(build.append("evt_2")),
        return_exceptions=True,
    )
    assert (good, other) == (0, 1)
    assert isinstance(bad, errors.Defect)
    assert await store.read(lambda tx: tx.sessions.get("ses_bad")) is None


async def test_a_violated_constraint_is_a_defect_and_fails_alone(store, build):
    await store.write(build.append("evt_1"))
    same_place = build.event("evt_2", "a", 0)
    outcomes = await asyncio.gather(
        store.write(lambda tx: tx.events.append(same_place)),
        store.write(build.append("evt_3")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], errors.Defect)
    assert outcomes[1] == 1


async def test_a_unit_that_reads_cannot_write(store, build):
    with pytest.raises(errors.Defect):
        await store.read(build.append("evt_1"))
    assert await store.read(build.ids) == []


async def test_what_a_reading_unit_raises_is_raised_and_the_next_reads_on(store, build):
    def work(tx):
        raise Refused

    for _ in range(5):
        with pytest.raises(Refused):
            await store.read(work)
    assert await store.read(build.ids) == []


async def test_a_write_that_returned_is_seen_by_every_later_read(store, build):
    for number in range(50):
        await store.write(build.append(f"evt_{number}"))
        last = await asyncio.gather(*(store.read(lambda tx: len(build.ids(tx))) for _ in range(3)))
        assert last == [number + 1] * 3


async def test_a_read_sees_one_snapshot_however_much_is_written_meanwhile(threaded, build):
    await threaded.write(build.append("evt_1"))
    loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def work(tx):
        before = build.ids(tx)
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(10)
        return before, build.ids(tx)

    reading = asyncio.ensure_future(threaded.read(work))
    await inside.wait()
    await threaded.write(build.append("evt_2"))  # and it does not wait for the reader
    go_on.set()
    assert await reading == (["evt_1"], ["evt_1"])
    assert await threaded.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_cancelled_writer_hears_of_it_once_the_outcome_is_known_log_7(threaded, build):
    loop, inside, go_on, told = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def work(tx):
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(10)
        return build.append("evt_1")(tx)

    writing = asyncio.ensure_future(threaded.write(work, committed=told.append))
    queued = asyncio.ensure_future(threaded.write(build.append("evt_2"), committed=told.append))
    await inside.wait()
    for task in (writing, queued, writing):
        task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    assert not queued.done()
    go_on.set()
    outcomes = await asyncio.gather(writing, queued, return_exceptions=True)
    assert [type(one) for one in outcomes] == [asyncio.CancelledError] * 2
    assert told == [0, 1]
    assert await threaded.read(build.ids) == ["evt_1", "evt_2"]


async def test_a_cancelled_writer_whose_unit_fails_hears_of_the_cancellation(threaded):
    loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def work(tx):
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(10)
        raise Refused

    writing = asyncio.ensure_future(threaded.write(work))
    await inside.wait()
    writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_a_time_limit_around_a_write_ends_after_the_commit(threaded, build):
    go_on = threading.Event()

    def work(tx):
        assert go_on.wait(10)
        return build.append("evt_1")(tx)

    loop = asyncio.get_running_loop()
    loop.call_later(0.02, go_on.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await threaded.write(work)
    assert await threaded.read(build.ids) == ["evt_1"]


async def test_a_cancelled_reader_is_let_go_at_once(threaded, build):
    loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def work(tx):
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(10)

    reading = asyncio.ensure_future(threaded.read(work))
    await inside.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    go_on.set()
    assert await threaded.read(build.ids) == []


async def test_closing_finishes_what_was_accepted(threaded, build):
    writing = [asyncio.ensure_future(threaded.write(build.append(f"evt_{number}"))) for number in range(20)]
    await asyncio.sleep(0)
    await threaded.close()
    assert await asyncio.gather(*writing) == list(range(20))


async def test_a_closed_store_refuses(store, build):
    await store.close()
    await store.close()
    with pytest.raises(errors.StoreUnusable, match="closed"):
        await store.write(build.append("evt_1"))
    with pytest.raises(errors.StoreUnusable, match="closed"):
        await store.read(build.ids)


@pytest.mark.parametrize("raised", [StopIteration, KeyError, asyncio.CancelledError])
async def test_whatever_a_unit_raises_the_next_is_served(store, build, raised):
    def work(tx):
        raise raised

    with pytest.raises((raised, errors.Defect)):
        await store.write(work)
    assert await store.write(build.append("evt_1")) == 0
