"""`perdure serve` as a process: what it says, what it refuses before anything is half started, how it stops."""

import contextlib
import http.client
import json
import signal
import socket
import stat
import urllib.request
from pathlib import Path

import pytest

APP = """
from perdure import Agent, Perdure
from perdure.models.scripted import Hang, ScriptedModel, Text
app = Perdure([Agent("a", ScriptedModel(lambda request: [Text("Half"), Hang()]))])
other = 7
"""
MODEL = ("--model", "openai:gpt-5")


def refused(done, code=2):
    """The one line a refusal says; nothing on stdout, nothing left behind."""
    assert (done.returncode, done.stdout) == (code, ""), done
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: ")
    return line


def left(directory):
    return sorted(str(one.relative_to(directory)) for one in directory.rglob("*") if one.suffix not in {".py", ".pyc"})


def get(url, path="/health", token=None):
    asked = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=10) as answer:
        return json.load(answer)


def post(url, path, body, token):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    asked = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=10) as answer:
        return json.load(answer)


# -- it starts -------------------------------------------------------------------------------------------------------------


def test_it_says_the_real_port_where_the_token_is_and_its_epoch_sec_1(shell):
    with shell.serve(*MODEL) as serving:
        assert not serving.url.endswith(":0")
        health = get(serving.url)
        assert (health["status"], health["epoch"]) == ("ok", serving.said["epoch"])
        file = Path(serving.said["token_file"])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert get(serving.url, "/v1/sessions", token) == {"data": []}
        code, wrote = serving.end(signal.SIGTERM)
        assert code == 0
        assert token not in wrote + json.dumps(serving.said)
        assert "Traceback" not in wrote


def test_the_line_for_people_names_url_and_token_file_but_not_the_token_sec_1(shell):
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    line = shell.line("serve", *MODEL, "--port", str(port))
    token = (shell.directory / "state" / "perdure" / "token").read_text().strip()
    assert line.startswith("Perdure ")
    assert f"http://127.0.0.1:{port}" in line
    assert str(shell.directory / "state" / "perdure" / "token") in line
    assert token not in line


def test_an_app_is_served_by_module_and_name(shell):
    shell.write("mine.py", APP)
    with shell.serve("mine:app", "--token", "given-token", "--database", "mine.db") as serving:
        assert serving.said["token_file"] is None
        assert post(serving.url, "/v1/sessions", {"id": "s"}, "given-token")["agent"] == "a"
        assert left(shell.directory)[0] == "mine.db"


COUNTS = """
import gc
from perdure import Agent, Perdure
from perdure.models.scripted import ScriptedModel, Text
app = Perdure([Agent("a", ScriptedModel(lambda request: [Text(f"{gc.get_freeze_count()} {gc.get_threshold()[0]}")]))])
"""


def test_what_was_imported_is_kept_from_the_garbage_collector_which_comes_less_often(shell):
    shell.write("mine.py", COUNTS)
    with shell.serve("mine:app", PERDURE_TOKEN="t") as serving:
        post(serving.url, "/v1/sessions", {"id": "s"}, "t")
        post(serving.url, "/v1/sessions/s/prompts", {"text": "How many?"}, "t")
        post(serving.url, "/v1/sessions/s/wait", {}, "t")
        [_, answer] = get(serving.url, "/v1/sessions/s/messages", "t")["data"]
        frozen, threshold = map(int, answer["parts"][0]["text"].split())
        assert frozen > 10_000
        assert threshold > 700


def test_settings_come_from_the_environment_too(shell):
    with shell.serve(
        PERDURE_MODEL="openai:gpt-5", PERDURE_TOKEN="from-outside", PERDURE_DATABASE_URL="sqlite:///x.db"
    ) as serving:
        assert get(serving.url, "/v1/sessions", "from-outside") == {"data": []}
    assert "x.db" in left(shell.directory)


def test_requests_are_logged_only_where_that_is_asked_for(shell):
    for arguments, logged in [((), False), (("--access-log",), True)]:
        with shell.serve(*MODEL, *arguments) as serving:
            get(serving.url)
            assert ("GET /health" in serving.end(signal.SIGTERM)[1]) is logged


# -- it refuses ------------------------------------------------------------------------------------------------------------


def test_no_model_is_said_with_what_to_do(shell, here):
    line = refused(here("serve"))
    assert "--model" in line
    assert "PERDURE_MODEL" in line
    assert left(shell.directory) == []


@pytest.mark.parametrize("model", ["nowhere:x", "plain", "openai:", ":"])
def test_an_unknown_model_is_named_and_nothing_is_left(shell, here, model):
    assert repr(model) in refused(here("serve", "--model", model))
    assert left(shell.directory) == []


def test_a_port_in_use_is_named_and_no_database_is_made(shell, here):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refused(here("serve", *MODEL, "--port", port))
    assert f"port {port}: Address already in use" in line
    assert [one for one in left(shell.directory) if one.startswith("perdure.db")] == []


@pytest.mark.parametrize(
    ("database", "code", "word"),
    [
        ("missing/dir/x.db", 1, "missing/dir"),
        (".", 1, "."),
        ("text.txt", 1, "text.txt"),
        ("mysql://x/y", 2, "mysql"),
        ("", 2, "empty"),
    ],
)
def test_an_unusable_database_is_named(shell, here, database, code, word):
    shell.write("text.txt", "this is not a database, and it is long enough to have a header\n" * 50)
    assert word in refused(here("serve", *MODEL, "--port", "0", "--database", database), code)


APPS = [
    ("broken:app", "broken cannot be loaded: RuntimeError: as it says"),
    ("leaving:app", "leaving cannot be loaded: SystemExit: 3"),
    ("wrong:app", "wrong cannot be loaded: SyntaxError"),
    ("needing:app", "No module named 'nothing_like_it'"),
    ("missing:app", "No module named 'missing'"),
    ("mine:nobody", "mine has no nobody"),
    ("mine:other", "mine:other is of type int, not a Perdure instance"),
    ("mine", "MODULE:NAME"),
    (":app", "MODULE:NAME"),
    ("mine:", "MODULE:NAME"),
]


@pytest.mark.parametrize(("named", "said"), APPS)
def test_an_app_that_cannot_be_had_is_one_line_naming_module_and_cause(shell, here, named, said):
    shell.write("mine.py", APP)
    shell.write("broken.py", "raise RuntimeError('as it says')")
    shell.write("leaving.py", "raise SystemExit(3)")
    shell.write("wrong.py", "def (")
    shell.write("needing.py", "import nothing_like_it")
    assert said in refused(here("serve", named))
    assert left(shell.directory) == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--port", "many"], "port"),
        (["--port", "99999"], "PERDURE_PORT"),
        (["--host", "no such host"], "no such host"),
        (["--host", "0.0.0.0"], "PERDURE_TOKEN"),
        (["--log-level", "loud"], "loud"),
        (["--token", ""], "PERDURE_TOKEN"),
        (["--colour"], "--colour"),
        (["mine:app"], "--model"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(shell, here, arguments, word):
    assert word in refused(here("serve", *MODEL, *arguments))
    assert left(shell.directory) == []


def test_a_setting_in_the_environment_that_is_wrong_is_named(here):
    assert "PERDURE_PORT" in refused(here("serve", *MODEL, PERDURE_PORT="many"))


def test_help_explains_every_option(here):
    done = here("serve", "--help")
    assert done.returncode == 0
    for word in ["--host", "--port", "--database", "--token", "--model", "--log-level", "--access-log", "--json"]:
        assert word in done.stdout


# -- it stops --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_a_signal_ends_streams_at_once_and_a_hanging_turn_after_its_grace_ex_9(shell, sent, code):
    shell.write("mine.py", APP)
    variables = {"PERDURE_TOKEN": "t", "PERDURE_GRACE_SECONDS": "3"}
    with shell.serve("mine:app", **variables) as serving:
        post(serving.url, "/v1/sessions", {"id": "s"}, "t")
        post(serving.url, "/v1/sessions/s/prompts", {"text": "hi"}, "t")
        with contextlib.closing(
            http.client.HTTPConnection(serving.url.removeprefix("http://"), timeout=10)
        ) as connection:
            stream = open_stream(connection)
            serving.process.send_signal(sent)
            assert b"session.execution.ended" not in stream.read()
            assert serving.process.poll() is None, "the stream ended first, the turn has its grace"
            assert serving.process.wait(60) == code


NEVER = """
import asyncio, threading
from perdure import Agent, Perdure, tool
from perdure.models.scripted import Call, ScriptedModel

@tool
async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@tool
async def elsewhere():
    await asyncio.to_thread(threading.Event().wait)

app = Perdure([Agent("a", ScriptedModel(lambda request: [Call(NAME, {})]), tools=[stubborn, elsewhere])])
"""


@pytest.mark.parametrize("name", ["stubborn", "elsewhere"])
@pytest.mark.slow
def test_a_tool_that_never_ends_does_not_hold_up_the_exit_ex_9(shell, name):
    shell.write("mine.py", NEVER.replace("NAME", repr(name)))
    variables = {"PERDURE_TOKEN": "t", "PERDURE_GRACE_SECONDS": "0.1"}
    with shell.serve("mine:app", **variables) as serving:
        post(serving.url, "/v1/sessions", {"id": "s"}, "t")
        post(serving.url, "/v1/sessions/s/prompts", {"text": "hi"}, "t")
        with contextlib.closing(
            http.client.HTTPConnection(serving.url.removeprefix("http://"), timeout=10)
        ) as connection:
            open_stream(connection, b"session.tool.called")
            code, wrote = serving.end(signal.SIGTERM)
            assert code == 0
            assert "left without waiting" in wrote


def open_stream(connection, event=b"session.text.delta"):
    """A stream that shows the first text of the turn, or another event of it."""
    headers = {"Authorization": "Bearer t", "Accept": "text/event-stream"}
    connection.request("GET", "/v1/sessions/s/events", headers=headers)
    stream = connection.getresponse()
    while event not in stream.readline():
        pass
    return stream
