"""Doctor explains every session that does not go on, and what would free it (EX-7)."""

import apsw

from perdure import Agent, Perdure, tool
from perdure.core import events, request
from perdure.maintenance import doctor
from perdure.models import scripted
from perdure.store.sqlite import SqliteStore


@tool(approval="always")
def pay() -> str:
    """Pay."""
    return "paid"


def answer(asked):
    known = any(isinstance(one, request.ResultMessage) for one in asked.messages)
    return [scripted.Text("Done.")] if known else [scripted.Call("pay", {}, "call_pay")]


async def parked(session):
    async for event in session.events():
        if isinstance(event.data, events.ExecutionParked):
            return


async def test_each_session_that_waits_is_explained_and_an_idle_one_is_not(tmp_path):
    path = tmp_path / "a.db"
    async with Perdure(
        agents=[Agent("main", model=scripted.ScriptedModel(answer), tools=[pay])], database=str(path)
    ) as app:
        await app.sessions.create(id="idle")
        waiting = await app.sessions.create(id="parked")
        await waiting.prompt("Pay")
        await parked(waiting)
        await (await app.sessions.create(id="unwanted")).prompt("Later", resume=False)
    store = await SqliteStore.open(path)

    def leave(tx):
        for name in ("dead", "asked", "imported", "broken"):
            tx.events.put_sequence(name, 0, None)
            tx.sessions.insert(events.SessionCreated(session_id=name, agent="main"), 1)
        tx.claims.insert("exe_1", "dead", "own@elsewhere/1/2", purpose="turn", phase="unknown", now=1, expires_at=2)
        tx.claims.insert("exe_2", "asked", "own@elsewhere/1/2", purpose="turn", phase="unknown", now=1, expires_at=2)
        tx.claims.recovery_failed("exe_2", "it broke", 2**50)
        tx.sessions.set_held("imported", held=True)
        tx.sessions.set_held("broken", held=True)

    await store.write(leave)
    await store.close()
    apsw.Connection(str(path)).execute("UPDATE session SET policy = '{' WHERE id = 'broken'")
    found = {one.session_id: one for one in doctor.examine(path).stuck}
    assert set(found) == {"parked", "unwanted", "dead", "asked", "imported", "broken"}
    assert (found["parked"].why, found["parked"].remedy) == (
        "calls wait for a person: call_pay",
        "perdure approve parked CALL",
    )
    assert "not wanted to run yet" in found["unwanted"].why
    assert found["dead"].why == "owner gone: its process died in phase unknown"
    assert "its sweep goes on by itself" in found["dead"].remedy
    assert (found["broken"].status, found["broken"].remedy) == ("blocked", "perdure rebuild broken")
    assert found["asked"].remedy.endswith("perdure recoveries dismiss exe_2")
    assert "it broke" in found["asked"].why
    assert (found["imported"].status, found["imported"].remedy) == ("held", "resume it, or send it a prompt")
