"""What the tests of sessions share: engines in this process that hear no bell, die without a word or run as usual."""

import asyncio
import contextlib
import functools
import itertools
import random
import shutil

import pytest

from perdure import Agent, Perdure, config
from perdure.core import events, transcript
from perdure.engine.engine import World
from perdure.models import scripted
from perdure.store import sqlite
from perdure.testing.fake_clock import FakeClock

LEASE_MS = 30_000
SESSION = "ses"


class Node:
    """One engine on the test's file. A `deaf` one records every bell in `bells` and starts no drain by itself."""

    def __init__(self, app: Perdure, clock: FakeClock, *, deaf: bool) -> None:
        self.app, self.clock, self.deaf = app, clock, deaf
        self.bells: list[str] = []
        self.crashed = False

    @property
    def engine(self):
        return self.app.engine

    @property
    def log(self):
        return self.app.engine.log

    async def start(self) -> None:
        await self.app.__aenter__()
        if self.deaf:
            self.engine._sweeping.cancel()  # before its first look
            self.engine.coordinator.has_room = lambda before=0: False
            self.engine.coordinator.wake = self.bells.append
            self.engine._sweep._ring = self.bells.append

    async def sweep(self) -> int:
        return await self.engine._sweep.once()

    async def session(self, session_id=SESSION, **settings):
        return await self.app.sessions.create("main", id=session_id, **settings)

    async def read(self, work):
        return await self.engine.store.read(work)

    async def transact(self, work):
        return await self.log.transact(work)

    async def facts(self, *kinds, session_id=SESSION):
        recorded = await self.log.read(session_id, limit=100_000)
        return [one.data for one in recorded if not kinds or isinstance(one.data, kinds)]

    async def names(self, session_id=SESSION):
        """The log in short: names of facts, and ids where that says more."""
        return [one.data.event_type.removeprefix("session.") for one in await self.log.read(session_id, limit=100_000)]

    async def row(self, message_id):
        return await self.read(lambda tx: tx.inbox.get(message_id))

    async def claim(self, session_id=SESSION):
        return await self.read(lambda tx: tx.claims.of_session(session_id))

    async def info(self, session_id=SESSION):
        return await self.read(lambda tx: tx.sessions.get(session_id))

    async def outcome(self, message_id):
        row = await self.row(message_id)
        return row.outcome

    async def quiet(self) -> None:
        """Wait until no drain runs here."""
        while running := self.engine.coordinator.running():
            await asyncio.wait(running)

    async def crash(self) -> None:
        """Die like a process: nothing is written any more, nobody is told."""
        self.crashed = True
        engine = self.engine
        tasks = [engine._sweeping, *engine.coordinator.running()]
        engine.coordinator._closed = True
        for entry in engine.coordinator._entries.values():
            entry.busy.reason = None  # nobody cleans up
        engine.log.store = _Dead()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        engine._stop_foreign()
        engine.log.close()
        await engine.store.close()

    async def stop(self) -> None:
        if not self.crashed:
            self.crashed = True
            await self.app.__aexit__(None, None, None)


class Unsure:
    """A source of context that has to be asked before every step, and says nothing."""

    name = "unsure"

    async def read(self):
        return None


class _Dead:
    """A store nobody answers for."""

    async def write(self, work, *, committed=None):
        raise asyncio.CancelledError

    read = write


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database with its schema and nothing in it, made once."""
    path = tmp_path_factory.mktemp("empty") / "perdure.db"

    async def make() -> None:
        await (await sqlite.SqliteStore.open(path)).close()

    asyncio.run(make())
    return path


@pytest.fixture
async def nodes(tmp_path, clock, empty_database):
    """A starter of engines on one file; with `deaf=True` one that starts nothing by itself."""
    started: list[Node] = []
    shutil.copy(empty_database, tmp_path / "perdure.db")
    numbers = itertools.count()

    async def start(
        replies=(), *, tools=(), context=(), deaf=False, own_clock=None, agents=None, seam="thread", **settings
    ):
        model = replies if isinstance(replies, scripted.ScriptedModel) else scripted.ScriptedModel(replies)
        world = World(clock=own_clock or clock, entropy=_entropy(next(numbers)), seam=seam)
        chosen = config.Settings(database_url=str(tmp_path / "perdure.db"), lease_seconds=LEASE_MS / 1000, **settings)
        declared = agents
        if declared is None:
            declared = [Agent("main", model=model, tools=list(tools), context=list(context))]
        app = Perdure(declared, settings=chosen, world=world)
        node = Node(app, own_clock or clock, deaf=deaf)
        node.model = model
        await node.start()
        started.append(node)
        return node

    yield start
    for node in reversed(started):
        if not node.crashed:
            await node.engine.coordinator.close(0)
        with contextlib.suppress(Exception):
            await node.stop()


def _entropy(number):
    """Random bytes that are the same in every run, and different for each engine."""
    return random.Random(number).randbytes


@pytest.fixture
def claiming(nodes):
    """A starter of engines whose turns never begin in the commit that takes their claim: something is to be asked first."""
    return functools.partial(nodes, context=[Unsure()])


@pytest.fixture(params=["with the claim", "in the drain"])
def beginning(nodes, claiming, request):
    """A starter of engines whose turns begin with their claim, and one of those whose turns begin after it."""
    return nodes if request.param == "with the claim" else claiming


@pytest.fixture
async def deaf(nodes):
    """One engine that starts nothing by itself, with a session in it."""
    node = await nodes(deaf=True)
    await node.session()
    return node


async def rows_are_the_fold_of_the_log(node, session_id=SESSION):
    folded = transcript.Transcript()
    for one in await node.log.read(session_id, limit=100_000):
        folded = transcript.apply(folded, one)
    assert list(folded.messages) == await node.read(lambda tx: tx.messages.page(session_id, -1, 100_000))


async def executions_are_closed(node, session_id=SESSION):
    """Every start has exactly one end or its recovery; a recovered one at most one end (REC-11)."""
    started = [one.execution_id for one in await node.facts(events.ExecutionStarted, session_id=session_id)]
    ended = [one.execution_id for one in await node.facts(events.ExecutionEnded, session_id=session_id)]
    recovered = [one.execution_id for one in await node.facts(events.StepRecovered, session_id=session_id)]
    assert len(set(started)) == len(started)
    assert len(set(ended)) == len(ended)
    assert set(started) == {*ended, *recovered}


@pytest.fixture
def check():
    """What holds of every session at rest."""

    async def hold(node, session_id=SESSION):
        await rows_are_the_fold_of_the_log(node, session_id)
        await executions_are_closed(node, session_id)
        assert await node.claim(session_id) is None
        running = await node.read(lambda tx: tx.inbox.running(session_id))
        assert running == []

    return hold
