"""One owner executes a session: taking, fencing, renewing, losing and handing over the claim (EX-1 to EX-4, EX-9, EX-10)."""

import asyncio
import threading

import pytest

from perdure import errors, tool
from perdure.core import events
from perdure.models.scripted import Call, Gate, Hang, Text
from perdure.session import claims
from perdure.testing.fake_clock import FakeClock

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


async def prompted(node, message_id="hello"):
    session = await node.session()
    await session.prompt("Hello", id=message_id)
    return session


async def renewed(node):
    """Let a third of the lease pass, and wait until its owner knows of the renewal and waits for the next one: the row alone
    is seen by a reader before its writer hears of it, and time that passes in between would be slept through.
    """
    held = node.engine.claims._kept[SESSION]
    trusted = held.trusted_until
    node.clock.advance(LEASE_MS // 3)
    while held.trusted_until == trusted:  # noqa: ASYNC110, only other tasks change it
        await asyncio.sleep(0)


# -- EX-1 --------------------------------------------------------------------------------------------------------------


async def test_a_claim_is_taken_in_phase_safe_with_a_whole_lease_and_no_event_ex_1(deaf):
    await prompted(deaf)
    names = await deaf.names()
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    claim = await deaf.claim()
    assert (claim.id, claim.owner_id, claim.phase) == (held.execution_id, deaf.engine.owner_id, "safe")
    assert claim.expires_at == deaf.clock.now_ms() + LEASE_MS
    assert await deaf.names() == names


async def test_a_live_foreign_claim_is_refused_naming_its_owner_ex_1(deaf, nodes):
    await prompted(deaf)
    other = await nodes(deaf=True)
    await deaf.engine.claims.acquire(SESSION, forced=False)
    with pytest.raises(errors.ClaimRefused) as refused:
        await other.engine.claims.acquire(SESSION, forced=False)
    assert deaf.engine.owner_id in str(refused.value)


async def test_of_many_who_try_at_once_exactly_one_takes_the_claim_ex_1(deaf, nodes):
    await prompted(deaf)
    other = await nodes(deaf=True)
    tries = [one.engine.claims.acquire(SESSION, forced=False) for one in (deaf, other) * 5]
    taken = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, claims.Held) for one in taken) == 1
    assert (await deaf.info()).wake_attempts == 1


async def test_an_expired_claim_is_never_taken_over_before_it_is_recovered_ex_1(deaf, nodes):
    await prompted(deaf)
    await deaf.engine.claims.acquire(SESSION, forced=False)
    deaf.clock.advance(LEASE_MS)
    other = await nodes(deaf=True)
    before = await other.claim()
    assert await other.engine.claims.acquire(SESSION, forced=True) is None
    assert await other.claim() == before
    await other.sweep()
    assert await other.engine.claims.acquire(SESSION, forced=False)


async def test_a_lease_is_renewed_at_a_third_as_long_as_the_drain_runs_ex_1(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), Text("Hi")]])
    session = await prompted(node)
    await gate.arrived()
    for _ in range(12):
        await renewed(node)
        assert (await node.claim()).expires_at == node.clock.now_ms() + LEASE_MS
    gate.open()
    assert (await session.wait("hello")).outcome == "succeeded"


async def test_reading_needs_no_claim_and_waits_for_nobody_ex_1(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate)]])
    await prompted(node)
    await gate.arrived()
    other = await nodes(deaf=True)
    session = await other.session()
    assert next(one.id for one in await session.messages()) == "hello"
    assert (await session.status()).status == "running"


# -- EX-2, EX-3 --------------------------------------------------------------------------------------------------------


async def commit_of(node, held):
    fact = events.SyntheticAdded(session_id=SESSION, message_id="note", text="From the past")
    await node.engine.claims.commit(held, lambda unit, claim: unit.append(fact))


@pytest.mark.parametrize("how", ["expired", "removed", "taken by another", "handed over"])
async def test_a_commit_of_an_owner_that_lost_its_claim_writes_nothing_ex_2(deaf, how):
    await prompted(deaf)
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    if how == "expired":
        deaf.clock.advance(LEASE_MS)
    elif how == "handed over":
        await deaf.engine.store.write(lambda tx: tx.claims.hand_over(held.execution_id, held.owner_id, "exe_next", 1))
    else:
        await deaf.engine.store.write(lambda tx: tx.claims.delete(held.execution_id, held.owner_id))
    if how == "taken by another":
        await deaf.engine.claims.acquire(SESSION, forced=False)
    names = await deaf.names()
    with pytest.raises(errors.ClaimLost):
        await commit_of(deaf, held)
    assert await deaf.names() == names
    assert held.lost


async def test_a_marked_claim_stops_every_commit_but_the_one_that_settles_ex_2(deaf):
    await prompted(deaf)
    held = await deaf.engine.claims.acquire(SESSION, forced=False)
    await deaf.engine.interrupt(SESSION, "stop")
    names = await deaf.names()
    with pytest.raises(claims.Interrupted):
        await commit_of(deaf, held)
    assert await deaf.names() == names
    await deaf.engine.claims.release(held)


async def test_a_paused_owner_that_wakes_after_its_lease_changes_nothing_and_starts_no_tool_ex_2(nodes, caplog, check):
    """The owner's clock stands still, as in a process that is stopped; another owner recovers and finishes the turn."""
    paused_clock, gate, ran = FakeClock(), Gate(), []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    paused = await nodes([[Hang(gate), Call("pay", {}, "c1")], HI], tools=[pay], own_clock=paused_clock)
    session = await prompted(paused)
    await gate.arrived()
    other_clock = FakeClock()
    other_clock.advance(LEASE_MS + 1)
    other = await nodes([HI], own_clock=other_clock)
    assert (await (await other.session()).wait("hello")).outcome == "succeeded"
    names = await other.names()
    gate.open()  # its model answers with a call, and it does not know yet that its lease is over
    await paused.quiet()
    assert ran == []
    assert await other.names() == names
    assert "claim lost" in caplog.text
    paused_clock.advance(LEASE_MS + 1)
    paused.model._replies = [[], *[HI] * 3]
    elsewhere = await paused.session("elsewhere")
    await elsewhere.prompt("Hello", id="healthy")
    assert (await elsewhere.wait("healthy")).outcome == "succeeded", "it stays healthy for its other sessions"
    await check(other)
    assert (await session.receipt("hello")).outcome == "succeeded"


async def test_an_owner_whose_lease_may_be_over_shows_readers_no_more_ex_3(nodes):
    gate = Gate()
    node = await nodes([[Text("Half a sen"), Hang(gate)]])
    await prompted(node)
    await gate.arrived()
    turn = node.engine.parts.live[SESSION]._sink
    signal = events.TextDelta(
        session_id=SESSION, assistant_message_id=turn.message_id, text_id="text_0", delta="tence", offset=10
    )
    with node.engine.log.live.following(SESSION, signals=True) as follower:
        turn.announce(signal)
        turn.held.trusted_until = node.clock.suspend_ms()
        turn.announce(signal)
    assert [one.data for one in follower.buffer] == [signal]
    await node.stop()


def waiting_tool(gate):
    """A tool that waits at a gate, and the cancellations it met there."""
    cancelled = []

    @tool
    async def slow() -> str:
        """Be slow."""
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return ""

    return slow, cancelled


@pytest.mark.parametrize("error", [errors.StoreBusy(), errors.Defect("The database refused a statement")])
async def test_an_owner_that_cannot_renew_stops_before_its_lease_ends_whatever_the_reason_ex_3(nodes, caplog, error):
    gate = Gate()
    slow, cancelled = waiting_tool(gate)
    node = await nodes([[Call("slow", {}, "c1")]], tools=[slow])
    await prompted(node)
    await gate.arrived()

    async def refused(*_, **__):
        raise error

    node.log.transact = refused
    names = await node.names()
    for _ in range(2):
        node.clock.advance(LEASE_MS // 3)
        for _ in range(5):
            await asyncio.sleep(0)
    assert node.engine.coordinator.active() == [SESSION]
    node.clock.advance(LEASE_MS - node.engine.claims.margin_ms - 2 * (LEASE_MS // 3))
    await node.quiet()
    assert cancelled == [1]
    assert caplog.text.count("lease not renewed") == 2
    claim = await node.claim()
    assert claim.expires_at > node.clock.now_ms(), "the lease was not over yet"
    assert await node.names() == names


async def test_an_owner_whose_renewal_hangs_in_the_writer_stops_before_its_lease_ends_ex_3(nodes):
    gate, writer = Gate(), threading.Event()
    slow, cancelled = waiting_tool(gate)
    node = await nodes([[Call("slow", {}, "c1")]], tools=[slow])
    await prompted(node)
    await gate.arrived()
    before, held = await node.claim(), node.engine.claims._kept[SESSION]
    held.trusted_until = node.clock.suspend_ms() + LEASE_MS // 3 + 1
    held_up = asyncio.create_task(node.engine.store.write(lambda tx: writer.wait()))
    await asyncio.sleep(0)
    node.clock.advance(LEASE_MS // 3)
    try:
        async with asyncio.timeout(10):
            while not held.lost:
                await asyncio.sleep(0)
                node.clock.advance(1)
            await node.quiet()
        assert cancelled == [1]
    finally:
        writer.set()
        await held_up
    assert (await node.claim()).expires_at == before.expires_at, "a renewal that comes too late renews nothing"


async def test_trust_in_a_lease_is_measured_by_a_clock_that_nobody_sets_ex_3(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), Text("Hi")]])
    session = await prompted(node)
    await gate.arrived()
    node.clock.set_wall(node.clock.now_ms() - 3_600_000)
    await renewed(node)
    assert node.engine.coordinator.active() == [SESSION]
    gate.open()
    assert (await session.wait("hello")).outcome == "succeeded"


async def test_a_wall_clock_set_ahead_robs_nobody_who_trusts_its_lease_ex_2_rec_1(nodes, check):
    gate = Gate()
    node = await nodes([[Call("look", {}, "c1")], [Hang(gate), Text("Hi")]], tools=[look])
    session = await prompted(node)
    await gate.arrived()
    node.clock.set_wall(node.clock.now_ms() + 3_600_000)
    assert await node.sweep() == 5_000
    gate.open()
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    assert await node.facts(events.StepRecovered) == []
    await check(node)


async def test_a_release_that_is_cancelled_half_way_leaves_no_claim_nobody_runs_ex_1(nodes):
    node = await nodes(deaf=True)
    await prompted(node)
    for turns in range(30):
        acquiring = asyncio.create_task(node.engine.claims.acquire(SESSION, forced=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        acquiring.cancel()
        (taken,) = await asyncio.gather(acquiring, return_exceptions=True)
        if isinstance(taken, claims.Held):
            await node.engine.claims.release(taken)
        assert await node.claim() is None


# -- EX-4 --------------------------------------------------------------------------------------------------------------


async def test_the_phase_moves_in_the_commit_of_the_fact_it_describes_ex_4(nodes):
    """A probe inside every commit reads phase and assistant beside the facts that were written with them."""
    seen = []
    tool_gate = Gate()

    @tool
    async def look() -> str:
        """Look."""
        await tool_gate.wait()
        return "seen"

    node = await nodes([[Text("Let me"), Call("look", {}, "c1")], HI], tools=[look])
    transact = node.log.transact

    async def watched(work, **more):
        def also(unit):
            result = work(unit)
            claim = unit.tx.claims.of_session(SESSION)
            facts = [one.data.event_type.removeprefix("session.") for one in unit.appended]
            last = (claim.phase, claim.assistant_message_id is not None) if claim else None
            seen[:] = [*seen, (facts, last)] if facts else seen
            return result

        return await transact(also, **more)

    node.log.transact = watched
    session = await prompted(node)
    await tool_gate.arrived()
    tool_gate.open()
    await session.wait("hello")
    moves = {fact: phase for facts, phase in seen for fact in facts}
    starts = [facts for facts, _ in seen if "step.started" in facts]
    first = ["prompt.admitted", "prompt.promoted", "execution.started", "step.started"]
    assert starts[0] == first, "one commit admits, promotes, starts the execution and the step"
    assert "step.ended" in starts[1], "and one ends a step that owes another and starts that"
    assert moves["tool.called"] == ("unknown", True)
    assert seen[-1][0][-2:] == ["step.ended", "execution.ended"]
    assert seen[-1][1] is None, "the last fact and the release are one commit"


# -- EX-9 --------------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_a_turn_finish_within_its_grace_and_hands_nothing_over_ex_9(nodes, check):
    gate = Gate()
    node = await nodes([[Hang(gate), Text("Hi")]], grace_seconds=60)
    session = await prompted(node)
    await session.prompt("Later", id="later", delivery="queue")
    await gate.arrived()
    stopping = asyncio.create_task(node.stop())
    while not node.engine.claims.stopping:  # noqa: ASYNC110, the flag is all there is to see
        await asyncio.sleep(0)
    gate.open()
    await stopping
    other = await nodes(deaf=True)
    assert await other.outcome("hello") == "succeeded"
    assert await other.claim() is None
    later = await other.row("later")
    assert (later.pending, later.wake_pending) == (True, True)
    assert (await other.info()).wake_attempts == 0
    await check(other)


async def test_a_stop_that_cuts_a_step_short_keeps_the_phase_the_text_and_gives_its_attempt_back_ex_9(nodes, check):
    gate = Gate()
    node = await nodes([[Text("Half a sen"), Hang(gate)]], grace_seconds=0)
    await prompted(node)
    await gate.arrived()
    await node.stop()
    deaf = await nodes(deaf=True)
    claim = await deaf.claim()
    assert (claim.phase, claim.expires_at) == ("unknown", 0)
    assert (await deaf.info()).wake_attempts == 0
    (draft,) = await deaf.read(lambda tx: tx.context.drafts(SESSION))
    assert draft.text == "Half a sen"
    await deaf.stop()
    alive = await nodes([HI])
    session = await alive.session()
    assert (await session.wait("hello")).outcome == "succeeded", "at once, with no lease to wait for"
    await alive.quiet()
    await check(alive)
    (first, second) = await alive.facts(events.ExecutionStarted)
    assert (first.attempt, second.attempt) == (1, 1)


async def test_any_number_of_graceful_restarts_uses_up_no_budget_ex_9(nodes):
    node = await nodes(deaf=True)
    await prompted(node)
    await node.stop()
    for _ in range(6):
        gate = Gate()
        life = await nodes(lambda asked, gate=gate: [Hang(gate)], grace_seconds=0)
        await gate.arrived()
        await life.stop()
    alive = await nodes(lambda asked: HI)
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded"


async def test_a_stop_that_finds_the_mark_settles_the_interrupt_instead_ex_9_ex_8(nodes, check):
    gate = Gate()
    node = await nodes([[Text("Half"), Hang(gate)]], grace_seconds=0)
    session = await prompted(node)
    await gate.arrived()
    node.engine.interrupt_here = lambda *_: None
    node.engine._sweep._interrupt = lambda *_: None
    await session.interrupt()
    await node.stop()
    deaf = await nodes(deaf=True)
    assert await deaf.outcome("hello") == "interrupted"
    assert "step.recovered" not in await deaf.names()
    await check(deaf)


@pytest.mark.parametrize("when", range(0, 60, 4))
async def test_a_stop_at_any_moment_of_a_turn_loses_and_repeats_nothing_ex_9(nodes, check, when):
    node = await nodes(lambda asked: HI, grace_seconds=0)
    session = await node.session()
    for message_id in ("a", "b"):
        await session.prompt(message_id, id=message_id, delivery="queue")
    for _ in range(when):
        await asyncio.sleep(0)
    await node.stop()
    alive = await nodes(lambda asked: HI)
    session = await alive.session()
    for message_id in ("a", "b"):
        assert (await session.wait(message_id)).outcome == "succeeded"
    await alive.quiet()
    await check(alive)


async def test_a_prompt_admitted_while_stopping_is_kept_for_the_next_process_ex_9(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), Text("Hi")]], grace_seconds=60)
    session = await prompted(node)
    await gate.arrived()
    stopping = asyncio.create_task(node.stop())
    while not node.engine.claims.stopping:  # noqa: ASYNC110, the flag is all there is to see
        await asyncio.sleep(0)
    await session.prompt("Late", id="late", delivery="queue")
    gate.open()
    await stopping
    alive = await nodes([HI])
    assert (await (await alive.session()).wait("late")).outcome == "succeeded"


# -- EX-10 -------------------------------------------------------------------------------------------------------------


async def test_between_two_turns_the_claim_goes_on_and_is_never_up_for_grabs_ex_10(nodes, check):
    gates = [Gate(), Gate()]
    node = await nodes([[Hang(gate), Text("Hi")] for gate in gates])
    session = await node.session()
    for message_id in ("a", "b"):
        await session.prompt(message_id, id=message_id, delivery="queue")
    await gates[0].arrived()
    first = await node.claim()
    holders = []
    transact = node.log.transact

    async def watched(work, **more):
        def also(unit):
            result = work(unit)
            claim = unit.tx.claims.of_session(SESSION)
            ends = any(isinstance(one.data, events.ExecutionEnded) for one in unit.appended)
            holders[:] = [*holders, claim and claim.id] if ends else holders
            return result

        return await transact(also, **more)

    node.log.transact = watched
    gates[0].open()
    await gates[1].arrived()
    second = await node.claim()
    assert holders == [second.id]
    assert second.id != first.id
    assert second.owner_id == first.owner_id
    gates[1].open()
    await session.wait("b")
    await node.quiet()
    starts = [one.execution_id for one in await node.facts(events.ExecutionStarted)]
    assert starts == [first.id, second.id]
    await check(node)


async def test_more_sessions_run_side_by_side_than_transcripts_are_kept_in_memory_ex_6(nodes):
    gate = Gate()
    node = await nodes(lambda asked: [Hang(gate), Text("Hi")])
    names = [f"s{number}" for number in range(80)]
    for name in names:
        await (await node.session(name)).prompt("Hello", id=f"hello-{name}")
    while len(node.model.requests) < len(names):  # noqa: ASYNC110, eighty requests have to arrive
        await asyncio.sleep(0)
    gate.open()
    for name in names:
        assert (await (await node.session(name)).wait(f"hello-{name}")).outcome == "succeeded"
