"""Measures one case of one side in a process of its own, and prints what it took as one line of JSON.

A side opens its store in a folder and begins sessions; the turn of a session gets its number and returns when the
answer is there. A turn in a session apart goes before the clock starts: what is loaded late is loaded by then. The
peers' environments hold nothing of ours, so the standard library must do here.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import collector

PLACE = Path(__file__).resolve().parent.parent.parent / ".bench"

Turn = Callable[[int], Awaitable[None]]
Begin = Callable[[str], Awaitable[Turn]]
Side = Callable[[Path], AbstractAsyncContextManager[Begin]]


@dataclass(frozen=True)
class Case:
    sessions: int
    turns: int
    """Of each session, one after the other; the sessions go side by side."""


CASES = {"one": Case(sessions=1, turns=100), "fifty": Case(sessions=50, turns=4)}


@dataclass(frozen=True)
class Took:
    turns_per_s: float
    cpu_ms: float
    """Of the whole process, all its threads, a turn."""
    first_ten_ms: float
    last_ten_ms: float


async def measure(side: Side, case: Case) -> Took:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        async with side(Path(folder)) as begin:
            await (await begin("warm"))(0)
            collector.settle()
            turns = [await begin(f"session-{number}") for number in range(case.sessions)]
            began, cpu = time.perf_counter(), time.process_time()
            each = await asyncio.gather(*(in_a_row(turn, case.turns) for turn in turns))
            took, used = time.perf_counter() - began, time.process_time() - cpu
    total = case.sessions * case.turns
    first = statistics.median(one for session in each for one in session[:10])
    last = statistics.median(one for session in each for one in session[-10:])
    return Took(total / took, 1000 * used / total, 1000 * first, 1000 * last)


async def in_a_row(turn: Turn, count: int) -> list[float]:
    """How long each turn of a session took, in seconds."""
    took: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await turn(number)
        took.append(time.perf_counter() - began)
    return took


def main(**modes: Side) -> None:
    """`python -m bench.peers.turn_… MODE CASE [--turns N]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=modes)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--turns", type=int, help="of each session")
    asked = parser.parse_args()
    case = CASES[asked.case]
    took = asyncio.run(measure(modes[asked.mode], Case(case.sessions, asked.turns or case.turns)))
    print(json.dumps(asdict(took)))
