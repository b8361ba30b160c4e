"""Whoever waits for a session that is deleted meanwhile is told so, whoever deletes it (LOG-10, LOG-26)."""

import asyncio
import sys
from contextlib import aclosing

import anyio.lowlevel
import pytest

from perdure import Agent, Perdure, errors
from perdure.core import events
from perdure.models.scripted import ScriptedModel

DELETES = """
import asyncio, sys
from perdure import Perdure

async def main():
    async with Perdure(database=sys.argv[1], idle=True) as app:
        await (await app.sessions.get("s")).delete()

asyncio.run(main())
"""


@pytest.fixture
async def app(tmp_path):
    """An engine that runs nothing: what is asked stays owed."""
    agent = Agent("a", ScriptedModel([]))
    async with asyncio.timeout(60), Perdure([agent], database=str(tmp_path / "perdure.db"), idle=True) as running:
        yield running


@pytest.fixture(params=["here", "in another process"])
def deleted(request, app, tmp_path):
    async def here():
        await (await app.sessions.get("s")).delete()

    async def elsewhere():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", DELETES, str(tmp_path / "perdure.db"))
        assert await process.wait() == 0

    return here if request.param == "here" else elsewhere


async def owed(app):
    session = await app.sessions.create(id="s")
    await session.prompt("hi", id="p")
    return session


async def seqs(session, **how):
    async with aclosing(session.events(**how)) as following:
        return [event.seq async for event in following if isinstance(event, events.Recorded)]


async def test_streams_end_and_waits_say_that_it_is_gone_log_10(app, deleted):
    session = await owed(app)
    streams = [asyncio.create_task(seqs(session, **how)) for how in ({}, {"signals": True}, {"after": 1})]
    waits = [asyncio.create_task(session.wait(message_id)) for message_id in ("p", None)]
    followers = app.engine.log.live._followers
    while len(followers.get("s", ())) < len(streams) + len(waits):
        await anyio.lowlevel.checkpoint()
    await deleted()
    assert [found[:2] for found in await asyncio.gather(*streams[:2])] == [[0, 1]] * 2
    assert 0 not in await streams[2]
    told, owes_nothing = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(told, errors.SessionGone), told
    assert owes_nothing is None or isinstance(owes_nothing, errors.SessionGone), "its interrupt settles what was owed"
    assert followers == {}


@pytest.mark.parametrize("how", [{}, {"after": 1}, {"follow": False}, {"signals": True}], ids=str)
async def test_a_stream_of_one_that_is_deleted_at_that_very_moment_ends_log_10(app, deleted, how, monkeypatch):
    """Between the look whether it is there and the first look at its log."""
    session = await owed(app)
    follow = app.engine.log.follow

    async def late(*args, **more):
        await deleted()
        async with aclosing(follow(*args, **more)) as following:
            async for item in following:
                yield item

    monkeypatch.setattr(app.engine.log, "follow", late)
    assert await seqs(session, **how) == []


@pytest.mark.parametrize("message_id", ["p", None])
async def test_a_wait_for_one_that_is_deleted_at_that_very_moment_says_so_log_10(app, deleted, message_id, monkeypatch):
    session = await owed(app)
    changes = app.engine.log.changes

    async def late(*args, **more):
        await deleted()
        async with aclosing(changes(*args, **more)) as looks:
            async for look in looks:
                yield look

    monkeypatch.setattr(app.engine.log, "changes", late)
    with pytest.raises(errors.SessionGone):
        await session.wait(message_id)
