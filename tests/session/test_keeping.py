"""One task that sees to every lease in time: each when it is due, none late because of another."""

import asyncio

import pytest

from perdure.session.keeping import Keeper
from perdure.testing.fake_clock import FakeClock


class Bench:
    """A keeper whose leases are names: each seen to every 100 ms, and stuck where a gate is closed."""

    def __init__(self):
        self.clock, self.gates, self.seen, self.running = FakeClock(0), {}, [], 0
        self.keeper = Keeper(self.clock, self.see_to)

    def keep(self, name, due):
        return self.keeper.keep(name, due)

    async def see_to(self, name):
        began = self.clock.suspend_ms()
        self.running += 1
        try:
            if gate := self.gates.get(name):
                await gate.wait()
        finally:
            self.running -= 1
        self.seen.append((name, began))
        return began + 100

    async def pass_ms(self, ms):
        self.clock.advance(ms)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.keeper.close()


async def test_each_lease_is_seen_to_when_it_is_due_also_one_that_comes_later_and_is_due_earlier_ex_1(bench):
    bench.keep("a", 100)
    await bench.pass_ms(10)
    bench.keep("b", 50)
    for _ in range(20):
        await bench.pass_ms(10)
    assert bench.seen == [("b", 50), ("a", 100), ("b", 150), ("a", 200)]


async def test_a_lease_whose_renewal_is_stuck_delays_no_other_ex_1(bench):
    bench.gates["stuck"] = asyncio.Event()
    bench.keep("stuck", 100)
    bench.keep("b", 100)
    for _ in range(3):
        await bench.pass_ms(100)
    assert bench.seen == [("b", 100), ("b", 200), ("b", 300)]
    bench.gates["stuck"].set()
    await bench.pass_ms(0)
    assert bench.seen[3:] == [("stuck", 100), ("stuck", 300)], "what is overdue is seen to at once"


async def test_nothing_of_a_lease_runs_once_it_is_dropped_ex_1(bench):
    bench.gates["a"] = asyncio.Event()
    kept = bench.keep("a", 100)
    await bench.pass_ms(100)
    assert bench.running == 1
    await bench.keeper.drop(kept)
    assert bench.running == 0
    await bench.pass_ms(1_000)
    assert bench.seen == []


async def test_where_nothing_is_kept_no_task_is_left_ex_1(bench):
    before = asyncio.all_tasks()
    await bench.keeper.drop(bench.keep("a", 100))
    await bench.pass_ms(100)
    assert asyncio.all_tasks() == before
    await bench.keeper.drop(bench.keep("b", 300))
    bench.keeper.close()
    await bench.pass_ms(0)
    assert asyncio.all_tasks() == before
