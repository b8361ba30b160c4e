"""Sessions that change, fork, are summarised and deleted, over HTTP."""

import asyncio

import pytest

from perdure import Agent
from perdure.models import scripted


@pytest.fixture
def agents(model):
    return [Agent("default", model), Agent("other", "own:m")]


async def patch(served, body, session_id="s"):
    return await served.client.patch(f"/v1/sessions/{session_id}", json=body)


async def log_of(served, session_id="s"):
    page = (await served.client.get(f"/v1/sessions/{session_id}/events", params={"limit": 1000})).json()
    return [(one["type"].removeprefix("session."), one["data"]) for one in page["data"]]


# -- change ----------------------------------------------------------------------------------------------------------------


async def test_settings_change_one_by_one_and_what_is_left_out_stays(served):
    await served.session(agent="default", title="T", metadata={"a": 1})
    assert (await patch(served, {"title": "U"})).json()["title"] == "U"
    assert (await patch(served, {"archived": True, "metadata": {"b": None}})).status_code == 200
    budget = {"tokens": 10, "seconds": 1.5}
    policy = {"recovery": "ask", "approval": {"pay": "always"}, "turn_budget": budget}
    policy |= {"retry": {"attempts": 2, "attempts_of": {"rate_limit": 9}}}
    changed = (await patch(served, {"policy": policy})).json()
    assert changed == (await served.client.get("/v1/sessions/s")).json()
    assert (changed["title"], changed["archived"], changed["metadata"]) == ("U", True, {"b": None})
    assert changed["policy"] == policy | {"repeat_unknown": "ask"}
    assert [kind for kind, _ in await log_of(served)] == ["created", "updated", "updated", "updated"]


async def test_the_same_value_again_writes_nothing(served):
    await served.session(agent="default", title="T")
    for body in [{}, {"title": "T"}, {"title": None}, {"agent": "default"}]:
        assert (await patch(served, body)).status_code == 200
    assert [kind for kind, _ in await log_of(served)] == ["created"]


async def test_agent_model_and_title_change_in_one_commit_and_the_next_step_is_theirs(served):
    await served.session(agent="default")
    changed = (await patch(served, {"agent": "other", "model": "own:m", "title": "T"})).json()
    assert (changed["agent"], changed["model"], changed["title"]) == ("other", "own:m", "T")
    await served.prompt(id="p")
    await served.settle("p")
    page = (await served.client.get("/v1/sessions/s/messages")).json()["data"]
    assert [one["type"] for one in page] == ["agent_switched", "model_switched", "user", "assistant"]
    assert (page[-1]["agent"], page[-1]["parts"][0]["text"]) == ("other", "Mine.")


NO_CHANGES = [
    ({"title": "U", "agent": "nobody"}, "unknown-agent"),
    ({"title": "U", "model": "nowhere:x"}, "unknown-model"),
    ({"title": "a\x00"}, "invalid-input"),
    ({"title": "U", "colour": "red"}, "invalid-input"),
    ({"policy": {"turn_budget": {"tokens": -1}}}, "invalid-input"),
    ({"policy": {"approval": {"pay": "maybe"}}}, "invalid-input"),
    ([], "invalid-input"),
]


async def test_a_change_that_cannot_be_changes_nothing(served):
    await served.session(agent="default")
    for body, kind in NO_CHANGES:
        done = await patch(served, body)
        assert (done.status_code, done.json()["type"]) == (422, kind), body
    assert [kind for kind, _ in await log_of(served)] == ["created"]


# -- fork ------------------------------------------------------------------------------------------------------------------


async def test_a_fork_has_the_facts_up_to_a_seq_and_goes_on_by_itself_api_3(served, replies):
    replies += [[scripted.Text("One.")], [scripted.Text("Two.")]]
    await served.session(agent="default")
    for name in ("p1", "p2"):
        await served.prompt(id=name)
        await served.settle(name)
    [(cut, _)] = [
        (seq, data) for seq, (kind, data) in enumerate(await log_of(served)) if data.get("message_ids") == ["p1"]
    ]
    forked = await served.client.post("/v1/sessions/s/fork", json={"id": "f", "seq": cut})
    assert (forked.status_code, forked.headers["Location"]) == (201, "/v1/sessions/f")
    assert forked.json()["forked_from"] == {"session_id": "s", "seq": cut}
    assert (await served.client.post("/v1/sessions/s/fork", json={"id": "f", "seq": cut})).json() == forked.json()
    await served.prompt(session_id="f", id="p3")
    await served.settle("p3", "f")
    page = (await served.client.get("/v1/sessions/f/messages")).json()["data"]
    assert [one["parts"][0]["text"] for one in page if one["type"] == "assistant"] == ["One.", "Fine."]


async def test_a_fork_needs_no_body_and_closes_what_is_open_in_the_parent_api_3(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Half"), scripted.Hang(gate)])
    await served.session(agent="default")
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    forked = (await served.client.post("/v1/sessions/s/fork")).json()
    assert forked["status"]["status"] == "idle"
    kinds = [kind for kind, _ in await log_of(served, forked["id"])]
    assert kinds[-2:] == ["step.interrupted", "execution.ended"]
    gate.open()
    await served.settle("p")


async def test_a_fork_that_cannot_be_is_refused_api_3(served):
    await served.session(agent="default")
    await served.session("taken", agent="default")
    for body, status, kind in [
        ({"seq": 1}, 422, "cursor-beyond-end"),
        ({"seq": -1}, 422, "invalid-input"),
        ({"id": "taken"}, 409, "session-conflict"),
        ({"id": "evt_x"}, 422, "invalid-id"),
    ]:
        done = await served.client.post("/v1/sessions/s/fork", json=body)
        assert (done.status_code, done.json()["type"]) == (status, kind), body


# -- compaction ------------------------------------------------------------------------------------------------------------


async def test_a_compaction_is_answered_once_its_start_is_durable_cmp_3(served, replies):
    await served.session(agent="default")
    await served.prompt("a long story " * 50, id="p")
    await served.settle("p")
    gate = scripted.Gate()
    replies.append([scripted.Hang(gate), scripted.Text("In short.")])
    async with served.reader() as reader:
        done = await served.client.post("/v1/sessions/s/compact")
        assert done.status_code == 202
        started = [data for kind, data in await log_of(served) if kind == "compaction.started"]
        assert [(one["message_id"], one["reason"]) for one in started] == [(done.json()["message_id"], "manual")]
        again = await served.client.post("/v1/sessions/s/compact")
        assert (again.status_code, again.json()["type"]) == (409, "session-busy")
        gate.open()
        await reader.until("session.execution.ended")


async def test_a_compaction_of_a_running_session_is_a_409_cmp_3(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Hang(gate)])
    await served.session(agent="default")
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    done = await served.client.post("/v1/sessions/s/compact")
    assert (done.status_code, done.json()["type"]) == (409, "session-busy")
    gate.open()
    await served.settle("p")


# -- deletion --------------------------------------------------------------------------------------------------------------

GONE = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/fork"),
    ("POST", "/compact"),
    ("POST", "/prompts"),
    ("GET", "/prompts/p"),
    ("PATCH", "/prompts/p"),
    ("DELETE", "/prompts/p"),
    ("POST", "/prompts/p/retry"),
    ("GET", "/messages"),
    ("GET", "/status"),
    ("GET", "/inbox"),
    ("GET", "/events"),
    ("POST", "/interrupt"),
    ("POST", "/resume"),
    ("POST", "/wait"),
    ("POST", "/approvals/c1"),
]
BODIES = {
    "": {"title": "T"},
    "/prompts": {"text": "hi"},
    "/prompts/p": {"delivery": "queue"},
    "/approvals/c1": {"decision": "approve"},
}


async def test_a_session_deleted_while_it_runs_is_gone_for_everyone_and_never_comes_back(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Half"), scripted.Hang(gate)])
    await served.session(agent="default")
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    async with served.reader() as reader:
        await reader.until("synced")
        assert (await served.client.delete("/v1/sessions/s")).status_code == 204
        assert (await reader.rest())[-1].event == "session.deleted"
    for method, path in GONE:
        body = BODIES.get(path) if method in {"POST", "PATCH"} else None
        done = await served.client.request(method, f"/v1/sessions/s{path}", json=body)
        assert (done.status_code, done.json()["type"]) == (410, "session-gone"), (method, path)
    stream = await served.client.get("/v1/sessions/s/events", headers={"Accept": "text/event-stream"})
    created = await served.client.post("/v1/sessions", json={"id": "s", "agent": "default"})
    assert (stream.status_code, created.status_code) == (410, 410)
    assert (await served.client.get("/v1/sessions")).json() == {"data": []}


async def test_while_a_session_is_being_deleted_nothing_new_is_taken(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Hang(gate)])
    await served.session(agent="default")
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    engine = served.perdure.engine
    engine.coordinator.interrupt = lambda _: None  # an owner elsewhere that takes its time
    async with served.reader(after=1) as reader:
        deleting = asyncio.create_task(served.client.delete("/v1/sessions/s"))
        await reader.until("session.execution.interrupt_requested")
        for method, path in [("POST", "/prompts"), ("POST", "/resume"), ("PATCH", ""), ("POST", "/compact")]:
            done = await served.client.request(method, f"/v1/sessions/s{path}", json=BODIES.get(path))
            assert (done.status_code, done.json()["type"]) == (410, "session-gone"), path
        assert (await deleting).status_code == 204
    gate.open()


async def test_an_unknown_session_cannot_be_changed_forked_compacted_or_deleted(served):
    for method, path in [("PATCH", ""), ("DELETE", ""), ("POST", "/fork"), ("POST", "/compact")]:
        body = None if method == "DELETE" else BODIES.get(path)
        done = await served.client.request(method, f"/v1/sessions/none{path}", json=body)
        assert (done.status_code, done.json()["type"]) == (404, "session-not-found"), path
