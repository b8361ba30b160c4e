"""The comparison with peers, as far as it goes without installing one: what it names is there, and a peer that fails is
left out in so many words. What the peers do is seen by running it.
"""

import ast
import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import bench_peers
from bench.peers import turns


def took(turns_per_s: float) -> list[turns.Took]:
    return [turns.Took(turns_per_s, cpu_ms=8, first_ten_ms=10, last_ten_ms=15)]


def modes_of(program: str) -> set[str]:
    """The words that the program takes for a mode, read from its call of `main`."""
    tree = ast.parse((bench_peers.PEERS / f"{program}.py").read_text())
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "turns.main")
    spread = (key.value for one in call.keywords if isinstance(one.value, ast.Dict) for key in one.value.keys)
    return {one.arg for one in call.keywords if one.arg} | set(spread)


@pytest.mark.parametrize("side", [bench_peers.OURS, *bench_peers.OTHERS], ids=lambda side: side.name)
def test_every_side_names_a_program_a_mode_of_it_and_pinned_requirements(side):
    assert side.mode in modes_of(side.program)
    if side is not bench_peers.OURS:
        lock = bench_peers.PEERS / side.lock
        assert lock.with_suffix(".in").exists()
        assert "--hash=sha256:" in lock.read_text()


def test_the_comparison_runs_by_name_only():
    assert "bench_peers" not in bench.chosen([])
    assert bench.chosen(["peers"]) == ["bench_peers"]


def test_the_best_peer_is_the_one_with_the_most_turns():
    measured = {"perdure": took(150), "slow": took(50), "quick": took(100)}
    made = {row.name: row for row in bench_peers.rows("one session", measured)}
    ratio = made["turns, one session: perdure to the best peer"]
    assert (ratio.median, ratio.note) == (150, "the best is quick")
    assert made["last ten turns to first ten: slow"].median == 150


def test_without_any_peer_there_is_no_ratio():
    made = bench_peers.rows("50 sessions", {"perdure": took(150)})
    assert [row.name for row in made] == ["turns, 50 sessions: perdure", "CPU a turn, 50 sessions: perdure"]


def test_a_peer_that_fails_is_left_out_of_every_case_and_a_line_says_so(capsys, monkeypatch):
    monkeypatch.setattr(bench_peers, "once", lambda side, python, case: fails_at("fifty", side, case))
    sides = (bench_peers.OURS, bench_peers.Side("lame", "turn_lame"))
    measured = bench_peers.rounds(sides, 2)
    assert {case: {name: len(got) for name, got in all_of.items()} for case, all_of in measured.items()} == {
        "one": {"perdure": 2},
        "fifty": {"perdure": 2},
    }
    assert capsys.readouterr().err.splitlines() == ["round 1 of 2", "left out: lame: it fell", "round 2 of 2"]


def fails_at(where: str, side: bench_peers.Side, case: str) -> turns.Took:
    if side is not bench_peers.OURS and case == where:
        raise bench_peers.LeftOutError("it fell")
    return took(100)[0]


def test_a_peer_that_cannot_be_installed_is_left_out(capsys, monkeypatch, tmp_path):
    file = tmp_path / "no-folder"
    file.touch()
    monkeypatch.setattr(bench_peers, "ENVIRONMENTS", file)
    measured = bench_peers.rounds([bench_peers.OTHERS[0]], 1)
    assert measured == {"one": {}, "fifty": {}}
    assert "\nleft out: langgraph: " in capsys.readouterr().err


def test_a_program_that_dies_tells_its_last_line():
    with pytest.raises(bench_peers.LeftOutError, match=r"No module named .*turn_nobody"):
        bench_peers.once(bench_peers.Side("nobody", "turn_nobody"), bench_peers.interpreter(bench_peers.OURS), "one")


@pytest.mark.slow
def test_our_own_turn_runs_in_a_process_of_its_own_and_prints_what_it_took():
    command = [sys.executable, "-m", "bench.peers.turn_perdure", "sqlite", "fifty", "--turns", "1"]
    done = subprocess.run(command, cwd=bench_peers.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert '"turns_per_s": ' in done.stdout
