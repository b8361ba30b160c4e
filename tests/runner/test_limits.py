"""The last step, the loop guard, and budgets of turns and sessions."""

import pytest

from perdure import Budget, Policy, tool
from perdure.core import budget, events, messages, request
from perdure.models import port
from perdure.models.scripted import Call, Cut, Delay, Fail, Text
from perdure.runner import loops, step

HI = [Text("Hi")]
TOKENS = messages.Tokens(60, 40)


@tool(effect="read")
async def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


@tool(effect="read")
async def fail(n: int = 0) -> str:
    """Fail."""
    raise ValueError(f"no {n}")


# -- the last step -----------------------------------------------------------------------------------------------------------


def test_in_the_last_step_tools_are_off_and_the_model_is_told_run_6(rig):
    rig.play([[Call("look", {})], HI], tools=[look], max_steps=2)
    assert rig.ask().outcome == "succeeded"
    first, last = rig.model.requests
    assert (first.tool_choice, last.tool_choice) == ("auto", "none")
    assert last.messages[-1] == request.UserMessage((request.TextContent(step.LAST_STEP),))


def test_a_model_that_calls_all_the_same_is_refused_and_the_turn_ends_run_6(rig):
    rig.play([[Call("look", {}, "c1")]], tools=[look], max_steps=1)
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type) == ("failed", "max_steps")
    assert rig.assistants[0].parts[0].state.error.type == "not_allowed"
    assert not rig.facts(events.ToolCalled)


def test_a_policy_may_allow_fewer_steps_than_the_agent_run_6(rig):
    rig.policy = Policy(max_steps=1)
    rig.play([HI], tools=[look])
    rig.ask()
    assert rig.model.requests[0].tool_choice == "none"


# -- loops -------------------------------------------------------------------------------------------------------------------


def test_the_same_failing_call_three_times_in_a_row_ends_the_turn_run_6(rig):
    rig.play(
        [[Call("fail", '{"n":1}')], [Call("fail", '{ "n": 1 }')], [Call("fail", '{"n":\t1}'), Text("x")], HI],
        tools=[fail],
    )
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type, len(rig.model.requests)) == ("failed", "loop", 3)
    assert rig.facts(events.ExecutionEnded)[0].reason == "loop"


@pytest.mark.parametrize(
    "replies",
    [
        [[Call("fail", {"n": 1})], [Call("fail", {"n": 2})], [Call("fail", {"n": 1})], [Call("fail", {"n": 2})], HI],
        [[Call("fail", {})], [Call("fail", {})], [Call("look", {})], [Call("fail", {})], [Call("fail", {})], HI],
        [[Call("look", {})]] * 5 + [HI],
    ],
    ids=["another input between", "a success between", "a call that succeeds"],
)
def test_what_is_no_streak_goes_on_run_6(rig, replies):
    rig.play(replies, tools=[fail, look])
    assert rig.ask().outcome == "succeeded"


@pytest.mark.parametrize("call", [Call("nobody", {"n": 1}), Call("look", '{"n":'), Call("look", {"n": "x"})])
def test_calls_that_never_ran_count_too_run_6(rig, call):
    rig.play([[call]] * 3, tools=[look])
    assert rig.ask().error.type == "loop"


def test_three_in_one_step_are_three_in_a_row_run_6(rig):
    rig.play([[Call("fail", {}), Call("fail", {}), Call("fail", {})]], tools=[fail])
    assert rig.ask().error.type == "loop"


def test_a_streak_over_a_transcript_knows_no_unknown_outcome_run_6():
    def part(kind):
        state = messages.Errored({"n": 1}, messages.Failure(kind, "x"))
        return messages.ToolPart("c", "fail", state, messages.PartTime(0))

    assert loops.streak(loops.outcomes([part("tool_error"), part("tool_error")])).times == 2
    assert loops.streak(loops.outcomes([part("tool_error"), part("unknown")])).times == 0


# -- budgets -----------------------------------------------------------------------------------------------------------------

USED = [Call("look", {}), port.Finish("tool_calls", TOKENS, 1_000)]
LIMITS = {
    "tokens": Budget(tokens=200),
    "cost": Budget(cost=2_000),
    "steps": Budget(steps=2),
    "seconds": Budget(seconds=6),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("scope", ["turn_budget", "session_budget"])
def test_reaching_a_budget_ends_the_turn_before_the_next_call_run_7(rig, limit, scope):
    rig.policy = Policy(**{scope: limit})
    rig.play(lambda _: [Delay(3), *USED], tools=[look])
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type, len(rig.model.requests)) == ("failed", "budget", 2)
    assert rig.facts(events.ExecutionEnded)[0].reason == "budget"
    assert len(rig.facts(events.StepEnded)) == 2, "what was used is recorded"


def test_a_turn_budget_is_each_turns_own_and_a_session_budget_is_not_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(tokens=150))
    rig.play(lambda _: [Text("Hi"), port.Finish("stop", TOKENS)])
    assert [rig.ask(id=f"turn-{n}").outcome for n in range(3)] == ["succeeded"] * 3

    async def bound(app, session):
        await session.update(events.Changes(policy=Policy(session_budget=Budget(tokens=300))))
        await session.prompt("More", id="more")
        return await rig.settled(app, session, "more")

    assert rig.live(bound).error.type == "budget"
    assert len(rig.model.requests) == 3


def test_a_call_of_unknown_cost_counts_its_tokens_and_no_cost_and_the_totals_say_so_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(cost=1))
    rig.play([[Call("look", {}), port.Finish("tool_calls", TOKENS)], [Text("Hi"), port.Finish("stop")]], tools=[look])
    assert rig.ask().outcome == "succeeded"
    usage = rig.left.session.usage
    assert (usage.tokens, usage.cost, usage.unknown_cost) == (TOKENS, 0, 2)


def test_a_retry_is_no_call_too_many_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(seconds=1))
    rig.play([[Fail()], HI])
    receipt = rig.ask()
    assert (receipt.error.type, len(rig.model.requests)) == ("budget", 1)
    assert rig.assistants[0].error.type == "server", "the step says why it needed another attempt"


def test_a_stream_that_broke_is_held_against_the_budget_before_it_goes_on_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(steps=1))
    rig.play([[Text("Half"), Cut()], HI])
    assert (rig.ask().error.type, len(rig.model.requests)) == ("budget", 1)


@pytest.mark.parametrize("limit", [Budget(tokens=200), Budget(cost=2_000), Budget(steps=2), Budget(seconds=20)])
def test_a_restart_forgets_nothing_that_was_used_and_counts_a_crash_once_run_7(rig, limit):
    rig.policy = Policy(turn_budget=limit)

    def reply(asked):
        if len(rig.model.requests) == 2:
            rig.die()
        return [Delay(12), *USED]

    rig.play(reply, tools=[look])

    async def script(app, session):
        await session.prompt("Go", id="hello")
        await rig.settled(app, session)

    rig.live(script)
    receipt = rig.live(rig.settled)
    assert receipt.error.type == "budget"
    assert len(rig.facts(events.StepEnded)) == 2


def test_a_prompt_that_runs_again_has_a_new_budget_run_7(rig):
    rig.policy = Policy(turn_budget=Budget(tokens=100))
    rig.play([USED, [Text("Hi"), port.Finish("stop", TOKENS)]], tools=[look])
    assert rig.ask().error.type == "budget"

    async def again(app, session):
        await session.retry("hello")
        return await rig.settled(app, session)

    assert rig.live(again).outcome == "succeeded"


def test_totals_of_all_kinds_count_run_7():
    assert budget.total(messages.Tokens(1, 2, 4, 8, 16)) == 31
    assert budget.exceeded(None, budget.Spent(10**9)) is None
    assert budget.exceeded(Budget(tokens=5), budget.Spent(4)) is None
    assert budget.exceeded(Budget(tokens=5), budget.Spent(5)) == "5 of 5 tokens"
