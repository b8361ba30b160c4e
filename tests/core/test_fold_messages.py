"""What facts do to messages and steps: every arm of the fold outside tools, and MSG-2, MSG-4, MSG-5, MSG-7 to the letter."""

import typing

import pytest

from perdure.core import events, fold, messages, projection, transcript, view
from perdure.log import projections

FAILURE = messages.Failure("timeout", "Too slow")
TOKENS = messages.Tokens(1, 2, 3, 4, 5)


def at(created, completed=None):
    return messages.MessageTime(created, completed)


# -- total -------------------------------------------------------------------------------------------------------------------


def test_the_fold_has_one_rule_for_every_fact_and_no_other():
    assert set(fold.RULES) == set(typing.get_args(events.Fact))


def test_rows_and_memory_have_a_rule_for_the_very_same_facts_msg_1():
    assert set(projections.ROWS) == set(projection.RULES) < set(fold.RULES)
    assert set(projection.RULES) > projection.ONLY_IF_TAKEN


def test_a_fact_of_another_aggregate_changes_nothing():
    @events.durable("other.happened", aggregate="other_id")
    class Happened:
        other_id: str

    recorded = events.Recorded("evt_1", "o", 3, 1, Happened(other_id="o"))
    told = transcript.apply(transcript.Transcript(), recorded)
    assert told == transcript.Transcript((), 3)
    assert projection.apply(projection.Projection(), recorded) == projection.Projection(transcript=told)


SILENT = {
    events.SessionCreated: {"agent": "main"},
    events.SessionUpdated: {"changes": events.Changes(title="t")},
    events.SessionDeleted: {},
    events.PromptAdmitted: {"kind": "user", "prompt": messages.text_prompt("hi"), "delivery": "steer"},
    events.PromptExecutionRequested: {},
    events.PromptWithdrawn: {"reason": "cancelled"},
    events.PromptDeliveryChanged: {"delivery": "queue"},
    events.PromptRetried: {},
    events.ExecutionStarted: {"owner_id": "own", "purpose": "turn", "attempt": 1},
    events.ExecutionInterruptRequested: {"reason": "stop"},
    events.ExecutionParked: {"waiting": ("c",)},
    events.ExecutionResumed: {},
    events.ExecutionEnded: {"outcome": "succeeded"},
    events.UsageRecorded: {"source": "summary", "tokens": TOKENS},
}


@pytest.mark.parametrize("cls", SILENT, ids=lambda cls: cls.__name__)
def test_settings_inbox_executions_and_usage_change_nothing_in_the_transcript(story, cls):
    before = story.step()
    ids = {"message_id": "m"} if cls.__name__.startswith("Prompt") else {}
    ids |= {"execution_id": "exe"} if cls.__name__.startswith("Execution") else {}
    assert story.tell(cls, **ids, **SILENT[cls]) is before


# -- messages ----------------------------------------------------------------------------------------------------------------


def test_a_promoted_prompt_is_a_user_message_at_the_promotions_seq_with_the_time_of_its_admission_msg_2(story):
    prompt = messages.text_prompt("hi")
    story.tell(events.SessionUpdated, changes=events.Changes())
    story.tell(events.PromptPromoted, message_id="u", kind="user", prompt=prompt, delivery="queue", time_created=7)
    assert story.transcript.messages == (messages.User("u", 1, at(7), prompt, "queue"),)


def test_a_promoted_synthetic_input_is_a_synthetic_message_msg_2(story):
    prompt = messages.text_prompt("go on")
    story.tell(events.PromptPromoted, message_id="s", kind="synthetic", prompt=prompt, delivery="queue", time_created=7)
    assert story.transcript.messages == (messages.Synthetic("s", 0, at(7), "go on"),)


def test_switches_synthetic_words_and_context_are_messages_of_their_kind_in_the_order_of_seq_msg_2(story):
    story.tell(events.AgentSwitched, message_id="z", agent="other")
    story.tell(events.ModelSwitched, message_id="y", model="b", previous="a")
    story.tell(events.SyntheticAdded, message_id="x", text="words")
    story.tell(events.ContextUpdated, message_id="w", text="date")
    assert story.transcript.messages == (
        messages.AgentSwitched("z", 0, at(1000), "other"),
        messages.ModelSwitched("y", 1, at(1001), "b", "a"),
        messages.Synthetic("x", 2, at(1002), "words"),
        messages.System("w", 3, at(1003), "date"),
    )


def test_a_compaction_runs_and_completes_msg_2(story):
    story.tell(events.CompactionStarted, message_id="k", reason="manual")
    assert story.transcript.messages == (messages.Compaction("k", 0, at(1000), "manual"),)
    done = story.tell(events.CompactionEnded, message_id="k", summary="all", recent="u")
    assert done == (messages.Compaction("k", 0, at(1000, 1001), "manual", "completed", "all", "u"),)
    assert story.tell(events.CompactionFailed, message_id="k", error=FAILURE) is done


def test_a_compaction_runs_and_fails_msg_2(story):
    story.tell(events.CompactionStarted, message_id="k", reason="auto")
    failed = story.tell(events.CompactionFailed, message_id="k", error=FAILURE)
    assert failed == (messages.Compaction("k", 0, at(1000, 1001), "auto", "failed", error=FAILURE),)
    assert story.tell(events.CompactionEnded, message_id="k", summary="all", recent="") is failed


def test_the_end_of_a_compaction_nobody_knows_changes_nothing(story):
    before = story.ask("hi")
    assert story.tell(events.CompactionEnded, message_id="u", summary="all", recent="") is before
    assert story.tell(events.CompactionFailed, message_id="nobody", error=FAILURE) is before


# -- steps -------------------------------------------------------------------------------------------------------------------


def test_a_step_opens_an_assistant_msg_2(story):
    assert story.step() == (messages.Assistant("a", 0, at(1000), "main", "scripted:m"),)


def test_a_step_that_ends_completes_its_assistant_with_finish_tokens_and_cost_msg_2(story):
    story.step()
    story.end(finish="length", tokens=TOKENS, cost=9)
    expected = messages.Assistant("a", 0, at(1000, 1001), "main", "scripted:m", finish="length", tokens=TOKENS, cost=9)
    assert story.assistant == expected


def test_a_step_that_fails_completes_its_assistant_as_an_error_and_keeps_what_it_showed(story):
    story.step()
    story.say("so far")
    story.tell(events.StepFailed, assistant_message_id="a", error=FAILURE, tokens=TOKENS, cost=9)
    assert (story.assistant.finish, story.assistant.error) == ("error", FAILURE)
    assert (story.assistant.tokens, story.assistant.cost) == (TOKENS, 9)
    assert story.assistant.time == at(1000, 1003)
    assert story.part.text == "so far"


def test_a_retry_shows_on_the_assistant_until_its_next_attempt_which_clears_it_and_nothing_else(story):
    opened = story.step()
    story.tell(events.RetryScheduled, assistant_message_id="a", attempt=2, at=5, error=FAILURE)
    assert story.assistant.retry == messages.Retry(2, 5, FAILURE)
    assert story.step("a", model="other:m") == opened


@pytest.mark.parametrize("end", ["ended", "failed"])
def test_a_retry_is_cleared_by_the_end_of_its_step(story, end):
    story.step()
    story.tell(events.RetryScheduled, assistant_message_id="a", attempt=2, at=5, error=FAILURE)
    if end == "ended":
        story.end()
    else:
        story.tell(events.StepFailed, assistant_message_id="a", error=FAILURE)
    assert story.assistant.retry is None


def test_text_is_empty_until_it_ends_and_then_whole(story):
    story.step()
    story.tell(events.TextStarted, assistant_message_id="a", text_id="t")
    assert story.part == messages.TextPart("t")
    story.tell(events.TextEnded, assistant_message_id="a", text_id="t", text="hello")
    assert story.part == messages.TextPart("t", "hello", ended=True)


def test_reasoning_ends_with_its_text_and_what_the_provider_wants_back(story):
    story.step()
    story.tell(events.ReasoningStarted, assistant_message_id="a", reasoning_id="r")
    assert story.part == messages.ReasoningPart("r")
    named = {"assistant_message_id": "a", "reasoning_id": "r"}
    story.tell(events.ReasoningEnded, **named, text="hm", provider_metadata={"signature": "s"})
    assert story.part == messages.ReasoningPart("r", "hm", {"signature": "s"}, ended=True)


def test_parts_stand_in_the_order_they_began_and_end_in_any(story):
    story.step()
    story.tell(events.ReasoningStarted, assistant_message_id="a", reasoning_id="x")
    story.tell(events.TextStarted, assistant_message_id="a", text_id="x")
    story.say("second", "y")
    story.tell(events.TextEnded, assistant_message_id="a", text_id="x", text="first")
    story.tell(events.ReasoningEnded, assistant_message_id="a", reasoning_id="x", text="thought")
    assert [part.text for part in story.assistant.parts] == ["thought", "first", "second"]


@pytest.mark.parametrize("cls", [events.TextEnded, events.ReasoningEnded])
def test_the_end_of_a_part_that_never_began_changes_nothing(story, cls):
    before = story.step()
    name = "text_id" if cls is events.TextEnded else "reasoning_id"
    assert story.tell(cls, assistant_message_id="a", **{name: "t"}, text="hello") is before


# -- the newest assistant ------------------------------------------------------------------------------------------------------


def test_a_newer_step_supersedes_a_stale_one_and_completes_it_in_time_only_msg_4(story):
    story.step("a")
    story.say("so far")
    story.step("b")
    stale, fresh = story.transcript.messages
    assert stale == messages.Assistant("a", 0, at(1000, 1003), "main", "scripted:m", stale.parts)
    assert fresh == messages.Assistant("b", 3, at(1003), "main", "scripted:m")


def test_an_older_assistant_is_never_resumed_msg_4(story):
    story.step("a")
    story.end("a")
    story.step("b")
    before = story.end("b")
    assert story.step("a") is before


def test_a_step_of_an_older_assistant_does_not_supersede_the_current_one_msg_4(story):
    story.step("a")
    story.end("a")
    before = story.step("b")
    assert story.step("a") is before


OF_AN_ASSISTANT = [
    (events.StepEnded, {"finish": "stop"}),
    (events.StepFailed, {"error": FAILURE}),
    (events.StepInterrupted, {"error": FAILURE}),
    (events.StepRecovered, {"execution_id": "exe", "phase": "unknown"}),
    (events.RetryScheduled, {"attempt": 2, "at": 5, "error": FAILURE}),
    (events.TextStarted, {"text_id": "new"}),
    (events.TextEnded, {"text_id": "t", "text": "other"}),
    (events.ReasoningStarted, {"reasoning_id": "new"}),
    (events.ReasoningEnded, {"reasoning_id": "r", "text": "other"}),
    (events.ToolInputStarted, {"call_id": "new", "name": "look"}),
    (events.ToolInputEnded, {"call_id": "p", "text": "{}"}),
    (events.ToolCalled, {"call_id": "p", "name": "look", "input": {}}),
    (events.ToolApprovalRequested, {"call_id": "p", "input": {}}),
    (events.ToolApprovalResolved, {"call_id": "p", "decision": "approve", "by": "me"}),
    (events.ToolProgress, {"call_id": "c"}),
    (events.ToolSucceeded, {"call_id": "c"}),
    (events.ToolFailed, {"call_id": "c", "error": FAILURE}),
]


@pytest.mark.parametrize("whose", ["older", "completed", "nobody's", "a user's"])
@pytest.mark.parametrize(("cls", "fields"), OF_AN_ASSISTANT, ids=lambda one: getattr(one, "__name__", ""))
def test_a_fact_of_an_assistant_that_is_not_the_current_one_changes_no_message_msg_4(story, cls, fields, whose):
    story.ask("hi")
    story.step("a")
    story.tell(events.TextStarted, assistant_message_id="a", text_id="t")
    story.tell(events.ReasoningStarted, assistant_message_id="a", reasoning_id="r")
    story.running("c")
    story.pending("p")
    before = story.step("b") if whose == "older" else story.end("a")
    named = {"nobody's": "nobody", "a user's": "u"}.get(whose, "a")
    assert story.tell(cls, assistant_message_id=named, **fields) is before
    assert story.transcript.seq == len(story.told) - 1


# -- once ----------------------------------------------------------------------------------------------------------------------


def test_a_transcript_ignores_what_it_has_applied_already_msg_5(story):
    story.ask("hi")
    story.step()
    story.say("hello")
    story.running()
    whole = story.transcript
    for event in story.told:
        assert transcript.apply(whole, event) is whole


def test_a_projection_counts_nothing_twice_msg_5(story):
    story.tell(events.SessionCreated, agent="main")
    story.step()
    story.end(tokens=TOKENS, cost=3)
    story.end(tokens=TOKENS, cost=3)
    story.tell(events.UsageRecorded, source="summary", tokens=TOKENS, cost=4)
    held = projection.Projection()
    for event in [*story.told, *story.told]:
        held = projection.apply(held, event)
    assert held.session.usage == messages.Usage(TOKENS.plus(TOKENS), 7)


def test_a_part_put_on_a_message_without_parts_is_left_out():
    user = messages.User("u", 0, at(1), messages.text_prompt("hi"), "steer")
    change = view.PutPart("u", 0, messages.TextPart("t"))
    assert transcript._apply((user,), change) == (user,)


# -- recovery ------------------------------------------------------------------------------------------------------------------

UNKNOWN = "Provider Step outcome unknown after server restart"
RESTARTED = "Session execution interrupted by server restart"


def recover(story, phase, amid=None):
    return story.tell(events.StepRecovered, execution_id="exe", phase=phase, assistant_message_id=amid)


@pytest.mark.parametrize("amid", [None, "a"])
def test_a_recovery_in_phase_continue_mutates_nothing_msg_7(story, amid):
    story.step()
    before = story.running()
    assert recover(story, "continue", amid) is before


@pytest.mark.parametrize(("phase", "text"), [("unknown", UNKNOWN), ("ready", RESTARTED), ("safe", RESTARTED)])
def test_a_recovery_without_an_assistant_appends_a_synthetic_message_msg_7(story, phase, text):
    assert recover(story, phase) == (messages.Synthetic("msg_recovered_exe", 0, at(1000), text),)


def test_a_recovery_without_an_assistant_is_told_once_an_execution_msg_5(story):
    before = recover(story, "unknown")
    assert recover(story, "ready") is before


@pytest.mark.parametrize(("phase", "text"), [("unknown", UNKNOWN), ("ready", RESTARTED), ("safe", RESTARTED)])
def test_a_recovery_completes_the_current_assistant_with_the_error_and_a_notice_msg_7(story, phase, text):
    story.step()
    story.say("so far")
    story.tell(events.RetryScheduled, assistant_message_id="a", attempt=2, at=5, error=FAILURE)
    recover(story, phase, "a")
    notice = messages.TextPart("recovery:exe", text, ended=True)
    expected = messages.Assistant(
        "a",
        0,
        at(1000, 1004),
        "main",
        "scripted:m",
        (messages.TextPart("t", "so far", ended=True), notice),
        finish="error",
        error=messages.Failure("unknown", text),
    )
    assert story.transcript.messages == (expected,)


def test_a_recovery_never_edits_an_assistant_when_a_newer_one_exists_msg_7_rec_3(story):
    story.step("a")
    before = story.step("b")
    assert recover(story, "unknown", "a") is before
