"""Schedules by chance: some seeds in every run of the suite, many in `make soak`.

A failure names its seed; `Chance(place, seed).run()` is that story again, to the byte.
"""

import itertools
import os
import time

import chance
import pytest

pytestmark = pytest.mark.slow
SEEDS, FLOCK = 100, 10
SOAK_S = float(os.environ.get("PERDURE_SOAK_SECONDS", "120"))


def lives_of(place, seed):
    story = chance.Chance(place, seed)
    try:
        wrong = story.run()
    except Exception as error:
        error.add_note("\n".join([f"seed {seed}", *story.simulation.trace, *story.told()]))
        raise
    finally:
        story.remove()
    assert wrong == [], "\n".join([f"seed {seed}", *wrong])
    return story.simulation.lives


@pytest.mark.parametrize("first", range(0, SEEDS, FLOCK))
def test_whatever_clients_do_and_whenever_processes_die_everything_holds(place, first, says):
    """IN-12, REC-8, REC-10, REC-11, EX-8, APR-1, MSG-1, MSG-9."""
    lives = sum(lives_of(place, seed) for seed in range(first, first + FLOCK))
    says(f"seeds {first} to {first + FLOCK - 1}: {lives} lives")


@pytest.mark.soak
def test_chance_finds_nothing_for_minutes(place, says):
    """IN-12, REC-8, REC-10, REC-11, EX-8, APR-1, MSG-1, MSG-9: as the small one."""
    until = time.monotonic() + SOAK_S
    lives = 0
    for seed in itertools.count(10_000):
        lives += lives_of(place, seed)
        if time.monotonic() > until:
            says(f"seeds 10000 to {seed}: {lives} lives")
            return
