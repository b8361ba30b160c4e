"""Hostile text through every field that takes text: kept as it went, or refused in words; never a failure (SEC-1, SEC-2)."""

import asyncio
import json
import urllib.parse

import pytest

from perdure import Agent, tool
from perdure.models import scripted

TEXTS = {
    "nul": "a\x00b",
    "line ends": "a\r\nb\u2028c\u2029d\x85e\x0bf\n\nid: 9\n\ndata: {}\n\n",
    "escapes": "\x1b[2J\x07\x7f",
    "huge": "x" * 400_000,
    "markup": "</script><img src=x onerror=alert(1)>&\"'`",
    "sql": "'; DROP TABLE event; --",
    "other planes": "\U0001f600\U0010ffff\ufeff\u202egnp.exe\ufffd",
    "percent": "%00%2e%2e%2f../../etc/passwd",
    "empty": "",
}
SURROGATE = r'"\ud800"'


@pytest.fixture
def agents(model):
    @tool(effect="write", approval="always")
    async def pay() -> str:
        """Pay."""
        return "paid"

    return [Agent("default", model, tools=[pay])]


def field(method, path, body, get=None):
    """A field: how it is sent, given a text, and how it is read back, from the answer."""
    return method, path, body, get


FIELDS = {
    "title": field("PATCH", "/s", lambda text: {"title": text}, lambda done: done["title"]),
    "metadata": field("PATCH", "/s", lambda text: {"metadata": {"k": text}}, lambda done: done["metadata"]["k"]),
    "metadata key": field(
        "PATCH", "/s", lambda text: {"metadata": {text: 1}}, lambda done: next(iter(done["metadata"]))
    ),
    "agent": field("PATCH", "/s", lambda text: {"agent": text}),
    "model": field("PATCH", "/s", lambda text: {"model": text}),
    "policy": field("PATCH", "/s", lambda text: {"policy": {"recovery": text}}),
    "approval by name": field("PATCH", "/s", lambda text: {"policy": {"approval": {text: "always"}}}),
    "session id": field("POST", "", lambda text: {"id": text}),
    "fork id": field("POST", "/s/fork", lambda text: {"id": text}),
    "prompt id": field("POST", "/s/prompts", lambda text: {"id": text, "text": "hi", "resume": False}),
    "prompt": field("POST", "/s/prompts", lambda text: {"text": text, "resume": False}),
    "part": field("POST", "/s/prompts", lambda text: {"parts": [{"type": "text", "text": text}], "resume": False}),
    "part data": field("POST", "/s/prompts", lambda text: {"parts": [{"type": "file", "data": text}], "resume": False}),
    "part name": field(
        "POST", "/s/prompts", lambda text: {"parts": [{"type": "file", "data": "eA==", "name": text, "mime": text}]}
    ),
    "delivery": field("POST", "/s/prompts", lambda text: {"text": "hi", "delivery": text}),
    "interrupt": field("POST", "/s/interrupt", lambda text: {"reason": text}),
    "interrupted": field("POST", "/s/interrupt", lambda text: {"execution_id": text}),
    "wait": field("POST", "/s/wait", lambda text: {"message_id": text, "timeout": 0}),
    "note": field("POST", "/waiting/approvals/none", lambda text: {"decision": "deny", "note": text}),
    "decision": field("POST", "/waiting/approvals/none", lambda text: {"decision": text}),
    "unknown field": field("POST", "", lambda text: {text: text}),
}


async def healthy(served):
    """Every way of reading a session still works, and says the same."""
    page = (await served.client.get("/v1/sessions/s/events", params={"limit": 1000})).json()["data"]
    async with served.reader(follow=False) as reader:
        assert [one.data for one in await reader.rest() if one.id] == page
    async with served.reader(None, follow=False) as feed:
        found = [one.data for one in await feed.rest() if one.id]
    assert [one for one in found if one["durable"]["aggregate_id"] == "s"] == page
    for path in ["/v1/sessions", "/v1/sessions/s/messages", "/v1/sessions/s/inbox", "/v1/approvals", "/metrics"]:
        assert (await served.client.get(path)).status_code == 200, path


@pytest.mark.parametrize("name", FIELDS)
async def test_a_text_field_keeps_hostile_text_or_refuses_it_in_words_sec_2(served, name):
    method, path, body, get = FIELDS[name]
    await served.session()
    await served.session("waiting")
    for kind, text in TEXTS.items():
        done = await served.client.request(method, f"/v1/sessions{path}", json=body(text))
        assert done.status_code < 500, (kind, done.text[:300])
        if done.status_code >= 400:
            problem = done.json()
            assert done.headers["content-type"] == "application/problem+json"
            assert problem["remedy"], kind
            assert len(done.content) < 3_000, kind
        elif get:
            assert get(done.json()) == text, kind
    raw = json.dumps(body("MARK")).replace('"MARK"', SURROGATE)
    refused = await served.client.request(
        method, f"/v1/sessions{path}", content=raw, headers={"Content-Type": "application/json"}
    )
    assert (refused.status_code, refused.json()["type"]) == (400, "malformed-json")
    await healthy(served)


async def test_hostile_text_in_paths_queries_and_headers_is_refused_in_words_sec_2(served):
    await served.session()
    for kind, text in TEXTS.items():
        part = urllib.parse.quote(text[:5_000], safe="") or "%20"
        for method, path in [
            ("GET", f"/v1/sessions/{part}"),
            ("DELETE", f"/v1/sessions/{part}"),
            ("GET", f"/v1/sessions/s/prompts/{part}"),
            ("POST", f"/v1/sessions/s/prompts/{part}/retry"),
            ("POST", f"/v1/recoveries/{part}/dismiss"),
            ("POST", f"/v1/sessions/s/approvals/{part}"),
            ("GET", f"/v1/sessions?cursor={part}"),
            ("GET", f"/v1/sessions?status={part}"),
            ("GET", f"/v1/sessions/s/messages?cursor={part}"),
            ("GET", f"/v1/events?after={part}"),
        ]:
            body = {"decision": "deny"} if "/approvals/" in path else None
            done = await served.client.request(method, path, json=body)
            assert 400 <= done.status_code < 500, (kind, path[:80])
            assert done.headers["content-type"] == "application/problem+json"
            assert len(done.content) < 6_500, (kind, path[:80])
    for name in ("Last-Event-ID", "Cookie", "Accept", "Authorization", "Origin"):
        done = await served.client.get("/v1/events", headers={name: b"\xff=;,\t%00" * 500})
        assert done.status_code < 500, name
    await healthy(served)


async def test_a_note_to_a_call_that_waits_is_kept_as_it_went_or_refused_sec_2(served, replies):
    notes = [text for text in TEXTS.values() if text and "\x00" not in text and len(text) < 10_000]
    replies += [[scripted.Call("pay", {}, f"c{number}")] for number in range(len(notes))]
    await served.session()
    for number, note in enumerate(notes):
        async with served.reader(after=0) as reader:
            await served.prompt(id=f"p{number}")
            await reader.until(lambda one, call=f"c{number}": call in str(one.data) and "parked" in str(one.event))
        path = f"/v1/sessions/s/approvals/c{number}"
        refused = await served.client.post(path, json={"decision": "deny", "note": "a\x00"})
        assert (refused.status_code, refused.json()["type"]) == (422, "invalid-input")
        replies[:0] = [[scripted.Text("Well.")]]
        done = await served.client.post(path, json={"decision": "deny", "note": note})
        assert done.json()["note"] == note
        await served.settle(f"p{number}")
    await healthy(served)


HOSTILE_BYTES = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x01\x02\r\n\r\n",
    b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /\xff%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/v1/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


@pytest.mark.parametrize("sent", HOSTILE_BYTES, ids=range(len(HOSTILE_BYTES)))
async def test_what_is_hardly_http_gets_a_4xx_or_nothing_and_harms_nobody_sec_1(served, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    writer.write_eof()
    try:
        answer = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        answer = b""
    writer.close()
    assert not answer or answer.split(b" ")[1][:1] == b"4"
    await served.session()
    await healthy(served)
