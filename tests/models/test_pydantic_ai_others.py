"""The pydantic-ai adapter over other providers' wire shapes: chat completions, and Gemini with its signatures on calls.

The faults and most of the mapping are proven in `test_pydantic_ai.py`; here stands what only these providers do.
"""

import contextlib
import json

import anyio
import pytest

from perdure.core import messages, request
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import port
from perdure.testing import fake_provider, tiny_http
from perdure.testing import provider_script as script

pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")

from pydantic_ai import messages as theirs

from perdure.models import pydantic_ai as adapter
from perdure.models import pydantic_ai_stream

LOOK = request.ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


def ask(*said, **more):
    return request.Request("ses_1", "m", "Be brief.", said or (user("hi"),), **more)


def user(text):
    return request.UserMessage((request.TextContent(text),))


async def collected(model, asked):
    try:
        with anyio.fail_after(20):
            return [event async for event in model.stream(asked)]
    finally:
        await model.close()


def calls(events):
    """Each call with the arguments its deltas gave."""
    texts = {}
    for event in events:
        match event:
            case port.ToolInputStart():
                assert event.call_id not in texts
                texts[event.call_id] = ""
            case port.ToolInputDelta():
                texts[event.call_id] += event.text
            case _:
                pass
    return [(event.call_id, event.name, texts[event.call_id]) for event in events if isinstance(event, port.ToolCall)]


# -- chat completions ----------------------------------------------------------------------------------------------


def chat_model(url):
    pytest.importorskip("openai", reason="the SDK is not installed")
    return adapter.make("openai-chat", "gpt-5", api_key="sk-secret", base_url=url)


async def chat(*reply, asked=None):
    async with fake_provider.serve([script.Rule(reply)]) as provider:
        return await collected(chat_model(provider.url), asked or ask())


async def test_chat_text_reasoning_and_tokens_are_the_same_events():
    usage = script.Usage(prompt=100, completion=30, cached=40, reasoning=10)
    events = await chat(script.Reasoning("hm"), script.Text("Hello", size=3), script.Finish(usage=usage))
    assert [type(event) for event in events[:2]] == [port.ReasoningStart, port.ReasoningDelta]
    assert events[-4:] == [
        port.TextDelta("text_1", "Hel"),
        port.TextDelta("text_1", "lo"),
        port.TextEnd("text_1"),
        port.Finish("stop", messages.Tokens(input=60, output=20, reasoning=10, cache_read=40)),
    ]


async def test_chat_calls_keep_their_arguments_apart_and_the_history_is_taken():
    two = (script.Call("look", {"at": "a"}, size=3), script.Call("look", {"at": "b"}))
    rules = [script.Rule(two, step=0), script.Rule((script.Text("done"),), step=1)]
    async with fake_provider.serve(rules) as provider:
        events = await collected(chat_model(provider.url), ask(tools=(LOOK,)))
        assert [(name, raw) for _, name, raw in calls(events)] == [("look", '{"at":"a"}'), ("look", '{"at":"b"}')]
        made = [request.CallContent(id, name, json.loads(raw)) for id, name, raw in calls(events)]
        results = [request.ResultMessage(call.call_id, call.name, "seen") for call in made]
        asked = ask(user("hi"), request.AssistantMessage(tuple(made)), *results, tools=(LOOK,))
        await collected(chat_model(provider.url), asked)
        assert provider.violations == []
        assert provider.requests[1].body["messages"][0]["content"] == "Be brief."


async def test_chat_calls_with_one_id_get_fresh_ones():
    """PUB-2."""
    events = await chat(script.Call("look", {"at": "a"}, id="call_1"), script.Call("look", {"at": "b"}, id="call_1"))
    assert len({call_id for call_id, _, _ in calls(events)}) == 2


@pytest.mark.parametrize("how", ["close", "end"])
async def test_a_chat_stream_without_an_end_is_incomplete(how):
    """The library makes up a finish reason where a chat stream just ends; it is not believed."""
    with pytest.raises(ModelError) as caught:
        await chat(script.Text("half"), script.Cut(how))
    assert caught.value.kind is ModelErrorKind.INCOMPLETE


@pytest.mark.parametrize(
    ("fault", "kind", "wait"),
    [
        (script.HttpError(429, headers={"retry-after": "3"}), "rate_limit", 3000),
        (script.HttpError(401), "auth", None),
        (script.HttpError(400, code="context_length_exceeded"), "context_overflow", None),
        (script.HttpError(503), "overloaded", None),
        (script.HttpError(500), "server", None),
    ],
)
async def test_a_chat_refusal_has_its_kind_after_one_request(fault, kind, wait):
    """RUN-4."""
    async with fake_provider.serve([script.Rule((fault,))]) as provider:
        with pytest.raises(ModelError) as caught:
            await collected(chat_model(provider.url), ask())
        assert len(provider.requests) == 1
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_ms) == (kind, fault.status, wait)


# -- Gemini --------------------------------------------------------------------------------------------------------


def chunk(*parts, finish=None, usage=None):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "responseId": "r1",
        "modelVersion": "g",
        **({"usageMetadata": usage} if usage else {}),
    }


@contextlib.asynccontextmanager
async def gemini(*chunks, status=200, body=None):
    """A server that streams these chunks as Gemini does, its URL, and what it was asked."""
    pytest.importorskip("google.genai", reason="the extra pydantic-ai is not installed")
    asked = []

    async def handle(exchange):
        asked.append(json.loads(exchange.request.body))
        if status != 200:
            await exchange.respond(status, json.dumps(body).encode())
            return
        await exchange.begin()
        for one in chunks:
            await exchange.write(b"data: " + json.dumps(one).encode() + b"\r\n\r\n")
        await exchange.end()

    async with tiny_http.serve(handle) as bound:
        yield adapter.make("google", "gemini-3-pro", api_key="g-secret", base_url=f"http://127.0.0.1:{bound}"), asked


def said_by(events):
    """The assistant message that these calls and their keepsakes become."""
    parts = []
    for event in events:
        match event:
            case port.ToolCall():
                parts.append(request.CallContent(event.call_id, event.name, {"at": "a"}))
            case port.ReasoningEnd():
                parts.append(request.ReasoningContent("", event.provider_metadata))
            case port.TextDelta():
                parts.append(request.TextContent(event.text))
            case _:
                pass
    return request.AssistantMessage(tuple(parts))


async def test_a_gemini_call_goes_back_with_its_signature_and_to_its_model_only():
    """MSG-9: Gemini 3 refuses a call that comes back without its thought signature."""
    call = {"functionCall": {"name": "look", "args": {"at": "a"}}, "thoughtSignature": "U0lH"}
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 32}
    async with gemini(chunk(call, finish="STOP", usage=usage)) as (model, asked):
        events = await collected(model, ask(tools=(LOOK,)))
        ((call_id, name, raw),) = calls(events)
        assert call_id
        assert (name, raw) == ("look", '{"at":"a"}')
        assert events[-1] == port.Finish("tool_calls", messages.Tokens(input=20, output=5, reasoning=7))
        history = (user("hi"), said_by(events), request.ResultMessage(call_id, "look", "seen"))
        await collected(model, ask(*history, tools=(LOOK,)))
        assert asked[1]["contents"][1]["parts"][0]["thoughtSignature"] == "U0lH"
        model._speaker = request.Speaker("google", "another")
        await collected(model, ask(*history, tools=(LOOK,)))
        assert "U0lH" not in json.dumps(asked[2])


async def test_a_gemini_text_goes_back_with_its_signature():
    signed = {"text": "", "thoughtSignature": "U0lH"}
    async with gemini(chunk({"text": "Hel"}), chunk({"text": "lo"}), chunk(signed, finish="STOP")) as (model, asked):
        events = await collected(model, ask())
        assert [event.text for event in events if isinstance(event, port.TextDelta)] == ["Hel", "lo"]
        await collected(model, ask(user("hi"), said_by(events), user("and?")))
        assert "U0lH" in json.dumps(asked[1]["contents"][1])


async def test_gemini_thoughts_are_reasoning():
    thought = chunk({"text": "hm", "thought": True})
    async with gemini(thought, chunk({"text": "yes"}, finish="MAX_TOKENS")) as (model, _):
        events = await collected(model, ask())
    assert events[:3] == [
        port.ReasoningStart("reasoning_0"),
        port.ReasoningDelta("reasoning_0", "hm"),
        port.ReasoningEnd("reasoning_0"),
    ]
    assert events[-1].reason == "length"


async def test_a_gemini_stream_without_a_finish_reason_is_incomplete():
    async with gemini(chunk({"text": "half"})) as (model, _):
        with pytest.raises(ModelError) as caught:
            await collected(model, ask())
    assert caught.value.kind is ModelErrorKind.INCOMPLETE


@pytest.mark.parametrize(
    ("status", "error", "kind", "wait"),
    [
        (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, "auth", None),
        (400, {"status": "INVALID_ARGUMENT", "message": "The input token count exceeds"}, "context_overflow", None),
        (429, {"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "14s"}]}, "rate_limit", 14_000),
        (503, {"status": "UNAVAILABLE", "message": "The model is overloaded."}, "overloaded", None),
        (500, {"status": "INTERNAL"}, "server", None),
    ],
)
async def test_a_gemini_refusal_has_its_kind_after_one_request(status, error, kind, wait):
    """RUN-4: Gemini tells the wait in the body, and a bad key with the status of a bad request."""
    body = {"error": {"code": status, "message": "because", **error}}
    async with gemini(status=status, body=body) as (model, asked):
        with pytest.raises(ModelError) as caught:
            await collected(model, ask())
        assert len(asked) == 1
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_ms) == (kind, status, wait)


# -- events that no server here sends -------------------------------------------------------------------------------


def assembled(*fed):
    assembler = pydantic_ai_stream.Assembler(request.Speaker("any", "m"))
    return [event for one in fed for event in assembler.feed(one)], assembler


def start(index, part):
    return theirs.PartStartEvent(index=index, part=part)


def more(index, delta):
    return theirs.PartDeltaEvent(index=index, delta=delta)


def end(index, part):
    return theirs.PartEndEvent(index=index, part=part)


def test_interleaved_fragments_of_calls_find_their_calls():
    first, second = theirs.ToolCallPart("a", '{"x"', "c0"), theirs.ToolCallPart("b", None, "c1")
    events, assembler = assembled(
        start(0, first),
        end(0, first),
        start(1, second),
        more(1, theirs.ToolCallPartDelta(args_delta='{"y":2}')),
        more(0, theirs.ToolCallPartDelta(args_delta=":1}")),
    )
    assembler._calls.finish(events, cut_short=False)
    assert calls(events) == [("c0", "a", '{"x":1}'), ("c1", "b", '{"y":2}')]


def test_arguments_after_a_whole_call_was_announced_are_an_incomplete_stream():
    whole = theirs.ToolCallPart("a", "{}", "c0")
    with pytest.raises(ModelError) as caught:
        assembled(start(0, whole), end(0, whole), more(0, theirs.ToolCallPartDelta(args_delta="{}")))
    assert caught.value.kind is ModelErrorKind.INCOMPLETE


def test_text_that_goes_on_after_another_part_is_a_part_of_its_own():
    text, call = theirs.TextPart("a"), theirs.ToolCallPart("f", "{}", "c0")
    events, _ = assembled(start(0, text), end(0, text), start(1, call), more(0, theirs.TextPartDelta("b")))
    assert [event for event in events if isinstance(event, port.TextStart | port.TextDelta | port.TextEnd)] == [
        port.TextStart("text_0"),
        port.TextDelta("text_0", "a"),
        port.TextEnd("text_0"),
        port.TextStart("text_1"),
        port.TextDelta("text_1", "b"),
    ]


def test_a_name_that_comes_in_pieces_is_one_name():
    events, assembler = assembled(
        start(0, theirs.ToolCallPart("lo", None, "c0")),
        more(0, theirs.ToolCallPartDelta(tool_name_delta="ok", args_delta="{}")),
    )
    assembler._calls.finish(events, cut_short=False)
    assert calls(events) == [("c0", "look", "{}")]


def test_unknown_events_and_parts_pass_and_a_final_result_is_ignored():
    final = theirs.FinalResultEvent(tool_name=None, tool_call_id=None)
    compaction = start(0, theirs.CompactionPart(content="short"))
    assert assembled(final, object(), compaction)[0] == []


def test_a_file_the_model_made_is_told_of():
    image = theirs.FilePart(theirs.BinaryContent(b"\x89P", media_type="image/png"))
    events, _ = assembled(start(0, image))
    assert "image/png" in events[1].text
