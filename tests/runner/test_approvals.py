"""Calls that wait for a person: asking, parking, deciding, going on (APR-1 to 3)."""

import asyncio

import pytest

from perdure import Agent, Budget, Perdure, Policy, Retrying, config, errors, tool
from perdure.core import events, messages, request
from perdure.engine.engine import World
from perdure.models import port
from perdure.models.scripted import Call, Gate, Hang, ScriptedModel, Text
from perdure.testing.fake_clock import FakeClock

HI = [Text("Hi")]
HOUR = 3_600_000


class Till:
    """A tool that pays, and the ledger of what it paid."""

    def __init__(self, approval="always", wait=None) -> None:
        self.paid = []

        @tool(effect="write", approval=approval, approval_timeout_s=wait)
        async def pay(cents: int = 0) -> str:
            """Pay."""
            self.paid.append(cents)
            return f"paid {cents}"

        self.tool = pay


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def pay(cents=7, call_id="c1"):
    return Call("pay", {"cents": cents}, call_id)


@pytest.fixture
def till():
    return Till()


async def parked(rig, session, text="Pay", id="hello"):
    """Ask, and wait until the turn is parked."""
    await session.prompt(text, id=id)
    await rig.until(session, events.ExecutionParked)


def park(rig):
    """A life that ends with the turn parked."""

    async def script(app, session):
        await parked(rig, session)
        await rig.quiet(app)

    rig.live(script)


def state(part):
    return type(part.state).__name__


# -- who is asked about ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approval", "policy", "asks"),
    [
        ("never", None, False),
        ("always", None, True),
        (lambda given: given["cents"] > 5, None, True),
        (lambda given: given["cents"] > 50, None, False),
        (lambda given: 1 / 0, None, True),
        ("never", {"pay": "always"}, True),
        ("always", {"pay": "never"}, False),
        ("always", {"look": "never"}, True),
    ],
)
def test_a_tool_a_function_of_the_call_or_a_policy_by_name_asks_apr_1(rig, approval, policy, asks):
    till = Till(approval)
    rig.policy = Policy(approval=policy)
    rig.play([[pay()], HI], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await rig.quiet(app)
        return [one.call_id for one in await session.approvals()], await session.status()

    waiting, status = rig.live(script)
    assert (waiting, till.paid) == ((["c1"], []) if asks else ([], [7]))
    assert (status.status, status.reason) == (("waiting", "approval") if asks else ("idle", None))


def test_siblings_run_and_settle_then_the_turn_is_parked_without_claim_or_memory_apr_1(rig, till):
    rig.play([[pay(), Call("look", {}, "c2")], HI], tools=[till.tool, look])

    async def script(app, session):
        await parked(rig, session)
        await rig.quiet(app)
        engine = app.engine
        return session.id in engine.parts.live, engine.coordinator.active(), engine.claims.executing(session.id)

    assert rig.live(script) == (False, [], None)
    left = rig.left
    assert (left.claim, left.session.parked, left.waiting) == (None, True, ("c1",))
    assert [state(part) for part in rig.assistants[0].parts] == ["Pending", "Completed"]
    (fact,) = rig.facts(events.ExecutionParked)
    assert fact.waiting == ("c1",)
    assert not rig.facts(events.StepEnded)


def test_what_the_model_used_is_recorded_when_the_turn_is_parked_and_only_then_apr_1(rig, till):
    tokens = messages.Tokens(9, 1)
    rig.play([[pay(), port.Finish("tool_calls", tokens, 5)], HI], tools=[till.tool])
    park(rig)
    assert (rig.left.session.usage.tokens, rig.left.session.usage.cost) == (tokens, 5)
    rig.live(lambda app, session: decide_all(rig, app, session))
    assert (rig.left.session.usage.tokens, rig.left.session.usage.cost) == (tokens, 5)


async def decide_all(rig, app, session, *decisions):
    """Decide about what waits, in order; the prompt's receipt."""
    waiting = await session.approvals()
    for row, decision in zip(waiting, decisions or ["approve"] * len(waiting), strict=True):
        await session.decide(row.call_id, decision)
    return await rig.settled(app, session)


# -- going on ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [0, 1])
def test_exactly_the_approved_call_runs_once_with_no_model_call_in_between_apr_2(rig, till, restarts):
    rig.play([[pay(7)], HI], tools=[till.tool])
    if restarts:
        park(rig)

    async def script(app, session):
        if not restarts:
            await parked(rig, session)
        return await decide_all(rig, app, session)

    assert rig.live(script).outcome == "succeeded"
    assert (till.paid, len(rig.model.requests)) == ([7], 2)
    names = rig.names()
    after = names[names.index("tool.approval_resolved") :]
    assert after[:5] == ["tool.approval_resolved", "execution.resumed", "tool.called", "tool.succeeded", "step.ended"]
    (called,) = rig.facts(events.ToolCalled)
    assert (called.input, called.call_id) == ({"cents": 7}, "c1")
    assert len({one.execution_id for one in rig.facts(events.ExecutionStarted, events.ExecutionResumed)}) == 1


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_pause_in_any_step_goes_on_in_a_new_process_apr_1(rig, till, step):
    rig.play([*[[Call("look", {})]] * (step - 1), [pay()], HI], tools=[look, till.tool])
    park(rig)

    async def again(app, session):
        await session.decide("c1", "approve")
        return await rig.settled(app, session)

    assert rig.live(again).outcome == "succeeded"
    assert till.paid == [7]
    assert len(rig.model.requests) == step + 1


def test_the_resumed_turn_is_unknown_and_its_claim_names_the_assistant_apr_1(rig):
    gate, claims = Gate(), []
    till = Till()

    @tool(name="pay", effect="write", approval="always")
    async def slow(cents: int) -> str:
        """Pay."""
        await gate.wait()
        return "paid"

    rig.play([[pay()], HI], tools=[slow])
    assert till.paid == []

    async def script(app, session):
        await parked(rig, session)
        await session.decide("c1", "approve")
        await gate.arrived()
        claims.append(await app.engine.store.read(lambda tx: tx.claims.of_session(session.id)))
        gate.open()
        await rig.settled(app, session)

    rig.live(script)
    assert (claims[0].phase, claims[0].assistant_message_id) == ("unknown", rig.assistants[0].id)
    assert claims[0].id == rig.facts(events.ExecutionStarted)[0].execution_id


@pytest.mark.parametrize(
    "decisions", [("approve", "deny"), ("deny", "approve"), ("deny", "deny"), ("approve", "approve")]
)
def test_of_several_calls_some_approved_and_some_denied_each_ends_with_one_result_apr_2(rig, till, decisions):
    rig.play([[pay(1, "c1"), pay(2, "c2")], HI], tools=[till.tool])
    park(rig)
    assert rig.live(lambda app, session: decide_all(rig, app, session, *decisions)).outcome == "succeeded"
    assert till.paid == [n for n, one in zip((1, 2), decisions, strict=True) if one == "approve"]
    results = [one for one in rig.model.requests[1].messages if isinstance(one, request.ResultMessage)]
    assert [(one.call_id, one.is_error) for one in results] == [
        (call_id, one == "deny") for call_id, one in zip(("c1", "c2"), decisions, strict=True)
    ]


def test_nothing_runs_until_every_call_is_decided_apr_1(rig, till):
    rig.play([[pay(1, "c1"), pay(2, "c2")], HI], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        await session.decide("c1", "approve")
        await app.engine.world.clock.sleep_ms(HOUR)
        paid = list(till.paid)
        await session.decide("c2", "approve")
        await rig.settled(app, session)
        return paid

    assert rig.live(script) == []
    assert till.paid == [1, 2]


def test_the_commit_of_a_deny_carries_the_failure_the_model_sees_apr_3(rig, till):
    rig.play([[pay()], HI], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        await session.decide("c1", "deny", by="anna", note="too much")
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
    resolved, failed = (
        one for one in rig.left.log if isinstance(one.data, events.ToolApprovalResolved | events.ToolFailed)
    )
    assert (failed.seq, failed.created) == (resolved.seq + 1, resolved.created)
    assert (resolved.data.by, failed.data.error) == (
        "anna",
        messages.Failure("denied", "This call was denied: too much"),
    )
    assert rig.assistants[0].parts[0].state.input == {"cents": 7}
    assert rig.model.requests[1].messages[-1].text == "This call was denied: too much"


def test_a_decision_made_before_parking_is_seen_by_parking_apr_1(rig, till):
    more = Gate()
    rig.play([[pay(), Hang(more), Text("and so on")], HI], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await more.arrived()
        await session.decide("c1", "approve")
        more.open()
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
    assert till.paid == [7]


def test_a_denied_call_counts_as_failing_so_asking_for_ever_ends_the_turn_run_6(rig, till):
    rig.play(lambda _: [pay(7, None)], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        for nth in (1, 2, 3):
            await rig.until(session, events.ExecutionParked, nth=nth)
            (waiting,) = await session.approvals()
            await session.decide(waiting.call_id, "deny")
        return await rig.settled(app, session)

    assert rig.live(script).error.type == "loop"


def test_the_step_allowance_is_kept_over_a_wait_run_6(rig, till):
    rig.play([[Call("look", {})], [pay(1)], [pay(2)], HI], tools=[till.tool, look], max_steps=4)

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        for nth in (1, 2):
            await rig.until(session, events.ExecutionParked, nth=nth)
            await session.decide("c1", "approve")
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
    assert [one.tool_choice for one in rig.model.requests] == ["auto", "auto", "auto", "none"]


def test_what_a_parked_step_used_counts_against_the_turns_budget_once_run_7(rig, till):
    tokens = messages.Tokens(50, 50)
    rig.policy = Policy(turn_budget=Budget(tokens=200, steps=3))
    rig.play(lambda _: [pay(len(rig.model.requests), None), port.Finish("tool_calls", tokens)], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        for nth in (1, 2):
            await rig.until(session, events.ExecutionParked, nth=nth)
            (waiting,) = await session.approvals()
            await session.decide(waiting.call_id, "approve")
        return await rig.settled(app, session)

    receipt = rig.live(script)
    assert receipt.error.message.endswith("200 of 200 tokens")
    assert len(rig.model.requests) == 2


def test_an_approved_call_runs_with_the_agent_that_asked_whoever_answers_next_apr_2(rig, till):
    model = ScriptedModel([[pay()], HI])
    rig.play(model, agents=[Agent("main", model, tools=[till.tool]), Agent("other", model)])

    async def script(app, session):
        await parked(rig, session)
        await session.switch_agent("other")
        return await decide_all(rig, app, session)

    assert rig.live(script).outcome == "succeeded"
    assert (till.paid, [one.agent for one in rig.assistants]) == ([7], ["main", "other"])


def test_an_approved_call_whose_tool_is_gone_is_an_error_the_model_sees_apr_2(rig, till):
    rig.play([[pay()], HI], tools=[till.tool])
    park(rig)
    rig.declared = [Agent("main", rig.model)]
    assert rig.live(lambda app, session: decide_all(rig, app, session)).outcome == "succeeded"
    assert rig.assistants[0].parts[0].state.error.type == "unknown_tool"


# -- deciding ----------------------------------------------------------------------------------------------------------------


def test_the_first_decision_wins_the_same_again_is_nothing_another_is_a_conflict_apr_2(rig, till):
    rig.play([[pay(1, "c1"), pay(2, "c2")], HI], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        first = await session.decide("c1", "approve", by="anna")
        again = await session.decide("c1", "approve", by="ben")
        with pytest.raises(errors.AlreadyDecided, match="already decided"):
            await session.decide("c1", "deny")
        with pytest.raises(errors.ApprovalNotFound):
            await session.decide("c9", "approve")
        with pytest.raises(errors.InvalidInput):
            await session.decide("c2", "perhaps")
        return first, again

    first, again = rig.live(script)
    assert first == again
    assert [(one.call_id, one.by) for one in rig.facts(events.ToolApprovalResolved)] == [("c1", "anna")]


def test_two_who_decide_at_once_make_one_decision_apr_2(rig, till):
    rig.play([[pay()], HI], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        outcomes = await asyncio.gather(
            session.decide("c1", "approve"), session.decide("c1", "deny"), return_exceptions=True
        )
        await rig.settled(app, session)
        return [type(one).__name__ for one in outcomes]

    assert rig.live(script) == ["ApprovalRow", "AlreadyDecided"]
    assert till.paid == [7]


def test_an_approval_is_of_one_call_even_where_ids_repeat_apr_2(rig, till):
    rig.play([[pay(1, "same")], [pay(2, "same")], HI], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await rig.until(session, events.ExecutionParked)
        await session.decide("same", "approve")
        await rig.until(session, events.ExecutionParked, nth=2)
        await rig.quiet(app)
        paid = list(till.paid)
        await session.decide("same", "deny")
        await rig.settled(app, session)
        return paid

    assert rig.live(script) == [1]
    assert till.paid == [1]


async def test_a_decision_in_another_process_resumes_the_turn_here_or_there_apr_1(tmp_path, till):
    clock = FakeClock()

    def node(model):
        settings = config.Settings(database_url=str(tmp_path / "db"))
        return Perdure([Agent("main", model, tools=[till.tool])], settings=settings, world=World(clock=clock))

    model = ScriptedModel([[pay()], HI])
    async with asyncio.timeout(30), node(model) as here, node(model) as there:
        session = await here.sessions.create(id="ses")
        await session.prompt("Pay", id="hello")
        async for event in session.events():
            if isinstance(event.data, events.ExecutionParked):
                break
        listed = await there.engine.store.read(lambda tx: tx.approvals.list())
        assert [(one.session_id, one.call_id) for one in listed] == [("ses", "c1")]
        there.engine.coordinator.wake = lambda _: None
        await (await there.sessions.get("ses")).decide("c1", "approve")
        assert (await session.wait("hello")).outcome == "succeeded", "no clock was advanced"
    assert till.paid == [7]


# -- deadlines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_an_unanswered_question_is_denied_at_its_deadline_by_the_sweep_apr_3(rig, restart):
    till = Till(wait=3600)
    rig.play([[pay(), Call("look", {}, "c2")], HI], tools=[till.tool, look])
    if restart:
        park(rig)

    async def script(app, session):
        if not restart:
            await parked(rig, session)
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
    (asked,) = [one for one in rig.left.log if isinstance(one.data, events.ToolApprovalRequested)]
    (resolved,) = [one for one in rig.left.log if isinstance(one.data, events.ToolApprovalResolved)]
    assert asked.data.deadline == asked.created + HOUR
    assert asked.data.deadline <= resolved.created <= asked.data.deadline + 5_000
    assert (resolved.data.decision, resolved.data.by, till.paid) == ("deny", "deadline", [])


def test_without_a_deadline_nobody_decides_for_you_apr_3(rig, till):
    rig.play([[pay()]], tools=[till.tool])

    rig.simulation.limit_s = 20_000

    async def script(app, session):
        await parked(rig, session)
        await app.engine.world.clock.sleep_ms(3 * HOUR)
        return await session.status()

    assert rig.live(script).status == "waiting"


# -- while parked ------------------------------------------------------------------------------------------------------------


def test_prompts_wait_compaction_is_busy_and_no_drain_starts_while_parked_apr_1_cmp_3(rig, till):
    rig.play([[pay()], [Text("Both")], HI], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        await rig.quiet(app)
        await session.prompt("Steer", id="steer")
        await session.prompt("Queued", id="queued", delivery="queue")
        with pytest.raises(errors.SessionBusy):
            await session.compact()
        await app.engine.world.clock.sleep_ms(HOUR)
        assert [one.id for one in await session.inbox()] == ["steer", "queued"]
        assert (await session.status()).status == "waiting"
        await session.decide("c1", "approve")
        await session.wait("queued")
        await rig.settled(app, session, "steer")

    rig.live(script)
    assert [one.message_ids for one in rig.facts(events.ExecutionEnded)] == [("hello", "steer"), ("queued",)]
    assert len(rig.facts(events.ExecutionStarted, events.ExecutionResumed)) == 3
    assert "prompt.promoted" not in rig.names()[rig.names().index("execution.parked") : rig.names().index("step.ended")]


@pytest.mark.parametrize("where", ["the step still runs", "parked", "parked and restarted"])
def test_an_interrupt_closes_the_question_in_the_same_commit_and_the_next_prompt_runs_apr_3(rig, till, where):
    gate = Gate()
    first = [pay(), Hang(gate), Text("x")] if where == "the step still runs" else [pay()]
    rig.play([first, HI], tools=[till.tool])
    if where == "parked and restarted":
        park(rig)

    async def script(app, session):
        if where == "the step still runs":
            await session.prompt("Pay", id="hello")
            await gate.arrived()
        elif where == "parked":
            await parked(rig, session)
        await session.interrupt()
        receipt = await rig.settled(app, session)
        assert await session.approvals() == []
        with pytest.raises((errors.ApprovalNotFound, errors.AlreadyDecided)):
            await session.decide("c1", "approve")
        await session.prompt("Again", id="again")
        assert (await rig.settled(app, session, "again")).outcome == "succeeded"
        return receipt

    assert rig.live(script).outcome == "interrupted"
    ended = [one for one in rig.left.log if isinstance(one.data, events.StepInterrupted | events.ExecutionEnded)][:2]
    assert [type(one.data) for one in ended] == [events.StepInterrupted, events.ExecutionEnded]
    assert (till.paid, rig.assistants[0].parts[0].state.input) == ([], {"cents": 7})


def test_a_deleted_session_asks_no_more_apr_3(rig, till):
    rig.play([[pay()]], tools=[till.tool])

    async def script(app, session):
        await parked(rig, session)
        await session.delete()
        listed = await app.engine.store.read(lambda tx: tx.approvals.list())
        with pytest.raises(errors.SessionGone):
            await session.decide("c1", "approve")
        return listed

    async def run(app):
        return await script(app, await app.sessions.create("main", id="ses"))

    assert rig.simulation.live(run).value == []


def test_a_kill_before_parking_closes_the_question_with_the_recovery_apr_3(rig, till):
    gate = Gate()
    rig.play([[pay(), Hang(gate)], HI], tools=[till.tool])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await gate.arrived()
        await rig.killed()

    rig.live(script)
    assert rig.left.waiting == ("c1",)
    assert rig.live(rig.settled).outcome == "succeeded"
    assert (rig.left.waiting, till.paid) == ((), [])


def test_a_turn_whose_owners_die_on_resuming_is_given_up_and_its_question_closed_apr_3(rig, till):
    rig.policy = Policy(recovery_budget=0)
    rig.play([[pay()], HI], tools=[till.tool])
    park(rig)

    async def dies_on_resuming(app, session):
        await session.decide("c1", "approve")
        await app.engine.claims.acquire(session.id, forced=False)
        await rig.killed()

    rig.live(dies_on_resuming)
    receipt = rig.live(rig.settled)
    assert (receipt.outcome, receipt.error.type) == ("failed", "repeated_crashes")
    assert (rig.left.waiting, till.paid, rig.left.session.parked) == ((), [], False)


def test_a_stop_while_the_approved_call_is_on_its_way_never_runs_it_again_apr_2(rig):
    ran = []

    @tool(name="pay", effect="write", approval="always")
    async def dying(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        rig.die()
        return "never"

    rig.play([[pay()], HI], tools=[dying])

    async def script(app, session):
        await parked(rig, session)
        await session.decide("c1", "approve")
        await rig.settled(app, session)

    rig.live(script)
    assert rig.live(rig.settled).outcome == "succeeded"
    assert ran == [7]
    assert rig.assistants[0].parts[0].state.error.type == "unknown"


def test_a_parked_turn_of_an_agent_nobody_knows_ends_failed_apr_1(rig, till):
    rig.play([[pay()], HI], tools=[till.tool])
    park(rig)

    async def script(app):
        session = await app.sessions.get("ses")
        await session.decide("c1", "approve")
        return await session.wait("hello")

    rig.declared = [Agent("another", rig.model)]
    receipt = rig.simulation.live(script).value
    assert (receipt.outcome, receipt.error.type) == ("failed", "unknown-agent")
    assert rig.left.waiting == ()


@pytest.mark.parametrize("edge", range(1, 60))
def test_whatever_commit_a_process_dies_at_a_parked_turn_pays_once_apr_2(rig, till, edge):
    rig.policy = Policy(retry=Retrying(attempts=2))
    rig.play(lambda asked: [pay()] if not rig.paying(asked) else HI, tools=[till.tool])
    rig.paying = lambda asked: any(isinstance(one, request.ResultMessage) for one in asked.messages)

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        while (await session.receipt("hello")).state != "settled":
            await rig.quiet(app)
            for row in await session.approvals():
                await session.decide(row.call_id, "approve")
            await app.engine.world.clock.sleep_ms(1_000)
        return await rig.settled(app, session)

    rig.live(script, crash_at=edge)
    receipt = rig.live(script)
    assert receipt.outcome == "succeeded"
    assert len(till.paid) <= 1
