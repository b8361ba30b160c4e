"""A reader whose server comes back with another database is told so, and is never given a mixture of two histories (API-5)."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from perdure import Agent, Perdure, config
from perdure.client import Client, HistoryReplaced
from perdure.models import scripted
from perdure.store import checkup


def engine(path: Path) -> Perdure:
    model = scripted.ScriptedModel(lambda _: [scripted.Text("Fine.")])
    return Perdure([Agent("default", model)], settings=config.settings(database_url=str(path), grace_seconds=0.2))


async def ask(app, *names, session_id="s"):
    """Prompts one after another, each settled."""
    session = await app.sessions.get(session_id)
    for name in names:
        await session.wait((await session.prompt(name, id=name)).id)


def restore(copy, path):
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.write_bytes(copy.read_bytes())


class Reading:
    """A reader that goes on in the background."""

    def __init__(self, events) -> None:
        self.seen, self._some = [], asyncio.Event()
        self.task = asyncio.create_task(self._read(events))

    async def _read(self, events):
        async with contextlib.aclosing(events) as following:
            async for event in following:
                self.seen.append(event)
                self._some.set()

    async def until(self, count):
        while len(self.seen) < count:
            self._some.clear()
            await self._some.wait()


@pytest.fixture(params=["one session", "all sessions"])
def events_of(request):
    async def events(client):
        if request.param == "all sessions":
            return client.events()
        return (await client.sessions.get("s")).events()

    return events


@pytest.fixture
async def read(tmp_path, serve, token, events_of):
    """A reader that has the events of p1 and p2, whose server is gone; the database, and copies of it from before p2 (`early`)
    and from after it (`late`).
    """
    path = tmp_path / "perdure.db"
    app = engine(path)
    async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
        async with serve(app) as url:
            client = await stack.enter_async_context(Client(url, token=token))
            await client.sessions.create("default", id="s")
            await ask(app, "p1")
            checkup.backup(path, tmp_path / "early")
            await ask(app, "p2")
            checkup.backup(path, tmp_path / "late")
            reading = Reading(await events_of(client))
            await reading.until((await app.engine.log.last_seq("s")) + 1)
        yield reading, path, int(url.rpartition(":")[2])
        reading.task.cancel()
        await asyncio.gather(reading.task, return_exceptions=True)


@pytest.mark.parametrize("lived_on", [(), ("other",), ("other", "another", "third")])
async def test_a_reader_of_a_restored_database_is_told_however_far_that_has_come_api_5(read, serve, tmp_path, lived_on):
    reading, path, port = read
    before = [*reading.seen]
    restore(tmp_path / "early", path)
    app = engine(path)
    async with app:
        await ask(app, *lived_on)
    async with serve(engine(path), port):
        with pytest.raises(HistoryReplaced, match="is another than the one read so far"):
            await reading.task
    assert reading.seen == before


async def test_a_reader_goes_on_where_the_restored_database_holds_all_it_has_api_5(read, serve, tmp_path):
    reading, path, port = read
    count = len(reading.seen)
    restore(tmp_path / "late", path)
    app = engine(path)
    async with serve(app, port):
        await ask(app, "p3")
        whole = (await app.engine.log.last_seq("s")) + 1
        await reading.until(whole)
    assert [one.seq for one in reading.seen] == list(range(whole))
    assert whole > count
