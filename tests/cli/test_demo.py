"""The demo as a person runs it: a real server, killed five times; and the proof that it can fail."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from perdure.cli import demo
from perdure.cli.demo import scenes, story, verdict

DEMO = [sys.executable, "-c", "from perdure.cli.main import main; main()", "demo"]
KILLS = ["a", "b", "c", "d", "e"]


@pytest.mark.crash
@pytest.mark.slow
def test_a_server_killed_at_five_moments_loses_nothing_and_does_nothing_twice():
    """IN-12, REC-2, REC-8, PUB-3, MSG-7, MSG-9, API-1: every figure of `perdure demo --json`."""
    done = subprocess.run([*DEMO, "--json"], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert (told["problems"], told["ok"], done.returncode) == ([], True, 0)
    kills = {one["kill"]: one for one in told["kills"]}
    assert list(kills) == KILLS
    for one in kills.values():
        assert one["struck"], one
        assert (one["answered"], one["missed"]) == (one["prompts"], 0), one
        assert one["calls"] == one["effects"] == one["effects_due"], one
        assert one["saw"] - one["kept"] == one["lost"] <= one["recent"], one
        assert 0 < one["resumed_s"] < verdict.RESUMED_WITHIN_S, one
    assert [kills[key]["prompts"] for key in KILLS] == [1, 1, 1, 1, 2]
    assert [kills[key]["effects"] for key in KILLS] == [0, 0, 1, 1, 0]
    assert all(kills[key]["notice"] for key in KILLS)
    assert [kills[key]["told"] for key in KILLS] == [False, False, True, False, False]
    assert kills["a"]["saw"] == 0
    assert kills["b"]["saw"] >= 240
    assert kills["b"]["kept"] > 0
    assert told["pairing_violations"] == 0


@pytest.mark.crash
@pytest.mark.slow
def test_the_demo_fails_where_a_figure_is_not_as_promised(monkeypatch, capsys):
    """One real kill, from which a refund is expected that never was asked for."""
    monkeypatch.setattr(scenes, "SCENES", (dataclasses.replace(scenes.ADMITTED, effects=1),))
    assert demo.command(json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert told["problems"] == ["kill a: 0 side effects where 1 were due", "kill a: 0 calls where 1 were due"]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_no_process_and_no_folder(tmp_path, number):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        first = running.stdout.readline()
        server = int(re.search(r"process (\d+)", first)[1])
        assert list(tmp_path.iterdir())
        running.send_signal(number)
        rest, complaints = running.communicate(timeout=60)
    assert (running.returncode, complaints) == (130, "")
    assert "\x1b" not in first + rest
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


GOOD = verdict.Figures(
    kill="c",
    moment="",
    struck=True,
    prompts=2,
    answered=2,
    calls=1,
    effects=1,
    effects_due=1,
    saw=100,
    kept=90,
    recent=10,
    missed=0,
    notice=True,
    told=True,
    told_due=True,
    resumed_s=1.0,
)


def test_good_figures_are_no_problem():
    assert verdict.problems([GOOD], ["c"], 0) == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"struck": False}, "it did not strike where it was meant to"),
        ({"answered": 1}, "of 2 prompts, 1 were answered exactly once"),
        ({"effects": 2}, "2 side effects where 1 were due"),
        ({"effects": 0}, "0 side effects where 1 were due"),
        ({"calls": 2}, "2 calls where 1 were due"),
        ({"kept": 89}, "11 characters lost, but only 10 were younger than 250 ms"),
        ({"missed": 1}, "a reader who came back missed or repeated 1 facts"),
        ({"notice": False}, "the transcript does not show the recovery"),
        ({"told": False}, "the model was not told that the outcome is unknown"),
        ({"told_due": False}, "the model was told of an unknown outcome that was known"),
        ({"resumed_s": 26.0}, "it went on only after 26.0 s"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_each_bad_figure_is_a_problem(bad, problem):
    assert verdict.problems([dataclasses.replace(GOOD, **bad)], ["c"], 0) == [f"kill c: {problem}"]


def test_a_kill_that_was_not_told_and_a_refused_history_are_problems():
    assert verdict.problems([GOOD], ["c", "d"], 2) == [
        "kills c, d were promised, not c",
        "the provider refused 2 histories in which a call lacks its result",
    ]


@pytest.mark.parametrize("json", [True, False])
def test_a_story_that_broke_off_is_a_failure_that_says_why(monkeypatch, capsys, json):
    async def broken(folder, audience):
        return story.Told([], 0, "after 0 kills the story broke off: TimeoutError")

    monkeypatch.setattr(story, "tell", broken)
    assert demo.command(json=json) == 1
    assert "after 0 kills the story broke off: TimeoutError" in capsys.readouterr().out


def test_files_are_kept_in_an_empty_folder_only(tmp_path, monkeypatch):
    async def written(folder, audience):
        (folder / "perdure.db").touch()
        return story.Told([], 0)

    monkeypatch.setattr(story, "tell", written)
    demo.command(json=True, keep=tmp_path / "kept")
    assert (tmp_path / "kept" / "perdure.db").exists()
    with pytest.raises(demo.errors.ConfigError, match="the folder is not empty"):
        demo.command(json=True, keep=tmp_path / "kept")
