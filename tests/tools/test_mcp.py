"""MCP servers as tools: a published one, and one of our own over both transports, which is killed at every turn."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import ToolContext, ToolError, errors, mcp
from perdure.session import owner
from perdure.tools import processes

SERVER = str(Path(__file__).with_name("mcp_server.py"))
OWNER = owner.mint(os.urandom)


class Http:
    """The server of our own over HTTP, in a process that can be killed and started again on its port."""

    def __init__(self, ledger):
        self.ledger, self.port = ledger, 0
        self.start()

    def start(self):
        command = [sys.executable, SERVER, str(self.ledger), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Opened:
    """A toolset that is open, and its tools by name."""

    def __init__(self, toolset, tools, shown, ledger, http):
        self.toolset, self.shown, self.http = toolset, shown, http
        self.tools = {one.name: one for one in tools}
        self.ledger_path = ledger

    @property
    def ledger(self):
        return self.ledger_path.read_text().splitlines() if self.ledger_path.exists() else []

    async def call(self, name, **given):
        context = ToolContext("ses", "call", "msg", OWNER, report=lambda *what: self.shown.append(what))
        return await self.tools[name].function(given, context)

    async def server_pid(self):
        return int(text(await self.call("look", what="me")).split()[-1])


@contextlib.asynccontextmanager
async def opening(transport, ledger):
    http = Http(ledger) if transport == "http" else None
    toolset = mcp(http.url) if http else mcp([sys.executable, SERVER, str(ledger)])
    try:
        yield Opened(toolset, await toolset.start(OWNER), [], ledger, http)
    finally:
        await toolset.stop()
        if http:
            http.kill()


@pytest.fixture(scope="module", params=["stdio", "http"])
async def shared(request, tmp_path_factory):
    async with opening(request.param, tmp_path_factory.mktemp("mcp") / "ledger") as made:
        yield made


@pytest.fixture
def steady(shared):
    """A server that nobody kills, as if it were new."""
    shared.shown.clear()
    shared.ledger_path.unlink(missing_ok=True)
    return shared


@pytest.fixture(params=["stdio", "http"])
async def opened(request, tmp_path):
    """A server of this test's own, to be killed."""
    async with opening(request.param, tmp_path / "ledger") as made:
        yield made


def text(result):
    return result.content[0]["text"]


async def test_the_servers_hints_decide_the_effects_and_its_schemas_are_taken_as_they_are(steady):
    effects = {name: one.effect for name, one in steady.tools.items()}
    assert (effects["look"], effects["put"], effects["pay_now"], effects["fail"]) == (
        "read",
        "idempotent",
        "write",
        "write",
    )
    look = steady.tools["look"]
    assert look.description == "Look at something."
    assert look.parameters["properties"]["what"]["type"] == "string"


async def test_text_structured_data_pictures_and_failures_arrive_as_what_they_are(steady):
    assert text(await steady.call("look", what="a tree")).startswith("a tree")
    assert (await steady.call("put", value=3)).structured == {"value": 3}
    picture = await steady.call("draw")
    assert picture.content[1] == {"type": "image", "mime": "image/png", "data": b"png"}
    assert picture.structured == {"dots": 1}
    failed = await steady.call("fail")
    assert failed.failed
    assert "out of paper" in text(failed)


async def test_the_servers_progress_is_the_calls(steady):
    await steady.call("put", value=1)
    assert steady.shown == [({"progress": 1.0, "total": 2.0}, "half-way")]


async def test_a_call_carries_its_idempotency_key(steady):
    await steady.call("pay_now", cents=5)
    assert steady.ledger == ["pay 5 ses:msg:call"]


async def test_rec_8_a_server_that_dies_under_a_call_gives_a_tool_error_and_the_call_is_not_sent_again(opened):
    with pytest.raises(ToolError, match="the call may have happened"):
        await opened.call("die")
    if opened.http:
        opened.http.kill()
        opened.http.start()
    assert text(await opened.call("look", what="back")).startswith("back")
    assert opened.ledger == ["die"]


@pytest.mark.parametrize("opened", ["stdio"], indirect=True)
async def test_a_command_that_died_meanwhile_is_started_again(opened):
    pid = await opened.server_pid()
    os.kill(pid, signal.SIGKILL)
    await opened.toolset._connection._ended.wait()
    again = await opened.server_pid()
    assert again != pid


@pytest.mark.parametrize("opened", ["http"], indirect=True)
async def test_a_server_that_stays_away_gives_tool_errors_and_is_found_again_when_it_is_back(opened):
    opened.http.kill()
    for _ in range(2):
        with pytest.raises(ToolError):
            await opened.call("pay_now", cents=1)
    opened.http.start()
    assert text(await opened.call("pay_now", cents=2)) == "paid"
    assert opened.ledger == ["pay 2 ses:msg:call"]


async def test_run_6_a_cancelled_call_is_cancelled_at_the_server_and_the_connection_goes_on(steady, pids):
    calling = asyncio.create_task(steady.call("hang", fifo=str(pids.path)))
    await asyncio.to_thread(pids.read, 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await asyncio.to_thread(pids.read, 1)
    assert text(await steady.call("look", what="on")).startswith("on")


async def test_bad_arguments_are_refused_by_the_server_in_words(steady):
    result = await steady.call("put", value="many")
    assert result.failed
    assert steady.ledger == []


@pytest.mark.parametrize("opened", ["stdio"], indirect=True)
async def test_stopping_ends_a_server_that_is_a_process_of_ours_and_bears_our_mark(opened, pids):
    pid = await opened.server_pid()
    assert pids.runs(pid)
    marks = [marked for found, marked in processes._marked() if found == pid]
    await opened.toolset.stop()
    assert not pids.runs(pid)
    assert marks[0].startswith(f"{OWNER}#")


async def test_a_server_that_will_not_end_is_killed_when_the_time_of_who_stops_it_is_over_ex_9(tmp_path, pids):
    toolset = mcp([sys.executable, SERVER, str(tmp_path / "ledger"), "deaf"])
    deaf = Opened(toolset, await toolset.start(OWNER), [], tmp_path / "ledger", None)
    pid = await deaf.server_pid()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await toolset.stop()
    assert pids.gone(pid)
    await toolset.stop()


async def test_effects_and_prefix_may_be_said_by_whoever_uses_the_server(tmp_path):
    command = [sys.executable, SERVER, str(tmp_path / "ledger")]
    toolset = mcp(command, prefix="my_", effects={"look": "write"})
    tools = {one.name: one for one in await toolset.start(OWNER)}
    await toolset.stop()
    assert tools["my_look"].effect == "write"
    assert all(name.startswith("my_") for name in tools)


async def test_an_effect_for_a_tool_that_the_server_lacks_is_a_configuration_error(tmp_path):
    with pytest.raises(errors.ConfigError, match="no tool nothing"):
        await mcp([sys.executable, SERVER, str(tmp_path / "ledger")], effects={"nothing": "read"}).start(OWNER)


@pytest.mark.parametrize("server", ["true", "no-such-command-anywhere", "http://127.0.0.1:1/mcp"])
async def test_a_server_that_does_not_start_is_a_configuration_error(server):
    with pytest.raises(errors.ConfigError, match="did not start"):
        await mcp(server).start(OWNER)


def test_an_empty_server_is_refused():
    with pytest.raises(errors.ConfigError, match="empty"):
        mcp("")


async def test_a_published_server_is_used_as_it_is():
    toolset = mcp([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], name="time")
    tools = {one.name: one for one in await toolset.start(OWNER)}
    try:
        assert set(tools) == {"get_current_time", "convert_time"}
        given = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        result = await tools["convert_time"].function(given, ToolContext("ses", "call", "msg"))
        assert json.loads(text(result))["target"]["timezone"] == "Asia/Tokyo"
        nowhere = await tools["get_current_time"].function({"timezone": "No/Where"}, ToolContext("ses", "call", "msg"))
        assert nowhere.failed
    finally:
        await toolset.stop()
