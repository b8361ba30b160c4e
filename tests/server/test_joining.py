"""Cutting live text to what a reader lacks: nothing lost, nothing twice (PUB-3)."""

import pytest

from perdure.core import events
from perdure.server.joining import Texts


class Publisher:
    message_id = "m"

    def __init__(self):
        self.open = []

    def snapshot(self):
        return self.open


@pytest.fixture
def publisher(served):
    made = Publisher()
    served.perdure.engine.parts.live["s"] = made
    yield made
    del served.perdure.engine.parts.live["s"]


@pytest.fixture
def texts(served, publisher):
    return Texts(served.app.state.serving, "s")


def delta(text, offset, part="t"):
    signal = events.TextDelta(session_id="s", assistant_message_id="m", text_id=part, delta=text, offset=offset)
    return events.Announced("evt_1", 0, signal)


def spelled(signals):
    return [(one.data.offset, one.data.delta) for one in signals]


async def test_what_the_snapshot_held_is_not_sent_again_pub_3(texts, publisher):
    publisher.open = [("text", "t", "Hello")]
    assert spelled(await texts.so_far()) == [(0, "Hello")]
    assert spelled(texts.past(delta("Hel", 0))) == []
    assert spelled(texts.past(delta("lo, w", 3))) == [(5, ", w")]
    assert spelled(texts.past(delta("orld", 8))) == [(8, "orld")]


async def test_offsets_count_code_points_pub_1(texts, publisher):
    publisher.open = [("text", "t", "é😀")]
    assert spelled(await texts.so_far()) == [(0, "é😀")]
    assert spelled(texts.past(delta("😀x", 1))) == [(2, "x")]


async def test_a_gap_is_filled_from_the_publisher_pub_3(texts, publisher):
    assert spelled(texts.past(delta("ab", 0))) == [(0, "ab")]
    publisher.open = [("text", "t", "abcdef")]
    assert spelled(texts.past(delta("ef", 4))) == [(2, "cdef")]
    assert spelled(texts.past(delta("gh", 6))) == [(6, "gh")]


async def test_what_follows_a_gap_of_a_part_that_is_over_is_left_to_its_end_pub_3(texts, publisher):
    assert spelled(texts.past(delta("ab", 0))) == [(0, "ab")]
    publisher.open = []
    assert spelled(texts.past(delta("ef", 4))) == []
    assert spelled(texts.past(delta("cd", 2))) == [(2, "cd")]


async def test_a_signal_of_a_part_whose_end_was_sent_is_dropped_pub_3(texts):
    ended = events.TextEnded(session_id="s", assistant_message_id="m", text_id="t", text="abc")
    texts.heard(events.Recorded("evt_2", "s", 5, 0, ended))
    assert spelled(texts.past(delta("c", 2))) == []
    assert spelled(texts.past(delta("new", 0, part="u"))) == [(0, "new")]


async def test_parts_of_one_name_in_two_messages_are_two_parts(texts):
    assert spelled(texts.past(delta("ab", 0))) == [(0, "ab")]
    other = events.TextDelta(session_id="s", assistant_message_id="n", text_id="t", delta="xy", offset=0)
    assert spelled(texts.past(events.Announced("evt_3", 0, other))) == [(0, "xy")]
