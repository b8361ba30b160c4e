"""The coordinator by named races: no database, no sessions, no sleep; every moment is an event somebody sets."""

import asyncio
import gc

import pytest

from perdure.runner.coordinator import Busy, Coordinator


class Bench:
    """A coordinator whose drains wait at a gate each; `log` tells what happened, `begun` and `cleaning` when."""

    def __init__(self, parallel: int = 1000) -> None:
        self.log: list[str] = []
        self.begun: asyncio.Queue[Busy[str]] = asyncio.Queue()
        self.cleaning: asyncio.Queue[str] = asyncio.Queue()
        self.gates: list[asyncio.Event] = []
        self.clean = asyncio.Event()
        self.clean.set()
        self.failures: list[tuple[str, str]] = []
        self.on_failed = lambda key: None
        self.ending: list[Exception | None] = []
        self.coordinator: Coordinator[str] = Coordinator(self.drain, failed=self.failed, parallel=parallel)

    async def drain(self, busy: Busy[str]) -> None:
        gate = asyncio.Event()
        self.gates.append(gate)
        number = len(self.gates) - 1
        self.log.append(f"{busy.key} {'forced' if busy.forced else 'rung'}")
        self.begun.put_nowait(busy)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cleaning.put_nowait(busy.key)
            await self.clean.wait()
            self.log.append(f"{busy.key} cleaned up after {busy.reason}")
            raise
        error = self.ending[number] if number < len(self.ending) else None
        if error:
            raise error

    def failed(self, key: str, error: Exception) -> None:
        self.failures.append((key, str(error)))
        self.on_failed(key)

    def open_all(self) -> None:
        for gate in self.gates:
            gate.set()

    async def idle(self) -> None:
        while running := self.coordinator.running():
            await asyncio.wait(running)


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.clean.set()
    bench.open_all()
    await bench.coordinator.close(0)


async def turns_of_the_loop() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_concurrent_runs_of_one_key_share_one_drain_ex_6(bench):
    runs = [asyncio.create_task(bench.coordinator.run("a")) for _ in range(5)]
    await bench.begun.get()
    await turns_of_the_loop()
    bench.open_all()
    await asyncio.gather(*runs)
    assert bench.log == ["a forced"]


async def test_a_wake_of_an_idle_key_starts_a_drain_that_is_not_forced_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    assert bench.log == ["a rung"]
    assert bench.coordinator.active() == ["a"]
    bench.open_all()
    await bench.idle()
    assert bench.coordinator.active() == []


async def test_a_run_that_joins_a_rung_drain_adds_no_forced_one_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    run = asyncio.create_task(bench.coordinator.run("a"))
    await turns_of_the_loop()
    bench.open_all()
    await run
    await bench.idle()
    assert bench.log == ["a rung"]


async def test_many_wakes_during_a_drain_make_one_more_and_a_wake_during_that_a_third_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    for _ in range(50):
        bench.coordinator.wake("a")
    bench.gates[0].set()
    await bench.begun.get()
    bench.coordinator.wake("a")
    bench.gates[1].set()
    await bench.begun.get()
    bench.gates[2].set()
    await bench.idle()
    assert bench.log == ["a rung"] * 3


async def test_a_wake_during_settlement_starts_a_successor_ex_6(bench):
    bench.ending = [ValueError("broken")]
    bench.on_failed = bench.coordinator.wake  # heard while the first drain is being settled
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.gates[0].set()
    await bench.begun.get()
    bench.gates[1].set()
    await bench.idle()
    assert bench.log == ["a rung", "a rung"]
    assert bench.failures == [("a", "broken")]


async def test_a_wake_after_a_drain_ended_but_before_it_is_settled_starts_a_successor_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    task = bench.coordinator._entries["a"].task
    task.add_done_callback(lambda _: bench.coordinator.wake("a"))
    bench.gates[0].set()
    await bench.begun.get()
    bench.gates[1].set()
    await bench.idle()
    assert bench.log == ["a rung", "a rung"]


async def test_a_wake_during_the_clean_up_of_an_interrupted_drain_starts_a_successor_ex_6(bench):
    bench.clean.clear()
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.coordinator.interrupt("a", "stop")
    await bench.cleaning.get()
    bench.coordinator.wake("a")
    bench.clean.set()
    await bench.begun.get()
    bench.gates[1].set()
    await bench.idle()
    assert bench.log == ["a rung", "a cleaned up after stop", "a rung"]


async def test_a_failure_reaches_every_waiter_and_leaves_the_key_free_ex_6(bench):
    bench.ending = [ValueError("broken")]
    runs = [asyncio.create_task(bench.coordinator.run("a")) for _ in range(3)]
    await bench.begun.get()
    bench.gates[0].set()
    assert [str(error) for error in await asyncio.gather(*runs, return_exceptions=True)] == ["broken"] * 3
    await bench.idle()
    assert bench.failures == [("a", "broken")]
    assert bench.coordinator.active() == []
    again = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    bench.gates[1].set()
    await again


async def test_a_failure_racing_a_wake_gives_the_waiter_the_failure_and_the_wake_a_successor_ex_6(bench):
    bench.ending = [ValueError("broken")]
    run = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    bench.coordinator.wake("a")
    bench.gates[0].set()
    with pytest.raises(ValueError, match="broken"):
        await run
    await bench.begun.get()
    bench.gates[1].set()
    await bench.idle()
    assert bench.log == ["a forced", "a rung"]


async def test_a_defect_of_whoever_hears_of_failures_reaches_the_waiter_and_frees_the_key_ex_6(bench):
    def raise_too(key: str) -> None:
        raise RuntimeError("the listener broke too")

    bench.ending, bench.on_failed = [ValueError("broken")], raise_too
    run = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    bench.gates[0].set()
    with pytest.raises(RuntimeError, match="the listener broke too"):
        await run
    await bench.idle()
    assert bench.coordinator.active() == []


async def test_an_interrupt_of_an_idle_key_does_nothing_and_leaves_no_reason_behind_ex_6(bench):
    assert not bench.coordinator.interrupt("a", "stop")
    bench.coordinator.wake("a")
    busy = await bench.begun.get()
    assert busy.reason is None
    bench.open_all()
    await bench.idle()


async def test_an_interrupt_before_the_drain_began_keeps_it_from_running_ex_6(bench):
    bench.coordinator.wake("a")
    assert bench.coordinator.interrupt("a", "stop")
    await bench.idle()
    assert bench.log == []
    assert bench.coordinator.active() == []


async def test_an_interrupt_cancels_the_drain_once_says_why_and_forgets_rings_before_it_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.coordinator.wake("a")
    assert bench.coordinator.interrupt("a", "stop")
    assert not bench.coordinator.interrupt("a", "again")
    await bench.idle()
    assert bench.log == ["a rung", "a cleaned up after stop"]


async def test_an_interrupt_answers_before_the_clean_up_is_done_ex_6(bench):
    bench.clean.clear()
    run = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    assert bench.coordinator.interrupt("a", "stop")
    assert bench.coordinator.active() == ["a"]
    await bench.cleaning.get()
    assert not run.done()
    bench.clean.set()
    await run  # an interrupted drain is no failure of those who wait


async def test_an_interrupt_after_the_drain_ended_attaches_no_reason_and_drops_no_ring_ex_6(bench):
    bench.coordinator.wake("a")
    busy = await bench.begun.get()
    answers: list[bool] = []

    def over() -> None:
        assert bench.coordinator._entries["a"].over
        bench.coordinator.wake("a")
        answers.append(bench.coordinator.interrupt("a", "too late"))

    bench.gates[0].set()
    asyncio.get_running_loop().call_soon(over)
    await bench.begun.get()
    bench.gates[1].set()
    await bench.idle()
    assert (answers, busy.reason) == ([False], None)
    assert bench.log == ["a rung", "a rung"]


async def test_a_run_during_interrupted_clean_up_waits_and_then_runs_forced_ex_6(bench):
    bench.clean.clear()
    first = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    bench.coordinator.interrupt("a", "stop")
    await bench.cleaning.get()
    second = asyncio.create_task(bench.coordinator.run("a"))
    await turns_of_the_loop()
    bench.clean.set()
    await first
    await bench.begun.get()
    assert not second.done()
    bench.gates[1].set()
    await second
    assert bench.log == ["a forced", "a cleaned up after stop", "a forced"]


async def test_a_run_after_the_drain_ended_is_not_answered_by_it_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()

    async def join_late() -> None:
        assert bench.coordinator._entries["a"].over
        await bench.coordinator.run("a")

    bench.gates[0].set()
    joined = asyncio.create_task(join_late())
    await bench.begun.get()
    assert not joined.done()
    bench.gates[1].set()
    await joined


async def test_cancelling_one_joiner_cancels_neither_the_drain_nor_the_others_ex_6(bench):
    leaver = asyncio.create_task(bench.coordinator.run("a"))
    stayer = asyncio.create_task(bench.coordinator.run("a"))
    busy = await bench.begun.get()
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    assert (busy.reason, stayer.done()) == (None, False)
    bench.gates[0].set()
    await stayer
    assert bench.log == ["a forced"]


async def test_the_failure_of_a_drain_whose_only_joiner_left_is_not_lost_in_the_collector_ex_6(bench, caplog):
    bench.ending = [ValueError("broken")]
    leaver = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    bench.gates[0].set()
    await bench.idle()
    gc.collect()
    assert bench.failures == [("a", "broken")]
    assert "never retrieved" not in caplog.text


async def test_keys_run_in_parallel_ex_6(bench):
    for key in "abc":
        bench.coordinator.wake(key)
    begun = {(await bench.begun.get()).key for _ in range(3)}
    assert begun == {"a", "b", "c"}
    bench.gates[1].set()
    await turns_of_the_loop()
    assert bench.coordinator.active() == ["a", "c"]


async def test_no_more_drains_run_at_once_than_there_are_slots_ex_6():
    bench = Bench(parallel=2)
    for key in "abc":
        bench.coordinator.wake(key)
    await turns_of_the_loop()
    assert bench.log == ["a rung", "b rung"]
    bench.gates[0].set()
    await turns_of_the_loop()
    assert bench.log == ["a rung", "b rung", "c rung"]
    bench.open_all()
    await bench.idle()


async def test_a_drain_that_waits_for_a_slot_can_be_interrupted_ex_6():
    bench = Bench(parallel=1)
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.coordinator.wake("b")
    await turns_of_the_loop()
    assert bench.coordinator.interrupt("b", "stop")
    await turns_of_the_loop()
    assert bench.coordinator.active() == ["a"]
    bench.open_all()
    await bench.idle()
    assert bench.log == ["a rung"]


async def test_waiting_on_another_key_holds_no_slot_ex_6():
    order: list[str] = []

    async def drain(busy: Busy[str]) -> None:
        order.append(f"{busy.key} begins")
        if busy.key == "parent":
            async with busy.aside():
                await coordinator.run("child")
        order.append(f"{busy.key} ends")

    coordinator: Coordinator[str] = Coordinator(drain, failed=lambda key, error: None, parallel=1)
    await coordinator.run("parent")
    assert order == ["parent begins", "child begins", "child ends", "parent ends"]


async def test_an_interrupt_while_aside_does_not_wait_for_a_slot_and_gives_none_away_ex_6():
    aside, hold = asyncio.Event(), asyncio.Event()
    running: list[str] = []

    async def drain(busy: Busy[str]) -> None:
        if busy.key == "waits":
            async with busy.aside():
                aside.set()
                await asyncio.Event().wait()
        running.append(busy.key)
        await hold.wait()

    coordinator: Coordinator[str] = Coordinator(drain, failed=lambda key, error: None, parallel=1)
    coordinator.wake("waits")
    await aside.wait()
    for key in "abc":
        coordinator.wake(key)
    await turns_of_the_loop()
    assert coordinator.interrupt("waits", "stop")
    await turns_of_the_loop()
    assert "waits" not in coordinator.active()
    assert running == ["a"], "one slot is still one slot"
    hold.set()
    await coordinator.close(5)
    assert running == ["a"], "closed before the others began"


async def test_twenty_thousand_self_wakes_complete_ex_6():
    count = 0

    async def drain(busy: Busy[str]) -> None:
        nonlocal count
        count += 1
        if count <= 20_000:
            coordinator.wake(busy.key)

    coordinator: Coordinator[str] = Coordinator(drain, failed=lambda key, error: None)
    await coordinator.run("a")
    while running := coordinator.running():
        await asyncio.wait(running)
    assert count == 20_001


async def test_close_lets_a_drain_finish_within_its_grace_and_starts_no_successor_ex_6(bench):
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.coordinator.wake("a")
    closing = asyncio.create_task(bench.coordinator.close(60))
    await turns_of_the_loop()
    bench.coordinator.wake("a")
    bench.coordinator.wake("b")
    await bench.coordinator.run("b")
    bench.gates[0].set()
    await closing
    assert bench.log == ["a rung"]
    assert bench.coordinator.active() == []


async def test_close_cancels_what_outlasts_its_grace_and_waits_for_the_clean_up_ex_6(bench):
    bench.clean.clear()
    run = asyncio.create_task(bench.coordinator.run("a"))
    await bench.begun.get()
    closing = asyncio.create_task(bench.coordinator.close(0, "shutdown"))
    await bench.cleaning.get()
    assert not closing.done()
    bench.clean.set()
    await closing
    await run
    assert bench.log == ["a forced", "a cleaned up after shutdown"]


async def test_close_starts_neither_who_waits_for_a_slot_nor_who_would_run_next_ex_6():
    bench = Bench(parallel=1)
    bench.clean.clear()
    bench.coordinator.wake("a")
    await bench.begun.get()
    bench.coordinator.interrupt("a", "stop")
    await bench.cleaning.get()
    following = asyncio.create_task(bench.coordinator.run("a"))
    bench.coordinator.wake("b")
    await turns_of_the_loop()
    closing = asyncio.create_task(bench.coordinator.close(0))
    await turns_of_the_loop()
    bench.clean.set()
    await closing
    await following
    assert bench.log == ["a rung", "a cleaned up after stop"]
