"""Prompts over HTTP, the transcript they become, and control of the turn."""

import asyncio
import base64

from perdure.models import scripted
from perdure.server import schema

KINDS = ("input", "output", "reasoning", "cache_read", "cache_write")


async def test_a_prompt_is_accepted_with_a_receipt_and_settles(served):
    await served.session()
    receipt = await served.prompt(id="p")
    unused = {"tokens": dict.fromkeys(KINDS, 0), "cost": 0, "unknown_cost": 0, "unknown_tokens": 0}
    told = {"id": "p", "session_id": "s", "state": "admitted", "delivery": "steer", "admitted_seq": 1, "usage": unused}
    assert receipt == told
    waited = await served.settle("p")
    assert (waited["receipt"]["outcome"], waited["status"]["status"]) == ("succeeded", "idle")
    assert (await served.client.get("/v1/sessions/s/prompts/p")).json() == waited["receipt"]


async def test_every_request_and_what_it_used_is_read_by_the_page_run_7_run_8(served):
    await served.session()
    for one in ("p", "q"):
        await served.prompt(id=one)
        receipt = (await served.settle(one))["receipt"]
    whole = (await served.client.get("/v1/sessions/s")).json()["usage"]
    found, after = [], -1
    while after is not None:
        page = (await served.client.get("/v1/sessions/s/attempts", params={"after": after, "limit": 1})).json()
        found += page["data"]
        after = page.get("next")
    assert [(one["kind"], one["number"], one["outcome"]) for one in found] == [("step", 1, "succeeded")] * 2
    assert found[1]["usage"] == receipt["usage"]
    assert sum(one["usage"]["unknown_cost"] for one in found) == whole["unknown_cost"] == 2
    assert (await served.client.get("/v1/sessions/none/attempts")).status_code == 404


async def test_an_exact_retry_gives_the_receipt_and_another_prompt_a_conflict_in_2(served):
    await served.session()
    first = await served.prompt(id="p", resume=False)
    assert await served.prompt(id="p", resume=False) == first
    other = await served.client.post("/v1/sessions/s/prompts", json={"id": "p", "text": "other"})
    assert (other.status_code, other.json()["type"]) == (409, "prompt-conflict")


async def test_a_waiting_prompt_is_listed_changed_and_cancelled_in_13(served):
    await served.session()
    await served.prompt("first", id="p", resume=False)
    [waiting] = (await served.client.get("/v1/sessions/s/inbox")).json()["data"]
    assert (waiting["id"], waiting["delivery"], waiting["wake_pending"]) == ("p", "steer", False)
    assert waiting["prompt"] == {"parts": [{"type": "text", "text": "first"}]}
    changed = await served.client.patch("/v1/sessions/s/prompts/p", json={"delivery": "queue"})
    assert changed.json()["delivery"] == "queue"
    cancelled = await served.client.delete("/v1/sessions/s/prompts/p")
    assert (cancelled.json()["state"], cancelled.json()["outcome"]) == ("settled", "cancelled")
    again = await served.client.delete("/v1/sessions/s/prompts/p")
    assert (again.status_code, again.json()["type"]) == (409, "lifecycle-conflict")
    assert (await served.client.get("/v1/sessions/s/inbox")).json() == {"data": []}


async def test_what_was_only_admitted_runs_on_resume(served):
    await served.session()
    await served.prompt(id="p", resume=False)
    assert (await served.client.get("/v1/sessions/s/status")).json()["status"] == "waiting"
    assert (await served.client.post("/v1/sessions/s/resume")).status_code == 200
    await served.settle("p")


async def test_a_prompt_of_parts_keeps_its_bytes_apart(served):
    await served.session()
    image = {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mime": "image/png", "name": "a.png"}
    body = {"id": "p", "parts": [{"type": "text", "text": "look"}, image], "resume": False}
    done = await served.client.post("/v1/sessions/s/prompts", json=body)
    assert done.status_code == 202, done.text
    [waiting] = (await served.client.get("/v1/sessions/s/inbox")).json()["data"]
    text, stored = waiting["prompt"]["parts"]
    assert (text["text"], stored["mime"], "data" in stored) == ("look", "image/png", False)
    assert stored["hash"]


IMPOSSIBLE = [
    ({}, "text or parts"),
    ({"text": "a", "parts": [{"type": "text", "text": "b"}]}, "text or parts"),
    ({"text": ""}, "empty"),
    ({"parts": []}, "parts"),
    ({"parts": [{"type": "text"}]}, "a text part has text"),
    ({"parts": [{"type": "image", "text": "x"}]}, "a text part has text"),
    ({"parts": [{"type": "image", "data": "***"}]}, "data"),
    ({"parts": [{"type": "video"}]}, "type"),
    ({"text": "a", "delivery": "later"}, "delivery"),
    ({"text": "a", "resume": "yes"}, "resume"),
    ({"text": "a", "id": "msg_retry_x"}, "reserved"),
    ({"text": "a", "txet": "b"}, "txet"),
    ({"text": 7}, "text"),
]


async def test_a_prompt_that_cannot_be_is_a_422_that_says_why_in_10(served):
    await served.session()
    for body, word in IMPOSSIBLE:
        done = await served.client.post("/v1/sessions/s/prompts", json=body)
        assert done.status_code == 422, body
        assert word in done.json()["detail"]
    assert (await served.client.get("/v1/sessions/s/inbox")).json() == {"data": []}


async def test_an_unknown_prompt_is_a_404_and_one_that_succeeded_cannot_run_again_in_12(served):
    await served.session()
    assert (await served.client.get("/v1/sessions/s/prompts/p")).json()["type"] == "prompt-not-found"
    waited = await served.client.post("/v1/sessions/s/wait", json={"message_id": "p"})
    assert (waited.status_code, waited.json()["type"]) == (404, "prompt-not-found")
    await served.prompt(id="p")
    await served.settle("p")
    retried = await served.client.post("/v1/sessions/s/prompts/p/retry")
    assert (retried.status_code, retried.json()["type"]) == (409, "lifecycle-conflict")


async def test_an_interrupted_prompt_runs_again_on_retry_in_12(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Half"), scripted.Hang(gate)])
    await served.session()
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    stopped = await served.client.post("/v1/sessions/s/interrupt", json={"reason": "enough"})
    assert stopped.json() == {"interrupted": True}
    assert (await served.settle("p"))["receipt"]["outcome"] == "interrupted"
    retried = await served.client.post("/v1/sessions/s/prompts/p/retry")
    assert (retried.status_code, retried.json()["state"]) == (202, "admitted")
    assert (await served.settle("p"))["receipt"]["outcome"] == "succeeded"


async def test_an_interrupt_of_an_idle_session_stops_nothing_ex_8(served):
    await served.session()
    assert (await served.client.post("/v1/sessions/s/interrupt")).json() == {"interrupted": False}


async def test_waiting_ends_with_its_time_and_says_so(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Hang(gate)])
    await served.session()
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    waited = await served.client.post("/v1/sessions/s/wait", json={"message_id": "p", "timeout": 0.05})
    assert (waited.json()["done"], waited.json()["receipt"]["state"]) == (False, "running")
    assert waited.json()["status"]["status"] == "running"
    idle = asyncio.create_task(served.client.post("/v1/sessions/s/wait", json={}))
    gate.open()
    assert (await idle).json()["done"]


async def test_a_client_that_disconnects_does_not_stop_the_turn_api_2(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Half"), scripted.Hang(gate), scripted.Text(" and whole")])
    await served.session()
    async with served.reader() as reader:
        waiting = asyncio.create_task(served.client.post("/v1/sessions/s/wait", json={"timeout": 600}))
        await served.prompt(id="p")
        await asyncio.wait_for(gate.arrived(), 5)
        await reader.until("session.text.delta")
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.open()
    assert (await served.settle("p"))["receipt"]["outcome"] == "succeeded"
    [_, answer] = (await served.client.get("/v1/sessions/s/messages")).json()["data"]
    assert answer["parts"][0]["text"] == "Half and whole"


async def test_the_transcript_is_paged_in_order_by_an_opaque_cursor(served):
    await served.session()
    for number in range(3):
        await served.prompt(f"question {number}", id=f"p{number}")
        await served.settle(f"p{number}")
    seen, cursor = [], None
    for _ in range(4):
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await served.client.get("/v1/sessions/s/messages", params=query)).json()
        seen += page["data"]
        cursor = page.get("next")
        if cursor is None:
            break
    assert [one["type"] for one in seen] == ["user", "assistant"] * 3
    assert [one["seq"] for one in seen] == sorted(one["seq"] for one in seen)
    assert [one["id"] for one in seen if one["type"] == "user"] == ["p0", "p1", "p2"]
    assert (await served.client.get("/v1/sessions/s/messages", params={"cursor": "x"})).status_code == 422


async def test_the_transcript_is_what_its_description_says(served, replies):
    replies += [[scripted.Reasoning("hm"), scripted.Call("missing", {"a": 1})], [scripted.Text("done")]]
    await served.session()
    await served.prompt(id="p")
    await served.settle("p")
    page = (await served.client.get("/v1/sessions/s/messages")).json()
    described = schema.MessagePage.model_validate(page)
    assert described.model_dump(exclude_none=True, mode="json") == page
    _, answer, _ = described.data
    assert [part.type for part in answer.parts] == ["reasoning", "tool"]
    assert (answer.parts[1].name, answer.parts[1].status) == ("missing", "error")


async def test_a_body_that_is_not_declared_as_json_is_told_so(served):
    refused = await served.client.post("/v1/sessions", content=b'{"id": "t"}')
    assert refused.status_code == 422
    assert "send 'Content-Type: application/json'" in refused.json()["detail"]
