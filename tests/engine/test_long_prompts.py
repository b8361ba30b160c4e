"""A long prompt is stored once, in the fact that brings it, and read from there by whoever asks."""

import json

import pytest

from perdure import Agent, Perdure
from perdure.core import events
from perdure.maintenance import rebuild, verify
from perdure.models import scripted

LONG = "".join(f"line {number} of the report\n" for number in range(900))


def engine(path):
    model = scripted.ScriptedModel([[scripted.Text("Done")]] * 9)
    return Perdure(agents=[Agent("main", model=model)], database=str(path / "a.db"))


async def column(app, statement):
    return await app.engine.store.read(lambda tx: [row[0] for row in tx.events._c.execute(statement).fetchall()])


async def places(app):
    """How many events, messages and inputs hold the text."""
    tables = {"event": "data", "session_message": "data", "session_input": "prompt"}
    return [sum("line 899" in held for held in await column(app, f"SELECT {c} FROM {t}")) for t, c in tables.items()]


async def asked(session, **more):
    receipt = await session.prompt(LONG, **more)
    assert (await session.wait(receipt.id)).outcome == "succeeded"
    return receipt.id


async def rows(app):
    return [
        await column(app, f"SELECT json_array({columns}) FROM {table} ORDER BY 1")
        for table, columns in {
            "session": "number, id, turn_usage",
            "session_message": "id, session, seq, type, data",
            "session_input": "id, session, prompt, admitted_seq, promoted_seq, usage",
        }.items()
    ]


async def test_a_turn_stores_a_long_prompt_once_and_memory_and_file_tell_it_alike_msg_1(tmp_path):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        message_id = await asked(session)
        assert await places(app) == [1, 0, 0]
        told = [fact.data for fact in [one async for one in session.events(after=-1, follow=False)]]
        prompts = [one.prompt.text for one in told if isinstance(one, events.PromptAdmitted | events.PromptPromoted)]
        shown = await session.messages()
        assert prompts == [LONG, LONG]
        assert (shown[0].id, shown[0].prompt.text) == (message_id, LONG)
        assert await asked(session, id=message_id) == message_id, "an exact retry"
    async with engine(tmp_path) as app:
        assert await (await app.sessions.get("one")).messages() == shown


async def test_a_long_prompt_that_waits_is_told_whole_and_read_when_its_time_comes(tmp_path):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        await session.prompt(LONG, id="waits", resume=False)
        (waiting,) = await session.inbox()
        assert json.loads(waiting.prompt)["parts"][0]["text"] == LONG
    async with engine(tmp_path) as app:
        session = await app.sessions.get("one")
        await asked(session, id="waits")
        assert (await session.messages())[0].prompt.text == LONG
        assert await places(app) == [1, 0, 0]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_fork_tells_the_prompt_from_its_own_log_and_survives_its_parent_api_3(tmp_path, waits):
    async with engine(tmp_path) as app:
        session = await app.sessions.create(id="one")
        await asked(session)
        if waits:
            await session.prompt(LONG, resume=False)
        child = await session.fork(id="two")
        assert await places(app) == [4 if waits else 2, 0, 0]
        told = [message.prompt.text for message in await session.messages() if message.__class__.__name__ == "User"]
        await session.delete()
        left = [message.prompt.text for message in await child.messages() if message.__class__.__name__ == "User"]
        assert told == left == [LONG]
        assert await places(app) == [2 if waits else 1, 0, 0]


async def test_a_rebuild_gives_the_same_rows_and_the_same_numbers_msg_1(tmp_path):
    async with engine(tmp_path) as app:
        for name in ("one", "two"):
            session = await app.sessions.create(id=name)
            await asked(session)
            await session.prompt(LONG, resume=False)
        before = await rows(app)
        for name in ("two", "one"):
            await rebuild.rebuild(app.engine.log, name)
        assert await rows(app) == before
        assert [one.problems async for one in verify.verify(app.engine.log)] == [(), ()]
