"""A turn for which nothing has to be asked or read first begins in the commit that admits its prompt, and however that goes it
keeps no prompt out and is nobody's but a drain's (EX-1, EX-4, RUN-2).
"""

import asyncio

import apsw
import pytest

from perdure import Agent, errors
from perdure.core import events, messages
from perdure.models.port import Finish
from perdure.models.scripted import Gate, Hang, ScriptedModel, Text

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]
BEGUN = ["prompt.admitted", "prompt.promoted", "execution.started", "step.started"]


@pytest.fixture
async def still(nodes):
    """A node whose turns begin with a prompt, and that starts no drain."""
    node = await nodes(deaf=True)
    del node.engine.coordinator.has_room
    return node


def units_of(node):
    """What each unit appends from now on, in short."""
    units, transact = [], node.log.transact

    async def watched(work, **more):
        def also(unit):
            result = work(unit)
            units.append([one.data.event_type.removeprefix("session.") for one in unit.appended])
            return result

        return await transact(also, **more)

    node.log.transact = watched
    return units


# -- the commit --------------------------------------------------------------------------------------------------------


async def test_a_turn_begins_in_the_commit_that_admits_its_prompt_ex_1_ex_4(still):
    session, units = await still.session(), units_of(still)
    receipt = await session.prompt("Hello", id="hello")
    assert units == [BEGUN]
    assert (receipt.state, receipt.admitted_seq) == ("admitted", 1)
    claim = await still.claim()
    assert (claim.owner_id, claim.phase, claim.purpose) == (still.engine.owner_id, "unknown", "turn")
    handed = still.engine.parts.handed[SESSION]
    assert (handed.held.execution_id, handed.held.attempt) == (claim.id, 1)
    assert handed.turn.message_id == claim.assistant_message_id
    assert (await still.info()).wake_attempts == 1
    assert still.bells == [SESSION]


async def test_a_retried_prompt_begins_its_turn_in_the_commit_that_retries_it_ex_1_in_12(nodes, check):
    gate = Gate()
    node = await nodes([[Hang(gate)], HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await session.interrupt()
    await session.wait("hello")
    await node.quiet()
    units = units_of(node)
    await session.retry("hello")
    assert units[0] == ["prompt.retried", *BEGUN]
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    await check(node)


async def test_a_unit_that_runs_again_knows_the_turn_it_began_ex_2_log_12(nodes, check):
    node = await nodes([HI])
    session, write = await node.session(), node.engine.store.write

    async def twice(work, *, committed=None):
        node.engine.store.write = write
        await write(work)  # its commit took place, and nobody knows
        return await write(work, committed=committed)

    node.engine.store.write = twice
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    assert len(node.model.requests) == 1
    await check(node)


# -- what is left to the drain -----------------------------------------------------------------------------------------


async def test_a_turn_whose_context_is_to_be_asked_for_begins_in_its_drain_run_2(claiming):
    node = await claiming([HI])
    session, units = await node.session(), units_of(node)
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "succeeded"
    assert units[:2] == [BEGUN[:1], BEGUN[1:]]


async def test_a_turn_for_another_model_than_the_agents_own_begins_in_its_drain_run_1(nodes):
    one, other = ScriptedModel([]), ScriptedModel([HI], name="other")
    node = await nodes(agents=[Agent("main", one), Agent("second", other)])
    session = await node.session()
    await session.update(events.Changes(), agent="second", model="openai:other")
    units = units_of(node)
    node.engine.parts.model = lambda name: other
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "succeeded"
    assert units[:2] == [BEGUN[:1], BEGUN[1:]]


async def test_a_turn_whose_length_is_to_be_looked_at_begins_with_its_prompt_once_the_transcript_is_at_hand_cmp_1(
    nodes,
):
    node = await nodes(agents=[Agent("main", ScriptedModel([HI] * 3), context_tokens=100_000)])
    session, units = await node.session(), units_of(node)
    for number, begun in enumerate((BEGUN[:1], BEGUN, BEGUN)):
        units.clear()
        await session.prompt("Hello", id=f"p{number}")
        assert (await session.wait(f"p{number}")).outcome == "succeeded"
        await node.quiet()
        assert units[0] == begun


async def test_an_agent_that_nobody_declared_fails_its_turn_and_keeps_no_prompt_out_run_1(nodes, check):
    await (await nodes([])).session()
    node = await nodes(agents=[Agent("another", ScriptedModel([]))])
    session = await node.app.sessions.get(SESSION)
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).error.type == "unknown-agent"
    await node.quiet()
    await check(node)


async def test_a_transcript_that_cannot_be_read_fails_the_turn_and_keeps_no_prompt_out_msg_8_in_1(nodes, tmp_path):
    node = await nodes([HI, HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await node.quiet()
    connection = apsw.Connection(str(tmp_path / "perdure.db"))
    connection.execute("UPDATE session_message SET data = '{' WHERE type = 'assistant'")
    connection.close()
    node.engine.histories.drop(SESSION)
    receipt = await session.prompt("And now?", id="now")
    assert receipt.state == "admitted"
    assert (await session.wait("now")).outcome == "failed"
    await node.quiet()
    assert await node.claim() is None


async def test_a_budget_that_is_used_up_ends_the_turn_in_the_commit_that_began_it_run_7(nodes, check):
    node = await nodes([HI])
    policy = events.Policy(session_budget=events.Budget(steps=1))
    session = await node.session(policy=policy)
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    units = units_of(node)
    await session.prompt("And now?", id="now")
    assert units == [[*BEGUN[:3], "execution.ended"]]
    assert (await session.receipt("now")).error.type == "budget"
    assert node.engine.parts.handed == {}
    await node.quiet()
    await check(node)


async def test_of_prompts_that_come_at_once_no_more_turns_begin_than_slots_are_free_ex_6(nodes, check):
    gate = Gate()
    node = await nodes(lambda asked: [Hang(gate), *HI], parallel=2)
    names = [f"s{number}" for number in range(5)]
    sessions, units = [await node.session(name) for name in names], units_of(node)
    await asyncio.gather(*[session.prompt("Hello", id=f"{session.id}.p") for session in sessions])
    assert units[:5].count(BEGUN) == 2, "a turn that began and had to wait would lose its lease there"
    gate.open()
    for session in sessions:
        assert (await session.wait(f"{session.id}.p")).outcome == "succeeded"
    await node.quiet()
    for name in names:
        await check(node, name)


# -- between the commit and the drain ----------------------------------------------------------------------------------


async def test_a_process_that_dies_right_after_the_commit_leaves_a_turn_of_unknown_outcome_that_goes_on_rec_2(
    still, nodes, check
):
    session = await still.session()
    await session.prompt("Hello", id="hello")
    await still.crash()
    still.clock.advance(LEASE_MS + 1)
    alive = await nodes([HI])
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded"
    await alive.quiet()
    assert [fact.phase for fact in await alive.facts(events.StepRecovered)] == ["unknown"]
    assert [fact.attempt for fact in await alive.facts(events.ExecutionStarted)] == [1, 2]
    await check(alive)


async def test_a_turn_that_no_drain_can_take_up_at_once_is_run_by_the_next_ex_6(nodes, check):
    node = await nodes([HI])
    session, free = await node.session(), node.engine.coordinator.free
    node.engine.coordinator.free = lambda _: False  # every slot was taken meanwhile
    await session.prompt("Hello", id="hello")
    node.engine.coordinator.free = free
    assert (await session.wait("hello")).outcome == "succeeded"
    (started,) = await node.facts(events.ExecutionStarted)
    assert (started.attempt, len(node.model.requests)) == (1, 1)
    await node.quiet()
    await check(node)


@pytest.mark.parametrize("how", ["interrupt", "delete"])
async def test_a_turn_that_is_stopped_before_its_drain_begins_asks_no_model_ex_8(nodes, how):
    node = await nodes([HI])
    session = await node.session()
    slots = node.engine.coordinator._slots = asyncio.Semaphore(0)
    await session.prompt("Hello", id="hello")
    assert [*node.engine.parts.handed] == [SESSION]
    if how == "interrupt":
        assert await session.interrupt()
        slots.release()
        assert (await session.wait("hello")).outcome == "interrupted"
    else:
        deleting = asyncio.create_task(session.delete())
        while not (await node.info()).deleting:  # noqa: ASYNC110, a row is asked
            await asyncio.sleep(0)
        slots.release()
        while not deleting.done():
            node.clock.advance(20)
            await asyncio.sleep(0)
        with pytest.raises(errors.SessionGone):
            await session.info()
    await node.quiet()
    assert node.model.requests == []
    assert await node.claim() is None


# -- who waits ---------------------------------------------------------------------------------------------------------


async def test_who_waits_for_a_prompt_of_a_turn_that_runs_here_is_told_its_receipt_in_12(nodes):
    gate = Gate()
    used = Finish("stop", messages.Tokens(input=7), 12)
    node = await nodes([[Hang(gate), *HI, used]])
    session, looks, read = await node.session(), [], node.engine.store.read

    async def watched(work):
        looks.append("looked")
        return await read(work)

    await session.prompt("Hello", id="hello")
    await gate.arrived()
    node.engine.store.read = watched
    waiting = asyncio.create_task(session.wait("hello"))
    await session.prompt("And?", id="joins")
    await session.cancel("joins")
    gate.open()
    settled = await waiting
    assert looks == []
    assert (settled.outcome, settled.usage.tokens.input) == ("succeeded", 7)
    assert settled == await session.receipt("hello")


async def test_who_waits_for_a_prompt_hears_of_its_end_also_where_another_process_took_its_turn_over_rec_2(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), *HI], HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    waiting = asyncio.create_task(session.wait("hello"))
    await asyncio.sleep(0)
    (held,) = node.engine.claims._kept.values()
    assert node.engine.claims.told(SESSION, "hello") == []
    held.trusted_until = 0  # this process slept for longer than its lease
    assert node.engine.claims.told(SESSION, "hello") is None
    node.clock.advance(LEASE_MS + 1)
    await nodes([HI])  # one of the two goes on with it
    assert (await waiting).outcome == "succeeded"


async def test_who_waits_to_be_told_looks_for_itself_once_the_claim_is_lost_ex_2(nodes):
    gate, looked = Gate(), asyncio.Event()
    node = await nodes([[Hang(gate), *HI]])
    session, read = await node.session(), node.engine.store.read
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    waiting = asyncio.create_task(session.wait("hello"))
    await asyncio.sleep(0)
    (held,) = node.engine.claims._kept.values()
    assert node.engine.claims.told(SESSION, "hello") == []

    async def watched(work):
        looked.set()
        return await read(work)

    node.engine.store.read = watched
    await node.engine.store.write(lambda tx: tx.claims.delete(held.execution_id, held.owner_id))
    gate.open()
    async with asyncio.timeout(10):
        await looked.wait()
    waiting.cancel()
