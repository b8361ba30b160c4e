"""The one-tool turn beside what users would pick: `python -m bench peers`, or `make bench BENCH=peers ROUNDS=3`.

It runs by name only: the first run makes an environment for each peer in `.bench/peers/`, which takes a package index, and
a round takes a minute. A peer that cannot be installed, or fails, is left out and a line says so; no number stands in
for it. Every measurement is a process of its own (`python -m bench.peers.turn_… MODE CASE` with the environment's
Python), and the sides take turns, so that a slow minute of the machine slows all of them.

Each peer keeps the turn as its documentation says to by default. Nobody listens to the answers: a peer's model puts its
200 tokens together at once, while Perdure's stream is at work all the same, since with it that is no choice.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import turns
from bench.row import Row, spread

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
ENVIRONMENTS = ROOT / ".bench" / "peers"
PATIENCE = 600


@dataclass(frozen=True)
class Side:
    name: str
    program: str
    mode: str = "sqlite"
    lock: str | None = None
    """The requirements of its environment; without, it runs in ours."""


OURS = Side("perdure", "turn_perdure")
OTHERS = (
    Side("langgraph", "turn_langgraph", "async", lock="langgraph.txt"),
    Side("langgraph, durability sync", "turn_langgraph", "sync", lock="langgraph.txt"),
    Side("openai agents", "turn_openai_agents", lock="openai_agents.txt"),
    Side("pydantic-ai on dbos", "turn_pydantic_ai", lock="pydantic_ai.txt"),
)
CASES = {"one": "one session", "fifty": "50 sessions"}

Measured = Mapping[str, Sequence[turns.Took]]
"""By the name of the side, a round each."""


class LeftOutError(Exception):
    """A side could not be installed or measured."""


def run() -> list[Row]:
    measured = rounds((OURS, *OTHERS), int(os.environ.get("ROUNDS", "3")))
    return [row for case, sides in measured.items() for row in rows(CASES[case], sides)]


def rounds(sides: Sequence[Side], count: int) -> dict[str, dict[str, list[turns.Took]]]:
    """Every case of every side, once a round; a peer that fails is gone from all of them."""
    going: dict[Side, Path] = {}
    for side in sides:
        try:
            going[side] = interpreter(side)
        except LeftOutError as why:
            leave_out(side, why)
    measured: dict[str, dict[str, list[turns.Took]]] = {case: {} for case in CASES}
    for number in range(count):
        print(f"round {number + 1} of {count}", file=sys.stderr)
        for case, got in measured.items():
            for side, python in list(going.items()):
                try:
                    got.setdefault(side.name, []).append(once(side, python, case))
                except LeftOutError as why:
                    del going[side]
                    leave_out(side, why)
    names = {side.name for side in going}
    return {case: {name: all_of for name, all_of in got.items() if name in names} for case, got in measured.items()}


def leave_out(side: Side, why: LeftOutError) -> None:
    if side is OURS:
        raise why
    print(f"left out: {side.name}: {why}", file=sys.stderr)


def interpreter(side: Side) -> Path:
    """The Python of the side's environment, which is made when it is missing or its requirements have changed."""
    if side.lock is None:
        return Path(sys.executable)
    wanted = PEERS / side.lock
    place = ENVIRONMENTS / wanted.stem
    python, made_from = place / "bin" / "python", place / "made-from.txt"
    if not made_from.exists() or made_from.read_text() != wanted.read_text():
        print(f"installing {wanted.name}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        output_of([sys.executable, "-m", "venv", str(place)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        output_of([*pip, "--require-hashes", "--requirement", str(wanted)])
        shutil.copy(wanted, made_from)
    return python


def once(side: Side, python: Path, case: str) -> turns.Took:
    said = output_of([str(python), "-m", f"bench.peers.{side.program}", side.mode, case])
    return turns.Took(**json.loads(said.splitlines()[-1]))


def output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)  # noqa: S603 - our own programs
    except subprocess.CalledProcessError as failed:
        last = failed.stderr.strip().splitlines()[-1:] or [f"exit code {failed.returncode}"]
        raise LeftOutError(last[0]) from failed
    except subprocess.TimeoutExpired as late:
        raise LeftOutError(f"not done after {PATIENCE} seconds") from late
    return done.stdout


def rows(case: str, measured: Measured) -> list[Row]:
    """What each side does a second and what it costs, ours in relation to the best peer, and who slows down."""
    made: list[Row] = []
    for name, took in measured.items():
        got = [one.turns_per_s for one in took]
        made.append(Row(f"turns, {case}: {name}", statistics.median(got), "turns/s", spread(got)))
    best = best_peer(measured)
    if best:
        ratio = median(measured[OURS.name], "turns_per_s") / median(measured[best], "turns_per_s")
        made.append(Row(f"turns, {case}: perdure to the best peer", 100 * ratio, "%", f"the best is {best}"))
    for name, took in measured.items():
        made.append(Row(f"CPU a turn, {case}: {name}", median(took, "cpu_ms"), "ms"))
    if case == CASES["one"]:
        for name, took in measured.items():
            first, last = median(took, "first_ten_ms"), median(took, "last_ten_ms")
            note = f"{first:.1f} ms, then {last:.1f} ms"
            made.append(Row(f"last ten turns to first ten: {name}", 100 * last / first, "%", note))
    return made


def best_peer(measured: Measured) -> str | None:
    """The one with the most turns a second."""
    others = [name for name in measured if name != OURS.name]
    return max(others, key=lambda name: median(measured[name], "turns_per_s"), default=None)


def median(took: Sequence[turns.Took], field: str) -> float:
    return statistics.median(getattr(one, field) for one in took)
