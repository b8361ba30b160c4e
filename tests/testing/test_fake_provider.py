"""The fake provider: what it puts on the wire, what it records, what it refuses, and how it is steered from outside."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import anyio
import httpx2
import msgspec
import pytest

from perdure.testing import fake_provider, pairing
from perdure.testing import provider_script as script


@contextlib.asynccontextmanager
async def running(*rules):
    async with fake_provider.serve(rules) as provider, httpx2.AsyncClient(base_url=provider.url, timeout=20) as client:
        yield provider, client


def body(*messages, **more):
    return {"model": "m", "stream": True, "messages": list(messages) or [user("hi")], **more}


def user(text):
    return {"role": "user", "content": text}


def calling(*ids):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id} for id in ids]}


def result(id):
    return {"role": "tool", "tool_call_id": id, "content": "ok"}


async def post(client, *messages, **more):
    return await client.post("/chat/completions", json=body(*messages, **more))


def chunks(response):
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def deltas(response):
    return [chunk["choices"][0]["delta"] for chunk in chunks(response) if chunk["choices"]]


def text(response):
    return "".join(delta.get("content") or "" for delta in deltas(response))


def said(*words):
    return tuple(script.Text(word) for word in words)


# -- the wire ------------------------------------------------------------------------------------------------------


async def test_an_unscripted_prompt_is_echoed():
    async with running() as (_, client):
        response = await post(client, user("How are you?"))
    assert text(response) == "Echo: How are you?"
    assert response.headers["content-type"] == "text/event-stream"
    assert response.text.endswith("data: [DONE]\n\n")


async def test_text_comes_in_chunks_of_the_asked_size():
    async with running(script.Rule((script.Text("abcde", size=2, delay_ms=0.01),))) as (_, client):
        response = await post(client)
    assert [delta.get("content") for delta in deltas(response)] == ["", "ab", "cd", "e", None]


async def test_reasoning_and_parallel_calls_have_the_wire_format():
    reply = (script.Reasoning("hm"), script.Call("a", {"x": 1}, size=4), script.Call("b", "{broken", id="mine"))
    async with running(script.Rule(reply)) as (_, client):
        response = await post(client)
    assert deltas(response) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1_0", "type": "function", "function": {"name": "a", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [{"index": 1, "id": "mine", "type": "function", "function": {"name": "b", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{broken"}}]},
        {},
    ]
    assert chunks(response)[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_usage_is_sent_when_asked_for_and_not_scripted_away():
    counts = script.Usage(prompt=9, completion=4, cached=2, reasoning=1)
    rules = (
        script.Rule((script.Finish(usage=counts),), contains="counted"),
        script.Rule((script.Finish(usage=False),), contains="none"),
    )
    async with running(*rules) as (_, client):
        counted, none, rough = [
            chunks(await post(client, user(words), stream_options={"include_usage": True}))[-1]
            for words in ("counted", "none", "anything")
        ]
        unasked = chunks(await post(client, user("counted")))[-1]
    assert counted["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert rough["usage"]["prompt_tokens"] > 0
    assert "usage" not in none
    assert "usage" not in unasked


async def test_an_http_error_has_its_status_headers_and_body():
    reply = (script.HttpError(429, "slow", code="rate_limit_exceeded", headers={"retry-after": "3"}),)
    async with running(script.Rule(reply)) as (provider, client):
        response = await post(client)
        assert (await provider.ended(1)).state == "refused"
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json()["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "before", [(), (script.Text("half"),), (script.Call("a", '{"x'),), (script.Raw('data: {"cho'),)]
)
async def test_a_cut_breaks_the_connection_where_it_stands(how, before):
    async with running(script.Rule((*before, script.Cut(how)))) as (provider, client):
        with pytest.raises(httpx2.TransportError):
            await post(client)
        assert (await provider.ended(1)).state == "cut"


async def test_a_cut_that_ends_the_response_looks_whole_and_is_not():
    async with running(script.Rule((script.Text("half"), script.Cut("end")))) as (_, client):
        response = await post(client)
    assert text(response) == "half"
    assert "[DONE]" not in response.text


async def test_the_last_chunk_may_come_without_done():
    async with running(script.Rule((script.Text("x"), script.Finish(done=False)))) as (_, client):
        response = await post(client)
    assert chunks(response)[-1]["choices"][0]["finish_reason"] == "stop"
    assert "[DONE]" not in response.text


async def test_an_error_in_the_stream_ends_it():
    async with running(script.Rule((script.Text("half"), script.StreamError("boom", code=502)))) as (_, client):
        response = await post(client)
    assert response.text.endswith('{"error":{"message":"boom","type":null,"code":502}}\n\n')


async def test_open_sends_the_head_before_any_content():
    async with (
        running(script.Rule((script.Open(), script.Hang()))) as (_, client),
        client.stream("POST", "/chat/completions", json=body()) as response,
    ):
        assert response.status_code == 200


# -- gates and records ---------------------------------------------------------------------------------------------


async def test_a_reply_waits_at_its_gate_until_that_is_released():
    reply = (*said("a"), script.Hang("g"), *said("b"))
    async with running(script.Rule(reply)) as (provider, client), asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(post(client))
        await provider.arrived("g")
        assert (await provider.requested(1)).state == "open"
        provider.release("g")
        assert text(await answer) == "ab"
        assert (await provider.ended(1)).state == "completed"


async def test_a_gate_released_before_anyone_came_stays_open():
    async with running(script.Rule((script.Hang("g"), *said("x")))) as (provider, client):
        provider.release("g")
        assert text(await post(client)) == "x"


async def test_a_client_that_goes_is_recorded_as_gone():
    async with running(script.Rule((script.Text("half"), script.Hang()))) as (provider, client):
        async with client.stream("POST", "/chat/completions", json=body()):
            pass
        assert (await provider.ended(1)).state == "disconnected"


async def test_stopping_the_provider_ends_what_hangs():
    async def ask(client):
        with pytest.raises(httpx2.TransportError):
            await post(client)

    async with asyncio.TaskGroup() as tasks:
        async with fake_provider.serve([script.Rule((script.Hang("g"),))]) as provider:
            client = httpx2.AsyncClient(base_url=provider.url, timeout=20)
            asking = tasks.create_task(ask(client))
            await provider.arrived("g")
        await asking
        await client.aclose()
    assert provider.requests[0].state == "disconnected"


async def test_one_connection_carries_one_request_after_another():
    async with fake_provider.serve() as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(provider.url.split(":")[2].split("/")[0]))
        content = msgspec.json.encode(body())
        once = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
        writer.write(once + once)  # pipelined: the second request's first byte comes while the first is answered
        for _ in range(2):
            assert b"[DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()


async def test_every_request_is_recorded_as_it_came():
    async with running(script.Rule(said("x"), contains="hi")) as (provider, client):
        await client.post("/chat/completions", json=body(), headers={"authorization": "Bearer k"})
        recorded = await provider.ended(1)
    assert recorded.body == body()
    assert recorded.headers["authorization"] == "Bearer k"
    assert (recorded.number, recorded.prompt, recorded.step, recorded.attempt, recorded.rule) == (1, "hi", 0, 1, 0)


# -- rules ---------------------------------------------------------------------------------------------------------


async def test_rules_look_at_the_last_user_text_and_the_first_match_answers():
    rules = (
        script.Rule(said("equal"), equals="weather"),
        script.Rule(said("contained"), contains="weather"),
        script.Rule(said("system"), system="weather"),
    )
    async with running(*rules) as (_, client):
        assert text(await post(client, user("weather"))) == "equal"
        assert text(await post(client, user("the weather?"))) == "contained"
        assert text(await post(client, user("weather"), user("no"))) == "Echo: no"
        assert text(await post(client, {"role": "system", "content": "weather"}, user("no"))) == "system"
        parts = [{"type": "text", "text": "the"}, {"type": "image_url"}, {"type": "text", "text": "weather"}]
        assert text(await post(client, user(parts))) == "contained"


async def test_rules_tell_the_steps_of_one_prompt_apart():
    rules = (script.Rule((script.Call("a", {}, id="c"),), step=0), script.Rule(said("done"), step=1))
    async with running(*rules) as (_, client):
        assert "tool_calls" in deltas(await post(client))[1]
        assert text(await post(client, user("hi"), calling("c"), result("c"))) == "done"


async def test_rules_tell_attempts_apart_and_are_used_up():
    rules = (
        script.Rule(said("first"), contains="hi", attempt=1),
        script.Rule(said("twice"), contains="hi", times=2),
    )
    async with running(*rules) as (_, client):
        answers = [text(await post(client)) for _ in range(4)]
    assert answers == ["first", "twice", "twice", "Echo: hi"]


def test_rules_survive_their_json_form():
    rules = [
        script.Rule((script.Open(), script.Text("a", 1, 2), script.Echo(), script.Reasoning("r", field="reasoning"))),
        script.Rule((script.Call("f", {"x": [1]}), script.Call("f", "{", id="", late_name=True)), contains="c", step=1),
        script.Rule((script.HttpError(500, headers={"a": "b"}),), equals="e", attempt=2),
        script.Rule((script.Raw("x"), script.StreamError(code=1), script.Hang("g"), script.Cut("reset")), times=3),
        script.Rule((script.Finish("length", script.Usage(1, 2), done=False),), system="s"),
    ]
    assert script.from_json(script.to_json(rules)) == rules


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"rules": [{"reply": [], "contain": "x"}]}', "contain"),
        ('{"rules": [{"reply": [{"do": "sing"}]}]}', "sing"),
        ("{", "truncated"),
    ],
)
def test_a_misspelt_script_is_refused(document, words):
    with pytest.raises(ValueError, match=words):
        script.from_json(document)


# -- pairing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "history",
    [
        [user("hi")],
        [user("hi"), calling("a", "b"), result("a"), result("b"), user("go on")],
        [user("hi"), calling("a"), result("a"), calling("a"), result("a")],
    ],
)
def test_a_sound_history_has_no_problems(history):
    """MSG-9."""
    assert pairing.problems(history) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([calling("a")], "the history ends before the results of a"),
        ([calling("a", "b"), result("a")], "the history ends before the results of b"),
        ([calling("a"), user("hi"), result("a")], "message 1 stands before the results of a"),
        ([calling("a", "b"), result("b"), result("a")], "message 1 is the result of b, but a was called first"),
        ([calling("a"), result("a"), result("a")], "message 2 is a result of a, which no call directly before it made"),
        ([user("hi"), result("a")], "message 1 is a result of a, which no call directly before it made"),
        ([calling("a", "a"), result("a"), result("a")], "message 0 uses a call id twice: a, a"),
        ([calling("a"), calling("b"), result("b")], "message 1 stands before the results of a"),
    ],
)
def test_every_broken_pairing_is_named(history, problem):
    """MSG-9."""
    assert problem in pairing.problems(history)


async def test_a_history_with_a_lost_result_is_refused_and_recorded():
    """MSG-9."""
    async with running() as (provider, client):
        response = await post(client, user("hi"), calling("a"), user("and?"))
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "tool_pairing"
        assert provider.violations == [fake_provider.Violation(1, "message 2 stands before the results of a")]
        assert provider.requests[0].state == "refused"


# -- control over HTTP ---------------------------------------------------------------------------------------------


async def test_it_is_steered_over_http():
    async with running() as (_, client), asyncio.TaskGroup() as tasks:
        control = str(client.base_url).replace("/v1/", "/_control/")
        rules = script.to_json([script.Rule((*said("a"), script.Hang("g"), *said("b")), contains="hi")])
        assert (await client.post(control + "script", content=rules)).status_code == 200
        answer = tasks.create_task(post(client))
        assert (await client.post(control + "arrived", json={"gate": "g"})).status_code == 200
        assert [one["state"] for one in (await client.get(control + "requests")).json()] == ["open"]
        assert (await client.post(control + "release", json={"gate": "g"})).status_code == 200
        assert text(await answer) == "ab"
        await post(client, calling("x"))
        assert (await client.get(control + "violations")).json() == [
            {"request": 2, "problem": "the history ends before the results of x"}
        ]


async def test_wrong_requests_are_answered_and_not_recorded():
    async with running() as (provider, client):
        control = str(client.base_url).replace("/v1/", "/_control/")
        statuses = [
            (await client.post("/chat/completions", content=b"{")).status_code,
            (await client.post("/chat/completions", json={"messages": 5})).status_code,
            (await client.get("/nothing")).status_code,
            (await client.post(control + "script", json={"rules": 5})).status_code,
            (await client.post(control + "release", json={})).status_code,
            (await client.get(control + "nothing")).status_code,
        ]
        assert (await client.get("/models")).json()["data"][0]["id"] == "fake"
    assert statuses == [400, 400, 404, 400, 400, 404]
    assert provider.requests == []


async def test_a_request_that_does_not_stream_is_refused():
    async with running() as (_, client):
        assert (await post(client, stream=False)).status_code == 400


# -- as a program --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def program(*arguments):
    command = [sys.executable, "-m", "perdure.testing.fake_provider", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        with anyio.fail_after(30):
            yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_as_a_program_it_prints_its_url_serves_its_script_and_stops_on_a_signal(tmp_path):
    path = tmp_path / "script.json"
    path.write_bytes(script.to_json([script.Rule(said("scripted"), contains="hi")]))
    async with program("--script", os.fspath(path), "--port", "0") as process:
        url = json.loads(await process.stdout.readline())["url"]
        async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
            assert text(await post(client)) == "scripted"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_as_a_program_it_names_what_is_wrong_with_its_script(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('{"rules": 5}')
    async with program("--script", os.fspath(path)) as process:
        _, complaint = await process.communicate()
        assert process.returncode == 2
    assert b"rules" in complaint
