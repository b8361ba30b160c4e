"""An engine as a whole: it can be entered again, and says what is wrong with what was declared."""

import asyncio
import json
import subprocess
import sys

import apsw
import psutil
import pytest

from perdure import Agent, Perdure, errors, tool
from perdure.models import scripted
from perdure.testing import fake_provider


async def test_an_engine_can_be_entered_again_and_its_models_work_again(tmp_path, monkeypatch):
    async with fake_provider.serve() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        app = Perdure(agents=[Agent("main", model="openai:fake")], database=str(tmp_path / "a.db"))
        for number in range(2):
            async with app:
                session = await app.sessions.create(id="ses")
                receipt = await session.prompt("Hello", id=f"prompt-{number}")
                assert (await session.wait(receipt.id)).outcome == "succeeded"


async def test_a_compaction_that_no_drain_began_before_the_stop_does_not_keep_its_session_ex_9(tmp_path, monkeypatch):
    model = scripted.ScriptedModel([[scripted.Text("Hi")], [scripted.Text("Hi again")]])
    app = Perdure(agents=[Agent("main", model=model)], database=str(tmp_path / "a.db"))
    async with app:
        session = await app.sessions.create(id="ses")
        await session.prompt("Hello", id="p0")
        await session.wait("p0")
        monkeypatch.setattr(app.engine.coordinator, "wake", lambda _: None)
        await session.compact()
    async with app:
        session = await app.sessions.get("ses")
        await session.prompt("And now?", id="p1")
        receipt = await session.wait("p1", timeout=app.engine.settings.lease_seconds / 3)
        assert receipt.outcome == "succeeded"


async def test_sessions_leave_no_file_and_no_thread_behind(tmp_path):
    model = scripted.ScriptedModel(lambda _: [scripted.Text("Hi")])

    async def talk(app, number):
        session = await app.sessions.create(id=f"ses-{number}")
        receipt = await session.prompt("Hello")
        await session.wait(receipt.id)
        return [event async for event in session.events(follow=False)]

    async with Perdure([Agent("main", model)], database=str(tmp_path / "a.db")) as app:
        process = psutil.Process()
        await asyncio.gather(*(talk(app, number) for number in range(10)))
        before = process.num_fds(), process.num_threads()
        for number in range(10, 60):
            await talk(app, number)
        assert (process.num_fds(), process.num_threads()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


async def test_a_session_with_a_message_that_cannot_be_read_is_listed_and_read_up_to_it_msg_8(tmp_path):
    model = scripted.ScriptedModel(lambda _: [scripted.Text("Hi")])
    database = str(tmp_path / "a.db")
    async with Perdure([Agent("main", model)], database=database) as app:
        for session in [await app.sessions.create(id=name) for name in ("well", "ill")]:
            for number in range(2):
                receipt = await session.prompt("Hello", id=f"{session.id}-{number}")
                await session.wait(receipt.id)
    damage = apsw.Connection(database)
    (bad,) = damage.execute("SELECT seq FROM session_message WHERE id = 'ill-1'").fetchone()
    damage.execute("UPDATE session_message SET data = '{' WHERE id = 'ill-1'")
    damage.close()
    async with Perdure([Agent("main", model)], database=database) as app:
        assert {one.id for one in (await app.sessions.list()).data} == {"well", "ill"}
        ill = await app.sessions.get("ill")
        with pytest.raises(errors.MessageUndecodable, match="ill-1"):
            await ill.messages()
        assert [one.seq < bad for one in await ill.messages(before=bad)] == [True, True]
        assert (await ill.status()).status == "idle"
        receipt = await ill.prompt("Still there?", id="ill-2")
        assert (await ill.wait("ill-2", timeout=30)).outcome == "failed"
        well = await app.sessions.get("well")
        await well.prompt("And you?", id="well-2")
        assert (await well.wait("well-2")).outcome == "succeeded"


TURNS = """
import asyncio, json, sys
from perdure import Agent, Perdure, tool
from perdure.models.scripted import Call, ScriptedModel, Text

@tool(effect="write")
def note() -> str:
    return "noted"

async def main(database, name):
    model = ScriptedModel([[Call("note", {})], [Text("Hi")]] * 6)
    async with Perdure([Agent("main", model, tools=[note])], database=database) as app:
        print("ready", flush=True)
        sys.stdin.readline()
        session = await app.sessions.create(id=name)
        outcomes = []
        for number in range(6):
            receipt = await session.prompt("Hello", id=f"{name}-{number}")
            outcomes.append((await session.wait(receipt.id)).outcome)
        print(json.dumps(outcomes))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.crash
def test_processes_on_one_file_each_finish_all_their_turns_db_2(tmp_path):
    database = str(tmp_path / "a.db")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TURNS, database, f"ses-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    assert [one.stdout.readline() for one in started] == ["ready\n"] * 4
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [one.communicate() for one in started]
    assert [json.loads(said) for said, _ in told] == [["succeeded"] * 6] * 4
    assert [one.returncode for one in started] == [0] * 4


@tool
def twice() -> str:
    """Twice."""
    return ""


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ([Agent("a", model="openai:x"), Agent("a", model="openai:y")], "same name"),
        ([Agent("a", model="nobody:x")], "no model 'nobody:x'"),
    ],
)
def test_a_wrong_declaration_is_refused_before_anything_is_opened(agents, words, tmp_path):
    with pytest.raises((errors.ConfigError, errors.UnknownModel), match=words):
        Perdure(agents=agents, database=str(tmp_path / "a.db"))
    assert not list(tmp_path.iterdir())


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(errors.ConfigError, match="two tools named twice"):
        Agent("a", model=scripted.ScriptedModel([]), tools=[twice, twice])
