"""The SSE parser: one meaning, however the bytes were split."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import sse

STREAM = (
    b"\xef\xbb\xbfdata: first\n\n"
    b": a comment\n\n"
    b"data:no space\r\n\r\n"
    b"event: note\nid: 7\nretry: 10\ndata: two\ndata:  lines\n\n"
    b"data\n\n"
    b"data: old\r\rdata: mac\r\r"
    b"unknown: field\n\n" + "data: π🦊\n\n".encode() + b"data: [DONE]\n\n"
)
EVENTS = [
    b"first",
    b"no space",
    b"two\n lines",
    b"",
    b"old",
    b"mac",
    "π🦊".encode(),
    b"[DONE]",
]


def parsed(chunks: list[bytes]) -> list[bytes]:
    parser = sse.Parser()
    frames = [frame for chunk in chunks for frame in parser.feed(chunk)]
    return [frame.data for frame in frames + parser.close()]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_every_kind_of_line_and_line_end_is_understood():
    assert parsed([STREAM]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_split_of_the_bytes_gives_the_same_events(cuts):
    assert parsed(split(STREAM, cuts)) == EVENTS


def test_single_bytes_give_the_same_events():
    assert parsed([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


LINES = st.sampled_from(
    [b"data: x", b"data:y", b"data", b"", b":c", b"event: e", "data: é🦊".encode(), b"id: 1", b"nonsense"]
)


@given(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))),
    st.lists(st.integers(0, 400)),
)
def test_any_stream_means_what_it_means_in_one_piece(lines, cuts):
    data = b"".join(line + end for line, end in lines)
    assert parsed(split(data, [min(cut, len(data)) for cut in cuts])) == parsed([data])


def test_a_last_event_without_its_blank_line_still_counts():
    assert parsed([b"data: a\n\ndata: [DONE]"]) == [b"a", b"[DONE]"]


def test_a_stream_that_ends_after_a_whole_event_has_nothing_left():
    assert parsed([b"data: a\n\n"]) == [b"a"]


@pytest.mark.parametrize("data", [b"data: " + b"x" * 100, b"data: 123456\n" * 10], ids=["one line", "many lines"])
def test_an_event_beyond_the_bound_is_refused(data):
    parser = sse.Parser(max_event_bytes=50)
    with pytest.raises(sse.EventTooLarge):
        parser.feed(data)


def test_many_small_events_never_reach_the_bound_together():
    parser = sse.Parser(max_event_bytes=50)
    assert len([event for _ in range(100) for event in parser.feed(b"data: 0123456789\n\n")]) == 100


def test_a_frame_has_its_own_name_and_id_and_never_those_of_an_earlier_one():
    parser = sse.Parser()
    assert parser.feed(b"event: note\nid:7\ndata: a\n\nevent: lost\n\ndata: b\n\n") == [
        sse.Frame(b"a", b"note", b"7"),
        sse.Frame(b"b"),
    ]
