"""Publishing: order inside the commit, what a failure leaves, ids, batches, and running again."""

import asyncio
import threading

import anyio.lowlevel
import apsw
import pytest

from perdure import errors
from perdure.core import codec, events
from perdure.core.value import replace
from perdure.log import live
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore


async def test_a_first_event_has_seq_0_and_comes_back_in_its_envelope_log_1(log, kit):
    recorded = await log.publish(kit.Noted(text="hi"), metadata={"by": "me"})
    assert recorded.data == kit.Noted(text="hi")
    assert (recorded.aggregate_id, recorded.seq, recorded.created, recorded.metadata) == ("a", 0, 1_000, {"by": "me"})
    assert recorded.id == "evt_a/0"
    assert await kit.stored(log) == [
        (recorded.id, 0, "test.noted.1", 1_000, '{"thread":"a","text":"hi"}', '{"by":"me"}')
    ]
    assert await log.read("a") == [recorded]


async def test_seqs_are_gap_free_in_each_aggregate_log_1(log, kit):
    seqs = [(await log.publish(kit.Noted(thread=thread))).seq for thread in "aabab"]
    assert seqs == [0, 1, 0, 2, 1]


async def test_fence_then_projectors_in_order_then_hook_then_the_event_row_log_1(store, kit):
    seen = []

    def looks(name):
        def look(tx, recorded=None):
            seen.append((name, tx.events.by_id("evt_x") is not None))

        return look

    def first(tx, recorded):
        looks("first")(tx)
        assert (recorded.id, recorded.seq, recorded.data.text) == ("evt_x", 0, "hi")

    log = kit.log(store, projectors=(first, looks("second")))

    def hook(tx, seq):
        assert seq == 0
        looks("hook")(tx)

    await log.publish(kit.Noted(text="hi"), event_id="evt_x", commit=hook, fence=looks("fence"))
    assert seen == [("fence", False), ("first", False), ("second", False), ("hook", False)]


async def test_a_lost_claim_is_found_before_the_sequence_is_touched_log_1(log, kit):
    def fence(tx):
        assert tx.events.sequence("a") == (-1, None)
        raise errors.ClaimLost

    with pytest.raises(errors.ClaimLost):
        await log.publish(kit.Noted(), fence=fence)
    assert await kit.sequence(log) == (-1, None)


async def test_followers_wake_then_listeners_in_order_then_the_typed_channel_then_the_global_one_log_1(
    log, kit, monkeypatch
):
    heard = []
    monkeypatch.setattr(live.Subscriber, "offer", lambda subscriber, event: heard.append(names[subscriber]))

    async def first(event):
        assert follower.buffer[0] is event
        heard.append("first")

    async def second(event):
        heard.append("second")

    with (
        log.live.following("a") as follower,
        log.live.subscribe() as everything,
        log.live.subscribe(kit.Noted) as typed,
    ):
        names = {everything: "global", typed: "typed"}
        log.live.listen(first)
        log.live.listen(second)
        await log.publish(kit.Noted())
    assert heard == ["first", "second", "typed", "global"]


async def test_listeners_see_the_event_row_committed_and_the_published_value_log_1(log, kit):
    heard = []

    async def listener(event):
        heard.append((event, await log.read("a")))

    log.live.listen(listener)
    recorded = await log.publish(kit.Noted())
    assert heard == [(recorded, [recorded])]


async def test_a_hook_on_an_ephemeral_event_is_refused_log_2(log, kit):
    with pytest.raises(errors.InvalidDurableEvent) as refused:
        await log.publish(kit.Typing(), commit=lambda tx, seq: None)
    assert str(refused.value) == "Local commit hooks require a durable event"
    with pytest.raises(errors.InvalidDurableEvent):
        await log.publish(kit.Typing())


@pytest.mark.parametrize("where", ["projector", "hook"])
async def test_a_failing_projector_or_hook_rolls_everything_back_and_nobody_hears_log_3(store, kit, where):
    heard = []

    def project(tx, recorded):
        tx.sessions.put_tombstone("left behind", 1)
        if where == "projector" and recorded.data.text == "bad":
            raise ZeroDivisionError

    def hook(tx, seq):
        raise ZeroDivisionError

    async def listener(event):
        heard.append(event.seq)

    log = kit.log(store, projectors=(project,))
    log.live.listen(listener)
    with log.live.following("a") as follower:
        with pytest.raises(ZeroDivisionError):
            await log.publish(kit.Noted(text="bad"), commit=hook if where == "hook" else None)
        assert not follower.buffer
    assert await kit.sequence(log) == (-1, None)
    assert await store.read(lambda tx: (tx.events.last_position(), tx.sessions.tombstone("left behind"))) == (0, None)
    assert heard == []
    assert (await log.publish(kit.Noted())).seq == 0
    assert heard == [0]


class RunsTwice:
    """A store that rolls back the first run of every unit, as one does whose commit found the database busy."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def write(self, work, *, committed=None):
        class Again(Exception):
            pass

        def rolled_back(tx):
            work(tx)
            raise Again

        with pytest.raises(Again):
            await self.inner.write(rolled_back)
        return await self.inner.write(work, committed=committed)


async def test_a_unit_that_runs_again_writes_the_same_event_once_log_3_log_12(store, kit):
    seen = []

    def project(tx, recorded):
        seen.append(recorded)

    heard = []

    async def listener(event):
        heard.append(event)

    log = kit.log(RunsTwice(store), projectors=(project,))
    log.live.listen(listener)
    recorded = await log.publish(kit.Noted())
    many = await log.publish_many([kit.Noted(), kit.Counted()])
    assert seen == [replace(one, position=-1) for one in (recorded, recorded, *many, *many)]
    assert heard == [recorded, *many]
    assert [row[0] for row in await kit.stored(log)] == [recorded.id, *(one.id for one in many)]


async def test_the_caller_may_choose_the_id_log_4(log, kit):
    assert (await log.publish(kit.Noted(), event_id="evt_mine")).id == "evt_mine"


async def test_an_id_that_is_in_the_log_is_refused_by_name_and_place_log_4(log, kit):
    await log.publish(kit.Noted())
    await log.publish(kit.Noted(), event_id="evt_mine")
    for thread in "ab":
        with pytest.raises(errors.InvalidDurableEvent) as refused:
            await log.publish(kit.Noted(thread=thread), event_id="evt_mine")
        assert str(refused.value) == "Event evt_mine already exists at aggregate a sequence 1"
    assert await kit.sequence(log, "a") == (1, None)
    assert await kit.sequence(log, "b") == (-1, None)


async def test_publish_many_is_contiguous_and_atomic_log_5(store, kit):
    def project(tx, recorded):
        if isinstance(recorded.data, kit.Counted) and recorded.data.number == 3:
            raise ZeroDivisionError

    log = kit.log(store, projectors=(project,))
    await log.publish(kit.Noted())
    many = await log.publish_many([kit.Counted(number=0), kit.Noted(), kit.Counted(number=2)])
    assert [one.seq for one in many] == [1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        await log.publish_many([kit.Counted(number=4), kit.Counted(number=3)])
    assert await log.last_seq("a") == 3
    assert await log.publish_many([]) == []


async def test_publish_many_refuses_mixed_aggregates_and_repeated_ids_before_any_write_log_5(log, kit):
    writes = []
    inner = log.store.write
    log.store.write = lambda *args, **more: writes.append(1) or inner(*args, **more)
    for payloads, event_ids in (
        ([kit.Noted(thread="a"), kit.Noted(thread="b")], None),
        ([kit.Noted(), kit.Noted()], ["evt_1", "evt_1"]),
        ([kit.Noted(), kit.Noted()], ["evt_1"]),
        ([kit.Noted(), kit.Typing()], None),
    ):
        with pytest.raises(errors.InvalidDurableEvent):
            await log.publish_many(payloads, event_ids=event_ids)
    assert writes == []


async def test_fifty_publishers_at_once_make_one_order_that_everyone_sees_log_7(threaded, kit):
    log = kit.log(threaded)
    heard, followed = [], []

    async def listener(event):
        await anyio.lowlevel.checkpoint()
        heard.append(event)

    async def follow():
        async for event in log.follow("a"):
            followed.append(event)
            if len(followed) == 500:
                return

    log.live.listen(listener)
    with log.live.subscribe() as channel:
        async with asyncio.timeout(kit.SECONDS), asyncio.TaskGroup() as group:
            group.create_task(follow())
            published = [
                group.create_task(log.publish(kit.Noted(text=f"{publisher} {number}")))
                for publisher in range(50)
                for number in range(10)
            ]
        through_channel = await kit.take(aiter(channel), 500)
    stored = await log.read("a", limit=1_000)
    assert [event.seq for event in stored] == list(range(500))
    assert heard == through_channel == followed == stored
    assert sorted((task.result() for task in published), key=lambda event: event.seq) == stored


@pytest.mark.parametrize("store", ["thread"], indirect=True)
async def test_a_cancelled_publisher_is_told_after_its_event_is_committed_and_announced_log_6_log_7(store, kit):
    heard = []
    log = kit.log(store)

    async def listener(event):
        heard.append(event.seq)

    log.live.listen(listener)
    with log.live.following("a") as follower:
        task = asyncio.create_task(log.publish(kit.Noted()))
        await anyio.lowlevel.checkpoint()  # it is with the writer now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [event.seq for event in follower.buffer] == [0]
    assert await log.last_seq("a") == 0
    await log.publish(kit.Noted())
    assert heard == [0, 1]


async def test_a_busy_database_is_waited_for_and_then_named_and_nobody_hears_log_12(place, kit):
    store = await SqliteStore.open(place, busy_timeout_ms=1, deadline_ms=40)
    log = kit.log(store)
    other = apsw.Connection(str(place))
    other.execute("BEGIN IMMEDIATE")
    with log.live.following("a") as follower:
        with pytest.raises(errors.StoreBusy):
            await log.publish(kit.Noted())
        assert not follower.buffer
    other.execute("ROLLBACK")
    assert (await log.publish(kit.Noted())).seq == 0
    other.close()
    await store.close()


async def test_publishers_share_one_commit_and_fail_alone_log_13(place, kit):
    steps, started, held = [], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def project(tx, recorded):
        if recorded.data.number < 0:
            loop.call_soon_threadsafe(started.set)
            held.wait(kit.SECONDS)
        if recorded.data.number % 3 == 1:
            raise ZeroDivisionError(recorded.data.number)

    store = await SqliteStore.open(place, probe=steps.append)
    log = Log(store, clock=kit.Clock(), entropy=kit.Entropy(), registry=kit.registry(), projectors=(project,))
    first = asyncio.create_task(log.publish(kit.Counted(thread="first", number=-3)))
    await started.wait()
    rest = [asyncio.create_task(log.publish(kit.Counted(thread=f"t{n % 4}", number=n))) for n in range(30)]
    await anyio.lowlevel.checkpoint()  # all are with the writer now
    steps.clear()
    held.set()
    outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    failed = [n for n, outcome in enumerate(outcomes[1:]) if isinstance(outcome, ZeroDivisionError)]
    assert failed == [n for n in range(30) if n % 3 == 1]
    assert steps.count("after_commit") <= 2
    assert steps.count("unit") == 31
    for thread in range(4):
        seqs = [event.seq for event in await log.read(f"t{thread}")]
        assert seqs == list(range(len(seqs)))
    await store.close()


async def test_a_class_that_the_log_does_not_know_is_refused_log_11(log):
    @events.durable("test.unknown", aggregate="thread")
    class Unknown:
        thread: str = "a"

    with pytest.raises(errors.InvalidDurableEvent):
        await log.publish(Unknown())
    assert await log.last_seq("a") == -1


@events.durable("test.renamed", version=1, aggregate="thread")
class RenamedOnce:
    thread: str
    nmae: str


@events.durable("test.renamed", version=2, aggregate="thread")
class Renamed:
    thread: str
    name: str


async def test_stored_events_of_older_versions_are_upcast_before_projection_and_reading_log_11(store, kit):
    projected = []
    registry = codec.Registry([Renamed])
    registry.define(RenamedOnce, lambda old: Renamed(thread=old.thread, name=old.nmae))
    log = kit.log(store, projectors=(lambda tx, recorded: projected.append(recorded.data),), registry=registry)
    await log.publish(RenamedOnce(thread="a", nmae="Ada"))
    await log.publish(Renamed(thread="a", name="Bob"))
    assert projected == [event.data for event in await log.read("a")]
    assert projected == [Renamed(thread="a", name="Ada"), Renamed(thread="a", name="Bob")]
    assert [row[2:5:2] for row in await kit.stored(log)] == [
        ("test.renamed.1", '{"thread":"a","nmae":"Ada"}'),
        ("test.renamed.2", '{"thread":"a","name":"Bob"}'),
    ]
