"""Who hears of a commit: listeners apart from each other, bounded channels, signals that are never stored."""

import asyncio
import logging

import anyio.lowlevel
import pytest

from perdure import errors
from perdure.core import events


async def test_a_failing_listener_is_logged_and_neither_fails_publish_nor_starves_the_next_log_6(log, kit, caplog):
    heard = []

    async def bad(event):
        raise ZeroDivisionError("oh")

    async def good(event):
        heard.append(event.seq)

    log.live.listen(bad)
    log.live.listen(good)
    with caplog.at_level(logging.ERROR, "perdure.log"):
        recorded = await log.publish(kit.Noted())
    assert heard == [recorded.seq]
    (line,) = caplog.records
    assert line.getMessage() == "Event listener failed"
    assert (line.event_id, line.event_type, line.cause) == (recorded.id, "test.noted", "ZeroDivisionError('oh')")


async def test_a_cancelled_listener_surfaces_as_cancellation_with_the_event_committed_log_6(log, kit):
    heard = []

    async def cancelled(event):
        raise asyncio.CancelledError

    async def good(event):
        heard.append(event.seq)

    stop = log.live.listen(cancelled)
    log.live.listen(good)
    with pytest.raises(asyncio.CancelledError):
        await log.publish(kit.Noted())
    assert await log.last_seq("a") == 0
    stop()
    await log.publish(kit.Noted())
    assert heard == [0, 1]


async def test_a_publisher_cancelled_while_listeners_run_leaves_them_running_log_6(log, kit):
    inside, go, heard = asyncio.Event(), asyncio.Event(), []

    async def slow(event):
        inside.set()
        await go.wait()
        heard.append(event.seq)

    log.live.listen(slow)
    task = asyncio.create_task(log.publish(kit.Noted()))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await log.publish(kit.Noted())
    assert heard == [0, 1]


async def test_a_listener_that_stops_gets_nothing_more_even_of_the_event_being_told_log_6(log, kit):
    heard = []

    async def first(event):
        stop()

    async def second(event):
        heard.append(event.seq)

    log.live.listen(first)
    stop = log.live.listen(second)
    await log.publish(kit.Noted())
    stop()
    assert heard == []


async def test_a_listener_may_publish_to_the_same_aggregate_and_that_is_announced_after_log_7(log, kit):
    heard = []

    async def publishes(event):
        if event.data.text == "first":
            await log.publish(kit.Noted(text="second"))
            await log.publish(kit.Noted(text="third"))
        heard.append(("publishes", event.data.text))

    async def plain(event):
        heard.append(("plain", event.data.text))

    log.live.listen(publishes)
    log.live.listen(plain)
    async with asyncio.timeout(kit.SECONDS):
        await log.publish(kit.Noted(text="first"))
        await log.publish(kit.Noted(text="last"))
    texts = ["first", "second", "third", "last"]
    assert heard == [(who, text) for text in texts for who in ("publishes", "plain")]


async def test_listeners_of_two_aggregates_may_publish_to_each_other_log_7(log, kit):
    heard = []

    async def echoes(event):
        heard.append((event.aggregate_id, event.seq))
        if len(heard) < 20:
            await log.publish(kit.Noted(thread="b" if event.aggregate_id == "a" else "a"))

    log.live.listen(echoes)
    async with asyncio.timeout(kit.SECONDS):
        await asyncio.gather(log.publish(kit.Noted(thread="a")), log.publish(kit.Noted(thread="b")))
        while log.live._backlog:
            await anyio.lowlevel.checkpoint()
    for thread in "ab":
        seqs = [seq for aggregate, seq in heard if aggregate == thread]
        assert seqs == list(range(len(seqs)))
        assert await log.last_seq(thread) == seqs[-1]


async def test_a_slow_listener_of_one_aggregate_does_not_hold_up_another_log_7(log, kit):
    go, inside, heard = asyncio.Event(), asyncio.Event(), []

    async def listener(event):
        if event.aggregate_id == "a":
            inside.set()
            await go.wait()
        heard.append(event.aggregate_id)

    log.live.listen(listener)
    task = asyncio.create_task(log.publish(kit.Noted(thread="a")))
    await inside.wait()
    await log.publish(kit.Noted(thread="b"))
    assert heard == ["b"]
    go.set()
    await task
    assert heard == ["b", "a"]


async def test_a_listener_of_a_signal_fails_its_publisher_at_once_log_6(log, kit):
    heard = []

    async def bad(event):
        raise ZeroDivisionError

    async def never(event):
        heard.append(event)

    log.live.listen(bad)
    log.live.listen(never)
    with pytest.raises(ZeroDivisionError):
        await log.signal(kit.Typing(text="x"))
    assert heard == []


async def test_a_signal_reaches_followers_who_ask_listeners_and_channels_and_is_never_stored_log_10(log, kit):
    heard = []

    async def listener(event):
        heard.append(event)

    log.live.listen(listener)
    with (
        log.live.following("a", signals=True) as asks,
        log.live.following("a") as does_not,
        log.live.subscribe(kit.Typing) as typed,
    ):
        await log.signal(kit.Typing(text="x"))
        log.signal_nowait(kit.Typing(text="y"))
        assert [event.data.text for event in asks.buffer] == ["x", "y"]
        assert not does_not.buffer
        assert [event.data.text for event in await kit.take(aiter(typed), 2)] == ["x", "y"]
    assert [(event.data.text, isinstance(event, events.Announced)) for event in heard] == [("x", True)]
    assert await log.store.read(lambda tx: tx.events.last_position()) == 0


async def test_a_subscriber_that_overflows_fails_alone_and_stays_failed_log_8(log, kit):
    with log.live.subscribe(limit=3) as slow, log.live.subscribe(limit=10) as other:
        for number in range(5):
            await log.publish(kit.Counted(number=number))
        assert [event.seq for event in await kit.take(aiter(slow), 3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(errors.SubscriberOverflow):
                await kit.take(aiter(slow), 1)
        await log.publish(kit.Counted(number=5))
        assert [event.seq for event in await kit.take(aiter(other), 6)] == list(range(6))


async def test_exactly_its_capacity_is_no_overflow_log_8(log, kit):
    with log.live.subscribe(limit=3) as subscriber:
        for _ in range(4):
            for _ in range(3):
                await log.publish(kit.Noted())
            await kit.take(aiter(subscriber), 3)
        assert not subscriber.overflowed


async def test_events_that_are_filtered_out_use_no_capacity_log_8(log, kit):
    with log.live.subscribe(kit.Counted, limit=1) as subscriber:
        for _ in range(10):
            await log.publish(kit.Noted())
        await log.publish(kit.Counted(number=7))
        for _ in range(10):
            await log.publish(kit.Noted())
        assert [event.data.number for event in await kit.take(aiter(subscriber), 1)] == [7]


async def test_nothing_is_kept_of_readers_that_left_log_8(log, kit):
    async def listener(event):
        pass

    stop = log.live.listen(listener)
    with log.live.following("a"), log.live.following(None), log.live.subscribe(), log.live.subscribe(kit.Noted):
        await log.publish(kit.Noted())
    stop()
    stop()
    live = log.live
    readers = (live._followers, live._everything, live._listeners, live._typed, live._global, live._backlog)
    assert not any(readers)
