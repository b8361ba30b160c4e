"""What the server says of itself: a whole document, and a stranger who tries everything in it and finds nothing."""

import asyncio
import os
import sys

import jsonschema_rs
import pytest

from perdure.engine.perdure import Session
from perdure.models import scripted
from perdure.server import app

SECONDS = 14

# Which agents, models, ids and cursors there are is not in the document, and sessions come and go while it tries.
EXPECTED = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "404", "409", "410", "422"]

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "404", "405", "409", "410", "415", "422"]
"""


@pytest.fixture
async def told(served):
    return (await served.client.get("/openapi.json")).json()


async def test_the_document_describes_every_route_and_its_problems(told):
    assert told["openapi"].startswith("3.1")
    routes = [route for module in app.ROUTES for route in module.router.routes]
    described = {(path, verb) for path, verbs in told["paths"].items() for verb in verbs}
    assert described == {(route.path_format, verb.lower()) for route in routes for verb in route.methods}
    for path, verbs in told["paths"].items():
        for verb, operation in verbs.items():
            statuses = set(operation["responses"])
            assert operation["description"], (path, verb)
            assert path in {"/health", "/v1/login"} or {"401", "403", "500", "507"} <= statuses, (path, verb)
            assert ("parameters" in operation) <= ("422" in statuses), (path, verb)
            assert ("{session_id}" in path) <= ({"404", "410"} <= statuses), (path, verb)
            assert ("requestBody" in operation) <= ({"400", "413"} <= statuses), (path, verb)
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    problem = {"schema": {"$ref": f"#/components/schemas/Problem{status}"}}
                    assert answer["content"] == {"application/problem+json": problem}, (path, verb, status)
    assert told["security"] == [{"bearer": []}, {"cookie": []}]
    assert told["paths"]["/health"]["get"]["security"] == told["paths"]["/v1/login"]["post"]["security"] == []
    names = [operation["operationId"] for verbs in told["paths"].values() for operation in verbs.values()]
    assert len(names) == len(set(names))


async def test_every_reference_in_the_document_leads_somewhere(told):
    def references(value):
        if isinstance(value, dict):
            yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    known = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert set(references(told)) <= known


def judge(told, name):
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": told["components"]}
    )


async def test_every_event_of_a_turn_is_what_the_document_says_of_its_type(served, told, replies):
    replies += [[scripted.Reasoning("hm"), scripted.Text("a b", chunks=2), scripted.Call("none", {"a": 1})]]
    fact, signal, any_event = (judge(told, name) for name in ("Fact", "Signal", "EventView"))
    await served.session(title="T", metadata={"a": None})
    async with served.reader() as reader, served.reader(None) as feed:
        await served.prompt(id="p")
        found = await reader.until("session.execution.ended")
        found += await feed.until("session.execution.ended")
    for frame in found:
        if frame.event.startswith("session."):
            any_event.validate(frame.data)
            (fact if frame.id else signal).validate(frame.data)
    assert {True, False} == {frame.id is None for frame in found if frame.event.startswith("session.")}
    for name, event in [("Hello", "hello"), ("Synced", "synced")]:
        for frame in found[: found.index(next(one for one in found if one.event == "session.execution.ended"))]:
            if frame.event == event:
                judge(told, name).validate(frame.data)


async def test_what_a_stream_gives_is_told_of_each_stream(told):
    schemas = told["components"]["schemas"]
    for path, name in [("/v1/events", "FeedItem"), ("/v1/sessions/{session_id}/events", "StreamItem")]:
        media = told["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]
        assert media["x-itemSchema"] == {"$ref": f"#/components/schemas/{name}"}
        kinds = [one["properties"]["event"].get("const", "session.*") for one in schemas[name]["anyOf"]]
        assert {"hello", "synced", "problem", "session.*"} == set(kinds)


@pytest.mark.slow
async def test_a_stranger_who_tries_everything_finds_nothing(served, monkeypatch, tmp_path):
    patient = Session.wait

    async def hasty(self, message_id=None, *, timeout=None):
        return await patient(self, message_id, timeout=0 if timeout is None else min(timeout, 0.1))

    monkeypatch.setattr(Session, "wait", hasty)
    await served.session("known")
    (tmp_path / "settings.toml").write_text(EXPECTED)
    command = [
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(tmp_path / "settings.toml"),
        "run",
        f"{served.url}/openapi.json",
        "--no-color",
        "--seed",
        "7",
    ]
    command += ["--header", "Authorization: Bearer a-token-of-the-tests", "--max-examples", "8"]
    command += ["--max-time", str(SECONDS), "--request-timeout", "10", "--suppress-health-check", "all"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "150"},
    )
    wrote, _ = await process.communicate()
    assert process.returncode == 0, wrote.decode()
