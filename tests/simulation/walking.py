"""The complete walk of the whole conversation, shared out over processes, a stretch of neighbouring edges at a time.

What each found is added up and said aloud; a machine with more cores is done sooner. What is walked is `shop.whole`.
"""

import logging
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import shop

from perdure.testing import simulator_walk

STRETCH = 4
"""Edges beside each other often leave the same, and then need one of them: so they stay together."""


def stretch(directory, first, last):
    """Die at these edges, and after each at every edge of the life that follows."""
    logging.disable(logging.CRITICAL)  # deaths make engines talk
    place = Path(directory) / str(first)  # files have numbers, which every process counts for itself
    place.mkdir()
    return simulator_walk.walk(lambda: shop.Story(place, shop.whole), pair_step=1, first=first, last=last, enough=1_000)


def complete(place, says):
    """Every pair there is."""
    story = shop.Story(place, shop.whole)
    edges = story.live().edges
    story.remove()
    walked, began = simulator_walk.Walked(), time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        stretches = [(first, min(first + STRETCH - 1, edges)) for first in range(1, edges + 1, STRETCH)]
        for done in as_completed([pool.submit(stretch, str(place), *one) for one in stretches]):
            walked.add(done.result())
            says(f"the whole conversation, {walked.points} of {edges} points so far: {walked}")
    says(f"the whole conversation, in {time.monotonic() - began:.0f} s: {walked}")
    assert walked.points == edges
    return walked
