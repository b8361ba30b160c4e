"""A prompt that a process may run at once takes the claim in the commit that admits it, and nobody is ever left with a claim
that no drain runs (EX-1, IN-1, REC-6).
"""

import asyncio

import pytest

from perdure import Perdure, config, errors, tool
from perdure.core import events
from perdure.models.scripted import Call, Gate, Hang, Text

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]


@pytest.fixture
async def still(claiming):
    """A node that takes the claim with a prompt, begins no turn with it and starts no drain."""
    node = await claiming(deaf=True)
    del node.engine.coordinator.has_room
    return node


class Gap:
    """Time between the next commit and the moment the engine hears of it. `admitted` is what the writer did meanwhile."""

    def __init__(self, node):
        self.gate, self._store = Gate(), node.engine.store
        self._write, self._store.write = self._store.write, self.write

    async def write(self, work, *, committed=None):
        self._store.write = self._write
        result = await self._write(work)
        await self.gate.wait()
        if committed:
            committed(result)
        return result


async def in_the_gap(node, message_id="hello"):
    """A prompt whose commit took the claim, and its engine does not know it yet."""
    session = await node.session()
    gap = Gap(node)
    prompting = asyncio.create_task(session.prompt("Hello", id=message_id))
    await gap.gate.arrived()
    return session, gap, prompting


# -- the commit --------------------------------------------------------------------------------------------------------


async def test_a_prompt_at_rest_takes_the_claim_in_its_own_commit_ex_1_in_1_rec_6(still):
    session = await still.session()
    units = []
    write = still.engine.store.write

    async def watched(work, *, committed=None):
        units.append(work)
        return await write(work, committed=committed)

    still.engine.store.write = watched
    await session.prompt("Hello", id="hello")
    assert len(units) == 1
    claim = await still.claim()
    assert (claim.owner_id, claim.phase, claim.purpose) == (still.engine.owner_id, "safe", "turn")
    assert claim.expires_at == still.clock.now_ms() + LEASE_MS
    assert (await still.info()).wake_attempts == 1
    held = still.engine.parts.handed[SESSION].held
    assert (held.execution_id, held.attempt, held.seq) == (claim.id, 1, 1)
    assert still.engine.claims.trusts(held)
    assert await still.names() == ["created", "prompt.admitted"]
    assert still.bells == [SESSION], "one ring, with the claim"


@pytest.mark.parametrize("verb", ["retry", "exact retry"])
async def test_a_retry_at_rest_takes_the_claim_in_its_own_commit_ex_1(still, nodes, verb):
    session = await still.session()
    await session.prompt("Hello", id="hello", resume=False)
    if verb == "retry":
        failing = await nodes(agents=[])  # nobody there can answer
        await (await failing.app.sessions.get(SESSION)).resume()
        await (await failing.app.sessions.get(SESSION)).wait("hello")
        await failing.stop()
    assert await still.claim() is None
    await (session.retry("hello") if verb == "retry" else session.prompt("Hello", id="hello"))
    assert (await still.claim()).id == still.engine.parts.handed[SESSION].held.execution_id
    assert still.bells[-1:] == [SESSION]


async def test_a_prompt_that_is_only_admitted_takes_no_claim_in_1(still):
    session = await still.session()
    await session.prompt("Hello", id="hello", resume=False)
    assert await still.claim() is None
    assert still.bells == []


async def test_a_prompt_that_is_refused_takes_no_claim_in_2(still):
    session = await still.session()
    await session.prompt("Hello", id="hello", resume=False)
    with pytest.raises(errors.PromptConflict):
        await session.prompt("Goodbye", id="hello")
    assert (await still.claim(), still.bells, still.engine.parts.handed) == (None, [], {})


async def test_a_process_that_runs_nothing_takes_no_claim_ex_1(still, tmp_path):
    await still.session()
    settings = config.Settings(database_url=str(tmp_path / "perdure.db"))
    async with Perdure(settings=settings, idle=True) as looking:
        await (await looking.sessions.get(SESSION)).prompt("Hello", id="hello")
        assert await still.claim() is None
        assert (await still.row("hello")).wake_pending


async def test_a_process_whose_slots_are_all_taken_takes_no_claim_it_could_not_run_ex_6(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate), *HI], HI], parallel=1)
    await (await node.session("busy")).prompt("Hello", id="a")
    await gate.arrived()
    session = await node.session()
    await session.prompt("Hello", id="hello")
    assert await node.claim() is None
    gate.open()
    assert (await session.wait("hello")).outcome == "succeeded"


async def test_a_prompt_sent_while_the_drain_before_it_ends_takes_the_claim_along_ex_6(beginning, check):
    node = await beginning([HI, HI])
    session = await node.session()
    prompting, acquired = [], []

    async def follow_up():
        assert node.engine.coordinator.active() == [SESSION]
        gap = Gap(node)
        following = asyncio.create_task(session.prompt("And now?", id="now"))
        await gap.gate.arrived()
        await node.quiet()
        gap.gate.open()
        return await following

    def heard(facts):
        if any(isinstance(event.data, events.ExecutionEnded) for event in facts) and not prompting:
            node.engine.claims.acquire = lambda *_, **__: acquired.append(1)
            prompting.append(asyncio.create_task(follow_up()))

    node.log.live.tap(heard)
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await prompting[0]
    assert (await session.wait("now")).outcome == "succeeded"
    assert acquired == []
    await node.quiet()
    await check(node)


async def test_of_two_processes_that_admit_at_once_one_takes_the_claim_ex_1(beginning, check):
    one, other = await beginning([HI] * 2), await beginning([HI] * 2)
    sessions = [await node.session() for node in (one, other)]
    await asyncio.gather(*[session.prompt("Hello", id=f"p{n}") for n, session in enumerate(sessions)])
    for n, session in enumerate(sessions):
        assert (await session.wait(f"p{n}")).outcome == "succeeded"
    await asyncio.gather(one.quiet(), other.quiet())
    assert {fact.attempt for fact in await one.facts(events.ExecutionStarted)} == {1}
    assert (await one.info()).wake_attempts == 0
    await check(one)


async def test_of_many_prompts_at_once_the_first_takes_the_claim_and_all_are_answered_ex_1_in_12(beginning, check):
    node = await beginning(lambda asked: HI)
    session = await node.session()
    names = [f"p{n}" for n in range(10)]
    await asyncio.gather(*[session.prompt("Hello", id=name, delivery="queue") for name in names])
    for name in names:
        assert (await session.wait(name)).outcome == "succeeded"
    await node.quiet()
    assert {fact.attempt for fact in await node.facts(events.ExecutionStarted)} == {1}
    await check(node)


async def test_a_unit_that_runs_again_knows_the_claim_it_took_ex_2_log_12(still):
    session = await still.session()
    write = still.engine.store.write

    async def twice(work, *, committed=None):
        await write(work)  # its commit took place, and nobody knows
        return await write(work, committed=committed)

    still.engine.store.write = twice
    await session.prompt("Hello", id="hello")
    still.engine.store.write = write
    held = still.engine.parts.handed[SESSION].held
    assert ((await still.claim()).id, held.attempt, held.seq) == (held.execution_id, 1, 1)
    assert await still.names() == ["created", "prompt.admitted"]
    assert (await still.info()).wake_attempts == 1


async def test_a_parked_turn_that_waits_for_people_is_not_claimed_by_a_prompt_apr_1(beginning):
    gate = Gate()

    @tool(effect="write", approval="always")
    async def pay() -> str:
        """Pay."""
        return "paid"

    node = await beginning([[Call("pay", {}, "c1")], [Hang(gate), *HI], HI], tools=[pay])
    session = await node.session()
    await session.prompt("Pay", id="hello")
    async for event in session.events():
        if isinstance(event.data, events.ExecutionParked):
            break
    await node.quiet()
    await session.prompt("And?", id="later")
    assert await node.claim() is None
    await node.quiet()
    await session.decide("c1", "approve")
    await gate.arrived()
    gate.open()
    assert (await session.wait("later")).outcome == "succeeded"


async def test_an_imported_session_that_a_prompt_takes_into_service_is_claimed_with_it_log_28(still):
    session = await still.session()
    await still.engine.store.write(lambda tx: tx.sessions.set_held(SESSION, held=True))
    await session.prompt("Hello", id="hello")
    assert (await still.claim()).id == still.engine.parts.handed[SESSION].held.execution_id


# -- REC-6 -------------------------------------------------------------------------------------------------------------


async def test_a_process_that_dies_right_after_the_commit_used_up_an_attempt_and_wrote_nothing_rec_6_rec_2(
    still, nodes, check
):
    session = await still.session()
    await session.prompt("Hello", id="hello")
    await still.crash()
    still.clock.advance(LEASE_MS + 1)
    alive = await nodes([HI])
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded"
    await alive.quiet()
    assert [fact.attempt for fact in await alive.facts(events.ExecutionStarted)] == [2]
    assert "step.recovered" not in await alive.names()
    await check(alive)


async def test_a_prompt_gives_nobody_up_and_takes_no_claim_where_the_budget_is_spent_rec_6(still, nodes, check):
    session = await still.session()
    await session.prompt("poison", id="poison", delivery="queue")
    (handed,) = still.engine.parts.handed.values()
    await still.engine.claims.release(handed.held)
    still.engine.parts.handed.clear()
    await still.engine.store.write(lambda tx: tx.sessions.set_wake_attempts(SESSION, 4))
    await session.prompt("Hello", id="hello", delivery="queue")
    assert await still.claim() is None
    assert (await still.row("poison")).pending
    await still.stop()
    alive = await nodes([HI])
    session = await alive.session()
    assert (await session.wait("hello")).outcome == "succeeded"
    assert (await session.receipt("poison")).error.type == "repeated_crashes"
    await alive.quiet()
    await check(alive)


# -- between the commit and the drain ----------------------------------------------------------------------------------


async def test_a_caller_that_goes_away_at_any_moment_changes_nothing_ex_1(beginning):
    node = await beginning(lambda asked: HI)
    session = await node.session()
    for turns in range(30):
        prompting = asyncio.create_task(session.prompt("Hello", id=f"p{turns}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        prompting.cancel()
        await asyncio.gather(prompting, return_exceptions=True)
        if await node.row(f"p{turns}"):
            assert (await session.wait(f"p{turns}")).outcome == "succeeded", "no sweep rang"
        await node.quiet()
        assert await node.claim() is None


async def test_a_caller_that_goes_away_after_the_commit_leaves_a_claim_that_runs_ex_1(beginning):
    node = await beginning([HI])
    session, gap, prompting = await in_the_gap(node)
    gap.gate.open()
    await asyncio.sleep(0)
    prompting.cancel()
    await asyncio.gather(prompting, return_exceptions=True)
    assert (await session.wait("hello")).outcome == "succeeded"


async def test_a_stop_in_between_waits_for_the_claim_and_lets_go_of_it_ex_9(beginning):
    node = await beginning([])
    late = await node.session("late")
    _, gap, prompting = await in_the_gap(node)
    stopping = asyncio.create_task(node.stop())
    while not node.engine.claims.stopping:  # noqa: ASYNC110, the flag is all there is to see
        await asyncio.sleep(0)
    await late.prompt("Late", id="late")
    assert await node.claim("late") is None, "a process that stops takes no claim"
    gap.gate.open()
    await stopping
    assert (await prompting).state == "admitted"
    deaf = await beginning(deaf=True)
    claim = await deaf.claim()
    assert claim is None or claim.expires_at == 0
    assert (await deaf.info()).wake_attempts == 0
    await deaf.stop()
    alive = await beginning(lambda asked: HI)
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded", "at once, with no lease to wait for"


async def test_a_stop_that_is_given_up_takes_nothing_from_an_admission_under_way_in_1(beginning):
    node = await beginning([])
    _, gap, prompting = await in_the_gap(node)
    stopping = asyncio.create_task(node.engine.stop())
    while not node.engine.claims.stopping:  # noqa: ASYNC110, the flag is all there is to see
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    gap.gate.open()
    assert (await prompting).state == "admitted"
    await node.engine.store.close()


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_a_stop_at_any_moment_of_an_admission_leaves_no_claim_to_wait_for_ex_9(beginning, turns):
    node = await beginning([], grace_seconds=0)
    session = await node.session()
    prompting = asyncio.create_task(session.prompt("Hello", id="hello"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.stop()
    await asyncio.gather(prompting, return_exceptions=True)
    alive = await beginning(lambda asked: HI)
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "succeeded", "no clock was advanced"


async def test_a_claim_that_no_drain_can_begin_with_is_given_back_and_rung_for_ex_6_rec_6(claiming):
    node = await claiming([HI])
    session, gap, prompting = await in_the_gap(node)
    attempts = []
    acquire = node.engine.claims.acquire

    async def watched(*args, **more):
        attempts.append((await node.claim(), (await node.info()).wake_attempts))
        return await acquire(*args, **more)

    node.engine.claims.acquire = watched
    node.engine.coordinator.free = lambda _: False  # every slot was taken meanwhile
    gap.gate.open()
    await prompting
    assert (await session.wait("hello")).outcome == "succeeded"
    assert attempts == [(None, 0)], "the claim was let go of before the bell rang"
    assert node.engine.parts.handed == {}
    (started,) = await node.facts(events.ExecutionStarted)
    assert started.attempt == 1


async def test_a_drain_that_a_sweep_starts_in_between_finds_the_claim_taken_and_loses_nothing_ex_6(beginning):
    node = await beginning([HI])
    session, gap, prompting = await in_the_gap(node)
    node.engine.coordinator.wake(SESSION)
    gap.gate.open()
    await prompting
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    assert await node.claim() is None
    (started,) = await node.facts(events.ExecutionStarted)
    assert started.attempt == 1


async def not_begun(node, gap, prompting):
    """The claim is handed over, and the drain that is to run it has not begun; what lets it."""
    slots = node.engine.coordinator._slots = asyncio.Semaphore(0)
    gap.gate.open()
    await prompting
    assert node.engine.coordinator.active() == list(node.engine.parts.handed) == [SESSION]
    return slots.release


@pytest.mark.parametrize("handed", [False, True])
async def test_an_interrupt_before_the_drain_begins_stops_it_and_keeps_the_input_ex_8(claiming, check, handed):
    node = await claiming([HI])
    session, gap, prompting = await in_the_gap(node)
    begin = await not_begun(node, gap, prompting) if handed else gap.gate.open
    assert await session.interrupt()
    begin()
    await prompting
    await node.quiet()
    assert await node.claim() is None
    row = await node.row("hello")
    assert (row.pending, row.wake_pending) == (True, False)
    assert await node.names() == ["created", "prompt.admitted", "execution.interrupt_requested"]
    assert (await node.info()).wake_attempts == 0
    await session.prompt("And now?", id="now")
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    await check(node)


@pytest.mark.parametrize("handed", [False, True])
async def test_a_deletion_before_the_drain_begins_is_settled_by_it_ex_8(beginning, handed):
    node = await beginning([])
    session, gap, prompting = await in_the_gap(node)
    begin = await not_begun(node, gap, prompting) if handed else gap.gate.open
    deleting = asyncio.create_task(session.delete())
    while not (await node.info()).deleting:  # noqa: ASYNC110, a row is asked
        await asyncio.sleep(0)
    begin()
    await prompting
    await node.quiet()
    assert await node.claim() is None, "before the grace period was over"
    while not deleting.done():
        node.clock.advance(20)
        await asyncio.sleep(0)
    assert await node.info() is None
    assert node.engine.parts.handed == {}
