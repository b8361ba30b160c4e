"""A database with a session in every state a caller may meet, made once, and engines on copies of it that run nothing.

Whatever is refused has to leave the whole of it as it was: `dump` is every row of every table.
"""

import asyncio
import contextlib
import logging
import random
import shutil
import sys
from pathlib import Path

import apsw
import pytest

from perdure import Agent, Perdure, config, tool
from perdure.core import events, request
from perdure.engine.engine import World
from perdure.errors import ModelErrorKind
from perdure.models import scripted
from perdure.session import deletion
from perdure.testing.fake_clock import FakeClock

sys.path.insert(0, str(Path(__file__).parent))  # these tests share a module of their own, and tests are no package

LEASE_MS = 30_000
ASK = events.Policy(recovery="ask")


def said(asked):
    """What the newest user of a request said."""
    users = [one for one in asked.messages if isinstance(one, request.UserMessage)]
    return users[-1].content[-1].text


def agents(gate):
    @tool(effect="write", approval="always")
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def reply(asked):
        match said(asked):
            case "hang":
                return [scripted.Hang(gate)]
            case "fail":
                return [scripted.Fail(ModelErrorKind.AUTH)]
            case "pay":
                return [scripted.Call("pay", {"cents": n}, f"c{n}") for n in (1, 2)]
            case _:
                return [scripted.Text("Fine.")]

    return [Agent("main", scripted.ScriptedModel(reply), tools=[pay]), Agent("other", scripted.ScriptedModel([]))]


class Gate(scripted.Gate):
    """One that counts who waits."""

    def __init__(self):
        super().__init__()
        self.waiting = asyncio.Semaphore(0)

    async def wait(self):
        self.waiting.release()
        await super().wait()


def engine_on(path, clock, *, gate=None, idle=False, **settings):
    chosen = config.settings(database_url=str(path), lease_seconds=LEASE_MS / 1000, grace_seconds=0, **settings)
    own = {"own:m": scripted.ScriptedModel([], provider="own", name="m")}
    world = World(clock=clock, entropy=random.Random(str(path)).randbytes)
    return Perdure(agents(gate or scripted.Gate()), settings=chosen, models=own, world=world, idle=idle)


def taken(source, target):
    """The file as it lies there, with its write-ahead log."""
    for end in ("", "-wal"):
        if Path(f"{source}{end}").exists():
            shutil.copyfile(f"{source}{end}", f"{target}{end}")


async def fill(place):
    """Every state: two lives, of which the first dies in the middle of two turns and the second in two more."""
    clock, gate = FakeClock(), Gate()
    first, second, whole = place / "first.db", place / "second.db", place / "whole.db"
    async with engine_on(first, clock, gate=gate) as app:
        for name in ("asking", "dismissed"):
            session = await app.sessions.create("main", id=name, policy=ASK)
            await session.prompt("hang", id=f"{name}-1")
            await gate.waiting.acquire()
        taken(first, second)
    clock.advance(2 * LEASE_MS)
    async with engine_on(second, clock, gate=gate) as app:
        await app.engine._sweep.once()
        lost = {one.session_id: one.execution_id for one in await app.recoveries.list()}
        await app.recoveries.dismiss(lost["dismissed"])
        await settle(app, gate)
        taken(second, whole)
        claims = await app.engine.store.read(lambda tx: {one.session_id: one.id for one in tx.claims.all()})
    return whole, clock, {**lost, **claims}


async def settle(app, gate):
    async def make(name, *prompts, wait=True, **settings):
        session = await app.sessions.create("main", id=name, **settings)
        for number, text in enumerate(prompts, 1):
            await session.prompt(text, id=f"{name}-{number}")
            if wait:
                await session.wait(f"{name}-{number}")
        return session

    await make("idle", "hi", "fail", title="Idle", metadata={"k": 1})
    waiting = await make("waiting")
    await waiting.prompt("hi", id="pending", resume=False)
    await waiting.prompt("hi", id="queued", delivery="queue", resume=False)
    await waiting.prompt("hi", id="cancelled", resume=False)
    await waiting.cancel("cancelled")
    await (await make("archived", "hi")).update(events.Changes(archived=True))
    await (await make("gone", "hi")).delete()
    parked = await make("parked", "pay", wait=False)
    async with contextlib.aclosing(parked.events()) as facts:
        async for event in facts:
            if isinstance(event.data, events.ExecutionParked):
                break
    await parked.decide("c1", "approve")
    for name in ("running", "failing"):
        await make(name, "hang", wait=False)
        await gate.waiting.acquire()
    await make("held", "hi")
    await make("deleting", "hi")
    running = {one for one in app.engine.coordinator.running() if not one.done()}
    while len(running) > 2:  # the two that hang
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    def rest(unit):
        unit.tx.sessions.set_held("held", held=True)
        unit.tx.claims.recovery_failed(unit.tx.claims.of_session("failing").id, "no", unit.now + LEASE_MS)
        deletion.request(unit, "deleting")

    await app.engine.log.transact(rest)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """The database, its clock, and the executions that lost or have an owner, by session."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(fill(tmp_path_factory.mktemp("refusals")))
    finally:
        logging.disable(before)


@pytest.fixture
async def app(filled, tmp_path):
    """An engine on a copy of its own that runs nothing by itself."""
    whole, clock, executions = filled
    path = tmp_path / "perdure.db"
    taken(whole, path)
    async with engine_on(path, clock, idle=True, max_body_mib=1) as opened:
        opened.executions, opened.path = executions, path
        yield opened


@pytest.fixture
def dump():
    """Every row of every table, the counters of the commit order included."""

    def rows(app):
        with contextlib.closing(apsw.Connection(str(app.path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            return {name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in sorted(names)}

    return rows
