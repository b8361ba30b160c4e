"""Bodies that mean harm: refused in words, or kept as they are (SEC-1, SEC-2)."""

import asyncio
import json

import pytest

from perdure import errors
from perdure.models import scripted
from perdure.server import gate

JSON = {"Content-Type": "application/json"}


def nested(levels, text='"x"'):
    return f'{{"text": "hi", "x": {"[" * levels}{text}{"]" * levels}}}'


MALFORMED = [
    b"{",
    b'{"text": "hi"',
    b"text",
    b'{"text": "hi"} {}',
    b'{"text": NaN}',
    b'{"text": "hi", "x": Infinity}',
    b'{"text": "hi", "x": 1e999}',
    rb'{"text": "\ud800"}',
    rb'{"text": "a\udc00b"}',
    rb'{"te\ud800xt": "a"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xff"}',
    '{"text": "hi"}'.encode("utf-16"),
    '{"text": "hi"}'.encode("utf-8-sig"),
    nested(64).encode(),
    nested(100_000).encode(),
    ("[" * 100_000).encode(),
    ('{"a":' * 5000).encode(),
]


async def test_what_is_not_plain_json_is_a_400_and_changes_nothing_sec_2(served):
    await served.session()
    for body in MALFORMED:
        done = await served.client.post("/v1/sessions/s/prompts", content=body, headers=JSON)
        assert (done.status_code, done.json()["type"]) == (400, "malformed-json"), body[:40]
    assert (await served.client.get("/v1/sessions/s/events")).json()["last_seq"] == 0


async def test_a_body_that_is_not_declared_as_json_is_refused(served):
    done = await served.client.post("/v1/sessions", content=b"{}", headers={"Content-Type": "text/plain"})
    assert done.status_code == 422
    assert (await served.client.post("/v1/sessions", headers=JSON)).status_code == 422


KEPT = ["\x00", "a\x00b", "\u2028\u2029", "\ufeff", "\U0001f600" * 3, "\x1b[31m", "x" * 2_000_000, "\r\n\n\r", "\uffff"]


async def test_hostile_text_that_is_text_comes_back_as_it_went_sec_2(served):
    await served.session()
    for number, text in enumerate(KEPT):
        await served.prompt(text, id=f"p{number}")
        await served.settle(f"p{number}")
    page = (await served.client.get("/v1/sessions/s/messages")).json()["data"]
    assert [one["prompt"]["parts"][0]["text"] for one in page if one["type"] == "user"] == KEPT
    log = (await served.client.get("/v1/sessions/s/events")).json()["data"]
    promoted = [one["data"]["prompt"] for one in log if one["type"] == "session.prompt.promoted"]
    assert [one["parts"][0]["text"] for one in promoted] == KEPT
    async with served.reader(follow=False) as reader:
        frames = await reader.rest()
    assert [one.data for one in frames if one.id] == log


async def test_an_answer_with_hostile_text_is_recorded_with_what_cannot_be_kept_replaced_sec_2(served, replies):
    replies.append([scripted.Text("a\x00b\ud800c\u2028d", chunks=3)])
    await served.session()
    await served.prompt(id="p")
    await served.settle("p")
    [_, answer] = (await served.client.get("/v1/sessions/s/messages")).json()["data"]
    text = answer["parts"][0]["text"]
    assert text.startswith("a\x00b")
    assert text.endswith("c\u2028d")
    text.encode()


async def test_metadata_comes_back_as_it_went_or_is_refused_sec_2(served):
    for number, value in enumerate([{"a\x00": "\x00"}, {"": None}, {"n": 2**63, "f": 1.5e300}, json.loads(nested(60))]):
        await served.session(f"s{number}", metadata=value)
        assert (await served.client.get(f"/v1/sessions/s{number}")).json()["metadata"] == value


async def test_a_body_beyond_the_limit_is_a_413_declared_or_not_sec_1(served):
    await served.session()
    body = json.dumps({"text": "x" * (33 * 2**20)}).encode()

    async def pieces():
        for at in range(0, len(body), 2**20):
            yield body[at : at + 2**20]

    declared = await served.client.post("/v1/sessions/s/prompts", content=body, headers=JSON)
    assert (declared.status_code, declared.json()["type"]) == (413, "too-large")
    chunked = await served.client.post("/v1/sessions/s/prompts", content=pieces(), headers=JSON)
    assert (chunked.status_code, chunked.json()["type"]) == (413, "too-large")
    assert (await served.client.get("/v1/sessions/s/events")).json()["last_seq"] == 0


async def test_many_brackets_in_breadth_or_inside_a_text_are_not_depth_sec_2():
    gate.check_json(b"[" + b",".join([b"[{}]"] * 1000) + b"]")
    gate.check_json(json.dumps({"text": "[" * 1000 + '\\"' + "{" * 1000}).encode())
    gate.check_json(("[" * 64 + "]" * 64).encode())
    with pytest.raises(errors.MalformedJson, match="deeper than 64"):
        gate.check_json(("[" * 65 + "]" * 65).encode())


async def test_a_large_body_is_checked_like_a_small_one_sec_2(served):
    await served.session()
    large = b'{"text": "' + b"x" * 600_000 + rb'\ud800"}'
    done = await served.client.post("/v1/sessions/s/prompts", content=large, headers=JSON)
    assert done.json()["type"] == "malformed-json"


async def test_a_client_that_leaves_in_the_middle_of_its_body_admits_nothing_api_2(served):
    await served.session()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = "POST /v1/sessions/s/prompts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Authorization: Bearer a-token-of-the-tests\r\nContent-Length: 13\r\n\r\n".encode())
    writer.write(b'{"text":"hi"')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    assert (await served.client.get("/v1/sessions/s/events")).json()["last_seq"] == 0
