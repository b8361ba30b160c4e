"""What a prompt and each request of it used (RUN-7, RUN-8): one log, added up in three ways that must agree."""

import functools

import pytest

from perdure import tool
from perdure.core import events, messages
from perdure.core.attempts import Attempts
from perdure.errors import ModelErrorKind
from perdure.models.port import Finish
from perdure.models.scripted import Call, Cut, Delay, Fail, Gate, Hang, Text
from perdure.testing import invariants

TOKENS = messages.Tokens(5, 4, 3, 2, 1)
NOTHING, ONCE = messages.Usage(), messages.Usage(TOKENS, 7)
TWICE, UNKNOWN = ONCE.plus(ONCE), messages.Usage(messages.Tokens(), 0, 1, 1)
DONE = Finish("stop", TOKENS, 7)
HI = [Text("Hi"), DONE]


def attempts(rig):
    """Every request the log tells of; together they used what the session did."""
    told = Attempts()
    for one in rig.left.log:
        told.apply(one)
    used = functools.reduce(messages.Usage.plus, (one.usage for one in told.found), NOTHING)
    assert used == rig.left.session.usage
    return told.found


def said(rig):
    return [(one.kind, one.number, one.outcome, one.usage) for one in attempts(rig)]


def test_a_prompt_used_what_its_steps_did_run_7_run_8(rig):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    rig.play([[Call("look", {}, "c1"), Finish("tool_calls", TOKENS, 7)], HI], tools=[look])
    assert rig.ask().usage == TWICE == rig.left.session.usage
    first, second = attempts(rig)
    assert (first.usage, second.usage, first.model) == (ONCE, ONCE, "scripted:scripted")
    assert [first.message_id, second.message_id] == [one.id for one in rig.assistants]
    assert rig.left.session.turn_usage is None


@pytest.mark.parametrize("kind", ["rate_limit", "server"])
def test_an_attempt_that_was_refused_used_nothing_run_8(rig, kind):
    rig.play([[Fail(ModelErrorKind(kind))], HI])
    assert rig.ask().usage == ONCE
    assert said(rig) == [("step", 1, "failed", NOTHING), ("step", 2, "succeeded", ONCE)]
    assert attempts(rig)[0].error.type == kind


@pytest.mark.parametrize("broken", [[Fail(ModelErrorKind.TRANSPORT)], [Text("Half"), Cut()]], ids=["silent", "visible"])
def test_an_attempt_that_broke_without_a_word_of_its_usage_is_flagged_run_8(rig, broken):
    rig.play([broken, HI])
    assert rig.ask().usage == ONCE.plus(UNKNOWN)
    assert [(outcome, usage) for _, _, outcome, usage in said(rig)] == [("failed", UNKNOWN), ("succeeded", ONCE)]


def test_a_call_that_tells_nothing_is_flagged_run_8(rig):
    rig.play([[Text("Hi"), Finish("stop", None, None)]])
    assert rig.ask().usage == UNKNOWN
    assert said(rig) == [("step", 1, "succeeded", UNKNOWN)]


def test_running_a_failed_prompt_again_adds_to_its_usage_run_8(rig):
    rig.play([[Text("No"), Finish("content_filter", TOKENS, 7)], HI])
    assert (rig.ask().outcome, rig.left.session.usage) == ("failed", ONCE)

    async def again(app, session):
        receipt = await session.retry("hello")
        assert (receipt.state, receipt.usage) == ("admitted", ONCE)
        return await rig.settled(app, session)

    assert rig.live(again).usage == TWICE
    assert len(attempts(rig)) == 2


def test_prompts_that_share_a_turn_share_its_usage_and_each_sees_it_grow_run_8(rig):
    looking, asked = Gate(), Gate()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        await looking.wait()
        return "seen"

    rig.play([[Call("look", {}, "c1"), Finish("tool_calls", TOKENS, 7)], [Hang(asked), *HI]], tools=[look])

    async def script(app, session):
        async def used():
            return [(await session.receipt(one)).usage for one in ("hello", "steer")]

        await session.prompt("Hello", id="hello")
        await looking.arrived()
        await session.prompt("And", id="steer")
        before = await used()
        looking.open()
        await asked.arrived()
        between = await used()
        asked.open()
        await rig.settled(app, session, "steer")
        return before, between, await used()

    assert rig.live(script) == ([NOTHING, NOTHING], [ONCE, ONCE], [TWICE, TWICE])
    assert [outcome for _, _, outcome, _ in said(rig)] == ["succeeded", "succeeded"]


def test_a_crash_is_counted_once_and_flagged_and_a_rebuild_says_the_same_run_8_msg_1(rig):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    rig.play([[Call("look", {}, "c1"), Finish("tool_calls", TOKENS, 7)], [Text("Ha"), Delay(60_000)], HI], tools=[look])

    async def dies(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.StepStarted, nth=2)
        await app.engine.world.clock.sleep_ms(1_000)
        await rig.killed()

    rig.live(dies)

    async def goes_on(app, session):
        return await rig.settled(app, session)

    assert rig.live(goes_on).usage == TWICE.plus(UNKNOWN)
    assert [outcome for _, _, outcome, _ in said(rig)] == ["succeeded", "unknown", "succeeded"]
    assert invariants.at_any_time(rig.left) == [], "rows are what the log says"


def test_an_interrupt_before_the_answer_is_flagged_run_8(rig):
    rig.play([[Hang()]])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.StepStarted)
        await app.engine.world.clock.sleep_ms(1)
        await session.interrupt()
        return await rig.settled(app, session)

    assert rig.live(script).usage == UNKNOWN
    assert said(rig) == [("step", 1, "interrupted", UNKNOWN)]


def test_an_interrupt_in_a_back_off_has_no_request_to_flag_run_8(rig):
    rig.play([[Fail(ModelErrorKind.RATE_LIMIT)], HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.RetryScheduled)
        await session.interrupt()
        return await rig.settled(app, session)

    assert rig.live(script).usage == NOTHING
    assert said(rig) == [("step", 1, "failed", NOTHING)]
