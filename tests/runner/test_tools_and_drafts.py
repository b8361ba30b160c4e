"""A fact is written once, also where a draft takes it along while its step ends (PUB-3, LOG-1)."""

import asyncio
import threading
from collections import Counter

from perdure import Agent, Perdure
from perdure.engine.engine import World
from perdure.models import scripted


async def test_pub_3_a_step_that_ends_while_a_draft_is_being_committed_repeats_no_fact(tmp_path):
    armed, reached, release = threading.Event(), threading.Event(), threading.Event()

    def hold_the_draft(where):
        if where == "before_commit" and armed.is_set():
            armed.clear()
            reached.set()
            release.wait(20)

    gate = scripted.Gate()
    model = scripted.ScriptedModel([[scripted.Text("one "), scripted.Hang(gate), scripted.Text("two")]])
    app = Perdure([Agent("a", model)], database=str(tmp_path / "db"), world=World(probe=hold_the_draft))
    async with asyncio.timeout(30), app:
        session = await app.sessions.create()
        receipt = await session.prompt("go")
        await gate.arrived()
        armed.set()
        await asyncio.to_thread(reached.wait, 20)
        gate.open()
        for _ in range(100):  # by now the stream has ended
            await asyncio.sleep(0)
        release.set()
        await session.wait(receipt.id)
        written = Counter([type(event.data).__name__ async for event in session.events(follow=False)])
        assert set(written.values()) == {1}
