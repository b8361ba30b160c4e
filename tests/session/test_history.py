"""Transcripts in memory: what idle sessions keep is bounded by its size."""

import pytest

from perdure import Agent, Perdure
from perdure.core import events
from perdure.models import scripted
from perdure.session import history


async def turn(app, session_id, text):
    session = await app.sessions.create(id=session_id)
    await session.wait((await session.prompt(text)).id, timeout=10)
    await session.wait(timeout=10)


def echo(asked):
    return [scripted.Text(asked.messages[-1].content[0].text)]


async def test_idle_transcripts_are_kept_up_to_a_size_whatever_their_number_msg_9(tmp_path):
    agent = Agent("echo", scripted.ScriptedModel(echo))
    async with Perdure([agent], database=str(tmp_path / "h.db")) as app:
        held = app.engine.histories
        for number in range(100):
            await turn(app, f"small{number}", "hi")
        assert len(held._held) == 100
        assert held._total == sum(held._weights.values())
        held._keep = held._total + 100_000
        await turn(app, "large", "x" * 30_000)
        assert len(held._held) == 101
        await turn(app, "larger", "x" * 60_000)
        assert "larger" in held._held
        assert "small0" not in held._held
        assert held._total == sum(held._weights.values()) <= held._keep
        await turn(app, "largest", "x" * 200_000)
        assert not held._held
        assert not held._weights
        assert held._total == 0


async def test_a_transcript_weighs_no_less_than_its_characters_whether_read_or_followed(tmp_path):
    agent = Agent("echo", scripted.ScriptedModel(echo))
    async with Perdure([agent], database=str(tmp_path / "h.db")) as app:
        for number in range(3):
            await turn(app, "s", f"{number}" * 5_000)
        followed = app.engine.histories._weights["s"]
        app.engine.histories.drop("s")
        found = (await app.engine.histories.load("s")).freeze()
        assert followed >= app.engine.histories._weights["s"] == history.weight(found.messages) > 30_000


def test_what_is_nested_weighs_what_it_holds():
    deep = "x"
    for _ in range(5_000):
        deep = [deep, {"key": "value"}]
    assert history.weight(deep) > 5_000 * len("keyvalue")


class Late:
    """A store whose next read gives its answer only after something else happened."""

    def __init__(self, store, meanwhile):
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def read(self, work):
        found = await self._store.read(work)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile:
            await meanwhile()
        return found


@pytest.mark.parametrize("held", [False, True])
async def test_what_is_committed_while_a_transcript_is_read_is_in_it_the_next_time(tmp_path, held):
    agent = Agent("echo", scripted.ScriptedModel(echo))
    async with Perdure([agent], database=str(tmp_path / "h.db")) as app:
        await turn(app, "s", "hi")
        log, histories = app.engine.log, app.engine.histories
        if not held:
            histories.drop("s")

        async def note(text, *, notify=True):
            fact = events.SyntheticAdded(session_id="s", message_id=f"msg_{text}", text=text)
            await log.transact(lambda unit: unit.append(fact), notify=notify)

        async def meanwhile():
            await note("there")

        with histories.busy("s"):
            await note("elsewhere", notify=False)
            log.store = Late(log.store, meanwhile)
            await histories.load("s")
            assert (await histories.current("s")).since(-1)[0].id == "msg_there"
            assert (await histories.current("s")).seq == await log.last_seq("s")


async def test_a_session_forgotten_while_it_was_read_again_hinders_no_other(tmp_path):
    agent = Agent("echo", scripted.ScriptedModel(echo))
    async with Perdure([agent], database=str(tmp_path / "h.db")) as app:
        await turn(app, "s", "hi")
        log, histories = app.engine.log, app.engine.histories

        async def forget():
            histories.drop("s")

        log.store = Late(log.store, forget)
        await histories.load("s")
        histories._keep = 0
        await turn(app, "t", "hi")
        assert not histories._held
        assert histories._total == 0
