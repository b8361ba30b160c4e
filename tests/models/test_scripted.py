"""The scripted model keeps the port's order and plays exactly what it was told."""

import anyio
import pytest

from perdure.core import messages, request
from perdure.errors import Defect, ModelError, ModelErrorKind
from perdure.models import port, scripted

ASK = request.Request("ses_1", "scripted", "", (request.UserMessage((request.TextContent("hi"),)),))


async def play(*items, **settings):
    model = scripted.ScriptedModel([items], **settings)
    return [event async for event in model.stream(ASK)]


async def record(model, seen):
    async for event in model.stream(ASK):
        seen.append(event)


async def test_text_comes_as_one_part_in_as_many_deltas_as_asked():
    assert await play(scripted.Text("abcde", chunks=2)) == [
        port.TextStart("text_0"),
        port.TextDelta("text_0", "abc"),
        port.TextDelta("text_0", "de"),
        port.TextEnd("text_0"),
        port.Finish("stop"),
    ]


async def test_reasoning_text_and_calls_follow_each_other_in_closed_parts():
    events = await play(
        scripted.Reasoning("hm", provider_metadata={"signature": "s"}),
        scripted.Text("Let me look."),
        scripted.Call("look", {"at": 1}),
        scripted.Call("look", "{broken", call_id="mine"),
    )
    assert events == [
        port.ReasoningStart("reasoning_0"),
        port.ReasoningDelta("reasoning_0", "hm"),
        port.ReasoningEnd("reasoning_0", {"signature": "s"}),
        port.TextStart("text_1"),
        port.TextDelta("text_1", "Let me look."),
        port.TextEnd("text_1"),
        port.ToolInputStart("call_0_0", "look"),
        port.ToolInputDelta("call_0_0", '{"at":1}'),
        port.ToolInputEnd("call_0_0"),
        port.ToolCall("call_0_0", "look"),
        port.ToolInputStart("mine", "look"),
        port.ToolInputDelta("mine", "{broken"),
        port.ToolInputEnd("mine"),
        port.ToolCall("mine", "look"),
        port.Finish("tool_calls"),
    ]


async def test_a_call_the_provider_executed_brings_its_result():
    events = await play(scripted.Call("search", {}, call_id="c", result="found"))
    assert events[-3:] == [port.ToolCall("c", "search", True), port.ToolResult("c", "found"), port.Finish("tool_calls")]


async def test_a_scripted_finish_is_the_only_one():
    finish = port.Finish("length", messages.Tokens(3, 4), 5)
    assert await play(scripted.Text("x"), finish) == [
        port.TextStart("text_0"),
        port.TextDelta("text_0", "x"),
        port.TextEnd("text_0"),
        finish,
    ]


async def test_an_empty_reply_is_an_empty_answer():
    assert await play() == [port.Finish("stop")]


async def test_events_of_the_port_pass_as_they_are_even_out_of_order():
    assert await play(port.TextDelta("ghost", "boo")) == [port.TextDelta("ghost", "boo"), port.Finish("stop")]


async def test_a_cut_breaks_off_within_the_open_part():
    seen = []
    model = scripted.ScriptedModel([[scripted.Text("half"), scripted.Cut()]])
    with pytest.raises(ModelError) as caught:
        await record(model, seen)
    assert seen == [port.TextStart("text_0"), port.TextDelta("text_0", "half")]
    assert caught.value.kind is ModelErrorKind.INCOMPLETE


async def test_a_cut_may_stand_within_the_arguments_of_a_call():
    seen = []
    model = scripted.ScriptedModel([[scripted.Call("look", '{"a', whole=False), scripted.Cut()]])
    with pytest.raises(ModelError):
        await record(model, seen)
    assert seen == [port.ToolInputStart("call_0_0", "look"), port.ToolInputDelta("call_0_0", '{"a')]


async def test_a_failure_carries_kind_status_and_wait():
    with pytest.raises(ModelError, match="slow down") as caught:
        await play(scripted.Fail(ModelErrorKind.RATE_LIMIT, "slow down", status=429, retry_after_ms=7))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_ms) == ("rate_limit", 429, 7)


async def test_a_delay_sleeps_with_the_sleep_that_was_given():
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    await play(scripted.Text("a"), scripted.Delay(30), scripted.Text("b"), sleep=sleep)
    assert slept == [30]


async def test_a_reply_waits_at_its_gate_until_that_opens():
    gate, seen = scripted.Gate(), []
    model = scripted.ScriptedModel([[scripted.Text("a"), scripted.Hang(gate), scripted.Text("b")]])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record, model, seen)
            await gate.arrived()
            assert seen == [port.TextStart("text_0"), port.TextDelta("text_0", "a")]
            gate.open()
    assert [event.text for event in seen if isinstance(event, port.TextDelta)] == ["a", "b"]


async def test_a_hang_without_a_gate_ends_with_its_reader():
    model = scripted.ScriptedModel([[scripted.Text("a"), scripted.Hang()]])
    stream = model.stream(ASK)
    assert await anext(stream) == port.TextStart("text_0")
    await stream.aclose()


async def test_a_function_decides_by_the_request_and_requests_are_kept():
    model = scripted.ScriptedModel(lambda asked: [scripted.Text(asked.session_id)])
    events = [event async for event in model.stream(ASK)]
    assert events[1] == port.TextDelta("text_0", "ses_1")
    assert model.requests == [ASK]
    await model.close()


async def test_default_call_ids_differ_from_request_to_request():
    model = scripted.ScriptedModel(lambda _: [scripted.Call("f", {})])
    first, second = [[event async for event in model.stream(ASK)] for _ in range(2)]
    assert (first[0].call_id, second[0].call_id) == ("call_0_0", "call_1_0")


async def test_a_script_that_runs_out_is_a_defect_that_says_so():
    model = scripted.ScriptedModel([])
    with pytest.raises(Defect, match="0 replies, but this is request 1"):
        await anext(model.stream(ASK))


def test_it_is_a_model():
    model: port.Model = scripted.ScriptedModel([])
    assert (model.provider, model.name) == ("scripted", "scripted")
