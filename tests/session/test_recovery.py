"""What recovery makes of a dead owner, row by row of the specification's crash table, and what follows (REC-1 to REC-13)."""

import asyncio
import dataclasses
from contextlib import aclosing

import pytest

from perdure import Agent, errors, tool
from perdure.core import events, messages
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Call, Cut, Fail, Gate, Hang, ScriptedModel, Text
from perdure.session import approvals, recovery

SESSION = "ses"
LEASE_MS = 30_000
HI = [Text("Hi")]
LONG = "word " * 200


class GateSource:
    """A context source that answers when its gate opens."""

    name = "notes"

    def __init__(self):
        self.gate = Gate()

    async def read(self):
        await self.gate.wait()
        return "Notes"


async def until(node, kind, count=1):
    """Wait until the log holds so many facts of a kind."""
    seen = 0
    async for event in node.log.follow(SESSION):
        seen += isinstance(getattr(event, "data", None), kind)
        if seen == count:
            return


# -- deaths: each runs a real engine up to a moment and abandons it ----------------------------------------------------


async def after_admission(nodes):
    node = await nodes(deaf=True)
    await (await node.session()).prompt("Hello", id="hello")
    return node


async def reading_context(nodes):
    node = await nodes([])
    source = GateSource()
    ready = node.engine.agents["main"]
    node.engine.agents["main"] = dataclasses.replace(ready, sources=(source,))
    await (await node.session()).prompt("Hello", id="hello")
    await source.gate.arrived()
    return node


async def retry_back_off(nodes):
    node = await nodes([[Fail(ModelErrorKind.SERVER, "Overloaded", retry_after_ms=600_000)]])
    await (await node.session()).prompt("Hello", id="hello")
    await until(node, events.RetryScheduled)
    return node


async def request_in_flight(nodes):
    gate = Gate()
    node = await nodes([[Hang(gate)]])
    await (await node.session()).prompt("Hello", id="hello")
    await gate.arrived()
    return node


async def text_half_written(nodes):
    gate = Gate()
    node = await nodes([[Text("Half a sen"), Hang(gate)]])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    async with aclosing(session.events(signals=True)) as heard:
        async for event in heard:
            if isinstance(event.data, events.TextDelta):
                break
    await gate.arrived()
    while not await node.read(lambda tx: tx.context.drafts(SESSION)):
        node.clock.advance(200)
        await asyncio.sleep(0)
    return node


async def tools_in_flight(nodes):
    hangs, done = Gate(), Gate()

    @tool(effect="write")
    async def pay(cents: int) -> str:
        """Pay."""
        await hangs.wait()
        return "paid"

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        await done.wait()
        return "seen"

    node = await nodes([[Text("Let me"), Call("look", {}, "c1"), Call("pay", {"cents": 7}, "c2")]], tools=[pay, look])
    await (await node.session()).prompt("Hello", id="hello")
    await hangs.arrived()
    done.open()
    await until(node, events.ToolSucceeded)
    return node


async def auto_compaction(nodes):
    gate = Gate()
    model = ScriptedModel([HI, [Hang(gate)]])
    node = await nodes(agents=[Agent("main", model=model, context_tokens=100)])
    session = await node.session()
    await session.prompt(LONG, id="one")
    await session.wait("one")
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    return node


async def manual_compaction(nodes):
    gate = Gate()
    node = await nodes([HI, [Hang(gate)]])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await node.quiet()
    await node.engine.compact(SESSION)
    await gate.arrived()
    return node


async def between_steps(nodes):
    node = await nodes([[Text("Half"), Cut()]])
    await (await node.session()).prompt("Hello", id="hello")
    await until(node, events.SyntheticAdded)
    return node


async def last_step_settled(nodes):
    node = await nodes([HI])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    return node


# death: phase of the claim, facts recovery writes, outcome of the prompt, whether the sweep rings
TABLE = {
    after_admission: (None, [], None, True),
    reading_context: ("safe", [], None, True),
    retry_back_off: ("ready", ["step.recovered", "prompt.admitted"], None, False),
    request_in_flight: ("unknown", ["step.recovered", "usage.recorded", "prompt.admitted"], None, True),
    text_half_written: ("unknown", ["text.ended", "step.recovered", "usage.recorded", "prompt.admitted"], None, True),
    tools_in_flight: ("unknown", ["step.recovered", "usage.recorded", "prompt.admitted"], None, True),
    auto_compaction: (
        "unknown",
        ["compaction.failed", "step.recovered", "usage.recorded", "prompt.admitted"],
        None,
        True,
    ),
    manual_compaction: ("unknown", ["compaction.failed", "usage.recorded", "execution.ended"], "succeeded", False),
    between_steps: ("continue", ["step.recovered", "prompt.admitted"], None, True),
    last_step_settled: (None, [], "succeeded", False),
}


async def crashed(nodes, death):
    """A session whose owner died that death; another, deaf engine on its file once the lease is over."""
    node = await death(nodes)
    claim = await node.claim()
    names = await node.names()
    await node.crash()
    node.clock.advance(LEASE_MS + 1)
    other = await nodes(deaf=True)
    other.left, other.names_before = claim, names
    return other


@pytest.mark.parametrize("death", TABLE, ids=lambda death: death.__name__)
async def test_each_death_leaves_its_phase_and_recovery_writes_exactly_its_facts_rec_2_rec_12(nodes, death):
    """Every row of the crash table; EX-4 for the phase."""
    phase, facts, outcome, rings = TABLE[death]
    node = await crashed(nodes, death)
    assert (node.left.phase if node.left else None) == phase
    await node.sweep()
    assert (await node.names())[len(node.names_before) :] == facts
    assert await node.claim() is None
    assert await node.outcome("hello") == outcome
    assert bool(node.bells) == rings or death in {manual_compaction, retry_back_off}
    await node.sweep()
    assert (await node.names())[len(node.names_before) :] == facts, "a second sweep adds nothing"
    assert await node.read(lambda tx: tx.context.drafts(SESSION)) == []


@pytest.mark.parametrize("death", TABLE, ids=lambda death: death.__name__)
async def test_after_each_death_the_next_process_gives_every_prompt_its_one_outcome_rec_1(nodes, death, check):
    """I2 and I3 of the model: nothing stays running, nothing is answered twice; REC-11 by `check`."""
    node = await death(nodes)
    await node.crash()
    node.clock.advance(LEASE_MS + 600_001)
    alive = await nodes(lambda asked: HI)
    await alive.sweep()
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded"
    await alive.quiet()
    await check(alive)
    promoted = [one.message_id for one in await alive.facts(events.PromptPromoted)]
    assert promoted.count("hello") == 1


@pytest.mark.parametrize(
    "death", [one for one in TABLE if TABLE[one][0] and one is not manual_compaction], ids=lambda death: death.__name__
)
async def test_an_acknowledged_interrupt_ends_the_dead_turn_whatever_its_phase_ex_8(nodes, death, check):
    """The row "interrupt acknowledged": marked, then dead; no continuation, and nothing goes on."""
    node = await death(nodes)
    other = await nodes(deaf=True)
    assert await other.engine.interrupt(SESSION, "stop")
    await node.crash()
    other.clock.advance(LEASE_MS + 1)
    before = len(await other.names())
    await other.sweep()
    new = (await other.names())[before:]
    assert await other.claim() is None
    if death is reading_context:
        assert new == [], "marked and safe: the claim goes, no event"
        assert not (await other.row("hello")).wake_pending
        return
    assert "step.recovered" not in new
    assert new[-1] == "execution.ended"
    assert await other.outcome("hello") == "interrupted"
    assert ("step.interrupted" in new) == (
        death in {request_in_flight, text_half_written, tools_in_flight, retry_back_off}
    )
    await check(other)


async def test_recovery_ends_open_text_with_what_a_reader_saw_and_settles_open_calls_as_unknown_rec_2(nodes):
    node = await crashed(nodes, text_half_written)
    await node.sweep()
    assistant = (await (await node.session()).messages())[-1]
    texts = [part.text for part in assistant.parts]
    assert texts == ["Half a sen", "Provider Step outcome unknown after server restart"]
    assert assistant.finish == "error"


async def test_a_crash_keeps_the_results_of_parallel_calls_that_were_settled_rec_9(nodes):
    node = await crashed(nodes, tools_in_flight)
    await node.sweep()
    assistant = (await (await node.session()).messages())[-1]
    states = {
        part.call_id: type(part.state).__name__ for part in assistant.parts if isinstance(part, messages.ToolPart)
    }
    assert states == {"c1": "Completed", "c2": "Errored"}
    (unknown,) = [part.state for part in assistant.parts if getattr(part, "call_id", "") == "c2"]
    assert unknown.error.message == "Tool execution outcome unknown after server restart"


async def test_no_call_runs_again_and_the_next_request_says_what_is_unknown_rec_8(nodes):
    node = await tools_in_flight(nodes)
    await node.crash()
    node.clock.advance(LEASE_MS + 1)
    ran = []

    @tool(effect="write")
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    alive = await nodes([HI], tools=[pay])
    await (await alive.session()).wait("hello")
    assert ran == []
    (asked,) = alive.model.requests
    assert "unknown" in str(asked.messages)


async def test_a_continuation_and_its_facts_have_ids_made_of_the_execution_id_rec_2(nodes):
    node = await crashed(nodes, request_in_flight)
    await node.sweep()
    dead = node.left.id
    recorded = {one.id: one.data for one in await node.log.read(SESSION, limit=100)}
    assert isinstance(recorded[f"evt_recovered_{dead}"], events.StepRecovered)
    admitted = recorded[f"evt_continue_{dead}"]
    assert (admitted.message_id, admitted.kind, admitted.delivery) == (f"msg_continue_{dead}", "synthetic", "queue")
    assert not admitted.request_execution
    row = await node.read(lambda tx: tx.recoveries.get(dead))
    assert (row.wake_pending, row.wake_attempts, row.phase) == (True, 0, "unknown")


async def test_two_recoverers_make_one_set_of_facts_rec_2(nodes):
    node = await crashed(nodes, request_in_flight)
    other = await nodes(deaf=True)
    outcomes = await asyncio.gather(
        *(one.transact(lambda unit: recovery.recover(unit, node.left)) for one in (node, other, node, other))
    )
    assert sorted(one.result for one in outcomes) == ["continued", "nothing", "nothing", "nothing"]
    assert len(await node.facts(events.StepRecovered)) == 1


@pytest.mark.parametrize("change", ["renewed", "handed over", "taken by another"])
async def test_recovery_changes_nothing_where_the_claim_is_no_longer_the_one_judged_dead_rec_2(nodes, change):
    node = await crashed(nodes, request_in_flight)
    dead, names = node.left, await node.names()

    def meddle(tx):
        if change == "renewed":
            tx.claims.renew(dead.id, dead.owner_id, dead.expires_at + 1)
        elif change == "handed over":
            tx.claims.hand_over(dead.id, dead.owner_id, "exe_next", 1)
        else:
            tx.claims.delete(dead.id, dead.owner_id)
            tx.claims.insert("exe", SESSION, "own", purpose="turn", phase="safe", now=1, expires_at=dead.expires_at)

    await node.engine.store.write(meddle)
    outcome = await node.transact(lambda unit: recovery.recover(unit, dead))
    assert outcome.result == "nothing"
    assert await node.names() == names
    assert await node.claim() is not None


async def test_a_retry_back_off_survives_with_its_time_and_its_count_of_attempts_rec_2(nodes):
    node = await crashed(nodes, retry_back_off)
    (retry,) = await node.facts(events.RetryScheduled)
    await node.sweep()
    row = await node.read(lambda tx: tx.recoveries.get(node.left.id))
    assert (row.not_before, row.attempt) == (retry.at, 2)
    await node.sweep()
    assert node.bells.count(SESSION) <= 1
    assert await node.engine.claims.acquire(SESSION, forced=False) is None, "not before its time"
    node.clock.advance(600_000)
    node.bells.clear()
    await node.sweep()
    assert node.bells == [SESSION]


async def test_the_sweep_looks_again_when_a_back_off_ends_rec_1(nodes):
    node = await crashed(nodes, retry_back_off)
    await node.sweep()
    (retry,) = await node.facts(events.RetryScheduled)
    node.clock.advance(retry.at - node.clock.now_ms() - 1_000)
    assert await node.sweep() == 1_000


async def test_the_sweep_looks_again_at_the_earliest_expiry_rec_1(nodes):
    node = await request_in_flight(nodes)
    other = await nodes(deaf=True)
    assert await other.sweep() == 5_000
    other.clock.advance(LEASE_MS - 1_200)
    await node.crash()
    claim = await other.claim()
    assert await other.sweep() == min(claim.expires_at - other.clock.now_ms(), 5_000)


async def test_one_ring_per_session_per_sweep_rec_1(nodes):
    node = await crashed(nodes, request_in_flight)
    for message_id in ("a", "b", "c"):
        await (await node.session()).prompt(message_id, id=message_id)
    node.bells.clear()
    await node.sweep()
    assert node.bells == [SESSION]


async def test_sessions_under_a_live_claim_are_neither_recovered_nor_rung_rec_1(nodes):
    await request_in_flight(nodes)
    other = await nodes(deaf=True)
    names = await other.names()
    await other.sweep()
    assert (other.bells, await other.names()) == ([], names)


async def test_a_wake_refused_by_a_live_owner_is_no_failure_rec_1(nodes, caplog):
    await request_in_flight(nodes)
    other = await nodes([])
    other.engine.ring(SESSION)
    await other.quiet()
    assert caplog.records == []


async def test_what_is_rung_first_was_tried_least_and_waits_longest_rec_4(deaf):
    for number, (attempts, time) in enumerate([(2, 1), (0, 5), (0, 3), (1, 1)]):
        session_id = f"s{number}"
        await deaf.session(session_id)
        await waiting_recovery(deaf, session_id, attempts=attempts, time=time)
    await deaf.sweep()
    assert deaf.bells == ["s2", "s1", "s3", "s0"]


async def waiting_recovery(node, session_id, *, attempts=0, time=1, armed=True):
    """A recovered turn that waits, by rows."""
    dead = f"exe_{session_id}"

    def work(unit):
        unit.append(
            events.ExecutionStarted(session_id=session_id, execution_id=dead, owner_id="own", purpose="turn", attempt=1)
        )
        unit.append(events.StepRecovered(session_id=session_id, execution_id=dead, phase="ready", armed=armed))
        unit.append(
            events.PromptAdmitted(
                session_id=session_id,
                message_id=f"msg_continue_{dead}",
                kind="synthetic",
                prompt=messages.text_prompt("Go on"),
                delivery="queue",
            )
        )
        unit.tx.recoveries._c.execute(
            "UPDATE session_recovery SET wake_attempts = ?, time_created = ? WHERE execution_id = ?",
            (attempts, time, dead),
        )

    await node.transact(work)
    return dead


# -- REC-5 -------------------------------------------------------------------------------------------------------------


async def test_the_continuation_goes_before_any_queued_input_rec_5(nodes, check):
    node = await crashed(nodes, request_in_flight)
    await (await node.session()).prompt("later", id="later", delivery="queue")
    await node.stop()
    alive = await nodes([HI, HI])
    await (await alive.session()).wait("later")
    await alive.quiet()
    promoted = [one.message_id for one in await alive.facts(events.PromptPromoted)]
    assert promoted == ["hello", f"msg_continue_{node.left.id}", "later"]
    assert await alive.outcome("hello") == "succeeded"
    await check(alive)


async def test_a_steer_supersedes_the_continuation_in_the_same_commit_and_answers_the_dead_turn_rec_5(nodes, check):
    node = await crashed(nodes, request_in_flight)
    await node.sweep()
    await (await node.session()).prompt("wait", id="wait")
    await node.stop()
    alive = await nodes([HI])
    await (await alive.session()).wait("wait")
    await alive.quiet()
    withdrawn = [(one.message_id, one.reason) for one in await alive.facts(events.PromptWithdrawn)]
    assert withdrawn == [(f"msg_continue_{node.left.id}", "superseded")]
    names = await alive.names()
    assert names[names.index("prompt.withdrawn") - 1] == "prompt.promoted"
    ended = (await alive.facts(events.ExecutionEnded))[-1]
    assert set(ended.message_ids) == {"hello", "wait"}
    assert len(alive.model.requests) == 1
    await check(alive)


# -- REC-6 -------------------------------------------------------------------------------------------------------------


async def crash_again(nodes, reply=None, **settings):
    """One more life that dies with its request in flight."""
    gate = Gate()
    node = await nodes(lambda asked: reply or [Hang(gate)], **settings)
    await gate.arrived()
    await node.crash()
    node.clock.advance(LEASE_MS + 1)


@pytest.mark.parametrize("budget", [0, 1, 3])
async def test_a_turn_that_crashes_its_owner_once_more_than_the_budget_ends_failed_rec_6(nodes, check, budget):
    node = await nodes(deaf=True)
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.prompt("Other", id="other", delivery="queue")
    await node.stop()
    for life in range(1 + budget):
        await crash_again(nodes, recovery_budget=budget)
        del life
    alive = await nodes(lambda asked: HI, recovery_budget=budget)
    session = await alive.session()
    receipt = await session.wait("hello")
    assert (receipt.outcome, receipt.error.type) == ("failed", "repeated_crashes")
    assert (await session.wait("other")).outcome == "succeeded", "the session is usable"
    await alive.quiet()
    (ended,) = [one for one in await alive.facts(events.ExecutionEnded) if "hello" in one.message_ids]
    assert ended.reason == "repeated_crashes"
    starts = [one.attempt for one in await alive.facts(events.ExecutionStarted)]
    assert starts == [*range(1, budget + 2), 1]
    assert (await alive.info()).wake_attempts == 0
    await check(alive)


async def test_the_budget_of_a_sessions_policy_wins_over_the_engines_rec_6(nodes):
    node = await nodes(deaf=True)
    await node.session(policy=events.Policy(recovery_budget=0))
    await (await node.app.sessions.get(SESSION)).prompt("Hello", id="hello")
    await node.stop()
    await crash_again(nodes)
    alive = await nodes([])
    assert (await (await alive.app.sessions.get(SESSION)).wait("hello")).outcome == "failed"


async def test_an_exhausted_recovery_can_no_longer_be_retried_rec_6(nodes):
    node = await nodes(deaf=True)
    await (await node.session()).prompt("Hello", id="hello")
    await node.stop()
    await crash_again(nodes, recovery_budget=0)
    alive = await nodes([], recovery_budget=0)
    await (await alive.session()).wait("hello")
    (recovered,) = await alive.facts(events.StepRecovered)
    with pytest.raises(errors.LifecycleConflict):
        await alive.app.recoveries.retry(recovered.execution_id)
    row = await alive.read(lambda tx: tx.recoveries.get(recovered.execution_id))
    assert row.recovery_error == "repeated_crashes"


async def test_where_nothing_was_promoted_the_oldest_woken_input_fails_and_the_next_has_its_turn_rec_6(nodes, check):
    node = await nodes(deaf=True)
    session = await node.session()
    for message_id in ("poison", "next"):
        await session.prompt(message_id, id=message_id, delivery="queue")
    for _ in range(4):
        assert await node.engine.claims.acquire(SESSION, forced=False)
        node.clock.advance(LEASE_MS + 1)
        await node.sweep()
    await node.stop()
    alive = await nodes([HI])
    session = await alive.session()
    assert (await session.wait("next")).outcome == "succeeded"
    receipt = await session.receipt("poison")
    assert (receipt.outcome, receipt.error.type) == ("failed", "repeated_crashes")
    await alive.quiet()
    await check(alive)


async def test_a_retry_input_nobody_gets_to_start_fails_with_its_prompt_rec_6(nodes):
    node = await nodes([[Fail(ModelErrorKind.AUTH, "No")]])
    session = await node.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await node.stop()
    deaf = await nodes(deaf=True)
    session = await deaf.session()
    await session.retry("hello")
    for _ in range(4):
        assert await deaf.engine.claims.acquire(SESSION, forced=False)
        deaf.clock.advance(LEASE_MS + 1)
        await deaf.sweep()
    assert await deaf.engine.claims.acquire(SESSION, forced=False) is None
    assert (await session.receipt("hello")).outcome == "failed"
    assert await deaf.outcome("msg_retry_hello_1") == "failed"


async def test_each_claim_counts_and_an_end_a_release_and_a_hand_over_set_the_count_rec_6(nodes):
    gates = [Gate(), Gate()]
    alive = await nodes([[Hang(gate), Text("Hi")] for gate in gates])
    session = await alive.session()
    await session.prompt("a", id="a", delivery="queue")
    await session.prompt("b", id="b", delivery="queue")
    await gates[0].arrived()
    assert (await alive.info()).wake_attempts == 1
    gates[0].open()
    await gates[1].arrived()
    assert (await alive.info()).wake_attempts == 1, "a hand-over"
    gates[1].open()
    await session.wait("b")
    assert (await alive.info()).wake_attempts == 0, "the end"


async def test_a_recovery_and_its_session_both_count_the_claims_taken_for_it_rec_6(nodes):
    node = await crashed(nodes, request_in_flight)
    await node.sweep()
    held = await node.engine.claims.acquire(SESSION, forced=False)
    assert held.attempt == 2
    row = await node.read(lambda tx: tx.recoveries.get(node.left.id))
    assert row.wake_attempts == 1


@pytest.mark.parametrize("intent", ["prompt", "exact retry", "resume"])
async def test_fresh_intent_in_a_quiet_session_starts_the_count_anew_rec_6(deaf, intent):
    session = await deaf.session()
    if intent != "prompt":
        await session.prompt("Hello", id="hello", resume=False)
    await deaf.engine.store.write(lambda tx: tx.sessions.set_wake_attempts(SESSION, 2))
    await (session.resume() if intent == "resume" else session.prompt("Hello", id="hello"))
    assert (await deaf.info()).wake_attempts == 0


@pytest.mark.parametrize("busy", ["claim", "woken input", "recovered turn"])
async def test_fresh_intent_in_a_session_that_is_not_quiet_leaves_the_count_rec_6(deaf, busy):
    session = await deaf.session()
    if busy == "recovered turn":
        await waiting_recovery(deaf, SESSION)
    else:
        await session.prompt("First", id="first")
    if busy == "claim":
        await deaf.engine.claims.acquire(SESSION, forced=False)
    await deaf.engine.store.write(lambda tx: tx.sessions.set_wake_attempts(SESSION, 2))
    await session.prompt("Hello", id="hello")
    assert (await deaf.info()).wake_attempts == 2


# -- REC-7 -------------------------------------------------------------------------------------------------------------


async def dead_with_policy(nodes, policy):
    gate = Gate()
    node = await nodes([[Hang(gate)]])
    await node.session(policy=policy)
    session = await node.app.sessions.get(SESSION)
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await node.crash()
    node.clock.advance(LEASE_MS + 1)
    deaf = await nodes(deaf=True)
    await deaf.sweep()
    (recovered,) = await deaf.facts(events.StepRecovered)
    deaf.dead = recovered.execution_id
    return deaf


ASK = events.Policy(recovery="ask")


async def test_with_ask_a_recovered_turn_waits_for_a_decision_and_the_status_says_so_rec_7(nodes):
    deaf = await dead_with_policy(nodes, ASK)
    session = await deaf.app.sessions.get(SESSION)
    await deaf.sweep()
    assert not (await deaf.read(lambda tx: tx.recoveries.get(deaf.dead))).wake_pending
    assert (await session.receipt("hello")).state == "running"
    status = await session.status()
    assert status.status == "waiting"
    assert "decision" in status.reason
    assert await deaf.engine.claims.acquire(SESSION, forced=False) is None
    assert await deaf.engine.claims.acquire(SESSION, forced=True) is None


async def test_with_ask_queued_inputs_wait_behind_the_decision_rec_5(nodes):
    deaf = await dead_with_policy(nodes, ASK)
    session = await deaf.app.sessions.get(SESSION)
    await session.prompt("later", id="later", delivery="queue")
    assert await deaf.engine.claims.acquire(SESSION, forced=False) is None


@pytest.mark.parametrize("how", ["resume", "retry"])
async def test_resume_or_retry_arms_a_turn_that_awaits_a_decision_rec_7(nodes, how, check):
    deaf = await dead_with_policy(nodes, ASK)
    await deaf.stop()
    alive = await nodes([HI])
    session = await alive.app.sessions.get(SESSION)
    await (session.resume() if how == "resume" else alive.app.recoveries.retry(deaf.dead))
    assert (await session.wait("hello")).outcome == "succeeded"
    (request,) = await alive.facts(events.PromptExecutionRequested)
    assert request.message_id == f"msg_continue_{deaf.dead}"
    await alive.quiet()
    await check(alive)


async def test_a_steer_supersedes_a_turn_that_awaits_a_decision_rec_7(nodes, check):
    deaf = await dead_with_policy(nodes, ASK)
    await deaf.stop()
    alive = await nodes([HI])
    session = await alive.app.sessions.get(SESSION)
    await session.prompt("Never mind", id="never-mind")
    assert (await session.wait("hello")).outcome == "succeeded"
    assert await alive.outcome(f"msg_continue_{deaf.dead}") == "superseded"
    await alive.quiet()
    await check(alive)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [(events.Policy(recovery="never"), "policy"), (events.Policy(recovery_max_age_ms=1_000), "too_old")],
)
async def test_with_never_or_past_its_age_a_dead_turn_ends_interrupted_in_the_same_commit_rec_7(
    nodes, policy, reason, check
):
    deaf = await dead_with_policy(nodes, policy)
    (ended,) = await deaf.facts(events.ExecutionEnded)
    assert (ended.execution_id, ended.outcome, ended.reason) == (deaf.dead, "interrupted", reason)
    assert await deaf.outcome("hello") == "interrupted"
    assert await deaf.outcome(f"msg_continue_{deaf.dead}") == "cancelled"
    assert (await deaf.info()).wake_attempts == 0
    assert await deaf.engine.claims.acquire(SESSION, forced=True) is None
    await check(deaf)


@pytest.mark.parametrize("how", ["nobody asks", "somebody asks", "in time"])
async def test_a_continuation_that_nobody_was_there_to_run_in_time_is_not_run_later_rec_7(nodes, how, check):
    asks = how == "somebody asks"
    policy = events.Policy(recovery="ask" if asks else "auto", recovery_max_age_ms=LEASE_MS + 60_000)
    deaf = await dead_with_policy(nodes, policy)
    assert len(await deaf.facts(events.StepRecovered)) == 1
    if asks:
        await deaf.app.recoveries.retry(deaf.dead)
    await (await deaf.app.sessions.get(SESSION)).prompt("Later", id="later", delivery="queue")
    await deaf.stop()
    deaf.clock.advance(LEASE_MS + 60_000 + (how != "in time"))
    alive = await nodes([HI, HI])
    session = await alive.app.sessions.get(SESSION)
    assert (await session.wait("later")).outcome == "succeeded"
    await alive.quiet()
    ended = (await alive.facts(events.ExecutionEnded))[0]
    late = how == "nobody asks"
    assert (ended.outcome, ended.reason) == (("interrupted", "too_old") if late else ("succeeded", None))
    assert (await session.receipt("hello")).outcome == ended.outcome
    await check(alive)


async def test_dismiss_ends_a_waiting_turn_interrupted_and_the_next_prompt_runs_rec_7(nodes, check):
    deaf = await dead_with_policy(nodes, ASK)
    await deaf.stop()
    alive = await nodes([HI])
    session = await alive.app.sessions.get(SESSION)
    (listed,) = await alive.app.recoveries.list()
    assert (listed.execution_id, listed.session_id, listed.armed) == (deaf.dead, SESSION, False)
    await alive.app.recoveries.dismiss(deaf.dead)
    assert (await session.receipt("hello")).outcome == "interrupted"
    assert await alive.app.recoveries.list() == []
    with pytest.raises(errors.LifecycleConflict):
        await alive.app.recoveries.dismiss(deaf.dead)
    with pytest.raises(errors.LifecycleConflict):
        await alive.app.recoveries.retry(deaf.dead)
    await session.prompt("Hello again", id="again")
    assert (await session.wait("again")).outcome == "succeeded"
    await alive.quiet()
    await check(alive)


async def test_a_recovery_nobody_knows_is_not_found_rec_7(deaf):
    for verb in (deaf.app.recoveries.retry, deaf.app.recoveries.dismiss):
        with pytest.raises(errors.RecoveryNotFound):
            await verb("exe_nobody")


# -- REC-13 ------------------------------------------------------------------------------------------------------------


async def failing_recovery(nodes, monkeypatch):
    node = await crashed(nodes, tools_in_flight)

    def broken(*args, **kwargs):
        raise ValueError("cannot be recovered")

    monkeypatch.setattr(recovery, "_continue", broken)
    await node.sweep()
    return node


async def test_a_recovery_that_fails_says_so_on_the_claim_and_in_the_status_and_waits_longer_each_time_rec_13(
    nodes, monkeypatch
):
    node = await failing_recovery(nodes, monkeypatch)
    claim = await node.claim()
    assert claim.recovery_error == "ValueError: cannot be recovered"
    status = await (await node.session()).status()
    assert status.status == "recovering"
    assert "cannot be recovered" in status.reason
    assert status.until == claim.recovery_not_before
    waits = []
    for _ in range(3):
        waits.append((await node.claim()).recovery_not_before - node.clock.now_ms())
        assert await node.sweep() == min(waits[-1], 5_000), "it does not spin meanwhile"
        node.clock.advance(waits[-1])
        await node.sweep()
    assert waits == sorted(set(waits))


async def test_a_failing_recovery_does_not_end_the_sweep_for_the_others_rec_1(nodes, monkeypatch):
    node = await crashed(nodes, tools_in_flight)
    await node.session("other")
    await (await node.session("other")).prompt("Hello", id="other-hello")
    node.bells.clear()

    def broken(*args, **kwargs):
        raise ValueError("cannot be recovered")

    monkeypatch.setattr(recovery, "_continue", broken)
    await node.sweep()
    assert node.bells == ["other"]


async def test_a_deadline_that_cannot_be_kept_does_not_end_the_sweep_for_the_others_rec_1(nodes, monkeypatch):
    @tool(effect="write", approval="always", approval_timeout_s=1)
    async def pay() -> str:
        """Pay."""
        return "paid"

    node = await nodes([[Call("pay", {}, "c1")]], tools=[pay])
    await (await node.session()).prompt("Hello", id="hello")
    await until(node, events.ExecutionParked)
    await node.crash()
    node = await nodes(deaf=True)
    await (await node.session("other")).prompt("Hello", id="other-hello")
    node.bells.clear()

    def broken(*_):
        raise ValueError("cannot be denied")

    monkeypatch.setattr(approvals, "deny_overdue", broken)
    node.clock.advance(1_001)
    await node.sweep()
    assert "other" in node.bells


async def test_after_the_budget_a_failing_recovery_ends_its_turn_failed_and_the_session_goes_on_rec_13(
    nodes, monkeypatch, check
):
    node = await failing_recovery(nodes, monkeypatch)
    for _ in range(4):
        node.clock.advance(60_000)
        await node.sweep()
    assert await node.claim() is None
    new = (await node.names())[len(node.names_before) :]
    assert new == ["step.interrupted", "usage.recorded", "execution.ended"]
    receipt = await (await node.session()).receipt("hello")
    assert (receipt.outcome, receipt.error.type) == ("failed", "recovery_failed")
    await check(node)
    await node.stop()
    alive = await nodes([HI])
    await (await alive.session()).prompt("Hello again", id="again")
    assert (await (await alive.session()).wait("again")).outcome == "succeeded"


async def test_a_marked_claim_whose_recovery_keeps_failing_ends_interrupted_as_was_acknowledged_rec_13_ex_8(
    nodes, monkeypatch, check
):
    node = await failing_recovery(nodes, monkeypatch)
    monkeypatch.setattr(recovery, "close", recovery._continue)
    assert await (await node.session()).interrupt()
    for _ in range(4):
        node.clock.advance(60_000)
        await node.sweep()
    assert await node.claim() is None
    [ended] = await node.facts(events.ExecutionEnded)
    assert (ended.outcome, ended.reason, ended.error.type) == ("interrupted", "interrupt", "recovery_failed")
    assert (await (await node.session()).receipt("hello")).outcome == "interrupted"
    await check(node)


@pytest.mark.parametrize("how", ["dismiss", "retry"])
async def test_a_person_can_dismiss_or_retry_a_recovery_that_fails_rec_13(nodes, monkeypatch, how, check):
    node = await failing_recovery(nodes, monkeypatch)
    (listed,) = await node.app.recoveries.list()
    assert listed.error == "ValueError: cannot be recovered"
    if how == "dismiss":
        await node.app.recoveries.dismiss(listed.execution_id)
        assert await node.outcome("hello") == "failed"
        await check(node)
    else:
        monkeypatch.undo()
        await node.app.recoveries.retry(listed.execution_id)
        await node.sweep()
        assert len(await node.facts(events.StepRecovered)) == 1


async def test_the_sweep_goes_on_after_a_look_that_failed_rec_1(nodes, monkeypatch):
    node = await crashed(nodes, request_in_flight)
    await node.stop()
    looked = asyncio.Event()
    loop, survey = asyncio.get_running_loop(), recovery.survey

    def broken_once(*args):
        if looked.is_set():
            return survey(*args)
        loop.call_soon_threadsafe(looked.set)
        raise ValueError("a row nobody can read")

    monkeypatch.setattr(recovery, "survey", broken_once)
    alive = await nodes([HI])
    await looked.wait()
    alive.engine.sweep_soon()
    assert (await (await alive.session()).wait("hello")).outcome == "succeeded"
