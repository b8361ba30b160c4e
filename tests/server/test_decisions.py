"""What a person decides over HTTP: calls that wait, turns that lost their owner."""

import asyncio

import pytest

from perdure import Agent, Perdure, Policy, tool
from perdure.models import scripted


@pytest.fixture
def paid():
    return []


@pytest.fixture
def agents(model, paid):
    @tool(effect="write", approval="always")
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    return [Agent("default", model, tools=[pay])]


@pytest.fixture
async def parked(served, replies):
    """A session whose turn waits for one approval."""
    replies.append([scripted.Call("pay", {"cents": 7}, "call/1")])
    await served.session()
    async with served.reader() as reader:
        await served.prompt(id="p")
        await reader.until("session.execution.parked")
    return served


async def decide(served, body, call_id="call%2F1"):
    return await served.client.post(f"/v1/sessions/s/approvals/{call_id}", json=body)


async def test_what_waits_for_a_person_is_listed_with_exactly_what_would_run_apr_2(parked, paid):
    [waiting] = (await parked.client.get("/v1/approvals")).json()["data"]
    assert (waiting["session_id"], waiting["call_id"]) == ("s", "call/1")
    assert (waiting["name"], waiting["input"]) == ("pay", {"cents": 7})
    assert "decision" not in waiting
    assert (await parked.client.get("/v1/sessions/s")).json()["status"]["reason"] == "approval"
    assert paid == []


async def test_an_approved_call_runs_once_and_the_turn_goes_on_apr_2(parked, paid):
    done = await decide(parked, {"decision": "approve", "note": "go"})
    assert done.status_code == 200
    assert (done.json()["decision"], done.json()["note"], done.json()["name"]) == ("approve", "go", "pay")
    await parked.settle("p")
    assert paid == [7]
    assert (await parked.client.get("/v1/approvals")).json() == {"data": []}


async def test_a_denied_call_never_runs_and_the_model_is_told_why_apr_3(parked, paid):
    assert (await decide(parked, {"decision": "deny", "note": "too much"})).status_code == 200
    assert (await parked.settle("p"))["receipt"]["outcome"] == "succeeded"
    page = (await parked.client.get("/v1/sessions/s/messages")).json()["data"]
    [call] = page[1]["parts"]
    assert call["state"]["error"] == {"type": "denied", "message": "This call was denied: too much"}
    assert paid == []


async def test_the_first_decision_wins_apr_2(parked):
    first = await decide(parked, {"decision": "approve"})
    again = await decide(parked, {"decision": "approve"})
    other = await decide(parked, {"decision": "deny"})
    assert again.json() == first.json()
    assert (other.status_code, other.json()["type"]) == (409, "already-decided")
    await parked.settle("p")


async def test_a_decision_that_cannot_be_is_refused(parked):
    assert (await decide(parked, {"decision": "approve"}, "none")).json()["type"] == "approval-not-found"
    for body in [{}, {"decision": "perhaps"}, {"decision": "approve", "by": "me"}]:
        assert (await decide(parked, body)).status_code == 422, body
    [_] = (await parked.client.get("/v1/approvals")).json()["data"]
    busy = await parked.client.post("/v1/sessions/s/compact")
    assert busy.status_code == 409


# -- recoveries ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def lost(settings):
    """A turn whose owner went in the middle of a request, in a session that asks before it goes on."""
    gate = scripted.Gate()
    model = scripted.ScriptedModel([[scripted.Text("Half"), scripted.Hang(gate)]])
    hasty = settings.model_copy(update={"grace_seconds": 0})
    async with Perdure([Agent("default", model)], settings=hasty) as owner:
        session = await owner.sessions.create(id="s", policy=Policy(recovery="ask"))
        await session.prompt("hi", id="p")
        await asyncio.wait_for(gate.arrived(), 5)


@pytest.fixture
async def recovered(lost, served):
    """The execution that waits for a decision."""
    async with served.reader() as reader:
        await reader.until("session.step.recovered")
    [waiting] = (await served.client.get("/v1/recoveries")).json()["data"]
    assert (waiting["session_id"], waiting["phase"], waiting["armed"]) == ("s", "unknown", False)
    assert (await served.client.get("/v1/sessions/s/status")).json()["reason"] == "decision: retry or dismiss"
    return waiting["execution_id"]


async def test_a_dismissed_recovery_ends_its_turn_and_the_session_takes_new_prompts_rec_7(served, recovered):
    assert (await served.client.post(f"/v1/recoveries/{recovered}/dismiss")).status_code == 204
    receipt = (await served.client.get("/v1/sessions/s/prompts/p")).json()
    assert (receipt["state"], receipt["outcome"]) == ("settled", "interrupted")
    assert (await served.client.get("/v1/recoveries")).json() == {"data": []}
    for verb in ("dismiss", "retry"):
        again = await served.client.post(f"/v1/recoveries/{recovered}/{verb}")
        assert (again.status_code, again.json()["type"]) == (409, "lifecycle-conflict")
    await served.prompt(id="p2")
    assert (await served.settle("p2"))["receipt"]["outcome"] == "succeeded"


async def test_a_retried_recovery_goes_on_and_settles_its_prompt_rec_7(served, recovered):
    assert (await served.client.post(f"/v1/recoveries/{recovered}/retry")).status_code == 204
    assert (await served.settle("p"))["receipt"]["outcome"] == "succeeded"


async def test_a_recovery_nobody_knows_is_a_404(served):
    for verb in ("dismiss", "retry"):
        done = await served.client.post(f"/v1/recoveries/exe_none/{verb}")
        assert (done.status_code, done.json()["type"]) == (404, "recovery-not-found")
        done = await served.client.post(f"/v1/recoveries/a%00b/{verb}")
        assert (done.status_code, done.json()["type"]) == (422, "invalid-id")
