"""Reading and following: pages, the one marker, and no gap and no repeat whatever happens between two reads."""

import asyncio
import itertools
import random
from contextlib import aclosing

import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import errors
from perdure.core import events
from perdure.log import live
from perdure.log.log import Synced
from perdure.store.sqlite import SqliteStore

FRESH = itertools.count()


def seqs(items):
    """Seqs of events, the marker as a pair."""
    return [("synced", item.seq) if isinstance(item, Synced) else item.seq for item in items]


async def test_read_pages_by_seq_log_10(log, kit):
    await log.publish_many([kit.Counted(number=n) for n in range(5)])
    assert seqs(await log.read("a", limit=2)) == [0, 1]
    assert seqs(await log.read("a", 1, 2)) == [2, 3]
    assert seqs(await log.read("a", 3, 2)) == [4]
    assert await log.read("a", 4) == []
    assert await log.read("nothing") == []


@pytest.mark.parametrize(("published", "last"), [(0, -1), (3, 2)])
async def test_a_cursor_beyond_the_end_is_refused_and_names_the_last_seq_log_10(log, kit, published, last):
    await log.publish_many([kit.Noted() for _ in range(published)])
    for beyond in (last + 1, last + 100):
        with pytest.raises(errors.CursorBeyondEnd) as refused:
            await log.read("a", beyond)
        assert refused.value.last_seq == last
        assert str(last) in str(refused.value)
        with pytest.raises(errors.CursorBeyondEnd) as refused:
            await anext(log.follow("a", beyond))
        assert refused.value.last_seq == last
    assert not log.live._followers


async def test_five_events_in_pages_of_two_then_the_marker_then_what_follows_log_10(log, kit):
    await log.publish_many([kit.Noted() for _ in range(5)])
    async with aclosing(log.follow("a", page=2)) as following:
        assert seqs(await kit.take(following, 6)) == [0, 1, 2, 3, 4, ("synced", 4)]
        await log.publish(kit.Noted())
        assert seqs(await kit.take(following, 1)) == [5]


async def test_a_cursor_at_the_end_still_gets_the_marker_log_10(log, kit):
    await log.publish_many([kit.Noted() for _ in range(3)])
    async with aclosing(log.follow("a", 2)) as following:
        assert seqs(await kit.take(following, 1)) == [("synced", 2)]
        await log.publish(kit.Noted())
        assert seqs(await kit.take(following, 1)) == [3]
    async with aclosing(log.follow("a", 1)) as following:
        assert seqs(await kit.take(following, 3)) == [2, 3, ("synced", 3)]


async def test_an_empty_log_has_no_marker_log_10(log, kit):
    async with aclosing(log.follow("a")) as following:
        first = asyncio.create_task(anext(following))
        while not log.live._followers:
            await anyio.lowlevel.checkpoint()
        await log.publish(kit.Noted())
        assert seqs([await first]) == [0]


async def test_signals_are_live_only_and_come_after_the_history_log_10(log, kit):
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a", signals=True)) as following, aclosing(log.follow("a")) as facts:
        for source in (following, facts):
            assert seqs(await kit.take(source, 2)) == [0, ("synced", 0)]
        log.signal_nowait(kit.Typing(text="x"))
        await log.publish(kit.Noted())
        signal, fact = await kit.take(following, 2)
        assert isinstance(signal, events.Announced)
        assert (signal.data.text, fact.seq) == ("x", 1)
        assert seqs(await kit.take(facts, 1)) == [1]
    assert seqs(await log.read("a")) == [0, 1]


# A follower of five events in pages of two reads the end first, then three pages.
READS = [f"{side} read {number}" for number in (1, 2, 3, 4) for side in ("before", "after")]


@pytest.mark.parametrize("commits", [1, 3, 64])
@pytest.mark.parametrize("point", READS)
async def test_what_is_committed_while_history_is_read_comes_once_and_in_order_log_10(
    stopping_log, stops, kit, *, point, commits
):
    log = stopping_log
    await log.publish_many([kit.Noted() for _ in range(5)])
    stops.at(point)
    got = []

    async def follow():
        async with aclosing(log.follow("a", page=2)) as following:
            while len(got) < 6 + commits:
                got.append(await anext(following))

    async with asyncio.timeout(kit.SECONDS), asyncio.TaskGroup() as group:
        group.create_task(follow())
        await stops.reached(point)
        for _ in range(commits):
            await log.publish(kit.Noted())
        stops.go(point)
    end = 4 + commits if point == "before read 1" else 4
    assert [item for item in seqs(got) if isinstance(item, int)] == list(range(5 + commits))
    assert seqs(got).index(("synced", end)) == end + 1


@pytest.mark.parametrize("point", ["before wake", "after wake"])
async def test_64_rapid_commits_share_a_wake_and_all_come_in_order_log_10(log, kit, stops, monkeypatch, point):
    waits, wait = [], live.Follower.wait

    async def stopping(follower):
        await stops.passing("before wake")
        await wait(follower)
        waits.append(1)
        await stops.passing("after wake")

    monkeypatch.setattr(live.Follower, "wait", stopping)
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a")) as following:
        await kit.take(following, 2)
        stops.at("before wake")
        stops.at(point)
        first = asyncio.create_task(anext(following))
        await stops.reached("before wake")
        if point == "after wake":
            await log.publish(kit.Noted())
            stops.go("before wake")
            await stops.reached(point)
        await asyncio.gather(*(log.publish(kit.Noted()) for _ in range(64)))
        stops.go(point)
        last = await log.last_seq("a")
        got = [await first, *await kit.take(following, last - 1)]
    assert seqs(got) == list(range(1, last + 1))
    assert last == 65 if point == "after wake" else 64
    assert len(waits) == 1


async def test_a_follower_that_is_up_to_date_reads_nothing_log_10(stopping_log, kit):
    log, reading = stopping_log, stopping_log.store
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a")) as following:
        await kit.take(following, 2)
        reading.reads = 0
        for number in range(50):
            await log.publish(kit.Noted())
            assert seqs(await kit.take(following, 1)) == [number + 1]
    assert reading.reads == 0


class Interleaved:
    """A store and a bell at each of whose edges the next step of a schedule happens, however the follower got there."""

    def __init__(self, inner, schedule):
        self.inner, self.schedule = inner, list(schedule)
        self.step = None  # what carries a step out

    async def edge(self):
        if self.schedule:
            await self.step(self.schedule.pop(0))

    async def read(self, work):
        await self.edge()
        result = await self.inner.read(work)
        await self.edge()
        return result

    async def write(self, work, *, committed=None):
        return await self.inner.write(work, committed=committed)

    def on_foreign_commit(self, ring):
        return lambda: None


class Done(Exception):
    """The schedule is at its end and everything was told."""


STEPS = st.tuples(st.sampled_from(["here", "there", "there, unheard", "signals", "ring"]), st.integers(1, 5))
CASES = st.fixed_dictionaries(
    {
        "history": st.integers(0, 5),
        "after": st.integers(-1, 4),
        "page": st.integers(1, 3),
        "room": st.integers(1, 4),
        "schedule": st.lists(STEPS, max_size=14),
    }
)


class Race:
    """One follower of one fresh aggregate, and everything that happens to it while it reads."""

    def __init__(self, kit, here, there, case):
        self.kit, self.aggregate, self.page = kit, f"a{next(FRESH)}", case["page"]
        self.after = min(case["after"], case["history"] - 1)
        self.store = Interleaved(here, case["schedule"])
        self.store.step = self.step
        self.log, self.there = kit.log(self.store), kit.log(there)
        for log in (self.log, self.there):
            log._entropy = random.Random(f"{next(FRESH)}").randbytes
        following = self.log.live.following
        self.log.live.following = lambda one, signals: following(one, signals=signals, limit=case["room"])
        self.unheard = False

    async def step(self, one):
        what, count = one
        for number in range(count if what != "ring" else 0):
            if what == "signals":
                self.log.signal_nowait(self.kit.Typing(session_id=self.aggregate, text=str(number)))
            else:
                await (self.log if what == "here" else self.there).publish(self.kit.Noted(thread=self.aggregate))
        if what in {"there", "ring"}:
            self.log.live.ring_all()
            self.unheard = False
        self.unheard = self.unheard or what == "there, unheard"

    async def wait(self, follower):
        """What the follower does where it has nothing to read."""
        await self.store.edge()
        if not (self.store.schedule or follower._bell.is_set()):
            if not self.unheard:
                raise Done
            self.unheard = False
            self.log.live.ring_all()
        if follower._bell.is_set():
            follower._bell.clear()

    async def run(self):
        """All that was told, until there is nothing left to tell."""
        got = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live.Follower, "wait", lambda follower: self.wait(follower))  # noqa: PLW0108 - a function binds
            try:
                async for item in self.log.follow(self.aggregate, self.after, signals=True, page=self.page):
                    got.append(item)  # noqa: PERF401 - a comprehension would lose them when Done comes
            except Done:
                return [item for item in got if not isinstance(item, events.Announced)]
        raise AssertionError("the follower ended")


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=CASES)
@pytest.mark.parametrize("store", ["inline"], indirect=True)
async def test_no_schedule_makes_a_gap_or_a_repeat_log_10(store, place, kit, case):
    there = await SqliteStore.open(place, seam="inline")
    race = Race(kit, store, there, case)
    for _ in range(case["history"]):
        await race.there.publish(kit.Noted(thread=race.aggregate))
    told = seqs(await race.run())
    last = await race.there.last_seq(race.aggregate)
    await there.close()
    markers = [item for item in told if not isinstance(item, int)]
    assert [item for item in told if isinstance(item, int)] == list(range(race.after + 1, last + 1))
    assert len(markers) == 1 or (markers == [] and case["history"] == 0)
    if markers:
        assert told.index(markers[0]) == markers[0][1] - race.after


@pytest.mark.parametrize("published", [10, 11, 12, 35])
async def test_a_follower_that_stops_reading_is_bounded_and_misses_nothing_log_10(log, kit, published):
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a", page=100)) as following:
        await kit.take(following, 2)
        (follower,) = log.live._followers["a"]
        follower.limit = 10
        for _ in range(published):
            await log.publish(kit.Noted())
        assert len(follower.buffer) <= 10
        assert seqs(await kit.take(following, published)) == list(range(1, published + 1))


async def test_what_another_process_commits_reaches_followers_log_7_log_10(threaded, kit, other_process):
    log = kit.log(threaded)
    writer = other_process()
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a", page=7)) as following:
        await kit.take(following, 2)
        await writer.do("publish", 20)
        await log.publish(kit.Noted(text="here"))
        await writer.do("publish", 3)
        got = await kit.take(following, 24)
    assert seqs(got) == list(range(1, 25))
    assert [event.data.text for event in got[:2]] == ["foreign 0", "foreign 1"]
    assert got == await log.read("a", 0)
    log.close()


async def test_a_follower_ends_where_its_aggregate_is_removed_here_log_10(log, kit):
    await log.publish(kit.Noted())
    async with aclosing(log.follow("a")) as following, aclosing(log.follow("b")) as other:
        await kit.take(following, 2)
        await log.publish(kit.Noted(thread="b"))
        await kit.take(other, 2)

        def work(unit):
            unit.append(kit.Noted(text="last"))
            unit.remove("a")

        await log.transact(work)
        assert [event.data.text for event in await kit.take(following, 1)] == ["last"]
        with pytest.raises(StopAsyncIteration):
            await kit.take(following, 1)
        await log.publish(kit.Noted(thread="b"))
        assert seqs(await kit.take(other, 1)) == [1]


async def test_a_follower_ends_where_another_process_removed_its_aggregate_log_10(threaded, kit, other_process):
    log = kit.log(threaded)
    writer = other_process()
    await log.publish_many([kit.Noted() for _ in range(3)])
    async with aclosing(log.follow("a")) as following:
        await kit.take(following, 4)
        await writer.do("remove")
        with pytest.raises(StopAsyncIteration):
            await kit.take(following, 1)
    log.close()


async def test_the_feed_gives_every_aggregate_in_order_and_then_what_comes_log_7(log, kit):
    for thread in "abab":
        await log.publish(kit.Noted(thread=thread))
    async with aclosing(log.feed(page=3)) as feed:
        assert [(e.aggregate_id, e.seq) for e in await kit.take(feed, 4)] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
        assert await kit.take(feed, 1) == [Synced(4)]
        await asyncio.gather(*(log.publish(kit.Noted(thread=thread)) for thread in "abcabc"))
        got = await kit.take(feed, 6)
    for thread, expected in (("a", [2, 3]), ("b", [2, 3]), ("c", [0, 1])):
        assert [event.seq for event in got if event.aggregate_id == thread] == expected
    positions = [event.position for event in got]
    assert positions == sorted(positions)
    async with aclosing(log.feed(positions[3])) as feed:
        assert [event.position for event in await kit.take(feed, 2)] == positions[4:]
