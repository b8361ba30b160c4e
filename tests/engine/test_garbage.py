"""What a turn leaves to the garbage collector."""

import asyncio
import gc

from perdure import Agent, Perdure, tool
from perdure.models.scripted import Call, ScriptedModel, Text


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def answer(asked):
    called = asked.messages[-1].__class__.__name__ == "ResultMessage"
    return [Text("Done")] if called else [Text("Let me see"), Call("look", {})]


async def test_a_turn_leaves_nothing_that_goes_round_in_a_circle(tmp_path):
    """What does waits for the garbage collector, and a server has fifty turns' worth of it to go through."""
    async with Perdure([Agent("a", ScriptedModel(answer), tools=[look])], database=str(tmp_path / "db")) as app:
        session = await app.sessions.create(id="s")

        async def turn():
            assert (await session.wait((await session.prompt("Look")).id, timeout=20)).outcome == "succeeded"
            while running := app.engine.coordinator.running():
                await asyncio.wait(running)

        await turn()
        gc.collect()
        gc.disable()
        try:
            await turn()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("perdure.")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left == []
