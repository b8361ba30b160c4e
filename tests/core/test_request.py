"""From a transcript to what a model is asked: MSG-9 in full."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import events, messages, request, transcript
from perdure.core.request import (
    AssistantMessage,
    CallContent,
    MediaContent,
    ReasoningContent,
    ResultMessage,
    TextContent,
    UserMessage,
    check_pairs,
)

SAME = request.Speaker("scripted", "m")
FAILURE = messages.Failure("timeout", "Too slow")
UNANSWERED = "No result was recorded: the outcome of this call is unknown."
AGAIN = " It changes nothing that matters when repeated, so it may be made again."
CHECK = " It may have happened. Check its effect before making it again."


def lowered(story, speaker=SAME, content=None):
    return request.lower(story.transcript, speaker, (content or {}).get)


def words(text):
    return UserMessage((TextContent(text),))


# -- pure --------------------------------------------------------------------------------------------------------------------


def test_lowering_is_pure_and_says_the_same_again_msg_9(story):
    story.ask("hi")
    story.step()
    story.running(given={"a": [1]})
    before = copy.deepcopy(story.transcript)
    assert lowered(story) == lowered(story)
    assert story.transcript == before


def test_an_empty_transcript_asks_nothing():
    assert request.lower(transcript.Transcript(), SAME, lambda _: None) == ()


# -- what stands for what ----------------------------------------------------------------------------------------------------


def test_prompts_synthetic_words_and_context_speak_as_the_user_in_order(story):
    story.ask("hi")
    story.tell(events.SyntheticAdded, message_id="s", text="go on")
    story.tell(events.ContextUpdated, message_id="c", text="it is Monday")
    assert lowered(story) == (words("hi"), words("go on"), words("it is Monday"))


def test_switches_produce_nothing_msg_9(story):
    story.tell(events.AgentSwitched, message_id="x", agent="other")
    story.tell(events.ModelSwitched, message_id="y", model="b")
    assert lowered(story) == ()


def test_a_compaction_that_runs_or_failed_produces_nothing(story):
    story.ask("hi")
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    assert lowered(story) == (words("hi"),)
    story.tell(events.CompactionFailed, message_id="k", error=FAILURE)
    assert lowered(story) == (words("hi"),)


def test_empty_parts_are_dropped_and_so_is_a_message_that_has_no_other_msg_9(story):
    story.ask("")
    story.tell(events.SyntheticAdded, message_id="s", text="")
    story.tell(events.ContextUpdated, message_id="c", text="")
    story.step()
    story.say("")
    story.think("")
    story.tell(events.TextStarted, assistant_message_id="a", text_id="open")
    assert lowered(story) == ()


def test_an_assistant_says_its_parts_in_order(story):
    story.step()
    story.think("hm")
    story.say("hello")
    story.running("c", given={"a": 1})
    story.of(events.ToolSucceeded, content=({"text": "one"}, {"text": "two"}))
    story.say("there", "t2")
    said, result = lowered(story)
    assert said.content == (
        ReasoningContent("hm"),
        TextContent("hello"),
        CallContent("c", "look", {"a": 1}),
        TextContent("there"),
    )
    assert result == ResultMessage("c", "look", "one\ntwo")


@pytest.mark.parametrize("said", ["Half a sen", ""])
def test_behind_an_interrupted_answer_the_model_is_told_that_it_was_stopped_msg_9(story, said):
    story.ask("the first")
    story.step()
    story.say(said)
    story.running("c")
    story.tell(events.StepInterrupted, assistant_message_id="a", error=messages.Failure("interrupted", "Interrupted"))
    story.ask("the second", "v")
    stopped = words("The answer was stopped here. Do not go on with it unless that is asked for.")
    assert lowered(story)[0] == words("the first")
    assert lowered(story)[-2:] == (stopped, words("the second"))
    assert check_pairs(lowered(story)) is None


def test_an_interrupted_answer_that_said_nothing_is_told_to_be_stopped_all_the_same_msg_9(story):
    story.ask("the first")
    story.step()
    story.tell(events.StepInterrupted, assistant_message_id="a", error=messages.Failure("interrupted", "Interrupted"))
    assert lowered(story) == (words("the first"), words(request.STOPPED))


def test_images_and_files_come_with_their_bytes_and_say_so_where_those_are_gone(story):
    image = messages.PromptPart("image", mime="image/png", name="a.png", hash="h1")
    file = messages.PromptPart("file", name="b.bin", hash="h2")
    gone = messages.PromptPart("file", name="c.txt", hash="h3")
    story.ask(messages.Prompt((messages.PromptPart("text", "see"), image, file, gone)))
    (asked,) = lowered(story, content={"h1": b"1", "h2": b"2"})
    assert asked.content == (
        TextContent("see"),
        MediaContent("image", "image/png", b"1", "a.png"),
        MediaContent("file", "application/octet-stream", b"2", "b.bin"),
        TextContent("[file c.txt is no longer available]"),
    )


# -- provider metadata -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speaker", "content"),
    [
        (SAME, (ReasoningContent("hm", {"signature": "s"}), ReasoningContent("", {"signature": "e"}))),
        (request.Speaker("scripted", "n"), (TextContent("hm"),)),
        (request.Speaker("other", "m"), (TextContent("hm"),)),
    ],
)
def test_provider_metadata_goes_only_to_the_same_provider_and_model_else_reasoning_is_text_msg_9(
    story, speaker, content
):
    story.step(model="scripted:m")
    story.think("hm", "r1", metadata={"signature": "s"})
    story.think("", "r2", metadata={"signature": "e"})
    (said,) = lowered(story, speaker)
    assert said.content == content


# -- calls and results -------------------------------------------------------------------------------------------------------


def test_results_stand_directly_behind_their_message_in_call_order_whatever_settled_first_msg_9(story):
    story.step()
    story.running("c1")
    story.running("c2")
    story.of(events.ToolSucceeded, "c2", content=({"text": "two"},))
    story.of(events.ToolFailed, "c1", error=FAILURE)
    story.end()
    story.ask("and?")
    assert lowered(story)[1:] == (
        ResultMessage("c1", "look", "Too slow", is_error=True),
        ResultMessage("c2", "look", "two"),
        words("and?"),
    )


@pytest.mark.parametrize(("effect", "advice"), [("read", AGAIN), ("idempotent", AGAIN), ("write", CHECK)])
def test_an_unanswered_call_has_an_unknown_outcome_and_its_effect_says_what_may_be_done_msg_9(story, effect, advice):
    story.step()
    story.running(effect=effect)
    assert lowered(story)[1] == ResultMessage("c", "look", UNANSWERED + advice, is_error=True)


@pytest.mark.parametrize(("effect", "advice"), [("read", AGAIN), ("idempotent", AGAIN), ("write", CHECK)])
def test_a_call_that_a_crash_cut_off_says_so_with_the_same_advice_msg_9(story, effect, advice):
    story.step()
    story.running(effect=effect)
    story.tell(events.StepRecovered, assistant_message_id="a", execution_id="exe", phase="unknown")
    text = "Tool execution outcome unknown after server restart." + advice
    assert lowered(story)[1] == ResultMessage("c", "look", text, is_error=True)


def test_an_unanswered_call_in_the_middle_of_the_history_has_its_result_too_msg_9(story):
    story.step("a")
    story.running("c", "a")
    story.step("b")
    story.say("later", amid="b")
    said, result, later = lowered(story)
    assert (said.content[0].call_id, result.text) == ("c", UNANSWERED + CHECK)
    assert later == AssistantMessage((TextContent("later"),))


def test_a_call_still_being_written_is_sent_with_an_empty_input_and_no_broken_text(story):
    story.step()
    story.pending(raw='{"a": ')
    said, result = lowered(story)
    assert said.content == (CallContent("c", "look", {}),)
    assert result.is_error


# -- the cut -------------------------------------------------------------------------------------------------------------------


def compact(story, recent=""):
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    story.tell(events.CompactionEnded, message_id="k", summary="they met", recent=recent)


def test_a_completed_compaction_replaces_what_came_before_it(story):
    story.ask("old")
    compact(story)
    story.ask("new", "u2")
    assert lowered(story) == (words("Summary of the conversation so far:\nthey met"), words("new"))


def test_what_a_compaction_kept_stays_verbatim_behind_its_summary(story):
    story.ask("old")
    story.ask("kept", "u2")
    story.step()
    story.running()
    story.end()
    compact(story, recent="u2")
    story.ask("new", "u3")
    said = lowered(story)
    assert said[:2] == (words("Summary of the conversation so far:\nthey met"), words("kept"))
    assert [type(one) for one in said[2:]] == [AssistantMessage, ResultMessage, UserMessage]
    assert check_pairs(said) is None


def test_the_newest_completed_compaction_counts(story):
    compact(story)
    story.tell(events.CompactionStarted, message_id="k2", reason="manual")
    story.tell(events.CompactionEnded, message_id="k2", summary="they parted", recent="nobody")
    assert lowered(story) == (words("Summary of the conversation so far:\nthey parted"),)


def test_a_summary_that_keeps_what_an_older_one_kept_takes_its_place_too_cmp_1(story):
    story.ask("old")
    story.ask("kept", "u2")
    compact(story, recent="u2")
    story.ask("new", "u3")
    story.tell(events.CompactionStarted, message_id="k2", reason="manual")
    story.tell(events.CompactionEnded, message_id="k2", summary="they parted", recent="u2")
    assert lowered(story) == (words("Summary of the conversation so far:\nthey parted"), words("kept"), words("new"))


# -- the strict check ---------------------------------------------------------------------------------------------------------

CALL = AssistantMessage((CallContent("c", "look", {}), CallContent("d", "look", {})))
C, D = ResultMessage("c", "look", "1"), ResultMessage("d", "look", "2")


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([CALL, C, D], None),
        ([words("hi"), CALL, C, D, CALL, C, D], None),
        ([CALL], "Call c has no result directly after it"),
        ([CALL, C], "Call d has no result directly after it"),
        ([CALL, D, C], "Result of d stands where no call asks for it"),
        ([CALL, C, D, D], "Result of d stands where no call asks for it"),
        ([CALL, C, words("hi"), D], "Call d has no result directly after it"),
        ([C], "Result of c stands where no call asks for it"),
        ([CALL, C, CALL], "Call d has no result directly after it"),
    ],
)
def test_the_check_wants_each_call_followed_directly_by_its_one_result_in_order_msg_9(history, problem):
    assert check_pairs(history) == problem


STATES = st.sampled_from(["pending", "running", "completed", "failed"])


@given(
    calls=st.lists(st.tuples(st.sampled_from("cde"), STATES), max_size=5),
    crash=st.sampled_from(["none", "interrupted", "unknown", "ready", "continue", "superseded", "failed"]),
    goes_on=st.booleans(),
)
def test_whatever_a_crash_leaves_every_call_has_exactly_one_result_msg_9(story_of, calls, crash, goes_on):
    story = story_of()
    story.ask("hi")
    story.step()
    for call_id, state in calls:
        (story.pending if state == "pending" else story.running)(call_id)
        if state in {"completed", "failed"}:
            more = {"error": FAILURE} if state == "failed" else {}
            story.of(events.ToolFailed if state == "failed" else events.ToolSucceeded, call_id, **more)
    if crash in {"interrupted", "failed"}:
        cls = events.StepInterrupted if crash == "interrupted" else events.StepFailed
        story.tell(cls, assistant_message_id="a", error=FAILURE)
    elif crash == "superseded":
        story.step("b")
    elif crash != "none":
        story.tell(events.StepRecovered, assistant_message_id="a", execution_id="exe", phase=crash)
    if goes_on:
        story.ask("more", "u2")
    said = lowered(story)
    assert check_pairs(said) is None
    assert [one.call_id for one in said if isinstance(one, ResultMessage)] == [call_id for call_id, _ in calls]
