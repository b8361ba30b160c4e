"""Frames: encoded once, remembered within a bound."""

import json

from perdure.core import events
from perdure.server import frames


def recorded(number, text="x"):
    fact = events.SyntheticAdded(session_id="s", message_id=f"m{number}", text=text)
    return events.Recorded(f"evt_{number}", "s", number, 7, fact)


def test_an_event_is_encoded_once_and_every_reader_gets_the_same_bytes():
    remembered = frames.Frames()
    event = recorded(3)
    assert remembered.live(event) is remembered.live(event)
    assert remembered.live(event) == frames.frame(event)


def test_a_frame_names_seq_and_type():
    assert frames.frame(recorded(3)) == (
        b"id: 3\nevent: session.synthetic\n"
        b'data: {"id":"evt_3","type":"session.synthetic","version":1,"created":7,'
        b'"data":{"session_id":"s","message_id":"m3","text":"x"},'
        b'"durable":{"aggregate_id":"s","seq":3,"version":1}}\n\n'
    )


def test_newlines_in_a_text_do_not_break_a_frame_sec_2():
    framed = frames.frame(recorded(1, "a\nb\r\nc\u2028d\u2029e\x85f"))
    assert framed.count(b"\n") == 4
    assert len(framed.decode().splitlines()) == 4
    assert json.loads(framed.decode().splitlines()[2].removeprefix("data: "))["data"]["text"][-5:] == "d\u2029e\x85f"


def test_what_is_remembered_stays_within_its_bound():
    remembered = frames.Frames(limit=1000)
    for number in range(50):
        remembered.live(recorded(number))
    assert remembered._held <= 1000
    assert remembered._held == sum(map(len, remembered._frames.values()))
    remembered.live(recorded(99, "x" * 5000))
    assert remembered._frames == {}
