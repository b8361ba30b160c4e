"""An acknowledged interrupt is final, from any node and in any state of the session (EX-8)."""

import asyncio

import pytest

from perdure import errors, tool
from perdure.core import events, messages
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Call, Fail, Gate, Hang, Text

SESSION = "ses"
HI = [Text("Hi")]


async def hanging(nodes, *replies, before=(), **more):
    """An engine whose first request hangs after `before`."""
    gate = Gate()
    node = await nodes([[*before, Hang(gate)], *replies], **more)
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    return node, session


async def test_an_interrupt_ends_the_turn_here_keeps_what_was_said_and_marks_it_ex_8(nodes, check):
    node, session = await hanging(nodes, before=[Text("Half a sentence")])
    assert await session.interrupt("enough")
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    assistant = (await session.messages())[-1]
    assert [part.text for part in assistant.parts] == ["Half a sentence"]
    assert (assistant.finish, assistant.error.type) == ("error", "interrupted")
    (request,) = await node.facts(events.ExecutionInterruptRequested)
    assert request.reason == "enough"
    await check(node)


async def test_the_request_is_durable_before_it_is_acknowledged_and_its_commit_marks_the_claim_ex_8(nodes):
    _node, session = await hanging(nodes)
    other = await nodes(deaf=True)
    marked = []
    other.engine.interrupt_here = lambda *_: marked.append(asyncio.ensure_future(other.claim()))
    assert await (await other.session()).interrupt()
    assert [(await one).interrupted for one in marked] == [True]
    await session.wait("hello")


async def test_an_interrupt_from_another_node_is_seen_by_the_owner_ex_8(nodes, check):
    node, session = await hanging(nodes)
    other = await nodes(deaf=True)
    await (await other.session()).interrupt()
    assert (await session.wait("hello")).outcome == "interrupted", "no clock was advanced"
    await node.quiet()
    await check(node)


async def test_a_commit_of_the_owner_that_finds_the_mark_writes_none_of_its_facts_ex_8(nodes, check):
    gate = Gate()
    node = await nodes([[Hang(gate), Call("pay", {}, "c1")]], tools=[paying := pay_tool([])])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    node.engine._sweep._interrupt = lambda *_: None  # the owner hears of it by its commit only
    node.engine._stop_foreign()
    other = await nodes(deaf=True)
    await (await other.session()).interrupt()
    gate.open()
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    assert "tool.called" not in await node.names()
    assert paying
    await check(node)


def pay_tool(ran):
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    return pay


async def test_running_calls_are_settled_as_interrupted_and_their_results_so_far_stay_msg_6_ex_8(nodes, check):
    hangs, quick = Gate(), Gate()

    @tool
    async def slow() -> str:
        """Be slow."""
        await hangs.wait()
        return "late"

    @tool
    async def fast() -> str:
        """Be fast."""
        await quick.wait()
        return "done"

    node = await nodes([[Call("fast", {}, "c1"), Call("slow", {}, "c2")]], tools=[slow, fast])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await hangs.arrived()
    quick.open()
    async for event in session.events():
        if isinstance(event.data, events.ToolSucceeded):
            break
    await session.interrupt()
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    states = {part.call_id: part.state for part in (await session.messages())[-1].parts}
    assert isinstance(states["c1"], messages.Completed)
    assert states["c2"].error == messages.Failure("unknown", "Tool execution interrupted")
    await check(node)


async def test_waiting_inputs_stay_pending_held_by_the_interrupt_and_join_the_next_turn_ex_8(nodes, check):
    node, session = await hanging(nodes, HI, HI)
    await session.prompt("Steer", id="steer")
    await session.prompt("Later", id="later", delivery="queue")
    await session.interrupt()
    await session.wait("hello")
    await node.quiet()
    assert [(row.id, row.wake_pending) for row in await session.inbox()] == [("steer", False), ("later", False)]
    status = await session.status()
    assert (status.status, "held by interrupt" in status.reason) == ("waiting", True)
    await node.sweep()
    await node.quiet()
    assert len(node.model.requests) == 1
    await session.prompt("Go on", id="go-on")
    for message_id in ("steer", "go-on", "later"):
        assert (await session.wait(message_id)).outcome == "succeeded"
    await node.quiet()
    (_, first, second) = [one.message_ids for one in await node.facts(events.ExecutionEnded)]
    assert (set(first), set(second)) == ({"steer", "go-on"}, {"later"})
    await check(node)


async def test_resume_takes_up_what_an_interrupt_holds_ex_8(nodes):
    _node, session = await hanging(nodes, HI)
    await session.prompt("Later", id="later", delivery="queue")
    await session.interrupt()
    await session.wait("hello")
    await session.resume()
    assert (await session.wait("later")).outcome == "succeeded"


async def test_a_prompt_admitted_after_the_interrupt_and_before_it_is_settled_is_answered_ex_10(nodes, check):
    node, session = await hanging(nodes, HI, HI)
    await session.prompt("Held", id="held", delivery="queue")
    node.engine.interrupt_here = lambda *_: None
    node.engine._sweep._interrupt = lambda *_: None
    await session.interrupt()
    await session.prompt("After", id="after")
    node.engine.coordinator.interrupt(SESSION)
    assert (await session.wait("after")).outcome == "succeeded"
    assert await node.outcome("hello") == "interrupted"
    assert (await session.wait("held")).outcome == "succeeded", "once a turn runs, every waiting input is taken"
    await node.quiet()
    await check(node)


async def test_after_an_interrupted_end_only_a_woken_input_is_handed_the_claim_ex_10(nodes):
    node, session = await hanging(nodes)
    await session.prompt("Held", id="held", delivery="queue", resume=False)
    await session.interrupt()
    await session.wait("hello")
    await node.quiet()
    assert await node.claim() is None
    assert (await node.row("held")).pending


async def test_an_interrupt_with_nothing_to_stop_says_so_and_holds_what_waits_ex_8(deaf):
    session = await deaf.session()
    assert not await session.interrupt()
    await session.prompt("Hello", id="hello")
    assert not await session.interrupt()
    assert not (await deaf.row("hello")).wake_pending
    await deaf.sweep()
    assert deaf.bells == [SESSION], "the prompt's own"


async def test_a_request_that_names_another_execution_changes_nothing_ex_8(nodes):
    node, session = await hanging(nodes)
    names, claim = await node.names(), await node.claim()
    assert not await node.engine.interrupt(SESSION, "stop", "exe_other")
    assert (await node.names(), await node.claim()) == (names, claim)
    assert await node.engine.interrupt(SESSION, "stop", claim.id)
    assert (await session.wait("hello")).outcome == "interrupted"


async def test_an_interrupt_of_a_claim_that_started_nothing_releases_it_without_an_event_ex_8(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    assert await session.interrupt()
    names = await deaf.names()
    await deaf.engine.claims.release(held)
    assert await deaf.names() == names
    assert await deaf.claim() is None
    assert (await deaf.row("hello")).pending


async def test_an_interrupt_withdraws_a_waiting_continuation_and_ends_its_turn_in_its_own_commit_ex_8(nodes, check):
    node, _session = await hanging(nodes)
    await node.crash()
    node.clock.advance(30_001)
    deaf = await nodes(deaf=True)
    await deaf.sweep()
    before = len(await deaf.names())
    assert await (await deaf.session()).interrupt()
    assert (await deaf.names())[before:] == ["execution.interrupt_requested", "prompt.withdrawn", "execution.ended"]
    assert await deaf.outcome("hello") == "interrupted"
    await deaf.sweep()
    assert await deaf.engine.claims.acquire(SESSION, forced=True) is None
    await check(deaf)


async def test_an_interrupt_withdraws_a_continuation_also_where_a_new_owner_already_holds_the_claim_ex_8(nodes, check):
    node, _ = await hanging(nodes)
    await node.crash()
    node.clock.advance(30_001)
    deaf = await nodes(deaf=True)
    await deaf.sweep()
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    assert await (await deaf.session()).interrupt()
    assert await deaf.outcome("hello") == "interrupted"
    await deaf.engine.claims.release(held)
    await check(deaf)


async def test_an_interrupt_in_a_retry_back_off_sends_no_further_request_ex_8(nodes, check):
    node = await nodes([[Fail(ModelErrorKind.SERVER, "Overloaded")]])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    async for event in session.events():
        if isinstance(event.data, events.RetryScheduled):
            break
    await session.interrupt()
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    assert len(node.model.requests) == 1
    await check(node)


async def test_a_second_interrupt_before_the_first_is_settled_changes_nothing_more_ex_8(nodes, check):
    node, session = await hanging(nodes)
    assert await asyncio.gather(*(session.interrupt() for _ in range(5)))
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    assert len(await node.facts(events.ExecutionEnded)) == 1
    await check(node)


async def test_an_interrupt_that_arrives_late_stops_only_the_execution_it_was_for_ex_8(nodes, check):
    node, session = await hanging(nodes, HI)
    dead = await node.claim()
    await session.interrupt()
    await session.wait("hello")
    gate = Gate()
    node.model._replies = [[], [Hang(gate), Text("Hi")]]
    await session.prompt("Next", id="next")
    await gate.arrived()
    node.engine.interrupt_here(SESSION, dead.id)
    gate.open()
    assert (await session.wait("next")).outcome == "succeeded"
    await node.quiet()
    await check(node)


@pytest.mark.parametrize("when", range(12))
async def test_an_interrupt_at_any_moment_of_a_turns_end_loses_no_prompt_and_interrupts_no_other_turn_ex_8_ex_10(
    nodes, check, when
):
    """The interrupt is acknowledged while the step's end is on its way to the disk, so many turns of the loop later."""
    gate = Gate()
    node = await nodes([[Hang(gate), Text("Hi")], HI, HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.prompt("Later", id="later", delivery="queue")
    await gate.arrived()
    gate.open()
    for _ in range(when):
        await asyncio.sleep(0)
    await session.interrupt()
    await session.prompt("After", id="after", delivery="queue")
    assert (await session.wait("after")).outcome == "succeeded"
    await session.wait("later")
    await node.quiet()
    assert await node.outcome("hello") in {"succeeded", "interrupted"}
    ends = await node.facts(events.ExecutionEnded)
    interrupted = sum(one.outcome == "interrupted" for one in ends)
    assert interrupted <= 1
    await check(node)


async def test_an_interrupt_of_a_session_that_does_not_exist_is_not_found_ex_8(deaf):
    with pytest.raises(errors.SessionNotFound):
        await deaf.engine.interrupt("nobody", "stop")


async def test_an_interrupt_ends_a_parked_turn_also_where_an_owner_is_about_to_take_it_up_ex_8_apr_3(nodes, check):
    @tool(effect="write", approval="always")
    async def pay() -> str:
        """Pay."""
        return "paid"

    node = await nodes([[Call("pay", {}, "c1")]], tools=[pay])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    async for event in session.events():
        if isinstance(event.data, events.ExecutionParked):
            break
    await node.quiet()
    await node.stop()
    deaf = await nodes(deaf=True)
    session = await deaf.session()
    await session.decide("c1", "approve")
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    assert await session.interrupt()
    assert await deaf.outcome("hello") == "interrupted"
    await deaf.engine.claims.release(held)
    assert await deaf.engine.claims.acquire(SESSION, forced=True) is None
    assert "execution.resumed" not in await deaf.names()
    await check(deaf)
