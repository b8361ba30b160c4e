"""What a benchmark answers, and how it gets to a number that a busy machine cannot bend much.

A benchmark is a module `bench_<what>.py` with `run() -> list[Row]`, bounded to a few seconds. Variants are measured in
interleaved rounds, so that a slow minute of the machine slows all of them, and the median round is what counts.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    name: str
    median: float
    unit: str
    note: str = ""


def interleave(variants: Mapping[str, Callable[[], float]], *, rounds: int, unit: str) -> list[Row]:
    """One row per variant: the median over rounds in each of which every variant ran once."""
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            measured[name].append(measure())
    return [Row(name, statistics.median(got), unit, spread(got)) for name, got in measured.items()]


def spread(measured: list[float]) -> str:
    return f"{len(measured)} rounds, {min(measured):,.0f} to {max(measured):,.0f}"
