"""One call: run, stopped, timed out, and what is recorded of it (RUN-3, RUN-6, SEC-2)."""

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import sys
import threading

import pytest

from perdure import ToolContext, ToolError, ToolResult, tool
from perdure.core import codec, messages
from perdure.runner import tool_results, tools
from perdure.tools.function import Bound


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(tools, "GRACE_S", 0.1)


@pytest.fixture
def kept():
    """What was put into the content table, by hash."""
    return {}


@pytest.fixture
def run(kept):
    async def keep(data):
        digest = hashlib.sha256(data).hexdigest()
        kept[digest] = data
        return digest

    async def run(declared, given=None, *, timeout_s=None, **how):
        bound = Bound(dataclasses.replace(declared, timeout_s=timeout_s))
        how.setdefault("context", ToolContext("ses", "call"))
        return await tools.run(bound, given or {}, how.pop("context"), keep=keep, **how)

    return run


def text(result):
    return result.content[0]["text"]


# -- running -----------------------------------------------------------------------------------------------------------------


async def test_run_3_a_synchronous_tool_runs_in_a_thread_and_an_async_one_on_the_loop(run):
    @tool
    def blocking():
        return threading.current_thread() is threading.main_thread()

    @tool
    async def waiting():
        return threading.current_thread() is threading.main_thread()

    assert (text(await run(blocking)), text(await run(waiting))) == ("false", "true")


async def test_run_3_more_blocking_tools_than_any_pool_has_threads_run_at_once(run):
    barrier = threading.Barrier(40)

    @tool
    def meet():
        barrier.wait(10)

    results = await asyncio.gather(*(run(meet) for _ in range(40)))
    assert [one.error for one in results] == [None] * 40


@pytest.mark.parametrize(
    "raised", [ValueError("no"), SystemExit(3), StopIteration(), asyncio.CancelledError(), GeneratorExit()]
)
async def test_run_3_whatever_a_tool_raises_is_a_tool_error(run, raised):
    @tool
    def blocking():
        raise raised

    @tool
    async def waiting():
        raise raised

    for declared in (blocking, waiting):
        result = await run(declared)
        assert result.error is not None
        assert result.error.type == "tool_error"


async def test_run_3_a_tool_error_reaches_the_model_in_the_tools_own_words(run):
    @tool
    def refuse():
        raise ToolError("Order 7 is shipped already")

    assert (await run(refuse)).error.message == "Order 7 is shipped already"


async def test_run_3_bad_arguments_never_start_the_tool(run):
    started = []

    @tool
    def count(n: int):
        started.append(n)

    result = await run(count, {"n": "many"})
    assert result.error.type == "invalid_arguments"
    assert "n: " in result.error.message
    assert started == []


async def test_a_partial_of_an_async_function_is_awaited(run):
    async def add(a: int, b: int):
        return a + b

    assert text(await run(tool(name="add")(functools.partial(add, b=2)), {"a": 1})) == "3"


async def test_a_time_out_of_the_tools_own_is_not_the_calls(run):
    @tool
    async def wait():
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert (await run(wait, timeout_s=60)).error.type == "tool_error"


# -- stopping ----------------------------------------------------------------------------------------------------------------


async def test_run_6_a_timed_out_tool_is_told_to_stop(run):
    told = threading.Event()

    @tool
    def patient(context: ToolContext):
        context.cancelled.wait(10)
        told.set()

    result = await run(patient, timeout_s=0.01)
    assert result.error.type == "timeout"
    assert "it was stopped" in result.error.message
    assert told.is_set()


@pytest.mark.parametrize("kind", ["thread", "task"])
async def test_run_6_a_tool_that_never_returns_holds_up_a_time_out_no_longer_than_the_grace_period(run, kind):
    release = threading.Event()

    @tool
    def deaf():
        release.wait(20)

    @tool
    async def stubborn():
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)

    started = asyncio.get_running_loop().time()
    result = await run(deaf if kind == "thread" else stubborn, timeout_s=0.01)
    assert "it does not stop" in result.error.message
    assert asyncio.get_running_loop().time() - started < 5
    release.set()


async def test_ex_9_where_the_engine_stops_a_tool_has_less_time(run, monkeypatch):
    monkeypatch.setattr(tools, "GRACE_S", 3600)
    monkeypatch.setattr(tools, "LEAVING_S", 0.01)
    began, released = asyncio.Event(), threading.Event()

    @tool
    def deaf():
        asyncio.run_coroutine_threadsafe(announce(), loop)
        released.wait()

    async def announce():
        began.set()

    loop = asyncio.get_running_loop()
    running = asyncio.create_task(run(deaf, leaving=lambda: True))
    await began.wait()
    await cancelled(running)
    released.set()


async def cancelled(running):
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_run_6_cancelling_a_call_stops_its_tool_and_goes_on(run):
    started, ended = asyncio.Event(), []

    @tool
    async def hold():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    context = ToolContext("ses", "call")
    running = asyncio.create_task(run(hold, context=context))
    await started.wait()
    await cancelled(running)
    assert ended == [True]
    assert context.cancelled.is_set()


async def test_ex_9_what_a_tool_gave_while_it_was_being_stopped_is_not_lost(run):
    started = asyncio.Event()

    @tool
    async def tidy():
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half of it"

    cut = []
    running = asyncio.create_task(run(tidy, on_cut=cut.append))
    await started.wait()
    await cancelled(running)
    assert [text(one) for one in cut] == ["half of it"]


# -- results (SEC-2) ---------------------------------------------------------------------------------------------------------


class Rude:
    def __str__(self):
        raise RuntimeError("no words")


class RudeModel:
    def model_dump(self, mode):
        raise RuntimeError("no dump")


@dataclasses.dataclass
class Receipt:
    order: int


@pytest.mark.parametrize(
    ("value", "words", "structured"),
    [
        ("plain", "plain", None),
        (None, "", None),
        ([1, 2], "[1,2]", None),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        (Receipt(7), '{"order":7}', {"order": 7}),
        (
            messages.TextPart("t", "so"),
            '{"id":"t","text":"so","ended":false}',
            {"id": "t", "text": "so", "ended": False},
        ),
        (ToolResult("said", {"x": 1}), "said", {"x": 1}),
        (ToolResult(structured={"x": 1}), '{"x":1}', {"x": 1}),
    ],
)
async def test_a_value_is_text_for_the_model_and_structured_data_where_it_is_an_object(value, words, structured):
    result = await tool_results.of_value(value, None)
    assert (text(result), result.structured) == (words, structured)
    assert "replaced" not in result.content[0]


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        {"a": float("nan")},
        {"key": Rude()},
        Rude(),
        RudeModel(),
        {"\udfff": {1, 2}},
        functools.reduce(lambda inner, _: [inner], range(5000), 1),
        10**400,
        ToolResult("x", {"\ud800": Rude()}),
        ToolResult([{"type": "text", "text": "\ud800"}]),
        b"\xff\xfe",
    ],
)
async def test_sec_2_the_result_of_a_tool_that_ran_is_always_recordable_and_flagged(value):
    result = await tool_results.of_value(value, None)
    assert result.error is None
    assert any(part.get("replaced") for part in result.content)
    stored = codec.dump([list(result.content), result.structured])
    assert json.loads(stored.encode()) == json.loads(stored)


async def test_sec_2_a_failures_words_are_recordable_too(run, caplog):
    caplog.set_level(
        logging.CRITICAL, "perdure.runner"
    )  # its traceback could not be reported from one process to another

    @tool
    def fail():
        raise ValueError("\ud800" + "x" * 10**6)

    message = (await run(fail)).error.message
    assert len(message.encode()) < 2 * tool_results.MAX_TEXT


async def test_a_long_text_shows_both_ends_and_is_kept_whole(run, kept):
    whole = "begin " + "ä" * 200_000 + " end"

    @tool
    def long():
        return whole

    result = await run(long)
    shown, file = result.content
    assert len(shown["text"]) < tool_results.MAX_TEXT + 200
    assert shown["text"].startswith("begin")
    assert shown["text"].endswith(" end")
    assert f"of {len(whole)} characters left out" in shown["text"]
    assert kept[file["hash"]].decode() == whole
    assert (file["type"], file["size"]) == ("file", len(whole.encode()))
    assert file["hash"] in file["text"]


async def test_a_large_object_is_kept_whole_as_text_instead_of_in_the_log(run, kept):
    @tool
    def large():
        return {"rows": list(range(50_000))}

    result = await run(large)
    assert result.structured is None
    assert json.loads(kept[result.content[1]["hash"]]) == {"rows": list(range(50_000))}


async def test_bytes_are_kept_by_their_hash_and_named_to_the_model(run, kept):
    @tool
    def draw():
        return ToolResult([{"type": "text", "text": "a dot"}, {"type": "image", "mime": "image/png", "data": b"png"}])

    said, image = (await run(draw)).content
    assert said["text"] == "a dot"
    assert kept[image["hash"]] == b"png"
    assert "data" not in image
    assert image["text"].startswith("[image, image/png, 3 bytes")


async def test_a_failed_result_tells_the_model_its_text_and_keeps_its_data(run):
    @tool
    def fail():
        return ToolResult("out of paper", {"pages": 3}, failed=True)

    result = await run(fail)
    assert (result.error.message, result.structured) == ("out of paper", {"pages": 3})


def test_a_hung_thread_does_not_hold_up_the_end_of_the_process(tmp_path):
    import subprocess

    code = """
import asyncio, threading
from perdure import ToolContext, tool
from perdure.runner import tools
from perdure.tools.function import Bound
tools.GRACE_S = 0.01
hang = tool(lambda: threading.Event().wait())
result = asyncio.run(tools.run(Bound(tool(timeout_s=0.01, name="hang")(hang.function)), {}, ToolContext("s", "c")))
print(result.error.type)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "timeout\n"


@pytest.mark.parametrize("branches", [1, 2])
async def test_sec_2_a_value_that_holds_itself_is_recordable_too(branches):
    value = []
    value.extend([value] * branches)
    result = await tool_results.of_value(value, None)
    assert result.content[0]["replaced"] is True
