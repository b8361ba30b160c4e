"""A stream that breaks after a reader saw something of it (RUN-5)."""

import pytest

from perdure import Policy, Retrying, tool
from perdure.core import events, messages, request
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Call, Cut, Delay, Fail, Gate, Hang, Reasoning, Text
from perdure.runner import boundary

HI = [Text("Hi")]
BREAKS = [Cut(), Fail(ModelErrorKind.TRANSPORT), Fail(ModelErrorKind.SERVER)]


@pytest.mark.parametrize("how", BREAKS, ids=["cut", "transport", "server"])
@pytest.mark.parametrize("shown", [Text("Half"), Reasoning("Hm")], ids=["text", "reasoning"])
def test_partial_output_stays_and_a_new_assistant_goes_on_run_5(rig, how, shown):
    rig.play([[shown, how], [Text(" and whole")]])
    assert rig.ask().outcome == "succeeded", "the failed step does not decide"
    first, second = rig.assistants
    assert (first.parts[0].text, first.finish, second.parts[0].text) == (shown.text, "error", " and whole")
    assert first.error.type in {"incomplete_stream", "transport", "server"}
    assert len(rig.facts(events.ExecutionEnded)) == 1
    (note,) = rig.facts(events.SyntheticAdded)
    assert note.text == boundary.GO_ON
    said = rig.model.requests[1].messages
    assert isinstance(said[-2], request.AssistantMessage)
    assert said[-1].content[0].text == boundary.GO_ON


def test_calls_that_are_durable_settle_first_and_each_ran_once_run_5(rig):
    ran, gate = [], Gate()

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        await gate.wait()
        ran.append("paid")
        return "paid"

    rig.play([[Text("Paying"), Call("pay", {}, "c1"), Call("pay", '{"n"', "c2", whole=False), Cut()], HI], tools=[pay])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await gate.arrived()
        await app.engine.world.clock.sleep_ms(60_000)
        assert not [one async for one in session.events(follow=False) if isinstance(one.data, events.StepFailed)]
        gate.open()
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"
    assert ran == ["paid"]
    text, called, never = rig.assistants[0].parts
    assert (text.text, called.state.content[0]["text"]) == ("Paying", "paid")
    assert never.state.error.type == "incomplete_stream"
    results = [one for one in rig.model.requests[1].messages if isinstance(one, request.ResultMessage)]
    assert [(one.call_id, one.is_error) for one in results] == [("c1", False), ("c2", True)]


def test_the_broken_attempts_and_the_silent_ones_share_one_budget_run_5(rig):
    rig.play([[Text("One"), Cut()], [Fail()], [Text("Two"), Cut()], [Fail()], [Text("Three"), Cut()]])
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type) == ("failed", "incomplete_stream")
    assert len(rig.model.requests) == 5
    assert [part.text for one in rig.assistants for part in one.parts] == ["One", "Two", "Three"]
    starts = rig.at(events.StepStarted)
    for earlier, later, base in zip(starts, starts[1:], (2_000, 4_000, 8_000, 16_000), strict=False):
        assert 0.8 * base <= later - earlier <= 1.2 * base


def test_after_a_whole_step_the_attempts_count_anew_run_5(rig):
    rig.policy = Policy(retry=Retrying(attempts=2))

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    rig.play([[Text("One"), Cut()], [Call("look", {})], [Text("Two"), Cut()], HI], tools=[look])
    assert rig.ask().outcome == "succeeded"


def test_between_the_two_assistants_the_phase_is_continue_and_a_kill_goes_on_run_5(rig):
    rig.play([[Text("Half"), Cut()], HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.SyntheticAdded)
        await rig.killed()

    rig.live(script)
    assert rig.left.claim.phase == "continue"
    assert rig.live(rig.settled).outcome == "succeeded"
    assert [one.phase for one in rig.facts(events.StepRecovered)] == ["continue"]
    assert rig.assistants[0].parts[0].text == "Half"


def test_the_wait_after_a_break_is_interruptible_run_5(rig):
    rig.play([[Text("Half"), Fail(ModelErrorKind.RATE_LIMIT, retry_after_ms=600_000)], HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.SyntheticAdded)
        await session.interrupt()
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "interrupted"
    assert (len(rig.model.requests), rig.assistants[0].parts[0].text) == (1, "Half")


def test_what_will_not_pass_by_itself_ends_the_turn_with_its_partial_output_run_5(rig):
    rig.play([[Text("Half"), Fail(ModelErrorKind.CONTENT_FILTER)]])
    assert rig.ask().error.type == "content_filter"
    assert rig.assistants[0].parts[0].text == "Half"


def test_steers_admitted_meanwhile_join_the_assistant_that_goes_on_run_5(rig):
    rig.play([[Text("Half"), Cut()], HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await rig.until(session, events.SyntheticAdded)
        await session.prompt("Also this", id="steer")
        await session.wait("hello")
        return await rig.settled(app, session, "steer")

    assert rig.live(script).outcome == "succeeded"
    assert [one.message_ids for one in rig.facts(events.ExecutionEnded)] == [("hello", "steer")]


def test_a_call_that_waited_for_a_person_is_denied_and_the_model_told_run_5_apr_3(rig):
    @tool(effect="write", approval="always")
    async def pay() -> str:
        """Pay."""
        raise AssertionError("never")

    gate = Gate()
    rig.play([[Call("pay", {}, "c1"), Hang(gate), Cut()], HI], tools=[pay])

    async def script(app, session):
        await session.prompt("Pay", id="hello")
        await gate.arrived()
        gate.open()
        receipt = await rig.settled(app, session)
        assert await session.approvals() == []
        return receipt

    assert rig.live(script).outcome == "succeeded"
    (resolved,) = rig.facts(events.ToolApprovalResolved)
    assert (resolved.decision, resolved.by) == ("deny", "engine")
    assert isinstance(rig.assistants[0].parts[0].state, messages.Errored)


# -- what a crash loses ------------------------------------------------------------------------------------------------------


def test_a_crash_loses_at_most_what_was_shown_in_the_last_250_ms_pub_3(rig):
    shown = []
    words = [item for n in range(200) for item in (Text(f"{n} "), Delay(0.01))]
    rig.play([words, HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        async for event in session.events(signals=True):
            if isinstance(event.data, events.TextDelta):
                shown.append((app.engine.world.clock.now_ms(), event.data.offset + len(event.data.delta)))
                if event.data.offset > 300:
                    await rig.killed()

    rig.live(script)
    (draft,) = rig.left.drafts
    died_at = shown[-1][0]
    owed = max(length for at, length in shown if at <= died_at - 250)
    assert len(draft.text) >= owed > 0
    rig.live(rig.settled)
    assert rig.assistants[0].parts[0].text == draft.text
    assert rig.left.drafts == ()


def test_the_commit_that_ends_a_part_takes_its_draft_away_pub_3(rig):
    gate = Gate()
    rig.play([[Text("Half"), Delay(1), Text(" more"), Call("look", {}), Hang(gate), Text("x")], HI])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await app.engine.world.clock.sleep_ms(500)
        drafted = await app.engine.store.read(lambda tx: tx.context.drafts(session.id))
        await gate.arrived()
        ended = await app.engine.store.read(lambda tx: tx.context.drafts(session.id))
        gate.open()
        await rig.settled(app, session)
        return [one.text for one in drafted], ended

    assert rig.live(script) == (["Half"], [])


def test_a_draft_of_an_owner_that_lost_its_claim_is_refused_pub_3(rig):
    gate = Gate()
    rig.play([[Text("Half"), Hang(gate), Delay(2), Text("late"), Hang()]])

    async def script(app, session):
        await session.prompt("Hello", id="hello")
        await gate.arrived()
        await app.engine.log.transact(lambda unit: unit.tx.claims.expire(*_of(unit)))
        gate.open()
        await rig.quiet(app)
        return await app.engine.store.read(lambda tx: tx.context.drafts(session.id))

    def _of(unit):
        claim = unit.tx.claims.of_session("ses")
        return claim.id, claim.owner_id

    assert rig.live(script) == []
