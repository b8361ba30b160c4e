"""The pydantic-ai adapter against a real server of the Anthropic shape: what it sends, hears, and makes of every fault."""

import contextlib
import gc
import json
import socket
import subprocess
import sys
import time
import traceback

import anyio
import pytest

from perdure.core import messages, request
from perdure.errors import ConfigError, ModelError, ModelErrorKind, UnknownModel
from perdure.models import catalogue, port, scripted
from perdure.testing import anthropic_provider
from perdure.testing import anthropic_reply as reply
from perdure.testing import provider_script as script

pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")
pytest.importorskip("anthropic", reason="the extra pydantic-ai is not installed")

from perdure.models import pydantic_ai as adapter

KEY = "sk-ant-very-secret"
NAME = "claude-sonnet-5-5"
LOOK = request.ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
FOUND = [{"type": "web_search_result", "title": "T", "url": "http://localhost/t", "encrypted_content": "SEALED"}]


def ask(*said, **more):
    return request.Request("ses_1", NAME, "", said or (user("hi"),), **more)


def user(text):
    return request.UserMessage((request.TextContent(text),))


@contextlib.asynccontextmanager
async def model_at(url, name=NAME, **settings):
    model = adapter.make("anthropic", name, api_key=KEY, base_url=url)
    model._idle_s = settings.get("idle_timeout_s", 20)
    try:
        with anyio.fail_after(20):
            yield model
    finally:
        await model.close()


@contextlib.asynccontextmanager
async def answering(*items, usage=None, **settings):
    """A model whose provider answers everything with these items."""
    async with (
        anthropic_provider.serve([items] if items else [], usage) as provider,
        model_at(provider.url, **settings) as model,
    ):
        yield model, provider


async def answer(*items, asked=None, **settings):
    async with answering(*items, **settings) as (model, _):
        return [event async for event in model.stream(asked or ask())]


async def refusal(*items, asked=None, **settings):
    """What came before the error, and the error."""
    seen = []
    async with answering(*items, **settings) as (model, _):
        with pytest.raises(ModelError) as caught:
            await record(model, asked or ask(), seen)
    return seen, caught.value


async def record(model, asked, seen):
    async for event in model.stream(asked):
        seen.append(event)


async def sent(asked, name=NAME):
    async with anthropic_provider.serve() as provider, model_at(provider.url, name) as model:
        async for _ in model.stream(asked):
            pass
        return provider.requests[0]


def remembered(events, result="seen"):
    """What the transcript keeps of a stream: the assistant message it becomes, and a result for every call."""
    parts, texts, results = {}, {}, []
    for event in events:
        match event:
            case port.TextStart() | port.ReasoningStart():
                parts[event.id] = type(event)
                texts[event.id] = ""
            case port.TextDelta() | port.ReasoningDelta():
                texts[event.id] += event.text
            case port.TextEnd():
                parts[event.id] = request.TextContent(texts[event.id])
            case port.ReasoningEnd():
                parts[event.id] = request.ReasoningContent(texts[event.id], event.provider_metadata)
            case port.ToolInputStart():
                parts[event.call_id], texts[event.call_id] = None, ""
            case port.ToolInputDelta():
                texts[event.call_id] += event.text
            case port.ToolCall():
                given = json.loads(texts[event.call_id] or "{}")
                parts[event.call_id] = request.CallContent(event.call_id, event.name, given, event.provider_executed)
                if not event.provider_executed:
                    results.append(request.ResultMessage(event.call_id, event.name, result))
            case port.ToolResult():
                results.append(request.ResultMessage(event.call_id, "", event.text, event.is_error))
            case _:
                pass
    order = [part.call_id for part in parts.values() if isinstance(part, request.CallContent)]
    results.sort(key=lambda one: order.index(one.call_id))
    return request.AssistantMessage(tuple(parts.values())), *results


async def second_request(items, *following, speaker=None, settings=None):
    """What the provider is sent in the turn after these items; it refuses what it could not have said."""
    replies = [items, (script.Text("ok"),)]
    tools = {"tools": (LOOK,), "settings": settings or {}}
    async with anthropic_provider.serve(replies) as provider, model_at(provider.url) as model:
        first = [event async for event in model.stream(ask(**tools))]
        if speaker:
            model._speaker = speaker
        async for _ in model.stream(ask(user("hi"), *remembered(first), *following, **tools)):
            pass
        return provider.requests[1].body["messages"]


def metadata(kind, **kept):
    return {"provider": "anthropic", "model": NAME, kind: kept}


# -- answers -------------------------------------------------------------------------------------------------------


async def test_text_arrives_as_one_part_and_ends_with_tokens():
    usage = {"input_tokens": 60, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5, "output_tokens": 1}
    end = reply.End(usage={"output_tokens": 30})
    assert await answer(script.Text("Hello π🦊", size=5), end, usage=usage) == [
        port.TextStart("text_0"),
        port.TextDelta("text_0", "Hello"),
        port.TextDelta("text_0", " π🦊"),
        port.TextEnd("text_0"),
        port.Finish("stop", messages.Tokens(input=60, output=30, cache_read=40, cache_write=5)),
    ]


async def test_thinking_tokens_are_counted_apart_from_the_output():
    end = reply.End(usage={"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}})
    tokens = (await answer(script.Text("x"), end))[-1].tokens
    assert (tokens.output, tokens.reasoning) == (18, 12)


async def test_deltas_arrive_while_the_provider_still_writes():
    async with answering(script.Text("a"), script.Hang("more"), script.Text("b")) as (model, provider):
        stream = model.stream(ask())
        assert [await anext(stream), await anext(stream)] == [port.TextStart("text_0"), port.TextDelta("text_0", "a")]
        provider.release("more")
        assert port.TextDelta("text_1", "b") in [event async for event in stream]


async def test_thinking_ends_with_its_signature():
    events = await answer(reply.Thinking("hm hm", "SIG", size=3), script.Text("yes"))
    assert events[:5] == [
        port.ReasoningStart("reasoning_0"),
        port.ReasoningDelta("reasoning_0", "hm "),
        port.ReasoningDelta("reasoning_0", "hm"),
        port.ReasoningEnd("reasoning_0", metadata("thinking", signature="SIG", provider_name="anthropic")),
        port.TextStart("text_1"),
    ]


async def test_thinking_that_nobody_may_read_is_kept_all_the_same():
    events = await answer(reply.Redacted("RED"), script.Text("yes"))
    kept = metadata("thinking", id="redacted_thinking", signature="RED", provider_name="anthropic")
    assert events[:2] == [port.ReasoningStart("reasoning_0"), port.ReasoningEnd("reasoning_0", kept)]


async def test_parallel_calls_keep_their_arguments_apart():
    events = await answer(
        reply.ToolUse("look", {"at": "a"}, size=6), reply.ToolUse("look", {"at": "b"}), asked=ask(tools=(LOOK,))
    )
    assert events[:-1] == [
        port.ToolInputStart("toolu_1_0", "look"),
        port.ToolInputDelta("toolu_1_0", '{"at":'),
        port.ToolInputDelta("toolu_1_0", '"a"}'),
        port.ToolInputEnd("toolu_1_0"),
        port.ToolCall("toolu_1_0", "look"),
        port.ToolInputStart("toolu_1_1", "look"),
        port.ToolInputDelta("toolu_1_1", '{"at":"b"}'),
        port.ToolInputEnd("toolu_1_1"),
        port.ToolCall("toolu_1_1", "look"),
    ]
    assert events[-1].reason == "tool_calls"


async def test_a_whole_call_is_announced_while_the_next_one_is_written():
    """RUN-3: its tool need not wait for the end of the stream."""
    async with answering(reply.ToolUse("look", {"at": "a"}), reply.ToolUse("look", '{"at"'), script.Hang()) as (
        model,
        _,
    ):
        stream = model.stream(ask())
        seen = [await anext(stream) for _ in range(4)]
        assert seen[-1] == port.ToolCall("toolu_1_0", "look")
        await stream.aclose()


async def test_an_id_repeated_or_left_empty_within_one_message_is_replaced():
    """PUB-2."""
    events = await answer(*(reply.ToolUse("look", {"at": "x"}, id=id) for id in ("call_1", "call_1", "", "")))
    ids = [event.call_id for event in events if isinstance(event, port.ToolCall)]
    assert len(set(ids)) == 4
    assert ids[0] == "call_1"
    assert "" not in ids


async def test_malformed_arguments_pass_as_they_are():
    events = await answer(reply.ToolUse("look", '{"at": tru'))
    assert port.ToolInputDelta("toolu_1_0", '{"at": tru') in events
    assert port.ToolCall("toolu_1_0", "look") in events


async def test_a_call_without_arguments_is_a_call():
    events = await answer(reply.ToolUse("look", {}))
    assert events[:-1] == [
        port.ToolInputStart("toolu_1_0", "look"),
        port.ToolInputEnd("toolu_1_0"),
        port.ToolCall("toolu_1_0", "look"),
    ]


async def test_a_call_whose_arguments_never_began_is_not_made_when_the_answer_was_cut_short():
    events = await answer(reply.ToolUse("look", ""), reply.End("max_tokens"))
    assert [type(event) for event in events] == [port.Finish]
    assert events[0].reason == "length"


async def test_a_tool_the_provider_runs_is_a_call_and_its_result():
    found = reply.ServerTool("web_search", {"query": "x"}, FOUND)
    events = await answer(found, script.Text("T"), asked=ask(settings={"native_tools": ["web_search"]}))
    plain = {"title": "T", "type": "web_search_result", "url": "http://localhost/t"}
    assert events[:4] == [
        port.ToolInputStart("srvtoolu_1_0", "web_search"),
        port.ToolInputDelta("srvtoolu_1_0", '{"query":"x"}'),
        port.ToolInputEnd("srvtoolu_1_0"),
        port.ToolCall("srvtoolu_1_0", "web_search", provider_executed=True),
    ]
    result = events[4]
    assert (result.call_id, result.structured, result.is_error) == ("srvtoolu_1_0", {"content": [plain]}, False)
    assert "SEALED" not in result.text
    assert events[-1].reason == "stop"


async def test_a_result_without_its_call_still_has_one():
    """The library leaves out calls of tools that this request did not ask for."""
    events = await answer(reply.ServerTool("web_search", {"query": "x"}, FOUND))
    assert port.ToolCall("srvtoolu_1_0", "web_search", provider_executed=True) in events
    assert sum(isinstance(event, port.ToolResult) for event in events) == 1
    said = (await second_request((reply.ServerTool("web_search", {"query": "x"}, FOUND),), user("and?")))[1]["content"]
    assert [block["type"] for block in said] == ["server_tool_use", "web_search_tool_result"]


async def test_a_failed_tool_of_the_provider_is_an_error():
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    events = await answer(reply.ServerTool("web_search", {"query": "x"}, failed))
    result = next(event for event in events if isinstance(event, port.ToolResult))
    assert result.is_error
    assert "max_uses_exceeded" in result.text


async def test_a_tool_of_the_provider_without_a_result_gets_one_that_says_so():
    asked = ask(settings={"native_tools": ["web_search"]})
    events = await answer(reply.ServerTool("web_search", {"query": "x"}), reply.End("pause_turn"), asked=asked)
    assert events[-2] == port.ToolResult("srvtoolu_1_0", "The provider gave no result for this call.", is_error=True)
    assert events[-1].reason == "other"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "other"),
        ("something_new", "other"),
    ],
)
async def test_finish_reasons_are_named_in_our_words(theirs, ours):
    events = await answer(script.Text("x"), reply.End(theirs))
    assert events[-1].reason == ours
    assert sum(isinstance(event, port.Finish) for event in events) == 1


async def test_blocks_events_and_deltas_of_unknown_kinds_are_passed_over():
    unknown = script.Raw(
        'event: content_block_start\ndata: {"type": "content_block_start", "index": 9, '
        '"content_block": {"type": "hologram"}}\n\n'
        'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 9}\n\n'
        'event: novelty\ndata: {"type": "novelty"}\n\n: comment\n\n'
    )
    events = await answer(unknown, script.Text("yes"))
    assert [event.text for event in events if isinstance(event, port.TextDelta)] == ["yes"]


async def test_an_empty_answer_is_a_finish():
    assert [type(event) for event in await answer(reply.End())] == [port.Finish]


async def test_many_requests_at_once_share_one_model():
    async with answering(script.Text("yes", size=1)) as (model, provider), anyio.create_task_group() as tasks:

        async def one():
            events = [event async for event in model.stream(ask())]
            assert "".join(event.text for event in events if isinstance(event, port.TextDelta)) == "yes"

        for _ in range(10):
            tasks.start_soon(one)
    assert len(provider.requests) == 10


# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_lowered_to_the_wire_format():
    asked = request.Request(
        "ses_1",
        NAME,
        "Be brief.",
        (
            user("hi"),
            request.AssistantMessage(
                (
                    request.TextContent("Let me look."),
                    request.CallContent("c1", "look", {"at": "π"}),
                    request.CallContent("c2", "look", {}),
                )
            ),
            request.ResultMessage("c1", "look", "nothing"),
            request.ResultMessage("c2", "look", "boom", is_error=True),
            user("and?"),
            user("really?"),
        ),
        (LOOK,),
        settings={"max_tokens": 7, "stop": "END", "temperature": None},
    )
    recorded = await sent(asked)
    first, said, answered = recorded.body["messages"]
    assert recorded.body["system"] == "Be brief."
    assert (recorded.body["max_tokens"], recorded.body["stop_sequences"]) == (7, ["END"])
    assert "temperature" not in recorded.body
    assert recorded.body["tools"][0]["name"] == "look"
    assert recorded.headers["authorization"] == f"Bearer {KEY}"
    assert (first["role"], said["role"], answered["role"]) == ("user", "assistant", "user")
    assert [block["type"] for block in said["content"]] == ["text", "tool_use", "tool_use"]
    assert said["content"][1]["input"] == {"at": "π"}
    assert [block["type"] for block in answered["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert [block.get("is_error") for block in answered["content"][:2]] == [False, True]


async def test_tools_can_be_shown_and_forbidden():
    assert (await sent(ask(tools=(LOOK,), tool_choice="none"))).body["tool_choice"] == {"type": "none"}


async def test_images_and_files_travel_in_the_message():
    content = (
        request.TextContent("see"),
        request.MediaContent("image", "image/png", b"\x89P"),
        request.MediaContent("file", "text/plain", "π".encode(), "pi.txt"),
        request.MediaContent("file", "application/pdf", b"%PDF", "a.pdf"),
    )
    blocks = (await sent(ask(request.UserMessage(content)))).body["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "text", "document"]
    assert blocks[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVA="}
    assert blocks[2]["text"] == "File pi.txt:\nπ"


async def test_thinking_goes_back_with_its_signature():
    """MSG-9: to the same provider and model; the provider refuses a signature it never gave."""
    items = (reply.Thinking("hm", "SIG"), reply.Redacted("RED"), script.Text("so"), reply.ToolUse("look", {"at": "a"}))
    said = (await second_request(items))[1]["content"]
    assert [block["type"] for block in said] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert (said[0]["thinking"], said[0]["signature"], said[1]["data"]) == ("hm", "SIG", "RED")


@pytest.mark.parametrize("speaker", [request.Speaker("anthropic", "other"), request.Speaker("bedrock", NAME)])
async def test_thinking_goes_to_nobody_else_but_as_text(speaker):
    """MSG-9."""
    items = (reply.Thinking("hm", "SIG"), reply.Redacted("RED"), script.Text("so"), reply.ToolUse("look", {"at": "a"}))
    history = await second_request(items, speaker=speaker)
    said = history[1]["content"]
    assert [block["type"] for block in said] == ["text", "text", "tool_use"]
    assert "SIG" not in str(history)
    assert "RED" not in str(history)


async def test_what_the_provider_ran_itself_goes_back_as_it_was():
    items = (reply.ServerTool("web_search", {"query": "x"}, FOUND), script.Text("T"))
    history = await second_request(items, user("and?"), settings={"native_tools": {"web_search": {"max_uses": 2}}})
    call, result, text = history[1]["content"]
    assert (call["type"], call["name"], call["input"]) == ("server_tool_use", "web_search", {"query": "x"})
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", call["id"])
    assert result["content"][0]["encrypted_content"] == "SEALED"
    assert text["text"] == "T"
    assert len(history) == 3


async def test_another_model_reads_what_was_run_for_it_as_text():
    items = (reply.ServerTool("web_search", {"query": "x"}, FOUND), script.Text("T"))
    history = await second_request(items, user("and?"), speaker=request.Speaker("anthropic", "other"))
    told, text = history[1]["content"]
    assert told["text"].startswith('[web_search was run by the provider with {}]\n[{"title":"T"')
    assert text["text"] == "T"
    assert "SEALED" not in str(history)


async def test_unknown_tools_of_the_provider_are_the_callers_fault():
    for settings in ({"native_tools": ["divination"]}, {"native_tools": {"web_search": {"depth": 3}}}):
        _, error = await refusal(asked=ask(settings=settings))
        assert error.kind is ModelErrorKind.INVALID_REQUEST


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "type", "kind"),
    [
        (400, "invalid_request_error", "invalid_request"),
        (401, "authentication_error", "auth"),
        (403, "permission_error", "auth"),
        (404, "not_found_error", "invalid_request"),
        (408, "timeout_error", "timeout"),
        (413, "request_too_large", "context_overflow"),
        (429, "rate_limit_error", "rate_limit"),
        (500, "api_error", "server"),
        (502, "api_error", "server"),
        (503, "api_error", "overloaded"),
        (529, "overloaded_error", "overloaded"),
    ],
)
async def test_every_http_error_has_its_kind_after_one_request(status, type, kind):
    """RUN-4: retries are the runner's, the SDK's own are off."""
    async with answering(script.HttpError(status, "because", type=type)) as (model, provider):
        with pytest.raises(ModelError) as caught:
            await anext(model.stream(ask()))
        assert len(provider.requests) == 1
    assert (caught.value.kind, caught.value.status) == (kind, status)
    assert str(caught.value) == f"The provider answered {status}: because"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        ("Your credit balance is too low to access the API. Please go to Plans & Billing.", "quota"),
    ],
)
async def test_the_providers_words_tell_more_than_a_status(message, kind):
    assert (await refusal(script.HttpError(400, message, type="invalid_request_error")))[1].kind == kind


async def test_an_account_that_is_used_up_is_no_bad_request_and_says_what_to_do_run_4():
    _, error = await refusal(script.HttpError(402, "Pay first.", type="billing_error"))
    assert (error.kind, error.status) == ("quota", 402)
    assert str(error).startswith("The provider answered 402: Pay first. The account's credit or limit is used up: ")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"date": "Tue, 01 Dec 2026 00:00:00 GMT", "retry-after": "Tue, 01 Dec 2026 00:01:30 GMT"}, 90_000),
        ({}, None),
    ],
)
async def test_the_wait_a_provider_asks_for_is_heard(headers, wait):
    """RUN-4."""
    fault = script.HttpError(429, type="rate_limit_error", headers=headers)
    assert (await refusal(fault))[1].retry_after_ms == wait


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limit"),
        ("api_error", "server"),
        ("new", "server"),
    ],
)
async def test_an_error_in_place_of_an_event_is_that_error(type, kind):
    seen, error = await refusal(script.Text("half"), script.StreamError("out of memory", type=type))
    assert port.TextDelta("text_0", "half") in seen
    assert error.kind == kind
    assert "out of memory" in str(error)


async def test_an_error_as_the_first_event_is_that_error():
    raw = script.Raw(
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    )
    assert (await refusal(raw, script.Cut("end")))[1].kind is ModelErrorKind.OVERLOADED


@pytest.mark.parametrize("how", ["close", "end"])
async def test_a_stream_cut_in_the_middle_of_text_is_incomplete(how):
    seen, error = await refusal(script.Text("half"), script.Cut(how))
    assert port.TextDelta("text_0", "half") in seen
    assert not any(isinstance(event, port.Finish) for event in seen)
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_stream_cut_in_the_middle_of_arguments_makes_no_call():
    started = script.Raw(
        'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": '
        '{"type": "tool_use", "id": "t", "name": "rm", "input": {}}}\n\n'
        'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": '
        '{"type": "input_json_delta", "partial_json": "{\\"path\\": \\"/"}}\n\n'
    )
    for how in ("close", "end"):
        seen, error = await refusal(started, script.Cut(how))
        assert seen == [port.ToolInputStart("t", "rm"), port.ToolInputDelta("t", '{"path": "/')]
        assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_stream_that_says_nothing_at_all_is_incomplete():
    _, error = await refusal(script.Raw(": nothing\n\n"), script.Cut("end"))
    assert error.kind is ModelErrorKind.INCOMPLETE


async def test_a_malformed_event_is_an_incomplete_stream():
    malformed = script.Raw("event: content_block_delta\ndata: {not json\n\n")
    assert (await refusal(script.Text("half"), malformed))[1].kind is ModelErrorKind.INCOMPLETE


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_lost_before_the_first_byte_is_a_transport_error(how):
    seen, error = await refusal(script.Cut(how))
    assert (seen, error.kind) == ([], ModelErrorKind.TRANSPORT)


async def test_a_connection_reset_in_the_middle_is_a_transport_error():
    async with answering(script.Text("half"), script.Hang("read"), script.Cut("reset")) as (model, provider):
        stream = model.stream(ask())
        assert [await anext(stream), await anext(stream)][1] == port.TextDelta("text_0", "half")
        provider.release("read")
        with pytest.raises(ModelError) as caught:
            await anext(stream)
    assert caught.value.kind is ModelErrorKind.TRANSPORT


async def test_a_refused_connection_is_a_transport_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can have it, and nobody answers
        async with model_at(f"http://127.0.0.1:{taken.getsockname()[1]}") as model:
            with pytest.raises(ModelError) as caught:
                await anext(model.stream(ask()))
    assert caught.value.kind is ModelErrorKind.TRANSPORT


@pytest.mark.parametrize("items", [(script.Hang(),), (script.Text("half"), script.Hang())], ids=["at once", "midway"])
async def test_a_silent_provider_times_out(items):
    _, error = await refusal(*items, idle_timeout_s=0.2)
    assert error.kind is ModelErrorKind.TIMEOUT
    assert "silent for 0.2 s" in str(error)


async def test_closing_the_iterator_hangs_up():
    async with answering(script.Text("half"), script.Hang()) as (model, provider):
        stream = model.stream(ask())
        await anext(stream)
        await stream.aclose()
        assert (await provider.ended(1)).state == "disconnected"
    gc.collect()  # an iterator left open within would complain here


async def test_cancelling_the_reader_hangs_up():
    async with answering(script.Hang("reached")) as (model, provider):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record, model, ask(), [])
            await provider.arrived("reached")
            tasks.cancel_scope.cancel()
        assert (await provider.ended(1)).state == "disconnected"


@pytest.mark.parametrize(
    "fault",
    [
        script.HttpError(401, f"invalid x-api-key {KEY}", type="authentication_error"),
        script.HttpError(500, body="x" * (adapter.MAX_DETAIL - 40) + KEY),
        script.StreamError(f"bad key {KEY}"),
        script.Raw(f"event: content_block_delta\ndata: {KEY}\n\n"),
    ],
)
async def test_the_key_is_in_no_error(fault):
    _, error = await refusal(fault)
    assert KEY[:10] not in "".join(traceback.format_exception(error)) + repr(error.__cause__)
    assert len(str(error)) <= adapter.MAX_DETAIL


# -- making one ----------------------------------------------------------------------------------------------------


def variable(**known):
    return known.get


async def test_the_catalogue_makes_it_from_a_name():
    models = catalogue.Catalogue(variable(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="http://localhost"))
    made: port.Model = models.resolve(f"anthropic:{NAME}")
    assert (made.provider, made.name) == ("anthropic", NAME)
    assert models.resolve(f"anthropic:{NAME}") is made
    await models.close()


@pytest.mark.slow
async def test_every_provider_of_the_catalogue_is_one_of_the_library():
    providers = pytest.importorskip("pydantic_ai.providers")
    for name in catalogue.PYDANTIC_AI:
        with contextlib.suppress(ImportError):
            providers.infer_provider_class(name)


def test_a_provider_nobody_knows_is_told_without_loading_anything():
    with pytest.raises(UnknownModel, match="anthropic:NAME"):
        catalogue.Catalogue(variable()).check("delphi:oracle")


@pytest.mark.parametrize(
    ("key", "words"), [(None, "ANTHROPIC_API_KEY"), ("sk-\nsecret", "header"), ("sk-sécret", "header")]
)
def test_a_key_that_is_missing_or_that_no_header_can_carry_is_a_config_error(key, words, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=words) as caught:
        catalogue.Catalogue(variable(ANTHROPIC_API_KEY=key)).resolve(f"anthropic:{NAME}")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (f"anthropic:{NAME}", ["ANTHROPIC_API_KEY"]),
        ("google:gemini-pro", ["GOOGLE_API_KEY", "GEMINI_API_KEY"]),
        ("deepseek:deepseek-chat", ["DEEPSEEK_API_KEY"]),
    ],
)
def test_a_missing_key_is_told_in_our_words_with_the_variable_and_the_setting(model, names, monkeypatch):
    for name in names:
        monkeypatch.delenv(name, raising=False)
    try:
        catalogue.Catalogue(variable()).resolve(model)
    except ConfigError as error:
        said = str(error)
    assert said.startswith(f"{model} has no API key: set {' or '.join(names)} in the environment")
    assert "models=" in said
    assert "Provider(" not in said


@pytest.mark.slow
@pytest.mark.parametrize("absent", ["pydantic_ai", "anthropic"])
def test_without_the_extra_the_error_says_what_to_install(absent):
    code = (
        f"import sys; sys.modules[{absent!r}] = None\n"
        "from perdure import errors\nfrom perdure.models import catalogue\n"
        f"try: catalogue.Catalogue(lambda name: 'k').resolve('anthropic:{NAME}')\n"
        "except errors.ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'perdure[pydantic-ai]'" in done.stdout


@pytest.mark.slow
def test_the_catalogue_alone_loads_no_sdk():
    code = "import sys; from perdure.models import catalogue; print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_models_of_the_users_own_come_first():
    own = scripted.ScriptedModel([])
    assert catalogue.Catalogue(variable(), {"anthropic:mine": own}).resolve("anthropic:mine") is own


@pytest.mark.bench
async def test_a_delta_costs_less_than_a_millisecond():
    deltas = 2000
    async with answering(script.Text("x", size=1)) as (model, _):
        await record(model, ask(), [])
    many = script.Raw(
        "".join(
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":0,"delta":'
            f'{{"type":"text_delta","text":"word{n} "}}}}\n\n'
            for n in range(deltas)
        )
    )
    async with answering(many) as (model, _):
        seen, began = [], time.process_time()
        await record(model, ask(), seen)
        spent = (time.process_time() - began) / deltas
    assert len(seen) > deltas
    assert spent < 1e-3, f"{spent * 1e6:.0f} us a delta"
    print(f"{spent * 1e6:.0f} us a delta")  # noqa: T201, what a bench is for


# -- the server itself ---------------------------------------------------------------------------------------------


def block(kind, **more):
    return {"type": kind, **more}


@pytest.mark.parametrize(
    ("content", "following", "sound"),
    [
        ([block("tool_use", id="a")], [block("tool_result", tool_use_id="a"), block("text")], True),
        ([block("tool_use", id="a")], [block("text"), block("tool_result", tool_use_id="a")], False),
        ([block("tool_use", id="a")], [block("text")], False),
        ([block("text")], [block("tool_result", tool_use_id="a")], False),
        ([block("server_tool_use", id="s"), block("x_tool_result", tool_use_id="s")], [block("text")], True),
        ([block("x_tool_result", tool_use_id="s")], [block("text")], False),
        ([block("server_tool_use", id="s")], [block("text")], False),
    ],
)
def test_the_server_takes_only_sound_histories(content, following, sound):
    messages = [{"role": "assistant", "content": content}, {"role": "user", "content": following}]
    assert (anthropic_provider.problems(messages) == []) is sound
