"""The commands for scripts and for looking: `run`, `sessions`, `show`, `tail`, `prompt`, `interrupt`, `approve`, `deny`,
`recoveries`, `completion`; most in this process, on a database, with a provider over HTTP.
"""

import asyncio
import io
import json
import signal
import sys

import apsw
import pytest
from rich.cells import cell_len
from rich.console import Console

from perdure import Agent, Perdure, Policy, config
from perdure.cli import connect, main, render, run
from perdure.models import scripted
from perdure.testing import provider_script as script

MODEL = ("--model", "openai:fake")
APP = """
from perdure import Agent, Perdure, tool
@tool(approval="always")
async def refund(order: int) -> str:
    "Refund an order."
    return f"refunded order {order}"
app = Perdure([Agent("default", "openai:fake", tools=[refund])])
"""


@pytest.fixture
def ask(here, provider):
    """`perdure COMMAND …` in this process, with the provider at hand."""

    def asked(*arguments, **variables):
        sys.modules.pop("shopping", None)  # every command is a process of its own
        return here(*arguments, OPENAI_BASE_URL=provider.fake.url, PERDURE_GRACE_SECONDS="0", **variables)

    return asked


def only(done, code=0):
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stdout


# -- run -------------------------------------------------------------------------------------------------------------------


def test_run_prints_the_answer_alone_on_stdout_and_progress_on_stderr(ask, provider, shell):
    provider.script(
        script.Rule(
            reply=(script.Text("I look."), script.Call("read_file", {"path": "a.txt"})), step=0, contains="look"
        ),
        script.Rule(reply=(script.Text("It says hello."),), contains="look"),
    )
    shell.write("a.txt", "hello")
    done = ask("run", "look", *MODEL, "--workspace", ".", "--session", "s", "--create", "--id", "p")
    assert only(done) == "It says hello.\n"
    assert "session s  prompt p" in done.stderr
    assert 'read_file(path="a.txt")' in done.stderr
    quiet = ask("run", "look", *MODEL, "--workspace", ".", "--session", "s", "--create", "--id", "p", "--quiet")
    assert (only(quiet), quiet.stderr) == ("It says hello.\n", ""), "asked twice, answered once"
    assert len(provider.fake.requests) == 2


@pytest.mark.parametrize("arguments", [["-"], []])
def test_run_reads_its_prompt_from_stdin(ask, monkeypatch, shell, arguments):
    shell.write("in", "from stdin\n")
    with (shell.directory / "in").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        assert only(ask("run", *arguments, *MODEL)) == "Echo: from stdin\n"


def test_run_json_prints_every_fact_as_a_line_and_the_receipt_last(ask):
    lines = [json.loads(line) for line in only(ask("run", "hi", *MODEL, "--json")).splitlines()]
    *facts, last = lines
    seqs = [one["durable"]["seq"] for one in facts]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert facts[-1]["type"] == "session.execution.ended"
    assert (last["type"], last["receipt"]["outcome"]) == ("receipt", "succeeded")


def test_run_exits_1_where_the_model_fails_and_says_why(ask, provider):
    provider.script(script.Rule(reply=(script.HttpError(401, "Wrong key"),)))
    done = ask("run", "hi", *MODEL)
    assert (only(done, 1), done.stderr.splitlines()[-1].startswith("perdure: ")) == ("", True)
    assert "Wrong key" in done.stderr


def test_run_exits_6_where_it_takes_too_long_and_the_turn_is_there_to_go_on_with(ask, provider):
    provider.script(script.Rule(reply=(script.Hang("never"),), times=1))
    late = ask("run", "hi", *MODEL, "--session", "s", "--create", "--id", "p", "--timeout", "0.1")
    assert only(late, 6) == ""
    [said] = [line for line in late.stderr.splitlines() if line.startswith("perdure: ")]
    assert "not done in 0.1 s; the prompt is stored" in said
    assert "--session s --id p" in said
    assert "perdure show s" in said
    assert "--session s --id p --model openai:fake" in said
    assert only(ask("run", "hi", *MODEL, "--session", "s", "--create", "--id", "p")).startswith("Echo: ")


def test_run_exits_4_where_a_person_is_needed_and_goes_on_once_somebody_decided_apr_1(ask, provider, shell):
    shell.write("shopping.py", APP)
    provider.script(
        script.Rule(reply=(script.Call("refund", {"order": 7}),), contains="refund", step=0),
        script.Rule(reply=(script.Text("Done."),), contains="refund"),
    )
    arguments = ("run", "refund", "--app", "shopping:app", "--session", "s", "--create", "--id", "p")
    done = ask(*arguments)
    assert only(done, 4) == ""
    assert "perdure approve s call_1_0" in done.stderr, done.stderr
    assert json.loads(only(ask("show", "s", "--json")))["status"]["status"] == "waiting"
    assert only(ask("approve", "s")) == "approve: call_1_0\n"
    assert "already decided" in ask("deny", "s", "call_1_0").stderr
    assert only(ask(*arguments)) == "Done.\n"
    assert only(ask("run", "refund", "--app", "shopping:app", "--yes", "--quiet")) == "Done.\n"
    only(ask("approve", "s"), 2)


@pytest.mark.slow
def test_ctrl_c_interrupts_the_turn_of_run_for_good_and_exits_130_ex_8(shell, provider):
    provider.script(script.Rule(reply=(script.Text("Half"), script.Hang("never")), times=1))
    shell.environment["OPENAI_BASE_URL"] = provider.fake.url
    with shell._start("run", "hi", *MODEL, "--session", "s", "--create", "--id", "p") as process:
        provider.arrived("never")
        process.send_signal(signal.SIGINT)
        said, wrote = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "Half\n"), wrote
    done = shell.run("run", "hi", *MODEL, "--session", "s", "--create", "--id", "p")
    assert (done.returncode, done.stdout) == (3, "Half\n"), "interrupted is final"


def test_a_session_that_is_not_there_is_made_only_where_that_is_said_api_4(ask, shell):
    missing = ask("run", "hi", *MODEL, "--session", "s")
    only(missing, 2)
    assert "There is no database" in missing.stderr
    assert "--create" in missing.stderr
    assert not (shell.directory / "perdure.db").exists()
    only(ask("run", "hi", *MODEL, "--session", "s", "--create"))
    for mistyped in (ask("run", "hi", *MODEL, "--session", "z"), ask("chat", *MODEL, "--session", "z")):
        only(mistyped, 2)
        assert "Session z does not exist: is the id right? --create makes it" in mistyped.stderr
    assert [one["id"] for one in json.loads(only(ask("sessions", "--json")))["data"]] == ["s"]
    only(ask("run", "again", *MODEL, "--session", "s"))
    only(ask("run", "again", *MODEL, "--session", "s", "--create"))
    assert [one["id"] for one in json.loads(only(ask("sessions", "--json")))["data"]] == ["s"]
    nameless = ask("run", "hi", *MODEL, "--create")
    only(nameless, 2)
    assert "name the id" in nameless.stderr


# -- looking and deciding ------------------------------------------------------------------------------------------------------


def test_sessions_show_and_tail_say_what_there_is_to_people_and_to_programs(ask):
    only(ask("run", "first *question*", *MODEL, "--session", "s1", "--create"))
    only(ask("run", "second", *MODEL, "--session", "s2", "--create"))
    table = only(ask("sessions"))
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["s2", "s1"]
    assert "\x1b" not in table
    told = json.loads(only(ask("sessions", "--json", "--limit", "1")))
    assert ([one["id"] for one in told["data"]], told["more"]) == (["s2"], True)
    assert told["data"][0]["status"] == {"status": "idle", "since": told["data"][0]["status"]["since"]}
    shown = only(ask("show", "s1"))
    assert "first *question*" in shown
    assert "Echo: first question" in shown
    whole = json.loads(only(ask("show", "s1", "--json", "--last", "1")))
    assert [one["type"] for one in whole["messages"]] == ["assistant"]
    lines = [json.loads(line) for line in only(ask("tail", "s1", "--no-follow", "--json")).splitlines()]
    assert [one["durable"]["seq"] for one in lines] == list(range(len(lines)))
    last = only(ask("tail", "s1", "--no-follow", "--after", str(len(lines) - 2)))
    assert "execution.ended" in last
    assert len(last.splitlines()) == 1
    assert only(ask("interrupt", "s1")) == "there was nothing to interrupt\n"


def test_a_damaged_session_is_named_beside_the_others_and_a_rebuild_mends_it_msg_8(ask, tmp_path):
    for name in ("s1", "s2"):
        only(ask("run", "hi", *MODEL, "--session", name, "--create"))
    apsw.Connection(str(tmp_path / "perdure.db")).execute("UPDATE session SET policy = '{' WHERE id = 's1'")
    done = ask("sessions")
    assert [line.split()[0] for line in only(done).splitlines()[1:]] == ["s2"]
    assert done.stderr.startswith("Session s1 cannot be decoded: ")
    assert done.stderr.endswith("mend it: perdure rebuild s1\n")
    assert [one["id"] for one in json.loads(only(ask("sessions", "--json")))["damaged"]] == ["s1"]
    only(ask("verify"), 1)
    only(ask("rebuild", "s1"))
    assert [line.split()[0] for line in only(ask("sessions")).splitlines()[1:]] == ["s2", "s1"]


def test_what_a_prompt_and_each_request_used_is_told_to_people_and_to_programs_run_7_run_8(ask):
    last = only(ask("run", "first", *MODEL, "--session", "s1", "--create", "--json")).splitlines()[-1]
    used = json.loads(last)["receipt"]["usage"]
    assert used["tokens"]["input"] > 0
    told = json.loads(only(ask("show", "s1", "--json", "--attempts")))
    assert [(one["outcome"], one["usage"]) for one in told["attempts"]] == [("succeeded", used)]
    assert told["session"]["usage"] == used
    assert "attempt 1" in only(ask("show", "s1", "--attempts"))
    assert "attempts" not in json.loads(only(ask("show", "s1", "--json")))


def test_an_idle_look_takes_no_turn_away_and_a_prompt_is_stored_for_whoever_serves(ask, provider):
    provider.script(script.Rule(reply=(script.Hang("never"),), times=1))
    only(ask("run", "hi", *MODEL, "--session", "s", "--create", "--timeout", "0.1"), 6)
    receipt = json.loads(only(ask("prompt", "s", "more", "--id", "p2", "--delivery", "queue", "--json")))
    assert receipt["state"] == "admitted"
    assert "p2  admitted  (queue" in only(ask("prompt", "s", "more", "--id", "p2", "--delivery", "queue"))
    assert len(provider.fake.requests) == 1
    assert json.loads(only(ask("interrupt", "s", "--json"))) == {"interrupted": True}
    assert only(ask("run", "again", *MODEL, "--session", "s", "--create", "--id", "p3")).startswith("Echo:")


def test_recoveries_are_listed_dismissed_and_gone(ask):
    assert only(ask("run", "hi", *MODEL, "--session", "s", "--create")).startswith("Echo")
    assert only(ask("recoveries")) == "No turn waits for recovery.\n"
    assert json.loads(only(ask("recoveries", "--json"))) == {"data": []}
    assert "exe_none" in ask("recoveries", "retry", "exe_none").stderr
    only(ask("recoveries", "dismiss", "exe_none"), 2)
    only(ask("recoveries", "dismiss"), 2)


def test_a_turn_that_waits_for_a_decision_says_where_it_is_made_rec_7(ask, shell):
    async def lost():
        gate = scripted.Gate()
        model = scripted.ScriptedModel([[scripted.Text("Half"), scripted.Hang(gate)]])
        options = {"database_url": str(shell.directory / "perdure.db"), "grace_seconds": 0}
        async with Perdure([Agent("default", model)], settings=config.settings(**options)) as app:
            session = await app.sessions.create(id="s", policy=Policy(recovery="ask"))
            await session.prompt("hi", id="p")
            await asyncio.wait_for(gate.arrived(), 30)

    asyncio.run(lost())
    again = ("run", "hi", *MODEL, "--session", "s", "--create", "--id", "p")
    waits = ask(*again)
    assert only(waits, 4) == ""
    assert waits.stderr.endswith("waits for a person: decision: retry or dismiss; see: perdure recoveries\n")
    [waiting] = json.loads(only(ask("recoveries", "--json")))["data"]
    assert only(ask("recoveries", "retry", waiting["execution_id"])).startswith("retry: ")
    assert only(ask(*again)).startswith("Echo: ")


def test_the_last_of_a_long_session_is_shown_without_the_rest_of_it(ask, monkeypatch):
    for number in range(6):
        only(ask("run", f"question {number}", *MODEL, "--session", "s", "--create"))
    whole = json.loads(only(ask("show", "s", "--json")))["messages"]
    monkeypatch.setattr("perdure.cli.transcript.PAGE", 2)
    for many in (0, 1, 5, 12, 99):
        told = json.loads(only(ask("show", "s", "--json", "--last", str(many))))["messages"]
        assert told == (whole[-many:] if many else [])


# -- tables ------------------------------------------------------------------------------------------------------------------

ROWS = [
    ["ses_" + "a" * 26, "waiting: approval", "default", "A title that goes on and on\nand on " * 3, "$0.1"],
    ["ses_b", "idle", "main", "標題" * 30, "-"],
]


@pytest.mark.parametrize("width", [10, 40, 80, 300])
def test_a_terminal_that_is_too_narrow_cuts_titles_and_never_an_id(width):
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, color_system=None, width=width)
    render.table(terminal, ("session", "cost"), ("session", "status", "agent", "title", "cost"), ROWS)
    head, *lines = written.getvalue().splitlines()
    assert head.split() == ["session", "status", "agent", "title", "cost"]
    assert [line.split()[0] for line in lines] == [row[0] for row in ROWS]
    assert [line.split()[-1] for line in lines] == [row[-1] for row in ROWS]
    assert all(cell_len(line) <= max(width, 80) for line in lines) or width == 300
    assert ("…" in lines[0]) == (width < 300)


def test_where_nobody_looks_a_table_is_not_cut(ask):
    title = "A title that is longer than anybody would want it to be, by far " * 2
    only(ask("run", title, *MODEL, "--session", "ses_" + "x" * 60, "--create"))
    [line] = only(ask("sessions", COLUMNS="20")).splitlines()[1:]
    assert line.split()[0] == "ses_" + "x" * 60
    assert "…" not in line.replace(render.clip(title, 60), "")


# -- what is refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["sessions"], 2, "no database"),
        (["show", "none"], 2, "no database"),
        (["run", "hi"], 2, "--model"),
        (["run", "hi", "--model", "nowhere:x"], 2, "nowhere:x"),
        (["run", "hi", "--app", "missing:app"], 2, "missing"),
        (["run", "hi", "--app", "x:y", "--workspace", "."], 2, "--workspace"),
        (["run", "hi", "--model", "openai:m", "--workspace", "none"], 2, "none"),
        (["run", "hi", "--url", "http://127.0.0.1:1", "--workspace", "."], 2, "--workspace"),
        (["run", "hi", "--url", "nonsense"], 2, "URL"),
        (["sessions", "--url", "http://127.0.0.1:1", "--database", "x.db"], 2, "--database"),
        (["run", "hi", "--url", "http://127.0.0.1:1"], 1, "perdure serve"),
        (["run", "--bogus", "--model", "openai:m"], 2, "--bogus"),
        (["completion", "tcsh"], 2, "tcsh"),
        (["recoveries", "list", "exe_1"], 2, "execution id"),
        (["recoveries", "retry"], 2, "See 'perdure recoveries --help'"),
        (["sessions", "--limit", "0"], 2, "--limit"),
        (["show", "s", "--last", "-1"], 2, "--last"),
        (["run", "hi", "--timeout", "-1"], 2, "--timeout"),
        (["sessions", "--limt", "3"], 2, "Did you mean --limit? See"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_an_exit_code(here, monkeypatch, arguments, code, word):
    monkeypatch.setattr("perdure.client.transport.FIRST_CONTACT_S", 0.05)
    done = here(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: ")
    assert word in line


def test_a_wrong_token_is_refused_in_the_words_of_a_command_line_sec_1(here, shell):
    with shell.serve(*MODEL, OPENAI_BASE_URL="http://127.0.0.1:9/v1") as serving:
        refused = here("sessions", "--url", serving.url, "--token", "wrong")
        assert (refused.returncode, "--token or PERDURE_TOKEN" in refused.stderr) == (2, True), refused
        assert only(here("sessions", "--url", f"{serving.url}/v1")).startswith("There is no session yet")


def test_an_empty_url_is_none(ask):
    assert only(ask("run", "hi", *MODEL, PERDURE_URL="")) == "Echo: hi\n"
    assert "idle" in only(ask("sessions", "--database", "perdure.db", PERDURE_URL=""))


def test_what_a_person_is_told_to_call_names_the_options_that_were_given(monkeypatch):
    monkeypatch.setenv("PERDURE_URL", "http://127.0.0.1:1")
    here = connect.Runner(database="my file.db", model="openai:m", mcp=("a b", "c"), token="secret")
    assert connect.again(here) == " --database 'my file.db'"
    assert connect.again_running(here) == " --database 'my file.db' --model openai:m --mcp 'a b' --mcp c"
    there = connect.Runner(url="http://127.0.0.1:2", model="openai:m", token="secret")
    assert connect.again(there) == connect.again_running(there) == " --url http://127.0.0.1:2"
    assert connect.again(connect.Where(url="http://127.0.0.1:1")) == "", "the environment says it"


def test_an_empty_prompt_is_refused(ask, monkeypatch, shell):
    shell.write("in", "\n")
    with (shell.directory / "in").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        assert "empty" in ask("run", *MODEL).stderr


def test_the_token_file_goes_to_this_machine_only_sec_1(shell, monkeypatch):
    from perdure import config
    from perdure.cli import connect

    for name, value in shell.environment.items():
        monkeypatch.setenv(name, value)
    kept = shell.directory / "state" / "perdure" / "token"
    kept.parent.mkdir(parents=True)
    kept.write_text("of-this-machine\n")
    settings = config.settings()
    for url in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):
        assert connect.token_for(url, settings) == "of-this-machine"
    for url in ("http://example.org", "http://10.0.0.1:7433", "https://127.0.0.1.example.org"):
        assert connect.token_for(url, settings) is None


@pytest.mark.parametrize("name", [name for name, _, _ in main.COMMANDS])
def test_every_commands_help_has_an_example_or_explains_its_arguments(here, name):
    said = only(here(name, "--help"))
    assert f"perdure {name}" in said
    if name in {"chat", "run", "sessions", "show", "tail", "prompt", "interrupt", "approve", "deny", "recoveries"}:
        assert "Exit codes: " in said
        assert said.count(f"perdure {name}") > 1, "an example"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("serve", "serve [OPTIONS] [APP]"),
        ("tail", "tail [OPTIONS] SESSION"),
        ("deny", "deny [OPTIONS] SESSION [CALL]"),
        ("recoveries", "recoveries [OPTIONS] [ACTION] [EXECUTION]"),
        ("rebuild", "rebuild [OPTIONS] [SESSIONS...]"),
        ("import", "import [OPTIONS] FILE"),
    ],
)
def test_the_first_line_of_a_commands_help_names_its_arguments(here, name, words):
    assert only(here(name, "--help")).splitlines()[0] == f"Usage: perdure {words}"


@pytest.mark.parametrize("name", [name for name, _, _ in main.COMMANDS])
def test_no_commands_help_calls_an_option_a_command_or_says_a_thing_twice(here, name):
    said = only(here(name, "--help"))
    assert not [word for word in ("Commands", "Parameters", "[default: False]", "[env var", "[ARGS") if word in said]


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(here, kind):
    said = only(here("completion", kind))
    assert all(name in said for name, _, _ in main.COMMANDS)


def test_an_interrupted_command_says_nothing(here, monkeypatch):
    monkeypatch.setattr(run, "_text", interrupted)
    done = here("run", "hi", *MODEL)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def interrupted(_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", ["prompt s hi", "interrupt s", "approve s"])
def test_an_empty_file_is_no_database_and_stays_empty(here, tmp_path, command):
    file = tmp_path / "empty.db"
    file.touch()
    done = here(*command.split(), "--database", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no database" in done.stderr
    assert file.stat().st_size == 0
