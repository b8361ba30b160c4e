"""The context epoch: what stands before a conversation, and how a change of it is told (CTX-1, CTX-2, RUN-2)."""

import asyncio

import pytest

from perdure import Agent, FunctionSource, errors, tool
from perdure.core import codec, events, request
from perdure.models.scripted import Call, Gate, Hang, ScriptedModel, Text
from perdure.session import context, promotion

SESSION = "ses"


def hi(_):
    return [Text("Hi")]


class Weather:
    """A source by the name of weather: a value, None, or an error; `reads` counts."""

    name = "weather"

    def __init__(self, value="sunny") -> None:
        self.value, self.reads = value, 0

    async def read(self):
        self.reads += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


DOWN = errors.SourceUnavailable("down")


@pytest.fixture
def weather():
    return Weather()


@pytest.fixture
def start(nodes, weather):
    """Start an engine whose agent has instructions and the weather."""

    async def start(replies=hi, *, more=(), tools=(), **settings):
        model = ScriptedModel(replies)
        agent = Agent("main", model, "Be brief", tools=list(tools), context=[weather, *more])
        node = await nodes(model, agents=[agent], **settings)
        return node, await node.session()

    return start


async def ask(node, session, message_id, text="Hello"):
    await session.prompt(text, id=message_id)
    receipt = await session.wait(message_id)
    await node.quiet()
    return receipt


async def epoch(node):
    return await node.read(lambda tx: tx.context.epoch(SESSION))


# -- the first boundary ------------------------------------------------------------------------------------------------------


async def test_the_first_boundary_freezes_baseline_snapshot_and_seq_in_one_row_ctx_1(start, weather, check):
    node, session = await start()
    await ask(node, session, "one")
    row = await epoch(node)
    assert row.baseline == "Be brief\n\nsunny"
    assert codec.load(row.snapshot, dict) == {"instructions": "Be brief", "weather": "sunny"}
    promoted = next(one.seq for one in await node.log.read(SESSION) if isinstance(one.data, events.PromptPromoted))
    assert row.baseline_seq < promoted
    assert node.model.requests[0].system == row.baseline
    assert weather.reads == 1, "once a boundary"
    await check(node)


async def test_each_source_is_read_once_a_boundary_ctx_1(start, weather):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    node, session = await start(
        lambda asked: [Text("Hi")] if len(asked.messages) > 1 else [Call("look", {}), Call("look", {})], tools=[look]
    )
    await ask(node, session, "one")
    assert (weather.reads, len(node.model.requests)) == (2, 2)


async def test_a_source_that_cannot_be_read_leaves_the_input_pending_with_no_event_and_no_claim_run_2_ctx_1(
    start, weather, check
):
    weather.value = DOWN
    node, session = await start()
    before = len(await node.names())
    await session.prompt("Hello", id="hello")
    await node.quiet()
    assert (await node.names())[before:] == ["prompt.admitted"]
    assert (await node.claim(), await epoch(node)) == (None, None)
    status = await session.status()
    assert (status.status, "weather" in status.reason) == ("blocked", True)
    assert (await node.info()).wake_attempts == 0, "waiting is no crash"
    weather.value = "sunny"
    await node.sweep()
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    assert (await session.status()).status == "idle"
    await check(node)


async def test_a_source_that_never_answers_is_named_and_holds_up_no_prompt_for_ever_ctx_1_run_2(
    start, monkeypatch, check
):
    gate = Gate()
    node, session = await start(more=[FunctionSource("notes", gate.wait)])
    monkeypatch.setattr(context, "PATIENCE_S", 0.001)
    await session.prompt("Hello", id="hello")
    await node.quiet()
    status = await session.status()
    assert (status.status, "notes" in status.reason) == ("blocked", True)
    gate.open()
    await node.sweep()
    assert (await session.wait("hello")).outcome == "succeeded"
    await node.quiet()
    await check(node)


async def test_what_is_blocked_can_be_cancelled_run_2(start, weather):
    weather.value = DOWN
    node, session = await start()
    await session.prompt("Hello", id="hello")
    await node.quiet()
    await session.cancel("hello")
    await node.sweep()
    await node.quiet()
    assert (await session.status()).status == "idle"


async def test_while_a_source_is_read_an_interrupt_ends_the_waiting_without_an_event_run_2(start):
    reading = Gate()

    async def slow():
        await reading.wait()

    node, session = await start(more=[FunctionSource("slow", slow)])
    await session.prompt("Hello", id="hello")
    await reading.arrived()
    assert (await node.claim()).phase == "safe"
    await session.interrupt()
    await node.quiet()
    assert await node.claim() is None
    assert (await node.names())[-1] == "execution.interrupt_requested"
    assert [one.id for one in await session.inbox()] == ["hello"]


# -- later boundaries --------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_read_later_keeps_its_value_and_nothing_is_told_ctx_1(start, weather, check):
    node, session = await start()
    await ask(node, session, "one")
    weather.value = DOWN
    assert (await ask(node, session, "two")).outcome == "succeeded"
    assert not await node.facts(events.ContextUpdated)
    assert codec.load((await epoch(node)).snapshot, dict)["weather"] == "sunny"
    await check(node)


async def test_changes_and_removals_become_one_update_whose_commit_moves_the_snapshot_ctx_1(start, weather, check):
    values = {"city": "Oslo", "extra": "x"}
    more = [FunctionSource(name, lambda name=name: values[name]) for name in values]
    node, session = await start(more=more)
    await ask(node, session, "one")
    first = await epoch(node)
    weather.value, values["city"], values["extra"] = "rain", None, "x"
    await ask(node, session, "two")
    (update,) = await node.facts(events.ContextUpdated)
    assert update.text == "weather is now:\nrain\n\ncity no longer applies."
    second = await epoch(node)
    assert (second.baseline, second.baseline_seq) == (first.baseline, first.baseline_seq), "frozen"
    assert codec.load(second.snapshot, dict) == {"instructions": "Be brief", "weather": "rain", "extra": "x"}
    asked = node.model.requests[1]
    assert asked.system == first.baseline
    assert asked.messages[-2] == request.UserMessage((request.TextContent(update.text),))
    assert asked.messages[-1].content[0].text == "Hello"
    await ask(node, session, "three")
    assert len(await node.facts(events.ContextUpdated)) == 1, "told once"
    await check(node)


async def test_a_source_that_comes_back_with_another_value_is_told_then_ctx_1(start, weather):
    node, session = await start()
    await ask(node, session, "one")
    for value in (DOWN, "fog"):
        weather.value = value
        await ask(node, session, f"when {value}".replace(" ", "-"))
    assert [one.text for one in await node.facts(events.ContextUpdated)] == ["weather is now:\nfog"]


async def test_a_change_in_the_middle_of_a_turn_is_told_before_the_next_step_ctx_1(start, weather):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        weather.value = "rain"
        return "seen"

    node, session = await start(
        lambda asked: [Text("Hi")] if len(asked.messages) > 1 else [Call("look", {})], tools=[look]
    )
    await ask(node, session, "one")
    names = await node.names()
    assert names.index("step.ended") < names.index("context.updated") < names.index("execution.ended")
    assert node.model.requests[1].messages[-1].content[0].text == "weather is now:\nrain"


async def test_another_agents_instructions_are_told_as_a_change_ctx_1(nodes):
    model = ScriptedModel(hi)
    agents = [Agent("main", model, "Be brief"), Agent("other", model, "Be kind")]
    node = await nodes(model, agents=agents)
    session = await node.session()
    await ask(node, session, "one")
    await session.switch_agent("other")
    await ask(node, session, "two")
    assert [one.text for one in await node.facts(events.ContextUpdated)] == ["instructions is now:\nBe kind"]
    assert node.model.requests[1].system == "Be brief"


async def test_an_epoch_outlives_its_engine_ctx_1(start, weather):
    node, session = await start()
    await ask(node, session, "one")
    before = await epoch(node)
    await node.stop()
    weather.value = "rain"
    other, session = await start()
    await ask(other, session, "two")
    assert (await epoch(other)).baseline == before.baseline == other.model.requests[0].system


# -- the fence ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["inserting", "advancing"])
async def test_an_owner_that_lost_its_claim_writes_no_epoch_ctx_2(start, weather, known):
    reading, armed = Gate(), []

    async def slow():
        if armed:
            await reading.wait()
        return "slow"

    node, session = await start(more=[FunctionSource("slow", slow)])
    if known:
        await ask(node, session, "one")
    before = await epoch(node)
    armed.append(1)
    weather.value = "rain"
    await session.prompt("Hello", id="hello")
    await reading.arrived()
    claim = await node.claim()
    await node.transact(lambda unit: unit.tx.claims.expire(claim.id, claim.owner_id))
    node.engine._sweep._ring = lambda _: None
    names = await node.names()
    reading.open()
    await node.quiet()
    assert (await epoch(node), await node.names()) == (before, names)


async def test_a_unit_that_fails_behind_the_epoch_leaves_none_ctx_2(start, monkeypatch):
    node, session = await start(deaf=True)
    await session.prompt("Hello", id="hello")

    def broken(unit, session_id):
        raise RuntimeError("after the epoch, before the promotion")

    monkeypatch.setattr(promotion, "promote_next", broken)
    await node.engine.coordinator.run(SESSION)
    assert await epoch(node) is None
    assert "prompt.promoted" not in await node.names()


async def test_a_dead_owners_epoch_is_taken_over_and_not_made_again_ctx_2(start, weather):
    gate = Gate()
    node, session = await start(lambda _: [Hang(gate), Text("Hi")])
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    before = await epoch(node)
    await node.crash()
    node.clock.advance(31_000)
    weather.value = "rain"
    other, session = await start()
    assert (await session.wait("hello")).outcome == "succeeded"
    after = await epoch(other)
    assert (after.baseline, after.baseline_seq) == (before.baseline, before.baseline_seq)
    assert len(await other.facts(events.ContextUpdated)) == 1


async def test_observing_is_no_commit_and_may_be_repeated_ctx_1(weather):
    seen = await asyncio.gather(*(context.observe([weather]) for _ in range(3)))
    assert seen == [context.Observation({"weather": "sunny"})] * 3
