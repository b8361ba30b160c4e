"""An interrupt at any instant of a turn: no call starts once it is acknowledged, and the next prompt runs as ever (EX-8)."""

import asyncio

import pytest

from perdure import tool
from perdure.core import events, messages
from perdure.models.scripted import Call, Delay, Text


async def stopped(rig, app, session, acknowledged):
    """Interrupt, see that the next prompt runs, and tell what became of the first."""
    await session.interrupt()
    acknowledged.append("started too late")
    await session.prompt("Something else", id="else")
    assert (await session.wait("else")).outcome == "succeeded"
    return await rig.settled(app, session, "pay")


@pytest.mark.parametrize("disk_ms", [0, 3], ids=["a quick disk", "a slow disk"])
@pytest.mark.parametrize("after_ms", range(51))
def test_after_the_acknowledgement_no_call_starts_and_the_next_prompt_runs_ex_8_run_3(rig, after_ms, disk_ms):
    acknowledged, late = [], []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        late.extend(acknowledged)
        await asyncio.sleep(0.005)
        return "paid"

    def reply(asked):
        if len(acknowledged):
            return [Text("Hi")]
        return [Delay(0.005), Call("pay", {}, "c1"), Delay(0.01), Call("pay", {}, "c2")]

    rig.play(reply, tools=[pay])
    rig.simulation.disk_ms = disk_ms

    async def script(app, session):
        await session.prompt("Pay", id="pay")
        await app.engine.world.clock.sleep_ms(after_ms)
        return await stopped(rig, app, session, acknowledged)

    assert rig.live(script).outcome in {"interrupted", "succeeded"}
    assert late == []
    called = {one.call_id for one in rig.facts(events.ToolCalled)}
    parts = [part for one in rig.assistants for part in one.parts if isinstance(part, messages.ToolPart)]
    assert {part.call_id for part in parts if part.time.ran} == called
    assert all(isinstance(part.state, messages.Completed | messages.Errored) for part in parts)


@pytest.mark.parametrize("after_ms", range(20))
def test_after_the_acknowledgement_no_approved_call_starts_either_ex_8_apr_2(rig, after_ms):
    acknowledged, late = [], []

    @tool(effect="write", approval="always")
    async def pay() -> str:
        """Pay."""
        late.extend(acknowledged)
        return "paid"

    rig.play(lambda asked: [Text("Hi")] if acknowledged else [Call("pay", {}, "c1")], tools=[pay])
    rig.simulation.disk_ms = 3

    async def script(app, session):
        await session.prompt("Pay", id="pay")
        await rig.until(session, events.ExecutionParked)
        await rig.quiet(app)
        await session.decide("c1", "approve")
        await app.engine.world.clock.sleep_ms(after_ms)
        return await stopped(rig, app, session, acknowledged)

    assert rig.live(script).outcome == "interrupted"
    assert late == []
