"""The simulator itself: time that costs nothing, seeds that replay, deaths that write nothing; and checks with teeth."""

import asyncio
import dataclasses
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import chance
import pytest
import shop

from perdure import Agent
from perdure.core import events, messages
from perdure.core.value import replace
from perdure.models import scripted
from perdure.testing import invariants, virtual_time
from perdure.testing.simulator import START_MS, Simulation


def one_turn(place, **more):
    return Simulation(lambda: [Agent("main", model=scripted.ScriptedModel([[scripted.Text("Hello")]]))], place, **more)


async def ask(app):
    session = await app.sessions.create(id="ses")
    await session.prompt("Hello?", id="hello")
    receipt = await session.wait("hello")
    return receipt.outcome


# -- virtual time ---------------------------------------------------------------------------------------------------------


def test_an_hour_of_waiting_takes_no_time():
    loop = virtual_time.VirtualLoop(limit_s=10_000)
    clock = virtual_time.VirtualClock(loop, 1_000)
    began = time.monotonic()
    loop.run_until_complete(clock.sleep_ms(3_600_000))
    assert clock.now_ms() == clock.suspend_ms() == 3_601_000
    assert time.monotonic() - began < 60
    loop.close()


def test_what_waits_shorter_goes_on_first():
    loop = virtual_time.VirtualLoop()
    order = []

    async def wait(name, seconds):
        await asyncio.sleep(seconds)
        order.append(name)

    async def main():
        await asyncio.gather(*(wait(seconds, seconds) for seconds in (0.3, 7, 0, 0.1)))

    loop.run_until_complete(main())
    loop.close()
    assert order == [0, 0.1, 0.3, 7]


def test_a_simulation_in_which_nothing_can_happen_any_more_says_so(place):
    simulation = one_turn(place, limit_s=60)

    async def wait_for_ever(app):
        await asyncio.Event().wait()

    with pytest.raises(virtual_time.Stuck, match="Still not at its end at 6"):
        simulation.live(wait_for_ever)
    loop = virtual_time.VirtualLoop()
    with pytest.raises(virtual_time.Stuck, match="no timer runs"):
        loop.run_until_complete(asyncio.Event().wait())
    loop.abandon()


# -- deaths ---------------------------------------------------------------------------------------------------------------


def test_a_death_before_a_commit_leaves_nothing_of_it_and_one_after_it_leaves_it_all(place):
    """LOG-3: the edges of one commit."""
    seqs = []
    for edge in range(1, 60):
        simulation = one_turn(place)
        if not simulation.live(ask, crash_at=edge).died:
            break
        story = shop.Story(place, shop.moody)
        story.simulation = simulation
        seqs.append(story.look(lambda log: log.last_seq("ses")))
    assert len(seqs) >= 6
    assert seqs == sorted(seqs)
    assert all(after == before for before, after in zip(seqs[1::2], seqs[2::2], strict=False)), (
        "after one is before the next"
    )


def test_code_that_unwinds_after_a_death_writes_nothing(place):
    """LOG-3: whatever `finally` does in a dead process is nobody's."""

    async def stubborn(app):
        session = await app.sessions.create(id="ses")
        try:
            await session.prompt("Hello?", id="hello")
        finally:
            await session.prompt("From the grave", id="grave")

    simulation = one_turn(place)
    assert simulation.live(stubborn, crash_at=3).died

    async def look(app):
        session = await app.sessions.get("ses")
        return [one.data.event_type async for one in session.events(follow=False)]

    assert simulation.live(look).value == ["session.created"]


def test_a_death_in_the_middle_of_nothing_comes_when_it_is_told(place):
    simulation = one_turn(place)

    async def sleep(app):
        await app.engine.world.clock.sleep_ms(1e6)

    life = simulation.live(sleep, crash_after_ms=1_234)
    assert (life.died, life.ended_ms) == (True, START_MS + 1_234)
    assert simulation.live(ask).value == "succeeded"


@pytest.mark.parametrize(("deaths", "waited"), [("seen", 0), ("lease", 30_000)])
def test_a_dead_owner_is_known_to_be_dead_at_once_or_when_its_lease_ends(place, deaths, waited):
    """EX-5, REC-1."""
    simulation = one_turn(place, deaths=deaths)
    simulation.agents = lambda: [Agent("main", model=scripted.ScriptedModel(lambda _: [scripted.Text("Hello")]))]
    dead = simulation.live(ask, crash_at=5)
    life = simulation.live(ask)
    assert life.value == "succeeded"
    assert life.ended_ms - dead.ended_ms == pytest.approx(waited, abs=1_000)


# -- replay ---------------------------------------------------------------------------------------------------------------


def digest(place, seed):
    """A hash of everything a story left in its database: ids, times and bytes, in their order."""
    story = chance.Chance(place, seed)
    story.run()
    left = story.left()
    story.remove()
    return hashlib.sha256(repr([left, story.simulation.trace, story.outside.effects]).encode()).hexdigest()


def test_a_seed_is_the_same_story_to_the_byte(place):
    """The same ids, times, rows, deaths and effects; another seed has others."""
    first = [digest(place, seed) for seed in range(5)]
    assert first == [digest(place, seed) for seed in range(5)]
    assert len(set(first)) == 5


def test_a_seed_is_the_same_story_in_a_process_that_hashes_and_lies_elsewhere(place):
    """Neither hash seeds nor addresses decide anything."""
    code = f"import chance, test_simulator, pathlib; print(test_simulator.digest(pathlib.Path({str(place)!r}), 3))"
    told = set()
    for seed in ("1", "2"):
        here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True)
        told.add(done.stdout.strip())
    assert told == {digest(place, 3)}


# -- teeth -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(place):
    """What the turn chapter leaves where nobody dies."""
    story = shop.Story(place, shop.turn)
    story.live()
    return story.left(), story.outside


def without(left, kind, *, nth=0):
    """Without one fact of a kind, or without any."""
    of_kind = [one for one in left.log if isinstance(one.data, kind)]
    gone = of_kind if nth is None else [of_kind[nth]]
    return dataclasses.replace(left, log=tuple(one for one in left.log if one not in gone))


def twice(left, kind):
    again = next(one for one in left.log if isinstance(one.data, kind))
    return dataclasses.replace(left, log=(*left.log, replace(again, seq=len(left.log))))


def rules(problems):
    return {one.split()[0] for one in problems}


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda left: without(left, events.ExecutionEnded, nth=-1), "REC-11"),
        (lambda left: without(left, events.StepStarted, nth=None), "IN-12"),
        (lambda left: without(left, events.PromptPromoted), "IN-12"),
        (lambda left: without(left, events.ToolCalled), "MSG-3"),
        (lambda left: twice(left, events.ToolCalled), "REC-8"),
        (lambda left: twice(left, events.ToolSucceeded), "MSG-3"),
        (lambda left: twice(left, events.PromptPromoted), "IN-8"),
        (lambda left: twice(left, events.ExecutionEnded), "REC-11"),
        (lambda left: twice(left, events.ExecutionStarted), "EX-1"),
        (lambda left: twice(left, events.StepEnded), "RUN-3"),
        (lambda left: without(left, events.ToolProgress), "LOG-1"),
        (lambda left: dataclasses.replace(left, recovery="exe_1"), "REC-4"),
        (lambda left: dataclasses.replace(left, waiting=("call_1",)), "APR-3"),
        (lambda left: dataclasses.replace(left, wrong=("rows: message",)), "MSG-1"),
    ],
)
def test_a_log_that_may_not_be_is_not_let_pass(told, damage, rule):
    """Each check has teeth: the damage it is for is named by its rule."""
    left, _ = told
    assert invariants.at_rest(left) == []
    assert rule in rules(invariants.at_rest(damage(left)))


def test_an_effect_twice_or_without_its_call_is_not_let_pass(told):
    """REC-8, RUN-3."""
    left, outside = told
    assert invariants.outside(left, outside.effects, outside.requests) == []
    effects = outside.effects
    assert rules(invariants.outside(left, [*effects, effects[0]])) == {"REC-8"}
    assert rules(invariants.outside(left, [*effects, ("msg_0", "call_0")])) == {"RUN-3"}
    assert rules(invariants.outside(left, effects[1:])) == {"RUN-3"}


def test_a_request_without_a_result_or_a_prompt_nobody_showed_is_not_let_pass(told):
    """MSG-9, IN-12."""
    left, outside = told
    asked = next(one for one in outside.requests if len(one.messages) > 3)
    results = [one for one in asked.messages if type(one).__name__ != "ResultMessage"]
    assert "MSG-9" in rules(invariants.outside(left, (), [replace(asked, messages=tuple(results))]))
    assert "IN-12" in rules(invariants.outside(left, (), outside.requests[:1]))


def test_a_turn_that_goes_on_after_its_interrupt_is_not_let_pass(place):
    """EX-8."""
    story = shop.Story(place, shop.stopped)
    story.live()
    left = story.left()
    at = next(n for n, one in enumerate(left.log) if isinstance(one.data, events.StepInterrupted))
    started = next(one for one in left.log if isinstance(one.data, events.StepStarted))
    wrong = dataclasses.replace(left, log=(*left.log[:at], started, *left.log[at:]))
    assert "EX-8" in rules(invariants.at_any_time(wrong))
    assert isinstance(left.transcript[0], messages.User)
