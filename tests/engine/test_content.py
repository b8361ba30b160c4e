"""Bytes of prompts and of long tool results: kept as long as a session refers to them, and no longer."""

import io

import pytest

from perdure import Agent, Part, Perdure, errors, tool
from perdure.core import request
from perdure.maintenance import rebuild, transfer
from perdure.models import scripted

LONG = "all work and no play " * 40_000


@tool
def report() -> str:
    """A report that is too long for the log."""
    return LONG


def picture(data):
    return [Part("text", text="Look"), Part("image", data=data, mime="image/png")]


def engine(tmp_path):
    model = scripted.ScriptedModel([[scripted.Call("report", {})], [scripted.Text("Done")]] * 3)
    return Perdure(agents=[Agent("main", model=model, tools=[report])], database=str(tmp_path / "a.db"))


async def kept(app):
    return await app.engine.store.read(
        lambda tx: {bytes(row[0]) for row in tx.events._c.execute("SELECT bytes FROM content").fetchall()}
    )


async def ask(session, data):
    receipt = await session.prompt(picture(data), id=f"{session.id}-p")
    assert (await session.wait(receipt.id)).outcome == "succeeded"


async def test_what_a_deleted_session_kept_is_gone_and_what_others_refer_to_stays_api_3(tmp_path):
    async with engine(tmp_path) as app:
        one, two = await app.sessions.create(id="one"), await app.sessions.create(id="two")
        await ask(one, b"shared")
        await ask(two, b"shared")
        child = await one.fork()
        own = await app.sessions.create(id="own")
        await own.prompt(picture(b"own"), id="own-p", resume=False)
        assert await kept(app) == {b"shared", b"own", LONG.encode()}
        await own.delete()
        assert await kept(app) == {b"shared", LONG.encode()}
        await one.delete()
        await two.delete()
        assert await kept(app) == {b"shared", LONG.encode()}
        await child.delete()
        assert await kept(app) == set()


async def test_a_rebuild_keeps_the_bytes_a_session_refers_to_msg_1(tmp_path):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        await ask(session, b"mine")
        await rebuild.rebuild(app.engine.log, "one")
        assert len(await app.engine.store.read(lambda tx: tx.content.uses("one"))) == 2
        await session.delete()
        assert await kept(app) == set()


async def test_a_prompt_to_a_session_that_is_not_there_leaves_no_bytes_in_1(tmp_path):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        await session.delete()
        with pytest.raises(errors.SessionGone):
            await session.prompt(picture(b"lost"), id="p")
        assert await kept(app) == set()


async def test_an_exported_session_goes_on_elsewhere_with_its_images_and_results_log_29(tmp_path):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        await ask(session, b"mine")
        lines = [line async for some in transfer.export(app.engine.log) for line in some.lines]
        before = await kept(app)
    (tmp_path / "elsewhere").mkdir()
    seen = []
    model = scripted.ScriptedModel(lambda asked: seen.append(asked) or [scripted.Text("Still here")])
    agent = Agent("main", model=model, tools=[report])
    async with Perdure(agents=[agent], database=str(tmp_path / "elsewhere" / "b.db")) as app:
        assert [one.held async for one in transfer.import_file(app.engine.log, io.BytesIO(b"".join(lines)))] == [True]
        assert await kept(app) == before == {b"mine", LONG.encode()}
        session = await app.sessions.get("one")
        await session.wait((await session.prompt("And now?")).id)
        said = [one for one in seen[0].messages if isinstance(one, request.UserMessage)]
        images = [part for one in said for part in one.content if isinstance(part, request.MediaContent)]
        assert [part.data for part in images] == [b"mine"]
        await session.delete()
        assert await kept(app) == set()
