"""What the tests of the runner share: whole engines under virtual time, which die where a test says so."""

import asyncio

import pytest

from perdure import Agent
from perdure.core import codec, messages, request
from perdure.models.scripted import ScriptedModel
from perdure.store import sqlite
from perdure.testing import invariants
from perdure.testing.simulator import Died, Simulation

SESSION = "ses"


class Rig:
    """One database, one scripted model that outlives every engine, and the lives of those engines."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.policy = None

    def play(self, replies, *, tools=(), agents=None, **agent) -> None:
        """Say what the model answers and which tools there are."""
        self.model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies)
        self.declared = agents or [Agent("main", model=self.model, tools=list(tools), **agent)]
        self.simulation = Simulation(lambda: self.declared, self.directory)

    def live(self, script, **how):
        """Run `script(app, session)` in one life; what it returns. No request of any life is badly paired."""

        async def run(app):
            session = await app.sessions.create(self.declared[0].name, id=SESSION, policy=self.policy)
            return await script(app, session)

        life = self.simulation.live(run, **how)
        assert life.complaints == ()
        assert [problem for one in self.model.requests if (problem := request.check_pairs(one.messages))] == []
        return life.value

    def ask(self, text="Hello", *, id="hello"):
        """A life in which one prompt is asked and settled; its receipt."""

        async def script(app, session):
            await session.prompt(text, id=id)
            return await self.settled(app, session, id)

        return self.live(script)

    async def settled(self, app, session, id="hello"):
        """Wait for a prompt; what holds of a session at rest then holds of this one. Its receipt."""
        receipt = await session.wait(id)
        await self.quiet(app)
        await self.at_rest(app)
        return receipt

    async def quiet(self, app):
        """Until no drain runs."""
        while running := app.engine.coordinator.running():
            await asyncio.wait(running)

    async def at_rest(self, app):
        assert invariants.at_rest(await invariants.left(app.engine.log, SESSION)) == []

    async def until(self, session, *kinds, nth=1):
        """Wait for the first fact of a kind, or a later one."""
        async for event in session.events():
            nth -= isinstance(event.data, kinds)
            if nth == 0:
                return event.data
        return None

    def die(self, *_):
        """Be killed, here and now; for a model or a tool."""
        raise Died

    async def killed(self):
        """Be killed, in the script itself, whose engine must not stop in good order."""
        asyncio.get_running_loop().call_soon(self.die)
        await asyncio.Event().wait()

    @property
    def left(self):
        """What the file holds, read without any engine."""

        async def read():
            store = await sqlite.SqliteStore.open(self.simulation.path, seam="inline")
            found = await store.read(lambda tx: invariants.read(tx, codec.session_registry(), SESSION))
            await store.close()
            return found

        found = _now(read())
        assert invariants.at_any_time(found) == []
        return found

    def facts(self, *kinds):
        return self.left.facts(*kinds)

    def names(self):
        return [one.data.event_type.removeprefix("session.") for one in self.left.log]

    def at(self, *kinds):
        """When facts of a kind were recorded (epoch ms)."""
        return [one.created for one in self.left.log if isinstance(one.data, kinds)]

    @property
    def assistants(self):
        return [one for one in self.left.transcript if isinstance(one, messages.Assistant)]


def _now(coroutine):
    """What a coroutine gives that has nothing to wait for."""
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)
