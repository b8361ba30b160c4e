"""A session whose row cannot be decoded holds up no other, and goes on once its row is made again (MSG-8)."""

import apsw

from perdure import Agent, Perdure
from perdure.maintenance import opening, rebuild
from perdure.models import scripted


def engine(path, **how):
    model = scripted.ScriptedModel(lambda _: [scripted.Text("Fine.")])
    return Perdure([Agent("main", model)], database=str(path), **how)


async def test_a_damaged_session_holds_up_no_other_and_goes_on_once_it_is_rebuilt_msg_8(tmp_path):
    path = tmp_path / "perdure.db"
    async with engine(path, idle=True) as app:
        for name in ("broken", "sound"):
            session = await app.sessions.create("main", id=name)
            await session.prompt("Hello", id=f"p_{name}")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE session SET policy = '{' WHERE id = 'broken'")
    connection.close()
    async with engine(path) as app:
        sound, broken = await app.sessions.get("sound"), await app.sessions.get("broken")
        assert (await sound.wait("p_sound", timeout=20)).outcome == "succeeded"
        assert (await broken.status()).cause == "damaged"
        assert (await broken.receipt("p_broken")).state == "admitted"
    async with opening.log(path) as log:
        await rebuild.rebuild(log, "broken")
    async with engine(path) as app:
        session = await app.sessions.get("broken")
        assert (await session.wait("p_broken", timeout=20)).outcome == "succeeded"
        assert (await session.status()).status == "idle"
