"""The server in numbers: the right ones, for next to nothing."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure import errors
from perdure.core import events, messages
from perdure.models import port, scripted
from perdure.server import metrics
from perdure.store.meter import Meter


async def numbers(served):
    """Every sample by name and labels."""
    answer = await served.client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, metrics.MEDIA_TYPE)
    return {
        (one.name, *sorted(one.labels.values())): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }


async def test_metrics_ask_for_the_token_sec_1(served):
    answer = await served.client.get("/metrics", headers={"Authorization": ""})
    assert (answer.status_code, answer.json()["type"]) == (401, "unauthorized")


async def test_sessions_are_counted_by_status_and_drains_and_streams_while_they_last(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Hang(gate)])
    for name in ("s", "idle", "waiting"):
        await served.session(name)
    await served.prompt(session_id="waiting", resume=False)
    await served.prompt(id="p")
    await asyncio.wait_for(gate.arrived(), 5)
    async with served.reader() as one, served.reader(None) as two:
        await one.until("synced")
        await two.until("synced")
        found = await numbers(served)
    statuses = {name: found["perdure_sessions", name] for name in ("running", "waiting", "idle", "held", "blocked")}
    assert statuses == {"running": 1, "waiting": 1, "idle": 1, "held": 0, "blocked": 0}
    assert found["perdure_drains_active",] == 1
    assert (found["perdure_stream_readers", "session"], found["perdure_stream_readers", "all"]) == (1, 1)
    gate.open()
    await served.settle("p")


async def test_tokens_cost_steps_and_prompts_add_up_by_model_and_outcome(served, replies):
    replies += [
        [scripted.Text("One"), port.Finish("stop", messages.Tokens(input=10, output=3, cache_read=2), 2_500_000)],
        [scripted.Text("Two"), port.Finish("stop", messages.Tokens(input=5), 1)],
        [scripted.Fail(errors.ModelErrorKind.AUTH)],
    ]
    await served.session()
    for name in ("p1", "p2", "p3"):
        await served.prompt(id=name)
        await served.settle(name)
    await served.prompt(id="p4", resume=False)
    await served.client.delete("/v1/sessions/s/prompts/p4")
    found, model = await numbers(served), "scripted:scripted"
    assert found["perdure_tokens_total", "input", model] == 15
    assert found["perdure_tokens_total", "output", model] == 3
    assert found["perdure_cost_dollars_total", model] == pytest.approx(2.500001)
    assert (found["perdure_steps_total", "ended", model], found["perdure_steps_total", "failed", model]) == (2, 1)
    outcomes = {name: found["perdure_prompts_settled_total", name] for name in ("succeeded", "failed", "cancelled")}
    assert outcomes == {"succeeded": 2, "failed": 1, "cancelled": 1}


async def test_commits_are_timed_and_counted(served):
    await served.session()
    before = await numbers(served)
    for number in range(3):
        await served.session(f"s{number}")
    after = await numbers(served)
    count = ("perdure_commit_seconds_count",)
    assert after[count] - before[count] == 3
    assert after["perdure_commit_seconds_bucket", "+Inf"] == after[count]
    assert after["perdure_commit_units_total",] - before["perdure_commit_units_total",] == 3
    assert after["perdure_commit_seconds_sum",] > before["perdure_commit_seconds_sum",]
    assert after["perdure_writer_queue",] == 0


def test_a_commit_falls_into_the_bucket_it_fits():
    meter = Meter()
    for seconds in (0.0005, 0.0006, 99):
        meter.committed(seconds, 2)
    assert (meter.counts[0], meter.counts[1], meter.counts[-1], meter.units) == (1, 1, 1, 6)


def test_what_callers_name_makes_no_endless_series():
    counts = metrics.Counts()

    def tell(fact):
        counts.heard([events.Recorded("evt_1", "s", 0, 0, fact)])

    for number in range(metrics.MODELS + 50):
        about = {"session_id": f"s{number}", "assistant_message_id": "m"}
        tell(events.StepStarted(agent="a", model=f"own:{number}", **about))
        tell(events.StepEnded(finish="stop", tokens=messages.Tokens(input=1), cost=1, **about))
    assert len(counts.cost) == metrics.MODELS + 1
    assert counts.cost[metrics.OTHER] == 50
    assert sum(counts.tokens.values()) == metrics.MODELS + 50


def test_what_is_known_of_sessions_stays_within_its_bound(monkeypatch):
    monkeypatch.setattr(metrics, "SESSIONS", 3)
    counts = metrics.Counts()
    for number in range(9):
        fact = events.StepStarted(session_id=f"s{number}", assistant_message_id="m", agent="a", model="own:m")
        counts.heard([events.Recorded("evt_1", "s", 0, 0, fact)])
    assert list(counts._speaking) == ["s6", "s7", "s8"]


async def quiet(engine):
    """Wait until no drain runs."""
    while running := engine.coordinator.running():
        await asyncio.wait(running)


async def test_a_claim_that_is_lost_is_counted_once(served, replies):
    gate = scripted.Gate()
    replies.append([scripted.Text("Half"), scripted.Hang(gate), scripted.Text("more")])
    await served.session()
    async with served.reader() as reader:
        await served.prompt(id="p")
        await asyncio.wait_for(gate.arrived(), 5)
        engine = served.perdure.engine
        execution_id = engine.claims.executing("s")
        await engine.store.write(lambda tx: tx.claims.expire(execution_id, engine.owner_id))
        gate.open()
        await quiet(engine)
        engine.sweep_soon()
        await reader.until("session.step.recovered")
    found = await numbers(served)
    assert found["perdure_claims_lost_total",] == 1
    assert found["perdure_recoveries_total", "unknown"] == 1
