"""A busy period: what it takes up, in which order, and that whatever breaks inside ends the turn (RUN-1, PUB-4, RUN-6)."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, errors, tool
from perdure.core import events, request
from perdure.core.request import ResultMessage
from perdure.errors import ModelErrorKind
from perdure.models.port import Finish
from perdure.models.scripted import Call, Fail, Gate, Hang, ScriptedModel, Text

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]


def said(asked):
    """What the user said in a request."""
    return [part.text for one in asked.messages if isinstance(one, request.UserMessage) for part in one.content]


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_steer_joins_the_turn_at_its_next_step_and_a_queued_prompt_waits_for_its_own_run_1(nodes, check):
    gate = Gate()
    node = await nodes([[Hang(gate), Call("look", {}, "c1")], HI, HI], tools=[look])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await session.prompt("Queued", id="queued", delivery="queue")
    await session.prompt("Steered", id="steered")
    gate.open()
    for message_id in ("hello", "steered", "queued"):
        assert (await session.wait(message_id)).outcome == "succeeded"
    await node.quiet()
    assert said(node.model.requests[1])[-1] == "Steered"
    assert "Queued" not in said(node.model.requests[1])
    first, second = [set(one.message_ids) for one in await node.facts(events.ExecutionEnded)]
    assert (first, second) == ({"hello", "steered"}, {"queued"})
    await check(node)


async def test_several_steers_join_one_step_run_1(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), Call("look", {}, "c1")], HI], tools=[look])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    for message_id in ("one", "two", "three"):
        await session.prompt(message_id, id=message_id)
    gate.open()
    await session.wait("three")
    assert said(node.model.requests[1])[-3:] == ["one", "two", "three"]
    assert len(node.model.requests) == 2


async def test_the_last_allowed_step_offers_no_tools_and_a_promotion_gives_the_allowance_anew_run_6_run_1(nodes):
    gate = Gate()
    replies = [[Hang(gate), Call("look", {}, "c1")], [Call("look", {}, "c2")], [Call("look", {}, "c3")]]
    model = ScriptedModel(replies)
    node = await nodes(agents=[Agent("main", model=model, tools=[look], max_steps=2)])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await session.prompt("Steered", id="steered")
    gate.open()
    assert (await session.wait("hello")).outcome == "failed"
    assert [one.tool_choice for one in model.requests] == ["auto", "auto", "none"]


async def test_an_agent_that_does_not_exist_here_fails_each_prompt_visibly_and_strands_none(nodes):
    """IN-12."""
    node = await nodes(agents=[])
    await node.log.publish(events.SessionCreated(session_id=SESSION, agent="main"))
    session = await node.app.sessions.get(SESSION)
    for message_id in ("a", "b", "c"):
        await session.prompt(message_id, id=message_id, delivery="queue")
    for message_id in ("a", "b", "c"):
        receipt = await session.wait(message_id)
        assert (receipt.outcome, receipt.error.type) == ("failed", "unknown-agent")
    await node.quiet()
    assert await node.claim() is None


def _raise(error):
    raise error


async def test_a_defect_ends_the_turn_failed_and_the_session_goes_on_pub_4(nodes, monkeypatch, check):
    broken = [ValueError("a bug")]
    node = await nodes([HI, HI])
    next_id = node.engine.claims.next_id
    monkeypatch.setattr(node.engine.claims, "next_id", lambda: _raise(broken.pop()) if broken else next_id())
    session = await node.session()
    await session.prompt("Hello", id="hello")
    receipt = await session.wait("hello")
    assert (receipt.outcome, receipt.error.type) == ("failed", "defect")
    await session.prompt("Again", id="again")
    assert (await session.wait("again")).outcome == "succeeded"
    await node.quiet()
    assert "step.recovered" not in await node.names()
    await check(node)


async def test_a_defect_of_an_interrupted_turn_ends_it_interrupted_ex_8(nodes, check):
    gate = Gate()

    def reply(asked):
        return [Hang(gate), "no item at all"]

    node = await nodes(reply)
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    node.engine.interrupt_here = lambda *_: None
    node.engine._sweep._interrupt = lambda *_: None
    await session.interrupt()
    gate.open()
    assert (await session.wait("hello")).outcome == "interrupted"
    await node.quiet()
    await check(node)


async def test_sessions_run_side_by_side_ex_6(nodes):
    gates = {"one": Gate(), "two": Gate()}
    node = await nodes(lambda asked: [Hang(gates[said(asked)[-1]]), Text("Hi")])
    for name in gates:
        await (await node.session(name)).prompt(name, id=name)
    for gate in gates.values():
        await gate.arrived()
    gates["two"].open()
    assert (await (await node.session("two")).wait("two")).outcome == "succeeded"
    gates["one"].open()


async def test_a_bell_for_a_session_that_does_not_exist_harms_nobody_rec_1(nodes, caplog):
    node = await nodes([])
    node.engine.ring("nobody")
    await node.quiet()
    assert caplog.records == []


async def test_two_engines_rung_for_one_prompt_answer_it_once_in_12(nodes, check):
    first = await nodes([HI])
    second = await nodes([HI])
    session = await first.session()
    await session.prompt("Hello", id="hello")
    second.engine.ring(SESSION)
    assert (await session.wait("hello")).outcome == "succeeded"
    await asyncio.gather(first.quiet(), second.quiet())
    assert len(first.model.requests) + len(second.model.requests) == 1
    await check(first)


async def test_a_session_that_is_being_deleted_takes_no_claim(deaf):
    """API: from the request on, prompts, retries, resume and claims are gone."""
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    await deaf.engine.store.write(lambda tx: tx.sessions.set_deleting(SESSION))
    assert await deaf.engine.claims.acquire(SESSION, forced=True) is None
    for call in (session.prompt("More"), session.prompt("Hello", id="hello"), session.resume(), session.retry("hello")):
        with pytest.raises(errors.SessionGone):
            await call


async def test_a_defect_before_anything_began_fails_what_was_to_run_and_the_session_goes_on_pub_4(nodes, check):
    """A history that cannot be read would otherwise be tried at every sweep, for ever."""
    node = await nodes([HI])
    session = await node.session()
    genuine = node.engine.histories.load

    async def broken(session_id):
        node.engine.histories.load = genuine
        raise errors.MessageUndecodable(session_id, "msg_1", "it is no JSON")

    node.engine.histories.load = broken
    await session.prompt("Hello", id="hello")
    first = await session.wait("hello")
    assert (first.outcome, first.error.type) == ("failed", "defect")
    await session.prompt("Again", id="again")
    assert (await session.wait("again")).outcome == "succeeded"
    await check(node)


async def test_a_compaction_that_the_disk_cuts_off_is_over_and_not_left_without_an_owner_ex_4_cmp_3(nodes, check):
    node = await nodes([HI, HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await node.quiet()
    load = node.engine.histories.load

    async def unreadable(session_id):
        node.engine.histories.load = load
        raise errors.StoreFailed("The disk failed to read or write")

    node.engine.histories.load = unreadable
    await session.compact()
    await node.quiet()
    assert len(await node.facts(events.CompactionFailed)) == 1
    ended = (await node.facts(events.ExecutionEnded))[-1]
    assert (ended.outcome, ended.reason) == ("failed", "defect")
    assert (await session.status()).status == "idle"
    await check(node)
    await session.prompt("Hello again", id="again")
    assert (await session.wait("again")).outcome == "succeeded"
    await node.quiet()
    await check(node)


async def test_a_turn_that_began_in_a_commit_of_unknown_outcome_is_not_left_without_an_owner_ex_4_log_12(
    claiming, check
):
    node = await claiming([HI])
    session = await node.session()
    write = node.engine.store.write

    async def in_doubt(work, *, committed=None):
        begun = await node.facts(events.PromptAdmitted)
        if not begun:
            return await write(work, committed=committed)
        node.engine.store.write = write
        await write(work)
        raise errors.StoreFailed("The disk failed during a commit whose outcome is not known")

    node.engine.store.write = in_doubt
    await session.prompt("Hello", id="hello")
    await node.quiet()
    assert (await node.names())[-1] == "execution.ended"
    assert (await session.receipt("hello")).outcome == "failed"
    await check(node)


async def test_a_result_whose_write_failed_once_is_stored_before_the_turn_ends_rec_9_pub_4(nodes, check):
    paid = []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        node.engine.store.write = refused_once
        return "paid"

    async def refused_once(*_, **__):
        node.engine.store.write = write
        raise errors.StoreBusy

    node = await nodes([[Call("pay", {}, "c1")], HI], tools=[pay])
    write = node.engine.store.write
    session = await node.session()
    await session.prompt("Pay", id="pay")
    assert (await session.wait("pay")).outcome == "failed"
    await session.prompt("Again", id="again")
    assert (await session.wait("again")).outcome == "succeeded"
    await node.quiet()
    (result,) = [one for asked in node.model.requests[1:] for one in asked.messages if isinstance(one, ResultMessage)]
    assert (result.text, result.is_error, paid) == ("paid", False, [1])
    await check(node)


@pytest.mark.parametrize(
    "reply",
    [
        HI,
        [Fail(ModelErrorKind.AUTH, "No")],
        [Text("Half"), Fail(ModelErrorKind.CONTEXT_OVERFLOW, "Too long")],
        [Text("Half"), "no item at all"],
        [Text("Half"), Finish("content_filter")],
    ],
    ids=["an answer", "a refusal", "an overflow", "a defect", "a filter"],
)
async def test_however_a_turn_ends_the_queued_prompt_behind_it_has_its_own_run_1_ex_10(nodes, check, reply):
    gate = Gate()
    node = await nodes([[Hang(gate), *reply], HI])
    session = await node.session()
    await session.prompt("First", id="first")
    await gate.arrived()
    await session.prompt("Second", id="second", delivery="queue")
    gate.open()
    assert (await session.wait("second")).outcome == "succeeded"
    await node.quiet()
    assert [one.message_ids for one in await node.facts(events.ExecutionEnded)] == [("first",), ("second",)]
    await check(node)


async def test_a_crash_with_as_many_turns_as_there_are_slots_leaves_every_slot_free_ex_6(nodes, check):
    gate = Gate()
    node = await nodes(lambda asked: [Hang(gate)], parallel=2)
    for number in range(3):
        await (await node.session(f"s{number}")).prompt("Hello", id=f"p{number}")
    await gate.arrived()
    await node.crash()
    node.clock.advance(LEASE_MS)
    alive = await nodes(lambda asked: HI, parallel=2)
    for number in range(3):
        assert (await (await alive.session(f"s{number}")).wait(f"p{number}")).outcome == "succeeded"
    await alive.quiet()
    for number in range(3):
        await check(alive, f"s{number}")


async def test_a_turn_cut_in_its_call_can_be_summarised_and_gone_on_with_by_another_model_msg_9_cmp_3(nodes, check):
    gate = Gate()

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        await gate.wait()
        return "paid"

    node = await nodes([[Call("pay", {}, "c1")]], tools=[pay])
    await (await node.session(policy=events.Policy(recovery="never"))).prompt("Pay", id="pay")
    await gate.arrived()
    await node.crash()
    node.clock.advance(LEASE_MS)
    other = ScriptedModel([HI, [Text("Said so far")]], provider="other", name="m")
    alive = await nodes(agents=[Agent("main", model=node.model), Agent("other", model=other)])
    session = await alive.app.sessions.get(SESSION)
    assert (await session.wait("pay")).outcome == "interrupted"
    await session.switch_agent("other")
    await session.prompt("Go on", id="on")
    assert (await session.wait("on")).outcome == "succeeded"
    await alive.quiet()
    (unknown,) = [one for one in other.requests[0].messages if isinstance(one, ResultMessage)]
    assert "outcome unknown" in unknown.text
    await session.compact()
    await alive.quiet()
    assert len(await alive.facts(events.CompactionEnded)) == 1
    await check(alive)


async def test_what_a_tool_or_a_rule_does_with_its_arguments_changes_nothing_that_is_recorded_msg_1(nodes, check):
    def rule(given):
        given["order"]["asked"] = True
        return False

    @tool(approval=rule)
    async def pay(order: dict, more: Any, items: list) -> str:
        """Pay."""
        order["x"] = 1
        order["deep"].update(y=2)
        more["z"] = 3
        items.append(1)
        return "ok"

    given = {"order": {"a": 1, "deep": {}}, "more": {}, "items": [[]]}
    node = await nodes([[Call("pay", given, "c1")], HI], tools=[pay])
    session = await node.session()
    await session.prompt("Pay", id="pay")
    await session.wait("pay")
    await node.quiet()
    called = (await node.facts(events.ToolCalled))[0]
    assert called.input == {"order": {"a": 1, "deep": {}}, "more": {}, "items": [[]]}
    part = (await session.messages())[1].parts[0]
    assert part.state.input == called.input
    await check(node)
