"""One row that cannot be decoded hides no other, on any list, and its session can be deleted (MSG-8)."""

import apsw
import pytest

from perdure import Agent, errors, tool
from perdure.client import Client
from perdure.models import scripted

COLUMNS = ["policy", "metadata", "turn_usage", "forked_from"]


def client_of(served):
    return Client(served.url, token=served.client.headers["Authorization"].removeprefix("Bearer "))


def damage(served, *statements):
    connection = apsw.Connection(str(served.perdure.engine.settings.database_path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@tool(approval="always")
async def pay(cents: int) -> str:
    """Pay."""
    return "paid"


@pytest.fixture
def agents(model):
    return [Agent("default", model, tools=[pay])]


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_damaged_session_is_named_in_the_list_and_hides_no_other_msg_8(served, column):
    for session_id in ("s1", "s2", "s3"):
        await served.session(session_id)
    damage(served, f"UPDATE session SET {column} = '{{broken' WHERE id = 's2'")
    listed = (await served.client.get("/v1/sessions")).json()
    assert [one["id"] for one in listed["data"]] == ["s3", "s1"]
    assert [one["id"] for one in listed["damaged"]] == ["s2"]
    assert "s2 cannot be decoded" in listed["damaged"][0]["detail"]
    assert "rebuild" in listed["damaged"][0]["remedy"]
    pages = [(await served.client.get("/v1/sessions", params={"limit": 1})).json()]
    while "next" in pages[-1]:
        asked = {"limit": 1, "cursor": pages[-1]["next"]}
        pages.append((await served.client.get("/v1/sessions", params=asked)).json())
    assert [[one["id"] for one in page["data"]] for page in pages] == [["s3"], [], ["s1"]]
    blocked = (await served.client.get("/v1/sessions", params={"status": "blocked"})).json()
    assert [one["id"] for one in blocked["damaged"]] == ["s2"]
    assert "damaged" not in (await served.client.get("/v1/sessions", params={"status": "idle"})).json()


async def test_a_damaged_session_says_so_itself_and_counts_as_blocked_msg_8(served):
    await served.session("s1")
    await served.session("s2")
    await served.prompt("later", "s2", resume=False)
    damage(served, "UPDATE session SET policy = 'x' WHERE id = 's2'")
    read = await served.client.get("/v1/sessions/s2")
    assert (read.status_code, read.json()["type"]) == (500, "session-undecodable")
    assert read.json()["session_id"] == "s2"
    status = (await served.client.get("/v1/sessions/s2/status")).json()
    assert (status["status"], status["cause"]) == ("blocked", "damaged")
    assert 'perdure_sessions{status="blocked"} 1.0' in (await served.client.get("/metrics")).text
    refused = await served.client.post("/v1/sessions/s2/prompts", json={"text": "hi"})
    assert refused.json()["type"] == "session-undecodable"
    done = await served.prompt("hi", "s1")
    await served.settle(done["id"], "s1")


async def test_client_and_engine_name_a_damaged_session_alike_msg_8(served):
    await served.session("s1")
    await served.session("s2")
    damage(served, "UPDATE session SET metadata = '[]' WHERE id = 's2'")
    embedded = await served.perdure.sessions.list()
    async with client_of(served) as client:
        asked = await client.sessions.list()
        named = await client.sessions.get("s2")
        with pytest.raises(errors.SessionUndecodable) as caught:
            await named.info()
        assert caught.value.session_id == "s2"
    for page in (embedded, asked):
        assert [one.id for one in page.data] == ["s1"]
        assert [one.id for one in page.damaged] == ["s2"]
    assert embedded.damaged[0].why == asked.damaged[0].why


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE session SET policy = 'x' WHERE id = 's'",
        "UPDATE session_input SET usage = 'x' WHERE id = 'p'",
        "UPDATE session_message SET data = 'x' WHERE type = 'assistant'",
    ],
)
async def test_a_session_with_damaged_rows_can_be_deleted_while_a_turn_waits_msg_8(served, replies, statement):
    replies.append([scripted.Call("pay", {"cents": 1}, "c")])
    await served.session("s")
    await served.prompt("pay", id="p")
    async with served.reader() as reader:
        await reader.until("session.execution.parked")
    damage(served, statement)
    listed = (await served.client.get("/v1/sessions")).json()
    assert [one["id"] for one in [*listed["data"], *listed.get("damaged", [])]] == ["s"]
    assert (await served.client.delete("/v1/sessions/s")).status_code == 204
    assert (await served.client.get("/v1/sessions/s")).status_code == 410
    assert (await served.client.get("/v1/sessions")).json() == {"data": []}


async def test_a_call_that_cannot_be_read_hides_no_other_that_waits_msg_8(served, replies):
    for session_id in ("s1", "s2"):
        replies.append([scripted.Call("pay", {"cents": 1}, f"call_{session_id}")])
        await served.session(session_id)
        await served.prompt("pay", session_id)
        async with served.reader(session_id) as reader:
            await reader.until("session.execution.parked")
    damage(served, "UPDATE session_part SET data = 'x' WHERE part_id = 'call_s1'")
    first, second = (await served.client.get("/v1/approvals")).json()["data"]
    assert (first["session_id"], "name" in first, "input" in first) == ("s1", False, False)
    assert (second["session_id"], second["input"]) == ("s2", {"cents": 1})


async def test_an_event_that_cannot_be_read_is_named_and_what_stands_around_it_is_given_msg_8(served):
    for session_id in ("s1", "s2", "s3"):
        await served.session(session_id)
    damage(
        served,
        "DROP TRIGGER event_is_append_only_update",
        "UPDATE event SET data = 'x' WHERE aggregate = 2 AND seq = 0",
    )
    before = (await served.client.get("/v1/events")).json()
    assert [one["data"]["session_id"] for one in before["data"]] == ["s1"]
    refused = await served.client.get("/v1/events", params={"after": before["position"]})
    told = refused.json()
    assert (refused.status_code, told["type"]) == (500, "event-undecodable")
    assert (told["session_id"], told["seq"]) == ("s2", 0)
    behind = (await served.client.get("/v1/events", params={"after": told["position"]})).json()
    assert [one["data"]["session_id"] for one in behind["data"]] == ["s3"]
    async with client_of(served) as client:
        with pytest.raises(errors.EventUndecodable) as caught:
            [one async for one in client.events(follow=False)]
        rest = [one async for one in client.events(after=caught.value.position, follow=False)]
    assert [one.aggregate_id for one in rest] == ["s3"]
