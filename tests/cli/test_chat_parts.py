"""The parts of a conversation that need no terminal: the line, where Markdown may be cut, what events say, how it looks."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from perdure.cli import render
from perdure.cli.chat import blocks, paper
from perdure.cli.chat.editor import Editor
from perdure.cli.chat.view import Said, View
from perdure.core import events, messages

# -- the line --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("abc", "abc"),
        ("abc\x7f\x7fd", "ad"),
        ("abc\x1b[D\x1b[DX", "aXbc"),
        ("abc\x01X\x05Y", "XabcY"),
        ("one two\x17", "one "),
        ("one two\x15", ""),
        ("one\x1b[D\x0b", "on"),
        ("ab\x1b[D\x1b[3~", "a"),
        ("a\x1b\rb", "a\nb"),
        ("\x1b[200~pasted\r\nlines\x1b[31m\x07\x1b[201~!", "pasted\nlines[31m!"),
        ("first\rsecond\r\x1b[A\x1b[A", "first"),
        ("first\rbegun\x1b[A\x1b[B", "begun"),
        ("zwölf 🦊", "zwölf 🦊"),
        ("a\x1b[1;5Cb\x1b[5~c\x1bOPd", "abcd"),
        ("\x00\x02\x1c", ""),
    ],
)
def test_keys_do_what_they_do_in_any_line(keys, text):
    editor = Editor()
    editor.feed(keys.encode())
    assert editor.text == text


@pytest.mark.parametrize("enter", ["\r", "\n"])
def test_enter_gives_the_line_and_an_empty_one_gives_none(enter):
    editor = Editor()
    assert editor.feed(f"  one {enter}{enter}two{enter}".encode()) == ["one", "two"]
    assert (editor.text, editor.cursor) == ("", 0)


def test_ctrl_d_leaves_only_where_nothing_was_typed():
    editor = Editor()
    editor.feed(b"a\x04")
    assert not editor.left
    editor.feed(b"\x7f\x04")
    assert editor.left


@given(
    st.lists(st.sampled_from(["a", "é", "🦊", "\x1b[A", "\x1b[D", "\x7f", "\r", "\x1b[200~x\ny\x1b[201~"]), max_size=20)
)
def test_any_split_of_the_bytes_means_the_same(keys):
    data = "".join(keys).encode()
    whole, pieces = Editor(), Editor()
    lines = whole.feed(data)
    assert [line for at in range(len(data)) for line in pieces.feed(data[at : at + 1])] == lines
    assert (pieces.text, pieces.cursor) == (whole.text, whole.cursor)


# -- where Markdown may be cut -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one", ""),
        ("one\n\n", ""),
        ("one\n\nt", "one\n\n"),
        ("one\ntwo\n\nthree\n\nfour", "one\ntwo\n\nthree\n\n"),
        ("- a\n\n- b\n\nafter", "- a\n\n- b\n\n"),
        ("1. a\n\n   more\n\nafter", "1. a\n\n   more\n\n"),
        ("```\na\n\nb\n```\n\nafter", "```\na\n\nb\n```\n\n"),
        ("```\na\n\nb\n\nc", ""),
        ("````\n```\n\nx\n````\n\nafter", "````\n```\n\nx\n````\n\n"),
    ],
)
def test_markdown_is_cut_only_between_whole_blocks(text, whole):
    assert text[: blocks.settled(text)] == whole


@given(st.lists(st.sampled_from(["one\n", "\n", "- a\n", "  b\n", "```\n", "two"])).map("".join))
def test_what_was_cut_off_stays_as_it_was_whatever_follows(text):
    cuts = [blocks.settled(text[:end]) for end in range(len(text) + 1)]
    assert cuts == sorted(cuts)


# -- what events say -------------------------------------------------------------------------------------------------------

ABOUT = {"session_id": "s", "assistant_message_id": "m"}


def said(view, *facts):
    return [(one.kind, one.text) for fact in facts for one in view.take(events.Recorded("e", "s", 0, 0, fact))]


def delta(text, offset, part="t"):
    return events.TextDelta(**ABOUT, text_id=part, delta=text, offset=offset)


def ended(text, part="t"):
    return events.TextEnded(**ABOUT, text_id=part, text=text)


def test_text_is_said_block_by_block_and_at_its_end_what_is_left():
    view = View()
    assert said(view, delta("One.\n\nTw", 0)) == [("text", "One.")]
    assert said(view, delta("o.", 8), ended("One.\n\nTwo.")) == [("text", "Two.")]


def test_live_text_that_comes_again_after_a_reconnect_is_not_said_again():
    view = View()
    said(view, delta("One.\n\nTwo", 0))
    assert said(view, delta("One.\n\nTwo", 0), delta(".\n\nThree", 9)) == [("text", "Two.")]


def test_text_that_turned_out_otherwise_is_said_whole():
    view = View()
    said(view, delta("One.\n\nTwo", 0))
    assert said(view, ended("Quite another.")) == [("text", "Quite another.")]


def test_reasoning_whose_end_is_told_late_is_said_before_the_text_and_once():
    view = View()
    thought = events.ReasoningDelta(**ABOUT, reasoning_id="r", delta="Hm.", offset=0)
    assert said(view, thought, delta("Yes", 0)) == [("reasoning", "Hm.")]
    assert said(view, events.ReasoningEnded(**ABOUT, reasoning_id="r", text="Hm.")) == []


def test_a_call_is_shown_while_it_runs_and_said_with_its_result():
    view = View()
    called = events.ToolCalled(**ABOUT, call_id="c", name="add", input={"a": 1})
    said(view, called, events.ToolProgress(**ABOUT, call_id="c", content=({"type": "text", "text": "half"},)))
    assert list(view.running.values()) == [("add(a=1)", "half")]
    done = events.ToolSucceeded(**ABOUT, call_id="c", content=({"type": "text", "text": "2\nlines"},))
    assert said(view, done) == [("done", "add(a=1) → 2 (+1 lines)")]
    assert view.running == {}


def test_what_was_under_way_when_its_process_died_is_said_as_unknown_rec_2():
    view = View(busy=True)
    said(view, events.ToolCalled(**ABOUT, call_id="c", name="pay", input={}), delta("Half", 0))
    found = said(view, events.StepRecovered(session_id="s", execution_id="x", phase="unknown", armed=False))
    assert found[:2] == [("text", "Half"), ("failed", "pay() → outcome unknown")]
    assert "/resume" in found[2][1]
    assert not view.busy


def test_a_failed_turn_says_its_error_once_and_can_be_retried():
    view, failure = View(), messages.Failure("auth", "No key")
    prompt = messages.text_prompt("hi")
    promoted = events.PromptPromoted(
        session_id="s", message_id="p", kind="user", prompt=prompt, delivery="steer", time_created=0
    )
    end = events.ExecutionEnded(session_id="s", execution_id="x", outcome="failed", message_ids=("p",), error=failure)
    found = said(view, promoted, events.StepFailed(**ABOUT, error=failure), end)
    assert found == [("user", "hi"), ("error", "No key")]
    assert view.retryable == "p"


def test_an_assistant_that_was_shown_from_the_transcript_is_not_said_again():
    assert said(View(seen=frozenset({"m"})), delta("a\n\nb", 0), ended("a\n\nb")) == []


# -- how it looks ----------------------------------------------------------------------------------------------------------


def looks(thing):
    console = Console(file=io.StringIO(), force_terminal=True, width=60, no_color=True)
    console.print(thing)
    return console.file.getvalue()


@pytest.mark.parametrize("kind", ["user", "text", "reasoning", "done", "failed", "note", "error"])
def test_no_control_character_of_a_model_or_tool_reaches_the_terminal_sec_2(kind):
    shown = looks(paper.printed(Said(kind, "a\x1b]0;title\x07b\x9b2J\u202ec [link](http://x)")))
    assert "\x1b]" not in shown
    assert not {"\x07", "\x9b", "\u202e"} & set(shown)


@pytest.mark.parametrize("text", ["\ud800", "a" * 10_000, "\x00", "line\n" * 1000])
def test_a_line_is_one_line_however_hostile_the_text_sec_2(text):
    line = render.clip(text)
    assert len(line) <= render.WIDTH
    assert "\n" not in line
    line.encode()


def test_every_kind_of_message_can_be_shown():
    time, failure = messages.MessageTime(0), messages.Failure("x", "broken")
    parts = (
        messages.TextPart("t", "text", ended=True),
        messages.ReasoningPart("r", "why", ended=True),
        *(
            messages.ToolPart("c", "add", state, messages.PartTime(0))
            for state in (
                messages.Pending(),
                messages.Running({}),
                messages.Completed({"a": 1}),
                messages.Errored({}, failure),
            )
        ),
    )
    several = [
        messages.User("u", 1, time, messages.text_prompt("asked"), "steer"),
        messages.Synthetic("s", 2, time, "notice"),
        messages.System("y", 3, time, "context"),
        messages.Assistant("a", 4, time, "default", "m", parts, error=failure),
        messages.AgentSwitched("g", 5, time, "other"),
        messages.ModelSwitched("w", 6, time, "openai:n"),
        messages.Compaction("k", 7, time, "auto"),
    ]
    shown = [[one.kind for one in paper.of(message)] for message in several]
    assert shown[3] == ["text", "reasoning", "note", "note", "done", "failed", "error"]
    assert all(shown)
    assert [render.message(one)["type"] for one in several][3:5] == ["assistant", "agent_switched"]


def test_a_step_of_unknown_outcome_says_so_once_in_a_transcript_rec_2():
    said = (messages.TextPart("t", "Half of it", ended=True), messages.TextPart("u", "outcome unknown", ended=True))
    failure = messages.Failure("unknown", "outcome unknown")
    shown = paper.of(messages.Assistant("a", 1, messages.MessageTime(0), "default", "m", said, error=failure))
    assert shown == [Said("text", "Half of it"), Said("error", "outcome unknown")]
