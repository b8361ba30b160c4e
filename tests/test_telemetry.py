"""Spans of turns, model calls and tools: what they say, what they never say, and how they outlive a crash."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import Agent, Perdure, Policy, ToolError, config, errors, telemetry, tool
from perdure.core import events, messages
from perdure.models import port, scripted


@pytest.fixture
def spans(monkeypatch):
    """Finished spans; without this fixture nobody listens."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("tests"))
    return exporter.get_finished_spans


@tool(effect="read")
async def look(place: str) -> str:
    """Look."""
    if place == "nowhere":
        raise ToolError("the secret place")
    return "the secret answer"


@pytest.fixture
def engine(tmp_path):
    """A maker of engines on one file, whose agent plays these replies."""

    def make(replies, **settings):
        chosen = config.settings(database_url=str(tmp_path / "perdure.db"), **settings)
        return Perdure([Agent("shop", scripted.ScriptedModel(replies), tools=[look])], settings=chosen)

    return make


async def run(app, session_id="s", prompt_id="p", **settings):
    session = await app.sessions.create(id=session_id, **settings)
    await session.prompt("the secret question", id=prompt_id)
    return await session.wait(prompt_id, timeout=10)


async def quiet(app):
    """A prompt is settled with its commit; the span of its turn ends a moment later, with the drain."""
    while running := app.engine.coordinator.running():
        await asyncio.wait(running)


def by_name(spans):
    return {one.name: one for one in spans()}


async def started(app, session_id="s"):
    found = await app.engine.log.read(session_id)
    return [one.metadata for one in found if isinstance(one.data, events.ExecutionStarted)]


async def test_a_turn_its_model_calls_and_its_tools_are_one_tree(spans, engine):
    tokens = messages.Tokens(input=7, output=3, cache_read=2)
    replies = [
        [scripted.Call("look", {"place": "here"}, "c1")],
        [scripted.Text("Done"), port.Finish("stop", tokens, 12)],
    ]
    async with engine(replies) as app:
        await run(app)
    found = by_name(spans)
    turn, chat, called = (found[name] for name in ("invoke_agent shop", "chat scripted", "execute_tool look"))
    assert [one.name for one in spans()].count("chat scripted") == 2
    assert turn.parent is None
    assert {one.parent.span_id for one in spans() if one is not turn} == {turn.context.span_id}
    assert {one.attributes[telemetry.CONVERSATION] for one in spans()} == {"s"}
    assert turn.attributes[telemetry.AGENT] == "shop"
    assert chat.attributes[telemetry.PROVIDER] == "scripted"
    assert (chat.attributes[telemetry.INPUT_TOKENS], chat.attributes[telemetry.OUTPUT_TOKENS]) == (7, 3)
    assert (chat.attributes[telemetry.FINISH], chat.attributes[telemetry.COST]) == (("stop",), 12)
    assert (called.attributes[telemetry.TOOL], called.attributes[telemetry.CALL]) == ("look", "c1")


async def test_no_span_says_what_was_said(spans, engine):
    replies = [
        [scripted.Call("look", {"place": "here"}), scripted.Call("look", {"place": "nowhere"})],
        [scripted.Text("the secret reply")],
        [scripted.Fail(errors.ModelErrorKind.AUTH, "the secret key")],
    ]
    async with engine(replies) as app:
        await run(app)
        session = await app.sessions.get("s")
        await session.prompt("another secret", id="p2")
        assert (await session.wait("p2", timeout=10)).outcome == "failed"
    told = "".join(one.to_json() for one in spans())
    assert "secret" not in told
    failed = [one.attributes[telemetry.ERROR] for one in spans() if telemetry.ERROR in one.attributes]
    assert sorted(failed) == ["auth", "tool_error"]


@pytest.mark.parametrize("about", [telemetry.chat, telemetry.tool])
def test_a_span_that_an_error_ends_says_which(spans, about):
    with pytest.raises(TimeoutError, match="the secret"), about("s", "a", "b"):
        raise TimeoutError("the secret")
    [span] = spans()
    assert span.attributes[telemetry.ERROR] == "TimeoutError"


async def test_a_turn_that_goes_on_after_its_owner_is_gone_links_to_the_dead_ones_span(spans, engine):
    gate = scripted.Gate()
    async with engine([[scripted.Text("Half"), scripted.Hang(gate)]], grace_seconds=0) as app:
        session = await app.sessions.create(id="s", policy=Policy(recovery="auto"))
        await session.prompt("hi", id="p")
        await asyncio.wait_for(gate.arrived(), 5)
        [metadata] = await started(app)
    [dead] = [one for one in spans() if one.name == "invoke_agent shop"]
    assert metadata[telemetry.TRACEPARENT].split("-")[1:3] == [
        f"{dead.context.trace_id:032x}",
        f"{dead.context.span_id:016x}",
    ]
    async with engine([[scripted.Text("Whole")]]) as app:
        session = await app.sessions.get("s")
        assert (await session.wait("p", timeout=10)).outcome == "succeeded"
    following = [one for one in spans() if one.name == "invoke_agent shop" and one is not dead]
    [link] = following[-1].links
    assert (link.context.trace_id, link.context.span_id) == (dead.context.trace_id, dead.context.span_id)
    assert following[-1].context.trace_id != dead.context.trace_id


async def test_where_nobody_listens_nothing_is_written_down(engine):
    async with engine([[scripted.Text("Hi")]]) as app:
        await run(app)
        assert await started(app) == [None]
    assert telemetry.turn("s") is telemetry.chat("s", "own", "m") is telemetry.tool("s", "look", "c"), "no span is made"
    assert telemetry.ids() == {}


async def test_spans_are_recorded_from_the_moment_in_which_an_sdk_is_installed(monkeypatch, engine):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", trace.get_tracer("tests"))
    replies = [[scripted.Text("Hi")], [scripted.Call("look", {"place": "here"})], [scripted.Text("Yes")]]
    async with engine(replies) as app:
        await run(app)
        await quiet(app)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # as set_tracer_provider, which does so once for good
        await run(app, "t", "q")
        await quiet(app)
        assert await started(app) == [None]
        assert await started(app, "t") != [None]
    assert sorted(one.name for one in exporter.get_finished_spans()) == [
        "chat scripted",
        "chat scripted",
        "execute_tool look",
        "invoke_agent shop",
    ]


async def test_a_drain_that_finds_nothing_to_do_leaves_no_span(spans, engine):
    async with engine([[scripted.Text("Hi")]]) as app:
        await run(app)
        await quiet(app)
        count = len(spans())
        session = await app.sessions.get("s")
        await session.resume()
        await session.wait(timeout=10)
        await quiet(app)
        assert len(spans()) == count


def test_a_traceparent_that_is_none_links_to_nothing(spans):
    with telemetry.turn("s") as span:
        span.open_turn("shop", "own:m", "exe_1")
        span.follow("no traceparent")
        span.follow(None)
        ids = telemetry.ids()
    [turn] = spans()
    assert [one.context.is_valid for one in turn.links] in ([], [False])
    assert ids == {"trace_id": f"{turn.context.trace_id:032x}", "span_id": f"{turn.context.span_id:016x}"}
