"""One step in a whole engine: promotion, calls beside the stream, one end; what its commits are."""

import asyncio
import shutil
from collections import Counter

import pytest

from perdure import Agent, Perdure, errors, tool
from perdure.core import events, messages, request
from perdure.engine.engine import World
from perdure.engine.parts import Part
from perdure.models import port
from perdure.models.scripted import Call, Delay, Fail, Gate, Hang, ScriptedModel, Text
from perdure.runner import step
from perdure.testing.simulator import Simulation

HI = [Text("Hi")]
TERMINAL = (events.StepEnded, events.StepFailed, events.StepInterrupted)


def tools_that(ran, **gates):
    """Tools by name; one with a gate waits for it."""

    def make(name):
        @tool(name=name, effect="write")
        async def run() -> str:
            """Run."""
            ran.append(f"{name} starts")
            if gates[name]:
                await gates[name].wait()
            ran.append(f"{name} ends")
            return f"{name} done"

        return run

    return [make(name) for name in gates]


# -- commits -----------------------------------------------------------------------------------------------------------------


async def test_a_lone_turn_with_one_tool_takes_four_commits_pub_1_ex_1(tmp_path):
    commits = []

    def probe(where):
        if where == "after_commit":
            commits.append(where)

    model = ScriptedModel([[Call("look", {}, "c1")], HI])

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    app = Perdure([Agent("main", model, tools=[look])], database=str(tmp_path / "db"), world=World(probe=probe))
    async with asyncio.timeout(20), app:
        session = await app.sessions.create(id="ses")
        await session.prompt("warm", id="warm", resume=False)
        await session.cancel("warm")
        before = len(commits)
        receipt = await session.prompt("Look", id="look")
        await session.wait(receipt.id)
        assert len(commits) - before == 4, "admit + claim + start, call, result + next start, end"


def test_the_start_of_a_step_rides_in_the_commit_that_promotes_and_sets_unknown_pub_1(rig):
    seen = []

    def look(asked):
        left = rig.peek()
        seen.append((left.claim.phase, left.claim.assistant_message_id, [one.data.event_type for one in left.log][-3:]))
        return HI

    rig.play(look)
    rig.peek = lambda: _peek(rig)
    rig.ask()
    ((phase, amid, last),) = seen
    assert phase == "unknown"
    assert last == ["session.prompt.promoted", "session.execution.started", "session.step.started"]
    assert amid == rig.assistants[0].id
    created = {one.created for one in rig.left.log if one.seq in {2, 3, 4}}
    assert len(created) == 1


def _peek(rig):
    """The file as it is while an engine has it open."""
    path = rig.simulation.path
    other = Simulation(list, rig.directory)
    shutil.copyfile(path, other.path)
    shutil.copyfile(path.with_name(path.name + "-wal"), other.path.with_name(other.path.name + "-wal"))
    was, rig.simulation = rig.simulation, other
    try:
        return rig.left
    finally:
        rig.simulation = was


# -- drain -------------------------------------------------------------------------------------------------------------------


def test_nothing_eligible_starts_nothing_run_1(rig):
    rig.play([])

    async def script(app, session):
        await session.prompt("Later", id="later", resume=False)
        app.engine.ring(session.id)
        await rig.quiet(app)

    rig.live(script)
    assert rig.names() == ["created", "prompt.admitted"]


def test_steers_join_at_the_next_boundary_queued_prompts_wait_for_their_own_turn_run_1(rig):
    gate = Gate()
    rig.play([[Call("work", {}, "c1")], HI, HI], tools=tools_that([], work=gate))

    async def script(app, session):
        await session.prompt("One", id="one")
        await gate.arrived()
        await session.prompt("Queued", id="queued", delivery="queue")
        await session.prompt("Steer", id="steer")
        gate.open()
        for message_id in ("one", "steer", "queued"):
            await session.wait(message_id)
        await rig.settled(app, session, "queued")

    rig.live(script)
    turns = [one.message_ids for one in rig.facts(events.ExecutionEnded)]
    assert turns == [("one", "steer"), ("queued",)]
    second, third = rig.model.requests[1].messages, rig.model.requests[2].messages
    assert second[-1].content[0].text == "Steer"
    assert third[-1].content[0].text == "Queued"


def test_with_no_turn_open_waiting_steers_go_before_an_older_queued_prompt_run_1(rig):
    rig.play([HI, HI])

    async def script(app, session):
        await session.prompt("Queued", id="queued", delivery="queue", resume=False)
        await session.prompt("Steer", id="steer", resume=False)
        await session.resume()
        await session.wait("queued")

    rig.live(script)
    assert [one.message_ids for one in rig.facts(events.ExecutionEnded)] == [("steer",), ("queued",)]


def test_promotion_gives_the_whole_step_allowance_again_run_1(rig):
    gate = Gate()
    rig.play(
        [[Call("work", {}, "c1")], [Call("work", {}, "c2")], [Call("work", {}, "c3")], HI],
        tools=tools_that([], work=gate),
        max_steps=3,
    )

    async def script(app, session):
        await session.prompt("One", id="one")
        await gate.arrived()
        await session.prompt("Steer", id="steer")
        gate.open()
        await session.wait("one")
        return await rig.settled(app, session, "steer")

    assert rig.live(script).outcome == "succeeded", "one step before the steer and three from it on"
    assert [one.tool_choice for one in rig.model.requests] == ["auto", "auto", "auto", "none"]


# -- calls -------------------------------------------------------------------------------------------------------------------


def test_a_tool_runs_while_the_model_still_streams_and_several_run_at_once_run_3(rig):
    ran, one, two, more = [], Gate(), Gate(), Gate()
    both = tools_that(ran, one=one, two=two)
    rig.play([[Call("one", {}, "c1"), Call("two", {}, "c2"), Hang(more), Text("later")], HI], tools=both)

    async def script(app, session):
        await session.prompt("Go", id="hello")
        for gate in (more, one, two):
            await gate.arrived()
        assert ran == ["one starts", "two starts"]
        one.open()
        two.open()
        await rig.until(session, events.ToolSucceeded, nth=2)
        more.open()
        return await rig.settled(app, session)

    assert rig.live(script).outcome == "succeeded"


def test_all_calls_settle_before_exactly_one_terminal_fact_run_3(rig):
    slow = Gate()
    rig.play(
        [[Call("one", {}, "c1"), Call("slow", {}, "c2"), Text("words")], HI], tools=tools_that([], one=None, slow=slow)
    )

    async def script(app, session):
        await session.prompt("Go", id="hello")
        await slow.arrived()
        await app.engine.world.clock.sleep_ms(500)
        assert not [one for one in (await session.messages())[-1:] if one.time.completed]
        slow.open()
        return await rig.settled(app, session)

    rig.live(script)
    first = rig.assistants[0].id
    of_step = [one for one in rig.left.log if getattr(one.data, "assistant_message_id", None) == first]
    assert [type(one.data) for one in of_step if isinstance(one.data, TERMINAL)] == [events.StepEnded]
    assert isinstance(of_step[-1].data, events.StepEnded)
    results = [one for one in of_step if isinstance(one.data, events.ToolSucceeded)]
    assert [one.data.call_id for one in results] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Call("nobody", {}), "unknown_tool"),
        (Call("count", {"n": "many"}), "invalid_arguments"),
        (Call("count", "[1]"), "invalid_arguments"),
        (Call("count", '{"n": 1'), "invalid_arguments"),
        (Call("count", '"1"'), "invalid_arguments"),
        (Call("count", '{"n": 1, "n": 2}'), "invalid_arguments"),
        (Call("count", '{"n": 1, "of": [{"a": 1, "b": 2, "a": 3}]}'), "invalid_arguments"),
        (Call("count", {"n": 13}), "tool_error"),
    ],
)
def test_whatever_is_wrong_with_a_call_is_an_error_the_model_sees_run_3(rig, call, kind):
    @tool(effect="read")
    async def count(n: int) -> str:
        """Count."""
        if n == 13:
            raise ValueError("unlucky")
        return str(n)

    rig.play([[call], HI], tools=[count])
    assert rig.ask().outcome == "succeeded"
    (part,) = rig.assistants[0].parts
    assert (type(part.state), part.state.error.type) == (messages.Errored, kind)
    answer = rig.model.requests[1].messages[-1]
    assert (answer.is_error, answer.text) == (True, part.state.error.message)


def test_a_hanging_model_and_a_slow_disk_change_nothing_run_3(rig):
    rig.play([[Call("one", {}, "c1"), Delay(2), Call("two", {}, "c2")], [Text("Hi"), Delay(1), Text(" there")]])
    rig.declared = [Agent("main", model=rig.model, tools=tools_that([], one=None, two=None))]
    rig.simulation.disk_ms = 30
    assert rig.ask().outcome == "succeeded"
    written = Counter(type(one.data).__name__ for one in rig.left.log)
    assert (written["ToolSucceeded"], written["TextStarted"], written["TextEnded"]) == (2, 1, 1)


# -- endings -----------------------------------------------------------------------------------------------------------------

BROKEN = {
    "second finish": [Text("Half"), port.Finish("stop"), port.Finish("stop")],
    "delta before start": [port.TextDelta("t", "x")],
    "result before call": [port.ToolResult("c9", "ok")],
    "call twice": [Call("one", {}, "c1"), port.ToolCall("c1", "one")],
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_an_adapter_out_of_order_ends_the_drain_as_a_defect_with_one_end_of_each_pub_2_pub_4(rig, reply):
    rig.play([reply, HI], tools=tools_that([], one=None))
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type) == ("failed", "provider-order")
    assert len(rig.facts(*TERMINAL)) == len(rig.facts(events.ExecutionEnded)) == 1
    assert not rig.facts(events.StepRecovered, events.RetryScheduled)
    assert rig.ask("Again", id="again").outcome == "succeeded"


def test_an_adapter_that_raises_what_it_may_not_is_a_defect_that_keeps_what_was_shown_pub_4(rig):
    class Rude(ScriptedModel):
        async def stream(self, asked):
            async for event in super().stream(asked):
                yield event
            raise ZeroDivisionError("a bug")

    rig.play(
        Rude([[Text("Half a"), Call("one", {}, "c1"), Text(" sentence"), port.Finish("stop")]]),
        tools=tools_that([], one=None),
    )
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type, "a bug" in receipt.error.message) == ("failed", "defect", True)
    (only,) = rig.assistants
    assert [part.text for part in only.parts if isinstance(part, messages.TextPart)] == ["Half a", " sentence"]
    assert [part.state.content[0]["text"] for part in only.parts if isinstance(part, messages.ToolPart)] == ["one done"]


def test_a_defect_of_ours_in_the_middle_of_a_step_flushes_and_ends_it_pub_4(rig, monkeypatch):
    def broken(self):
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(step._Step, "_end", broken)
    rig.play([[Text("All of it"), Call("one", {}, "c1")]], tools=tools_that([], one=None))
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type) == ("failed", "defect")
    (only,) = rig.assistants
    assert only.parts[0].text == "All of it"
    assert only.error.message == "RuntimeError: a bug of ours"
    assert len(rig.facts(*TERMINAL)) == 1


def test_what_cannot_be_written_is_dropped_and_the_turn_still_ends_pub_4(rig):
    odd = port.ReasoningEnd("r", {"odd": object()})
    rig.play([[port.ReasoningStart("r"), port.ReasoningDelta("r", "Hm"), odd, Text("Words")], HI])
    assert rig.ask().error.type == "defect"
    assert rig.ask("Again", id="again").outcome == "succeeded"


def test_a_call_that_was_begun_and_never_made_is_failed_and_the_model_told_pub_4(rig):
    rig.play([[Call("one", '{"n":', "c1", whole=False), port.Finish("length")], HI], tools=tools_that([], one=None))
    assert rig.ask().outcome == "succeeded"
    (part,) = rig.assistants[0].parts
    assert part.state.error.type == "incomplete"
    assert rig.model.requests[1].messages[-1].is_error


# -- finishes ----------------------------------------------------------------------------------------------------------------

TOKENS = messages.Tokens(10, 5)


def test_an_answer_cut_at_its_length_is_an_end_like_any_other_pub_4(rig):
    rig.play([[Text("Long"), port.Finish("length", TOKENS, 7)]])
    assert rig.ask().outcome == "succeeded"
    assert (rig.assistants[0].finish, rig.assistants[0].tokens) == ("length", TOKENS)


def test_a_filtered_answer_keeps_what_was_shown_and_its_usage_and_fails_the_turn_pub_4(rig):
    rig.play([[Text("Half"), port.Finish("content_filter", TOKENS, 7)]])
    receipt = rig.ask()
    assert (receipt.outcome, receipt.error.type) == ("failed", "content_filter")
    (only,) = rig.assistants
    assert (only.finish, only.parts[0].text, only.tokens, only.cost) == ("error", "Half", TOKENS, 7)
    assert (rig.left.session.usage.tokens, rig.left.session.usage.cost) == (TOKENS, 7)


def test_a_picture_that_the_provider_refuses_fails_its_turn_and_not_the_next_one_msg_9(rig):
    picture = Part("image", mime="image/png", data=b"huge")

    def reply(asked):
        if any(
            isinstance(part, request.MediaContent) for one in asked.messages for part in getattr(one, "content", ())
        ):
            return [Fail(errors.ModelErrorKind.INVALID_REQUEST, "Image 1 exceeds 5 MB", status=400)]
        return HI

    rig.play(reply)

    async def script(app, session):
        await session.prompt([Part("text", "Look"), picture], id="look")
        refused = await rig.settled(app, session, "look")
        await session.retry("look")
        again = await rig.settled(app, session, "look")
        await session.prompt("Then without", id="on")
        return refused, again, await rig.settled(app, session, "on")

    refused, again, on = rig.live(script)
    assert (refused.outcome, refused.error.type) == (again.outcome, again.error.type) == ("failed", "invalid_request")
    assert "Image 1 exceeds 5 MB" in refused.error.message
    assert on.outcome == "succeeded"
    assert len(rig.model.requests) == 3
