"""The status is derived: what a session waits for, since when, until when and who runs it (EX-7); and waiting for rest."""

import asyncio
import dataclasses
from contextlib import aclosing

import pytest

from perdure import errors, tool
from perdure.core import events, messages
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Call, Fail, Gate, Hang, Text
from perdure.server import metrics
from perdure.session import status

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]


async def hanging(nodes, *before, **more):
    gate = Gate()
    node = await nodes([[*before, Hang(gate), Text("Hi")]], **more)
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    return node, session, gate


async def test_a_new_session_is_idle_ex_7(deaf):
    session = await deaf.session()
    assert await session.status() == status.Status("idle", since=deaf.clock.now_ms())


async def test_a_session_that_waits_for_its_model_says_so_since_when_and_who_runs_it_ex_7(nodes):
    node, session, gate = await hanging(nodes)
    since = node.clock.now_ms()
    node.clock.advance(1_000)
    assert await session.status() == status.Status("running", "model", since, None, node.engine.owner_id, "model")
    gate.open()
    await session.wait("hello")
    assert (await session.status()).status == "idle", "never older than a terminal event somebody has seen"


@pytest.mark.parametrize("here", [True, False], ids=["in the process that ran it", "in another"])
async def test_who_has_seen_the_end_of_a_turn_finds_no_older_status_ex_7(nodes, here):
    node, session, gate = await hanging(nodes)
    looking = session if here else await (await nodes(deaf=True)).session()
    async with aclosing(looking.events()) as heard:
        async for event in heard:
            if isinstance(event.data, events.StepStarted):
                gate.open()
            if isinstance(event.data, events.ExecutionEnded):
                assert (await looking.status()).status == "idle"
                assert (await looking.receipt("hello")).outcome == "succeeded"
                break
    await node.quiet()


async def test_a_session_that_waits_for_tools_names_them_ex_7(nodes):
    gates = {"look": Gate(), "pay": Gate()}

    @tool
    async def look() -> str:
        """Look."""
        await gates["look"].wait()
        return ""

    @tool
    async def pay() -> str:
        """Pay."""
        await gates["pay"].wait()
        return ""

    node = await nodes([[Call("look", {}, "c1"), Call("pay", {}, "c2")], HI], tools=[look, pay])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    for gate in gates.values():
        await gate.arrived()
    found = await session.status()
    assert (found.status, found.reason) == ("running", "tool look, pay")
    gates["look"].open()
    async for event in session.events():
        if isinstance(event.data, events.ToolSucceeded):
            break
    assert (await session.status()).reason == "tool pay"
    gates["pay"].open()


async def test_a_session_in_a_retry_back_off_says_until_when_and_why_ex_7(nodes):
    node = await nodes([[Fail(ModelErrorKind.SERVER, "Overloaded", retry_after_ms=60_000)]])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    async for event in session.events():
        if isinstance(event.data, events.RetryScheduled):
            break
    found = await session.status()
    assert (found.status, found.until) == ("retrying", event.data.at)
    assert "Overloaded" in found.reason


async def test_a_session_whose_inputs_nobody_wanted_yet_waits_for_resume_ex_7(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    found = await session.status()
    assert found.status == "waiting"
    assert "not wanted" in found.reason


async def test_a_wanted_session_nobody_has_taken_yet_waits_for_an_owner_ex_7(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    found = await session.status()
    assert (found.status, found.reason, found.owner) == ("running", "owner", None)


async def test_a_claimed_session_that_has_started_nothing_waits_for_its_context_ex_7(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    await deaf.engine.claims.acquire(SESSION, forced=False)
    found = await session.status()
    assert (found.reason, found.owner) == ("context", deaf.engine.owner_id)


async def test_an_interrupt_that_is_not_settled_yet_shows_ex_7(nodes):
    node, session, _ = await hanging(nodes)
    node.engine.interrupt_here = lambda *_: None
    node.engine._sweep._interrupt = lambda *_: None
    await session.interrupt()
    found = await session.status()
    assert (found.status, found.reason) == ("running", "interrupt")


async def test_a_session_whose_owner_is_gone_is_recovering_as_soon_as_anyone_can_tell_ex_7_ex_5(nodes):
    node, _, _ = await hanging(nodes)
    await node.crash()
    deaf = await nodes(deaf=True)
    session = await deaf.session()
    assert (await session.status()).status == "running", "nobody can tell yet: the process lives, the lease runs"
    dead = f"own_x@{node.engine.owner_id.rpartition('@')[2].rpartition('/')[0]}/0"
    await deaf.engine.store.write(lambda tx: tx.claims._c.execute("UPDATE session_execution SET owner_id = ?", (dead,)))
    found = await session.status()
    assert (found.status, found.owner) == ("recovering", dead)
    await deaf.sweep()
    assert len(await deaf.facts(events.StepRecovered)) == 1, "and it is recovered at once"


async def test_a_recovered_turn_says_which_attempt_of_how_many_follows_ex_7(nodes):
    node, _, _ = await hanging(nodes, recovery_budget=2)
    await node.crash()
    for n in (1, 2):
        node.clock.advance(LEASE_MS + 1)
        deaf = await nodes(deaf=True, recovery_budget=2)
        await deaf.sweep()
        found = await (await deaf.session()).status()
        assert (found.status, found.reason) == ("recovering", f"attempt {n} of 2")
        await deaf.stop()
        gate = Gate()
        life = await nodes(lambda asked, gate=gate: [Hang(gate)], recovery_budget=2)
        await gate.arrived()
        await life.crash()


async def test_a_held_session_says_so_ex_7(deaf):
    session = await deaf.session()
    await deaf.engine.store.write(lambda tx: tx.sessions.set_held(SESSION, held=True))
    assert (await session.status()).status == "held"


async def test_the_status_of_a_session_that_does_not_exist_is_not_found_ex_7(deaf):
    with pytest.raises(errors.SessionNotFound):
        await deaf.read(lambda tx: status.status_of(tx, "nobody", 0))


async def test_a_blocked_context_source_is_named_and_leaves_the_input_pending_run_2_ex_7(nodes, check):
    class Broken:
        name = "notes"
        works = False

        async def read(self):
            if not self.works:
                raise errors.SourceUnavailable
            return "Notes"

    source = Broken()
    node = await nodes([HI])
    ready = node.engine.agents["main"]
    node.engine.agents["main"] = dataclasses.replace(ready, sources=(*ready.sources, source))
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await node.quiet()
    found = await session.status()
    assert (found.status, found.cause) == ("blocked", "source")
    assert "notes" in found.reason
    told = (await metrics.stored(node.engine)).sessions
    assert {name: number for name, number in told.items() if number} == {"blocked": 1}
    assert await node.claim() is None
    assert "prompt.promoted" not in await node.names()
    assert (await node.info()).wake_attempts == 0
    source.works = True
    await node.sweep()
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    await check(node)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_waiting_without_an_id_ends_when_nothing_is_owed(nodes):
    _node, session, gate = await hanging(nodes)
    waiting = asyncio.create_task(session.wait())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    assert await waiting is None


async def test_waiting_without_an_id_ends_where_the_last_wanted_prompt_is_cancelled_under_a_claim(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    waiting = asyncio.create_task(session.wait())
    await session.cancel("hello")
    await waiting
    await deaf.engine.claims.release(held)


async def test_waiting_gives_up_in_time_with_the_receipt_as_it_is(nodes):
    _, session, _ = await hanging(nodes)
    assert (await session.wait("hello", timeout=0)).state == "running"


async def test_a_session_with_a_waiting_continuation_is_not_at_rest(deaf):
    await deaf.session()

    def work(unit):
        unit.append(
            events.ExecutionStarted(session_id=SESSION, execution_id="exe", owner_id="o", purpose="turn", attempt=1)
        )
        unit.append(events.StepRecovered(session_id=SESSION, execution_id="exe", phase="ready", armed=False))
        unit.append(
            events.PromptAdmitted(
                session_id=SESSION,
                message_id="msg_continue_exe",
                kind="synthetic",
                prompt=messages.text_prompt("Go on"),
                delivery="queue",
            )
        )

    assert await deaf.read(lambda tx: status.at_rest(tx, SESSION))
    await deaf.transact(work)
    assert not await deaf.read(lambda tx: status.at_rest(tx, SESSION))
