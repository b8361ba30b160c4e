"""A command as a tool: what the model and a reader see of it."""

import os

import pytest

from perdure import ToolContext, ToolError
from perdure.tools.local import shell


@pytest.fixture
def run(tmp_path):
    def run(command, **how):
        return shell.Shell(tmp_path).shell(command, ToolContext("ses", "call", owner_id="own_test"), **how)

    return run


def test_a_command_is_told_with_its_output_and_code(run, tmp_path):
    result = run("pwd; exit 3")
    assert result.content == [{"type": "text", "text": f"{tmp_path}\n[Exit code 3]"}]
    assert (result.structured, result.failed) == ({"exit_code": 3, "ended": "exited"}, False)
    assert run("kill -9 $$").content[0]["text"] == "[Killed by signal 9]"


def test_output_is_shown_as_it_comes(tmp_path):
    os.mkfifo(tmp_path / "seen")
    shown = []

    def report(structured, content):
        if not shown:
            (tmp_path / "seen").write_text("go on\n")
        shown.append(content)

    context = ToolContext("ses", "call", owner_id="own_test", report=report)
    shell.Shell(tmp_path).shell("echo first; read -r line < seen; echo second", context)
    assert shown[0] == "first\n"


def test_run_6_a_command_that_takes_too_long_is_a_failure_that_keeps_its_output(run):
    result = run("echo begun; sleep 1000", timeout_s=1.5)
    assert result.failed
    assert result.content[0]["text"].startswith("begun\n[Ended after 1.5 s")


def test_a_flood_is_held_within_a_bound_and_both_ends_are_kept(run):
    words = run("echo begin; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end").content[0]["text"]
    assert len(words) < shell.MAX_HEAD + shell.MAX_TAIL + 2 * 65536
    assert words.startswith("begin\n")
    assert words.endswith("end\n[Exit code 0]")
    assert "bytes left out" in words


def test_sec_2_output_that_is_no_text_is_recordable_and_flagged(run):
    part = run(r"printf '\377\376ok'").content[0]
    assert part["text"].startswith("\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}ok")
    assert part["replaced"] is True


def test_sec_1_secrets_of_the_server_are_not_in_the_environment(run, monkeypatch):
    for name in ("OPENAI_API_KEY", "PERDURE_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("HARMLESS", "heard")
    words = run("env").content[0]["text"]
    assert "hush" not in words
    assert "HARMLESS=heard" in words


def test_a_command_that_cannot_be_given_to_a_shell_is_told_to_the_model(run):
    with pytest.raises(ToolError, match="NUL"):
        run("echo \0")
    with pytest.raises(ToolError, match="could not be started"):
        run("x" * 3_000_000)
