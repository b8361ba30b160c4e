"""Tools inside sessions of a real engine: what is durable of them, and how they end when the turn, the engine or its
process does.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections import Counter

import apsw
import pytest

from perdure import Agent, Perdure, Tool, ToolContext, config, errors, local_toolset, tool
from perdure.core import events, messages, request
from perdure.models import scripted
from perdure.runner import tools


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "perdure.db")


@contextlib.asynccontextmanager
async def running(database, replies, agent_tools=(), **more):
    """An engine with one session, the model that plays the replies, and a time limit."""
    model = scripted.ScriptedModel(replies)
    async with asyncio.timeout(30):
        async with Perdure([Agent("a", model, tools=agent_tools, **more)], database=database) as app:
            yield app, await app.sessions.create(id="s"), model


def one_call(name, given=None):
    return [[scripted.Call(name, given or {})], [scripted.Text("Done.")]]


async def facts(session):
    return [event.data async for event in session.events(follow=False)]


async def until(session, kind):
    """The first fact of a kind, as soon as it is durable."""
    async for event in session.events():
        if isinstance(event.data, kind):
            return event.data
    return None


async def tool_part(session):
    found = [one for one in await session.messages() if isinstance(one, messages.Assistant)]
    return next(part for one in found for part in one.parts if isinstance(part, messages.ToolPart))


async def test_rec_8_the_effect_in_force_is_stored_with_the_call_before_it_starts(database):
    seen = []

    @tool(effect="idempotent")
    async def look(context: ToolContext):
        seen.extend([fact async for fact in app_session[0].events(follow=False)])
        return context.idempotency_key

    app_session = []
    async with running(database, one_call("look"), [look]) as (_, session, model):
        app_session.append(session)
        receipt = await session.prompt("go")
        await session.wait(receipt.id)
        called = next(one.data for one in seen if isinstance(one.data, events.ToolCalled))
        assert called.effect == "idempotent"
        [result] = [one for one in model.requests[1].messages if isinstance(one, request.ResultMessage)]
        assert result.text == f"s:{called.assistant_message_id}:{called.call_id}"


async def test_progress_is_durable_while_the_call_runs_and_the_last_value_stands_before_the_outcome(database):
    go_on = threading.Event()

    @tool
    def work(context: ToolContext):
        for percent in range(101):
            context.progress(structured={"percent": percent}, content=f"at {percent}")
            if percent == 50:
                go_on.wait(20)
        return "done"

    async with running(database, one_call("work"), [work]) as (_, session, _model):
        receipt = await session.prompt("go")
        await until(session, events.ToolProgress)
        state = (await tool_part(session)).state
        assert isinstance(state, messages.Running)
        assert state.structured["percent"] <= 50
        go_on.set()
        await session.wait(receipt.id)
        told = [one for one in await facts(session) if isinstance(one, events.ToolProgress | events.ToolSucceeded)]
        assert isinstance(told[-1], events.ToolSucceeded)
        assert told[-2].structured == {"percent": 100}
        assert len(told) <= 5
        assert (await tool_part(session)).state.content[0]["text"] == "done"


async def test_an_output_past_the_limit_is_in_the_content_table_and_the_model_sees_both_ends(database):
    whole = "first " + "x" * 300_000 + " last"

    @tool
    def long():
        return whole

    async with running(database, one_call("long"), [long]) as (app, session, model):
        receipt = await session.prompt("go")
        await session.wait(receipt.id)
        state = (await tool_part(session)).state
        digest = state.content[1]["hash"]
        stored = await app.engine.store.read(lambda tx: tx.content.get(digest))
        assert stored.decode() == whole
        [result] = [one for one in model.requests[1].messages if isinstance(one, request.ResultMessage)]
        assert len(result.text) < 51_000
        assert result.text.startswith("first ")
        assert digest in result.text


async def test_a_megabyte_of_output_is_stored_once_and_never_copied(database):
    whole = "".join(f"{number:07d} " for number in range(131_072))

    @tool(effect="read")
    def long():
        return whole

    def size():
        with contextlib.closing(apsw.Connection(database)) as file:
            return file.pragma("page_count") * file.pragma("page_size")

    replies = [*one_call("long"), *[[scripted.Text("And on.")]] * 5]
    async with running(database, replies, [long]) as (_, session, _):
        small = size()
        await session.wait((await session.prompt("go")).id)
        after = size()
        assert len(whole) < after - small < 1.5 * len(whole)
        for _ in range(5):
            await session.wait((await session.prompt("go on")).id)
    assert size() - after < 100_000, "no later step or close adds a copy"


# -- interrupts and stops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "task"])
async def test_run_6_a_tool_that_never_returns_holds_an_interrupt_no_longer_than_the_grace_period(
    database, monkeypatch, kind
):
    monkeypatch.setattr(tools, "GRACE_S", 0.2)
    release = threading.Event()

    @tool(name="deaf")
    def thread(context: ToolContext):
        context.progress(content="begun")
        release.wait(60)

    @tool(name="deaf")
    async def task(context: ToolContext):
        context.progress(content="begun")
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.to_thread(release.wait, 0.05)

    async with running(database, one_call("deaf"), [thread if kind == "thread" else task]) as (_, session, model):
        receipt = await session.prompt("go")
        await until(session, events.ToolProgress)
        begun = asyncio.get_running_loop().time()
        await session.interrupt()
        receipt = await session.wait(receipt.id)
        assert asyncio.get_running_loop().time() - begun < 5
        assert receipt.outcome == "interrupted"
        state = (await tool_part(session)).state
        assert state.error.message == "Tool execution interrupted"
        assert state.content[0]["text"] == "begun"
        release.set()
        assert len(model.requests) == 1


async def test_run_6_an_interrupt_ends_the_whole_group_of_a_command_and_keeps_its_output(database, tmp_path, pids):
    command = f"echo begun; sleep 1000 & echo $! > {pids.path}; echo $$ > {pids.path}; wait"
    async with running(database, one_call("shell", {"command": command}), local_toolset(tmp_path)) as (_, session, _m):
        receipt = await session.prompt("go")
        found = await asyncio.to_thread(pids.read, 2)
        await until(session, events.ToolProgress)
        await session.interrupt()
        receipt = await session.wait(receipt.id)
        assert receipt.outcome == "interrupted"
        assert await asyncio.to_thread(pids.gone, *found)
        state = (await tool_part(session)).state
        assert isinstance(state, messages.Errored)
        assert state.error.message.startswith("begun\n[Stopped before it had finished")


async def test_ex_9_a_graceful_stop_ends_commands_and_records_what_they_gave(database, tmp_path, pids):
    from perdure.config import settings

    command = f"echo begun; echo $$ > {pids.path}; sleep 1000"
    model = scripted.ScriptedModel(one_call("shell", {"command": command}))
    agent = Agent("a", model, tools=local_toolset(tmp_path))
    async with Perdure([agent], database=database, settings=settings(database_url=database, grace_seconds=0)) as app:
        session = await app.sessions.create(id="s")
        await session.prompt("go", id="p")
        found = await asyncio.to_thread(pids.read, 1)
        await until(session, events.ToolProgress)
    assert await asyncio.to_thread(pids.gone, *found)
    async with running(database, [[scripted.Text("I see.")]], local_toolset(tmp_path)) as (_, session, model):
        assert (await session.wait("p")).outcome == "succeeded"
        [result] = [one for one in model.requests[0].messages if isinstance(one, request.ResultMessage)]
        assert result.is_error
        assert "begun" in result.text


# -- the owner dies ----------------------------------------------------------------------------------------------------------

VICTIM = """
import asyncio, sys
from perdure import Agent, Perdure, local_toolset
from perdure.models import scripted

async def main(database, root, command):
    model = scripted.ScriptedModel([[scripted.Call("shell", {"command": command})], [scripted.Text("Done.")]])
    async with Perdure([Agent("a", model, tools=local_toolset(root))], database=database) as app:
        session = await app.sessions.create(id="s")
        await session.prompt("go", id="p")
        await session.wait("p")

asyncio.run(main(*sys.argv[1:]))
"""


def kill(victim):
    victim.send_signal(signal.SIGKILL)
    victim.wait()


@pytest.mark.crash
async def test_rec_8_a_killed_owners_command_ends_with_it_and_is_not_run_again(database, tmp_path, pids):
    daemon = f"echo $$ > {pids.path}; exec sleep 1000"
    command = (
        f"echo ran >> ledger; setsid sh -c '{daemon}' & sleep 1000 & echo $! > {pids.path}; echo $$ > {pids.path}; wait"
    )
    arguments = [sys.executable, "-c", VICTIM, database, str(tmp_path), command]
    victim = await asyncio.to_thread(subprocess.Popen, arguments)
    found = await asyncio.to_thread(pids.read, 3)
    await asyncio.to_thread(kill, victim)
    async with running(database, [[scripted.Text("I see.")]], local_toolset(tmp_path)) as (_, session, model):
        assert await asyncio.to_thread(pids.gone, *found), "the group ended by its keeper, the daemon by this start"
        assert (await session.wait("p")).outcome == "succeeded"
        [result] = [one for one in model.requests[0].messages if isinstance(one, request.ResultMessage)]
        assert "Check its effect" in result.text
    assert (tmp_path / "ledger").read_text() == "ran\n"


# -- toolsets ----------------------------------------------------------------------------------------------------------------


class Recorded:
    """A toolset that tells what was done with it."""

    def __init__(self, *names, fails=False):
        self.names, self.fails = names, fails
        self.done = []

    async def start(self, owner_id):
        self.done.append(f"start {owner_id.partition('_')[0]}")
        if self.fails:
            raise errors.ConfigError("not today")
        return [Tool(self._call, name, f"Call {name}.", "read", parameters={"type": "object"}) for name in self.names]

    async def stop(self):
        self.done.append("stop")

    async def _call(self, arguments, context):
        return json.dumps(arguments)


async def test_a_toolset_is_opened_once_for_all_agents_and_closed_at_the_end(database):
    shared = Recorded("one")
    model = scripted.ScriptedModel(one_call("one", {"x": 1}))
    agents = [Agent("a", model, toolsets=[shared]), Agent("b", model, toolsets=[shared, Recorded("two")])]
    async with Perdure(agents, database=database) as app:
        session = await app.sessions.create("a")
        receipt = await session.prompt("go")
        await session.wait(receipt.id)
        assert [spec.name for spec in model.requests[0].tools] == ["one"]
        assert (await tool_part(session)).state.content[0]["text"] == '{"x": 1}'
        assert shared.done == ["start own"]
    assert shared.done == ["start own", "stop"]
    async with Perdure(agents, database=database):
        pass
    assert Counter(shared.done) == {"start own": 2, "stop": 2}


async def test_a_toolset_that_does_not_open_keeps_the_engine_from_starting_and_the_others_are_closed(database):
    good, bad = Recorded("one"), Recorded("two", fails=True)
    app = Perdure([Agent("a", scripted.ScriptedModel([]), toolsets=[good, bad])], database=database)
    with pytest.raises(errors.ConfigError, match="not today"):
        await app.__aenter__()
    assert (good.done, bad.done) == (["start own", "stop"], ["start own"])


async def test_two_tools_of_one_name_are_refused_whichever_toolset_they_come_from(database):
    first, second = Recorded("same"), Recorded("same")
    app = Perdure([Agent("a", scripted.ScriptedModel([]), toolsets=[first, second])], database=database)
    with pytest.raises(errors.ConfigError, match="two tools named same"):
        await app.__aenter__()
    assert first.done[-1] == second.done[-1] == "stop"


class Slow(Recorded):
    """A toolset that stops once so many others want to as well, or never; it tells whether it was cancelled."""

    def __init__(self, name, together):
        super().__init__(name)
        self.together = together

    async def stop(self):
        try:
            await self.together.wait()
        except asyncio.CancelledError:
            self.done.append("cancelled")
            raise
        self.done.append("stop")


async def test_toolsets_stop_side_by_side_and_one_that_never_does_holds_up_nobody_for_long_ex_9(database, caplog):
    together = asyncio.Barrier(3)
    slow, hung = [Slow(name, together) for name in ("one", "two", "three")], Slow("four", asyncio.Event())
    settings = config.settings(database_url=database, grace_seconds=0)
    agent = Agent("a", scripted.ScriptedModel([]), toolsets=[hung, *slow])
    async with asyncio.timeout(20), Perdure([agent], settings=settings) as app:
        pass
    assert [one.done[1:] for one in slow] == [["stop"]] * 3
    assert hung.done[1:] == ["cancelled"]
    assert "left a toolset that does not stop" in caplog.text
    with pytest.raises(errors.StoreUnusable):
        await app.sessions.list()
