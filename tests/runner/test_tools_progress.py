"""What a running call shows: throttled, from any thread, the last value always (tool.progress of the spec's table, PUB-2)."""

import asyncio
import itertools
import threading

import pytest

from perdure import agent
from perdure.runner import tool_progress


class Clock:
    """Time that passes when the test says so."""

    def __init__(self):
        self.now = 0
        self._sleeping = []

    def suspend_ms(self):
        return self.now

    async def sleep_ms(self, ms):
        woken = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.now + ms, woken))
        await woken

    async def pass_to(self, now):
        self.now = now
        for due, woken in list(self._sleeping):
            if due <= now and not woken.done():
                woken.set_result(None)
        await settled()


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


class Watched:
    """A progress with its clock and what it wrote, each with its time and whether it was made durable."""

    def __init__(self):
        self.clock = Clock()
        self.written = []
        self.flushes = 0
        self.progress = tool_progress.Progress(self.clock, self._record, self._flush, asyncio.create_task)

    def _record(self, structured, content):
        self.written.append((self.clock.now, structured, content[0]["text"] if content else None))

    async def _flush(self):
        self.flushes += 1


@pytest.fixture
async def watched():
    made = Watched()
    yield made
    made.progress.cancel()
    await made.progress.ended()


async def test_progress_is_durable_at_once_and_then_only_the_newest_value_as_often_as_allowed(watched):
    watched.progress.report({"n": 1}, "one")
    await settled()
    assert watched.written == [(0, {"n": 1}, "one")]
    for number in range(2, 50):
        watched.progress.report({"n": number}, f"{number}")
    await settled()
    assert len(watched.written) == 1
    await watched.clock.pass_to(tool_progress.SPACING_MS)
    assert watched.written[1:] == [(tool_progress.SPACING_MS, {"n": 49}, "49")]
    assert watched.flushes == 2


async def test_there_are_never_more_than_four_in_any_second_the_last_one_included(watched):
    for now in range(0, 5000, 7):
        await watched.clock.pass_to(now)
        watched.progress.report({"now": now}, "")
        await settled()
    watched.progress.close()
    times = [time for time, _, _ in watched.written]
    assert len(times) > 10
    assert max(sum(start <= time < start + 1000 for time in times) for start in times) <= 4
    assert watched.written[-1][1] == {"now": now}


async def test_a_call_that_grows_old_leaves_fewer_and_a_reader_waits_ten_seconds_at_most_run_9(watched):
    for now in range(0, 3_600_000, 334):
        await watched.clock.pass_to(now)
        watched.progress.report({"now": now}, "")
        await settled()
    times = [time for time, _, _ in watched.written]
    gaps = [later - time for time, later in itertools.pairwise(times)]
    assert max(gaps) <= tool_progress.WIDEST_MS + 334
    assert sum(time < 10_000 for time in times) >= 28
    assert sum(time >= 600_000 for time in times) <= 3_000 / 10
    assert len(times) < 500


async def test_the_last_value_is_written_before_the_outcome_and_none_after_it(watched):
    watched.progress.report(None, "first")
    await settled()
    watched.progress.report(None, "last")
    watched.progress.close()
    assert [words for _, _, words in watched.written] == ["first", "last"]
    watched.progress.close()
    assert len(watched.written) == 2


async def test_pub_2_progress_after_the_outcome_raises_in_the_tool(watched):
    watched.progress.close()
    with pytest.raises(agent.CallSettled):
        watched.progress.report(None, "late")
    assert watched.written == []


async def test_the_same_value_again_is_no_news(watched):
    for _ in range(3):
        watched.progress.report({"n": 1}, "same")
        await watched.clock.pass_to(watched.clock.now + 1000)
    watched.progress.close()
    assert len(watched.written) == 1


async def test_a_thread_may_report(watched):
    thread = threading.Thread(target=watched.progress.report, args=({"from": "thread"}, "hello"))
    thread.start()
    await asyncio.to_thread(thread.join)
    await settled()
    assert watched.written == [(0, {"from": "thread"}, "hello")]


async def test_sec_2_progress_is_made_recordable_and_small(watched):
    watched.progress.report({"nan": float("nan"), "big": "x" * 10**6}, "\ud800" + "y" * 10**6 + "end")
    await settled()
    [(_, structured, words)] = watched.written
    assert structured is None
    assert len(words.encode()) <= 10_000
    assert words.endswith("end")
