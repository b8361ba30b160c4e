"""The chat-completions adapter against a real server: what it sends, what it makes of every answer, and what of every fault."""

import contextlib
import gc
import json
import socket
import time
import traceback

import anyio
import msgspec
import pytest

from perdure.core import messages, request, sse
from perdure.errors import ConfigError, ModelError, ModelErrorKind
from perdure.models import openai_compatible, openai_stream, port
from perdure.testing import fake_provider, tiny_http
from perdure.testing import provider_script as script

KEY = "sk-very-secret"


def ask(*said, **more):
    return request.Request("ses_1", "gpt-x", "", said or (user("hi"),), **more)


def user(text):
    return request.UserMessage((request.TextContent(text),))


@contextlib.asynccontextmanager
async def model_at(url, **settings):
    model = openai_compatible.OpenAICompatible(name="gpt-x", base_url=url, api_key=KEY, **settings)
    try:
        with anyio.fail_after(20):
            yield model
    finally:
        await model.close()


@contextlib.asynccontextmanager
async def answering(*reply, **settings):
    """A model whose provider answers everything with these items."""
    rules = [script.Rule(reply)] if reply else []
    async with fake_provider.serve(rules) as provider, model_at(provider.url, **settings) as model:
        yield model, provider


async def answer(*reply, **settings):
    async with answering(*reply, **settings) as (model, _):
        return [event async for event in model.stream(ask())]


async def record(model, seen):
    async for event in model.stream(ask()):
        seen.append(event)


async def refusal(*reply, **settings):
    """What came before the error, and the error."""
    seen = []
    async with answering(*reply, **settings) as (model, _):
        with pytest.raises(ModelError) as caught:
            await record(model, seen)
    return seen, caught.value


async def sent(asked, **settings):
    async with answering(**settings) as (model, provider):
        async for _ in model.stream(asked):
            pass
        return provider.requests[0]


def chunk(delta=None, finish=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return script.Raw("data: " + json.dumps({"id": "c", "choices": choices, **more}) + "\n\n")


def call_chunk(index=None, id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {key: value for key, value in (("index", index), ("id", id), ("function", function)) if value is not None}
    return chunk({"tool_calls": [call]})


def calls(events):
    """Each call with the arguments its deltas gave, after a check of the order the port demands."""
    made, arguments, ended = [], {}, set()
    for event in events:
        match event:
            case port.ToolInputStart():
                assert event.call_id not in arguments
                arguments[event.call_id] = ""
            case port.ToolInputDelta():
                assert event.call_id not in ended
                arguments[event.call_id] += event.text
            case port.ToolInputEnd():
                ended.add(event.call_id)
            case port.ToolCall():
                assert event.call_id in ended
                made.append((event.call_id, event.name, arguments[event.call_id]))
            case _:
                pass
    assert len(made) == len(arguments)
    return made


# -- answers -------------------------------------------------------------------------------------------------------


async def test_text_arrives_as_one_part_and_ends_with_tokens():
    usage = script.Usage(prompt=100, completion=30, cached=40, reasoning=10)
    assert await answer(script.Text("Hello π🦊", size=5), script.Finish(usage=usage)) == [
        port.TextStart("text_0"),
        port.TextDelta("text_0", "Hello"),
        port.TextDelta("text_0", " π🦊"),
        port.TextEnd("text_0"),
        port.Finish("stop", messages.Tokens(input=60, output=20, reasoning=10, cache_read=40)),
    ]


async def test_deltas_arrive_while_the_provider_still_writes():
    async with answering(script.Text("a"), script.Hang("more"), script.Text("b")) as (model, provider):
        stream = model.stream(ask())
        assert [await anext(stream), await anext(stream)] == [port.TextStart("text_0"), port.TextDelta("text_0", "a")]
        provider.release("more")
        assert await anext(stream) == port.TextDelta("text_0", "b")
        await stream.aclose()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_either_name_comes_before_the_text(field):
    events = await answer(script.Reasoning("hm", field=field), script.Text("yes"), script.Finish(usage=False))
    assert events == [
        port.ReasoningStart("reasoning_0"),
        port.ReasoningDelta("reasoning_0", "hm"),
        port.ReasoningEnd("reasoning_0", {"field": field}),
        port.TextStart("text_1"),
        port.TextDelta("text_1", "yes"),
        port.TextEnd("text_1"),
        port.Finish("stop"),
    ]


async def test_reasoning_sent_under_both_names_is_heard_once():
    events = await answer(chunk({"reasoning": "hm", "reasoning_content": "hm"}))
    assert [event.text for event in events if isinstance(event, port.ReasoningDelta)] == ["hm"]


async def test_content_in_typed_parts_is_text_and_reasoning():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    events = await answer(chunk({"content": [thinking, {"type": "text", "text": "yes"}]}))
    assert port.ReasoningDelta("reasoning_0", "hm") in events
    assert port.TextDelta("text_1", "yes") in events


async def test_a_refusal_is_text():
    assert port.TextDelta("text_0", "I cannot.") in await answer(chunk({"refusal": "I cannot."}))


async def test_an_empty_answer_is_a_finish():
    assert await answer(script.Finish(usage=False)) == [port.Finish("stop")]


async def test_text_before_a_call_is_closed_before_the_call_starts():
    events = await answer(script.Text("Let me look."), script.Call("look", {"at": 1}), script.Finish(usage=False))
    assert events[2:] == [
        port.TextEnd("text_0"),
        port.ToolInputStart("call_1_0", "look"),
        port.ToolInputDelta("call_1_0", '{"at":1}'),
        port.ToolInputEnd("call_1_0"),
        port.ToolCall("call_1_0", "look"),
        port.Finish("tool_calls"),
    ]


async def test_parallel_calls_keep_their_arguments_apart():
    events = await answer(script.Call("a", {"x": 1}, size=2), script.Call("b", {"y": 2}, size=3))
    assert calls(events) == [("call_1_0", "a", '{"x":1}'), ("call_1_1", "b", '{"y":2}')]


async def test_a_whole_call_is_announced_while_the_next_one_is_written():
    """RUN-3: its tool need not wait for the end of the stream."""
    async with answering(script.Call("a", {"x": 1}), script.Call("b", '{"y"'), script.Hang()) as (model, _):
        stream = model.stream(ask())
        seen = [await anext(stream) for _ in range(4)]
        assert seen[-1] == port.ToolCall("call_1_0", "a")
        await stream.aclose()


async def test_interleaved_fragments_find_their_calls():
    events = await answer(
        call_chunk(0, "c0", "a", '{"x"'),
        call_chunk(1, "c1", "b", '{"y"'),
        call_chunk(0, None, None, ":1}"),
        call_chunk(1, None, None, ":2}"),
    )
    assert calls(events) == [("c0", "a", '{"x":1}'), ("c1", "b", '{"y":2}')]


async def test_a_call_without_an_id_gets_a_fresh_one():
    assert calls(await answer(script.Call("a", {}, id=""), script.Call("b", {}, id=""))) == [
        ("call_0", "a", "{}"),
        ("call_1", "b", "{}"),
    ]


async def test_an_id_repeated_within_one_message_is_replaced():
    """PUB-2."""
    events = await answer(
        script.Call("a", {}, id="call_1"), script.Call("b", {}, id="call_1"), script.Call("c", {}, id="call_1")
    )
    assert [id for id, _, _ in calls(events)] == ["call_1", "call_2", "call_3"]


async def test_parallel_calls_that_all_have_index_zero_are_told_apart_by_id():
    events = await answer(call_chunk(0, "c0", "a", "{}"), call_chunk(0, "c1", "a", "{}"))
    assert calls(events) == [("c0", "a", "{}"), ("c1", "a", "{}")]


async def test_an_id_and_a_name_repeated_in_every_fragment_are_one_call():
    events = await answer(call_chunk(0, "c", "a", '{"x'), call_chunk(0, "c", "a", '":1}'))
    assert calls(events) == [("c", "a", '{"x":1}')]


async def test_calls_without_an_index_are_told_apart():
    events = await answer(
        call_chunk(None, None, "a", '{"x":'), call_chunk(None, None, None, "1}"), call_chunk(None, None, "a", "{}")
    )
    assert calls(events) == [("call_0", "a", '{"x":1}'), ("call_1", "a", "{}")]


async def test_a_name_may_come_late_even_after_arguments():
    assert calls(await answer(script.Call("look", {"at": 1}, late_name=True))) == [("call_1_0", "look", '{"at":1}')]
    late = await answer(
        call_chunk(0, "c", None, '{"at"'), call_chunk(0, None, "look"), call_chunk(0, None, None, ":1}")
    )
    assert calls(late) == [("c", "look", '{"at":1}')]


async def test_arguments_sent_as_an_object_become_text():
    assert calls(await answer(call_chunk(0, "c", "a", {"x": 1}))) == [("c", "a", '{"x":1}')]


async def test_malformed_arguments_pass_as_they_are():
    assert calls(await answer(script.Call("a", '{"x": tru'))) == [("call_1_0", "a", '{"x": tru')]


async def test_a_call_without_arguments_is_a_call():
    assert calls(await answer(script.Call("a", ""))) == [("call_1_0", "a", "")]


async def test_a_call_whose_arguments_never_began_is_not_made_when_the_answer_was_cut_short():
    events = await answer(script.Call("rm", ""), script.Finish("length", usage=False))
    assert events == [port.Finish("length")]


async def test_the_legacy_function_call_is_a_tool_call():
    events = await answer(
        chunk({"function_call": {"name": "look", "arguments": '{"at"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        script.Finish("function_call"),
    )
    assert calls(events) == [("call_0", "look", '{"at":1}')]
    assert events[-1].reason == "tool_calls"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("odd", "other"), ("", "stop")],
)
async def test_finish_reasons_are_named_in_our_words(theirs, ours):
    assert (await answer(script.Text("x"), script.Finish(theirs)))[-1].reason == ours


@pytest.mark.parametrize("theirs", ["stop", "tool_calls", ""])
async def test_an_answer_with_calls_finishes_for_them_whatever_the_provider_says(theirs):
    assert (await answer(script.Call("a", {}), script.Finish(theirs)))[-1].reason == "tool_calls"


async def test_without_usage_the_tokens_are_unknown():
    assert (await answer(script.Text("x"), script.Finish(usage=False)))[-1] == port.Finish("stop", None)


async def test_usage_is_not_asked_for_where_a_server_refuses_the_question():
    recorded = await sent(ask(), include_usage=False)
    assert "stream_options" not in recorded.body


async def test_other_ways_to_count_come_to_the_same_tokens():
    apart = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 22,
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    deepseek = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "cost": 0.0012}
    first = (await answer(chunk(usage=apart), script.Finish(usage=False)))[-1]
    second = (await answer(chunk(usage=deepseek), script.Finish(usage=False)))[-1]
    assert first.tokens == messages.Tokens(input=10, output=5, reasoning=7)
    assert (second.tokens, second.cost) == (messages.Tokens(input=6, output=5, cache_read=4), 1200)


async def test_comments_empty_events_and_other_choices_are_passed_over():
    other = script.Raw('data: {"choices": [{"index": 1, "delta": {"content": "no"}}]}\n\n')
    events = await answer(script.Raw(": keep-alive\n\n"), script.Raw("data:\n\n"), other, script.Text("yes"))
    assert [event.text for event in events if isinstance(event, port.TextDelta)] == ["yes"]


async def test_an_emoji_halved_between_chunks_does_not_break_the_stream():
    raw = script.Raw('data: {"choices": [{"delta": {"content": "a\\ud83e"}}]}\n\n')
    assert port.TextDelta("text_0", "a\ufffd") in await answer(raw)


async def test_a_finish_reason_without_done_is_an_answer():
    assert (await answer(script.Text("x"), script.Finish(done=False)))[-1].reason == "stop"


@pytest.mark.parametrize("how", ["close", "end"])
async def test_a_connection_cut_after_the_finish_reason_loses_nothing_but_tokens(how):
    events = await answer(script.Text("x"), chunk({}, "stop"), script.Cut(how))
    assert events[-1] == port.Finish("stop", None)


async def test_a_server_that_keeps_the_line_open_after_done_is_hung_up_on():
    done = script.Raw("data: [DONE]\n\n")
    async with answering(script.Text("x"), chunk({}, "stop"), done, script.Hang()) as (model, provider):
        assert [event async for event in model.stream(ask())][-1] == port.Finish("stop")
        assert (await provider.ended(1)).state == "disconnected"


async def test_one_connection_serves_one_request_after_another():
    peers = set()

    async def handle(exchange):
        peers.add(exchange.peer)
        await provider.handle(exchange)

    provider = fake_provider.FakeProvider()
    async with tiny_http.serve(handle) as port_, model_at(f"http://127.0.0.1:{port_}/v1/") as model:
        for _ in range(3):
            assert [event async for event in model.stream(ask())]
    assert (len(provider.requests), len(peers)) == (3, 1)


async def test_many_requests_at_once_share_one_client():
    async with answering() as (model, provider), anyio.create_task_group() as tasks:

        async def one(number):
            events = [event async for event in model.stream(ask(user(f"n{number}")))]
            assert "".join(event.text for event in events if isinstance(event, port.TextDelta)) == f"Echo: n{number}"

        for number in range(30):
            tasks.start_soon(one, number)
    assert len(provider.requests) == 30


# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_lowered_to_the_wire_format():
    tool = request.ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
    recorded = await sent(
        request.Request(
            "ses_1",
            "gpt-x",
            "Be brief.",
            (
                user("hi"),
                request.AssistantMessage(
                    (
                        request.ReasoningContent("hm"),
                        request.TextContent("Let me "),
                        request.TextContent("look."),
                        request.CallContent("c1", "look", {"at": "π"}),
                    )
                ),
                request.ResultMessage("c1", "look", "nothing"),
                request.AssistantMessage((request.CallContent("c2", "look", {}),)),
                request.ResultMessage("c2", "look", "boom", is_error=True),
            ),
            tools=(tool,),
            settings={"temperature": 0.5, "max_tokens": 7, "top_p": None, "stream": False, "model": "other"},
        )
    )
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
    first, second = (
        {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for id, arguments in (("c1", '{"at":"π"}'), ("c2", "{}"))
    )
    assert recorded.body == {
        "model": "gpt-x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 7,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [first]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
            {"role": "assistant", "content": None, "tool_calls": [second]},
            {"role": "tool", "tool_call_id": "c2", "content": "boom"},
        ],
    }
    assert recorded.headers["authorization"] == f"Bearer {KEY}"


async def test_without_tools_no_tools_are_mentioned():
    assert not {"tools", "tool_choice"} & (await sent(ask(tool_choice="none"))).body.keys()


async def test_tools_can_be_shown_and_forbidden():
    recorded = await sent(ask(tools=(request.ToolSpec("f", "", {}),), tool_choice="none"))
    assert recorded.body["tool_choice"] == "none"


async def test_images_and_files_travel_in_the_message():
    content = (
        request.TextContent("see"),
        request.MediaContent("image", "image/png", b"\x89P"),
        request.MediaContent("file", "text/plain", "π".encode(), "pi.txt"),
        request.MediaContent("file", "application/pdf", b"%PDF", "a.pdf"),
        request.MediaContent("file", "text/plain", b"\xff", "latin.txt"),
    )
    recorded = await sent(ask(request.UserMessage(content)))
    assert recorded.body["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}},
        {"type": "text", "text": "File pi.txt:\nπ"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "file", "file": {"filename": "latin.txt", "file_data": "data:text/plain;base64,/w=="}},
    ]


async def test_reasoning_goes_back_only_where_that_was_asked_for():
    said = request.AssistantMessage(
        (request.ReasoningContent("hm", {"field": "reasoning"}), request.TextContent("yes"))
    )
    silent = request.AssistantMessage((request.ReasoningContent("hm"),))
    asked = ask(user("hi"), said, silent, user("and?"))
    plain, echoing = await sent(asked), await sent(asked, echo_reasoning=True)
    assert plain.body["messages"][1] == {"role": "assistant", "content": "yes"}
    assert echoing.body["messages"][1] == {"role": "assistant", "content": "yes", "reasoning": "hm"}
    assert len(plain.body["messages"]) == 3


async def test_without_a_key_none_is_sent():
    async with fake_provider.serve() as provider:
        model = openai_compatible.OpenAICompatible(name="m", base_url=provider.url)
        assert [event async for event in model.stream(ask())]
        await model.close()
    assert "authorization" not in provider.requests[0].headers


async def test_a_request_that_is_no_json_is_the_callers_fault():
    async with answering() as (model, _):
        with pytest.raises(ModelError) as caught:
            await anext(model.stream(ask(user("\ud83d"))))
    assert caught.value.kind is ModelErrorKind.INVALID_REQUEST


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request"),
        (401, "auth"),
        (403, "auth"),
        (404, "invalid_request"),
        (408, "timeout"),
        (422, "invalid_request"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "server"),
        (529, "overloaded"),
        (307, "invalid_request"),
    ],
)
async def test_every_http_error_has_its_kind(status, kind):
    """RUN-4."""
    _, error = await refusal(script.HttpError(status, "because", headers={"location": "/elsewhere"}))
    assert (error.kind, error.status) == (kind, status)
    assert str(error) == f"The provider answered {status}: because"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (script.HttpError(400, code="context_length_exceeded", type="invalid_request_error"), "context_overflow"),
        (script.HttpError(400, "This model's maximum context length is 4096 tokens."), "context_overflow"),
        (script.HttpError(413, "too big for a minute", code="rate_limit_exceeded"), "rate_limit"),
        (script.HttpError(400, code="content_filter"), "content_filter"),
        (script.HttpError(500, "not about the maximum context length"), "server"),
    ],
)
async def test_a_code_tells_more_than_a_status(fault, kind):
    assert (await refusal(fault))[1].kind == kind


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model's maximum context length is 128000 tokens. However, you requested 140000 tokens."),
        (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
        (400, "invalid params, context window exceeds limit"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"),
        (400, "Input is too long for requested model."),
        (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        (400, "Invalid request: Your request exceeded model token limit: 131072"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "Range of input length should be [1, 98304]"),
        (400, "Please reduce the length of the messages or completion."),
        (400, "The number of tokens is greater than the context length of 4096"),
        (413, "Request exceeds the maximum size"),
    ],
)
async def test_a_request_that_does_not_fit_is_known_by_its_words_cmp_1(status, words):
    assert (await refusal(script.HttpError(status, words)))[1].kind == "context_overflow"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (script.HttpError(429, "You exceeded your current quota", code="insufficient_quota"), "quota"),
        (script.HttpError(429, "You exceeded your current quota", type="insufficient_quota"), "quota"),
        (script.HttpError(400, "Billing hard limit has been reached", code="billing_hard_limit_reached"), "quota"),
        (script.HttpError(429, "Your account is not active", code="billing_not_active"), "quota"),
        (script.HttpError(402, "Insufficient credits. Add more using the settings"), "quota"),
        (script.HttpError(402, "This request requires more credits, or fewer max_tokens."), "quota"),
        (script.HttpError(402, "Insufficient Balance", type="unknown_error", code="invalid_request_error"), "quota"),
        (script.HttpError(403, "Key limit exceeded (total limit)."), "quota"),
        (script.HttpError(403, "Your team has either used all available credits or reached its limit."), "quota"),
        (script.HttpError(429, type="exceeded_current_quota_error"), "quota"),
        (script.HttpError(429, "You exceeded your current quota, please check your plan"), "rate_limit"),
        (script.HttpError(500, "insufficient credits"), "server"),
        (script.HttpError(403, "This key may not"), "auth"),
    ],
)
async def test_an_account_that_is_used_up_is_no_rate_limit_and_says_what_to_do_run_4(fault, kind):
    _, error = await refusal(fault)
    assert error.kind == kind
    assert ("top it up or raise the limit at the provider, then retry the prompt" in str(error)) == (kind == "quota")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": "plain"}', "plain"),
        ('{"message": "bare"}', "bare"),
        ('{"detail": [{"msg": "field required"}]}', '[{"msg":"field required"}]'),
        ("<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        ("[1]", "[1]"),
    ],
)
async def test_every_shape_of_error_body_is_quoted(body, words):
    assert str((await refusal(script.HttpError(502, body=body)))[1]) == f"The provider answered 502: {words}"


async def test_an_error_without_a_body_still_says_its_status():
    assert str((await refusal(script.HttpError(502, body="")))[1]) == "The provider answered 502"


async def test_a_huge_error_body_is_neither_read_nor_told_in_full():
    _, error = await refusal(script.HttpError(500, body="x" * 10_000_000))
    assert len(str(error)) <= openai_compatible.MAX_DETAIL


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"date": "Tue, 01 Dec 2026 00:00:00 GMT", "retry-after": "Tue, 01 Dec 2026 00:01:30 GMT"}, 90_000),
        ({"date": "Tue, 01 Dec 2026 00:00:00 GMT", "retry-after": "Mon, 30 Nov 2026 00:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
async def test_the_wait_a_provider_asks_for_is_heard(headers, wait):
    """RUN-4."""
    assert (await refusal(script.HttpError(429, headers=headers)))[1].retry_after_ms == wait


async def test_an_error_in_place_of_a_chunk_is_that_error():
    seen, error = await refusal(script.Text("half"), script.StreamError("out of memory"))
    assert seen == [port.TextStart("text_0"), port.TextDelta("text_0", "half")]
    assert (error.kind, error.status) == ("server", None)
    assert "out of memory" in str(error)


@pytest.mark.parametrize(
    ("code", "type", "kind"),
    [
        ("rate_limit_exceeded", None, "rate_limit"),
        (503, None, "overloaded"),
        (None, "overloaded_error", "overloaded"),
        (None, "invalid_request_error", "invalid_request"),
        ("context_length_exceeded", "invalid_request_error", "context_overflow"),
        (402, None, "quota"),
        ("insufficient_quota", None, "quota"),
    ],
)
async def test_an_error_in_the_stream_may_name_its_kind(code, type, kind):
    assert (await refusal(script.Open(), script.StreamError(code=code, type=type)))[1].kind == kind


async def test_an_old_servers_bare_error_object_is_an_error_too():
    raw = script.Raw('data: {"object": "error", "message": "worker died", "code": 500}\n\n')
    _, error = await refusal(raw)
    assert error.kind == "server"
    assert "worker died" in str(error)


async def test_a_stream_that_ends_without_an_end_is_incomplete():
    seen, error = await refusal(script.Text("half"), script.Cut("end"))
    assert seen[-1] == port.TextDelta("text_0", "half")
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_connection_closed_in_the_middle_of_text_is_incomplete():
    seen, error = await refusal(script.Text("half"), script.Cut())
    assert seen[-1] == port.TextDelta("text_0", "half")
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_connection_closed_in_the_middle_of_arguments_makes_no_call():
    seen, error = await refusal(script.Call("rm", '{"path": "/'), script.Cut())
    assert seen == [port.ToolInputStart("call_1_0", "rm"), port.ToolInputDelta("call_1_0", '{"path": "/')]
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_connection_closed_in_the_middle_of_a_chunk_is_incomplete():
    for how in ("close", "end"):
        _, error = await refusal(script.Text("half"), script.Raw('data: {"choi'), script.Cut(how))
        assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_connection_reset_in_the_middle_is_a_transport_error():
    async with answering(script.Text("half"), script.Hang("read"), script.Cut("reset")) as (model, provider):
        stream = model.stream(ask())
        assert [await anext(stream), await anext(stream)][1] == port.TextDelta("text_0", "half")
        provider.release("read")
        with pytest.raises(ModelError) as caught:
            await anext(stream)
    assert caught.value.kind is ModelErrorKind.TRANSPORT


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_lost_before_the_first_byte_is_a_transport_error(how):
    seen, error = await refusal(script.Cut(how))
    assert seen == []
    assert error.kind is ModelErrorKind.TRANSPORT


async def test_a_refused_connection_is_a_transport_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can have it, and nobody answers
        async with model_at(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as model:
            with pytest.raises(ModelError) as caught:
                await anext(model.stream(ask()))
    assert caught.value.kind is ModelErrorKind.TRANSPORT


@pytest.mark.parametrize("reply", [(script.Hang(),), (script.Text("half"), script.Hang())], ids=["at once", "midway"])
async def test_a_silent_provider_times_out(reply):
    _, error = await refusal(*reply, idle_timeout_s=0.05)
    assert error.kind is ModelErrorKind.TIMEOUT
    assert "silent for 0.05 s" in str(error)


@pytest.mark.parametrize(
    "raw", ["{not json", '"a string"', '{"choices": 5}', '{"choices": [{"delta": {"content": 5}}]}']
)
async def test_a_malformed_chunk_is_an_incomplete_stream_that_is_quoted(raw):
    _, error = await refusal(script.Text("half"), script.Raw(f"data: {raw}\n\n"))
    assert error.kind is ModelErrorKind.INCOMPLETE
    assert raw in str(error)


async def test_a_chunk_beyond_the_bound_is_an_incomplete_stream(monkeypatch):
    monkeypatch.setattr(sse.Parser.__init__, "__defaults__", (1000,))
    _, error = await refusal(script.Raw("data: " + "x" * 5000))
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_call_without_a_name_is_an_incomplete_stream():
    assert (await refusal(call_chunk(0, "c", None, "{}")))[1].kind is ModelErrorKind.INCOMPLETE


async def test_arguments_after_a_whole_call_was_announced_are_an_incomplete_stream():
    whole, other, more = call_chunk(0, "c0", "a", "{}"), call_chunk(1, "c1", "b", "{"), call_chunk(0, None, None, "{}")
    assert (await refusal(whole, other, more))[1].kind is ModelErrorKind.INCOMPLETE


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            '{"error": {"message": "no such model", "type": "invalid_request_error"}}',
            "invalid_request",
            "no such model",
        ),
        ('{"choices": []}', "server", "without a stream"),
    ],
)
async def test_an_answer_that_is_no_stream_is_an_error(body, kind, words):
    _, error = await refusal(script.HttpError(200, body=body))
    assert error.kind == kind
    assert words in str(error)


async def test_closing_the_iterator_hangs_up():
    async with answering(script.Text("half"), script.Hang()) as (model, provider):
        stream = model.stream(ask())
        await anext(stream)
        await stream.aclose()
        assert (await provider.ended(1)).state == "disconnected"
    gc.collect()  # an iterator left open within would complain here


async def test_cancelling_the_reader_hangs_up():
    async with answering(script.Hang("reached")) as (model, provider):

        async def read():
            async for _ in model.stream(ask()):
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await provider.arrived("reached")
            tasks.cancel_scope.cancel()
        assert (await provider.ended(1)).state == "disconnected"


async def test_one_failure_is_one_request():
    """Retries are the runner's (RUN-4)."""
    async with answering(script.HttpError(503)) as (model, provider):
        with pytest.raises(ModelError):
            await anext(model.stream(ask()))
        assert len(provider.requests) == 1


# -- secrets and settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        script.HttpError(401, f"Incorrect API key provided: {KEY}"),
        script.HttpError(500, body="x" * (openai_compatible.MAX_DETAIL - 40) + KEY),
        script.StreamError(f"bad key {KEY}"),
        script.Raw(f"data: {KEY}\n\n"),
    ],
)
async def test_the_key_is_in_no_error(fault):
    _, error = await refusal(fault)
    shown = "".join(traceback.format_exception(error)) + repr(error.__cause__)
    assert KEY[:8] not in shown


@pytest.mark.parametrize("key", ["sk-\nsecret", "sk-sécret"])
def test_a_key_no_header_can_carry_is_refused_without_being_shown(key):
    with pytest.raises(ConfigError) as caught:
        openai_compatible.OpenAICompatible(name="m", base_url="http://localhost/v1", api_key=key)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "localhost/v1", "ftp://localhost", "http://", "http://host:port"])
def test_a_base_url_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="base URL"):
        openai_compatible.OpenAICompatible(name="m", base_url=url)


async def test_it_is_a_model():
    async with model_at("http://localhost/v1", provider="groq") as made:
        model: port.Model = made
        assert (model.provider, model.name) == ("groq", "gpt-x")


@pytest.mark.bench
def test_a_delta_costs_less_than_twenty_microseconds():
    deltas = 20_000
    delta = {"index": 0, "delta": {"content": "word "}, "logprobs": None, "finish_reason": None}
    data = b"data: " + msgspec.json.encode({"id": "c", "object": "chat.completion.chunk", "choices": [delta]}) + b"\n\n"
    parser, assembler = sse.Parser(), openai_stream.Assembler()
    began = time.process_time()
    for _ in range(deltas):
        for frame in parser.feed(data):
            assembler.feed(frame.data)
    assert (time.process_time() - began) / deltas < 20e-6
