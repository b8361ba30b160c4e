"""What facts do to tool calls: every arm, and MSG-3, MSG-6, MSG-7 to the letter."""

import pytest

from perdure.core import events, messages

FAILURE = messages.Failure("timeout", "Too slow")
SHOWN = {"structured": {"n": 1}, "content": ({"text": "half"},)}
STOPPED = messages.Failure("stopped", "By hand")


def test_a_call_is_pending_with_the_raw_text_of_its_input_msg_3(story):
    story.step()
    story.tell(events.ToolInputStarted, assistant_message_id="a", call_id="c", name="look")
    fresh = messages.ToolPart("c", "look", messages.Pending(""), messages.PartTime(1001))
    assert story.part == fresh
    assert (fresh.effect, fresh.provider_executed, fresh.approval) == ("write", False, None)
    story.of(events.ToolInputEnded, text='{"a": ')
    assert story.part == messages.ToolPart("c", "look", messages.Pending('{"a": '), messages.PartTime(1001))


def test_a_call_that_is_made_runs_with_its_object_effect_and_time_msg_2_msg_3(story):
    story.step()
    story.running(given={"a": 1}, effect="read", provider_executed=True)
    time, state = messages.PartTime(1001, 1003), messages.Running({"a": 1})
    assert story.part == messages.ToolPart("c", "look", state, time, "read", provider_executed=True)


def test_progress_replaces_what_a_running_call_showed_msg_3(story):
    story.step()
    story.running(given={"a": 1})
    story.of(events.ToolProgress, **SHOWN)
    assert story.part.state == messages.Running({"a": 1}, **SHOWN)
    story.of(events.ToolProgress)
    assert story.part.state == messages.Running({"a": 1})


def test_a_call_that_succeeds_keeps_its_input_and_shows_its_result_only_msg_3(story):
    story.step()
    story.running(given={"a": 1})
    story.of(events.ToolProgress, **SHOWN)
    story.of(events.ToolSucceeded, content=({"text": "all"},))
    assert story.part.state == messages.Completed({"a": 1}, None, ({"text": "all"},))
    assert story.part.time == messages.PartTime(1001, 1003, 1005)


@pytest.mark.parametrize(
    ("given", "left"),
    [({}, SHOWN), ({"structured": {"n": 2}, "content": ()}, {"structured": {"n": 2}, "content": ()})],
)
def test_a_running_call_that_fails_keeps_what_it_showed_unless_told_otherwise_msg_3(story, given, left):
    story.step()
    story.running(given={"a": 1})
    story.of(events.ToolProgress, **SHOWN)
    story.of(events.ToolFailed, error=FAILURE, **given)
    assert story.part.state == messages.Errored({"a": 1}, FAILURE, **left)
    assert story.part.time == messages.PartTime(1001, 1003, 1005)


def test_an_error_from_pending_has_an_empty_input_msg_3(story):
    story.step()
    story.pending(raw='{"a": 1}')
    story.of(events.ToolFailed, error=FAILURE)
    assert story.part.state == messages.Errored({}, FAILURE)
    assert story.part.time == messages.PartTime(1001, None, 1003)


def test_an_error_from_pending_has_the_input_that_a_person_was_asked_about_msg_3(story):
    story.step()
    story.pending(raw="{}")
    story.of(events.ToolApprovalRequested, input={"a": 1})
    story.of(events.ToolFailed, error=FAILURE)
    assert story.part.state == messages.Errored({"a": 1}, FAILURE)


@pytest.mark.parametrize("end", [events.ToolSucceeded, events.ToolFailed])
def test_a_settled_call_absorbs_every_later_result_msg_3(story, end):
    story.step()
    story.running()
    before = story.of(end, **({"error": FAILURE} if end is events.ToolFailed else {}))
    assert story.of(events.ToolSucceeded, **SHOWN) is before
    assert story.of(events.ToolFailed, error=FAILURE) is before
    assert story.of(events.ToolProgress, **SHOWN) is before
    assert story.of(events.ToolCalled, name="look", input={"again": True}) is before


def test_success_comes_only_from_running_msg_3(story):
    story.step()
    before = story.pending()
    assert story.of(events.ToolSucceeded) is before


def test_a_fact_of_a_call_nobody_knows_changes_nothing_msg_4(story):
    story.step()
    before = story.running("c")
    assert story.of(events.ToolSucceeded, "other") is before


def test_a_call_id_used_again_in_a_later_step_settles_its_own_call_msg_3(story):
    story.step("a")
    story.running("c", "a")
    story.end("a")
    story.step("b")
    story.running("c", "b", given={"second": True})
    story.of(events.ToolSucceeded, "c", "b")
    first, second = story.transcript.messages
    assert messages.tool_status(first.parts[0]) == "running"
    assert second.parts[0].state == messages.Completed({"second": True})


def test_a_call_id_used_twice_in_one_message_means_its_last_part_msg_3(story):
    story.step()
    story.running("c", given={"n": 1})
    story.running("c", given={"n": 2})
    story.of(events.ToolSucceeded)
    assert [messages.tool_status(part) for part in story.assistant.parts] == ["running", "completed"]


def test_a_text_and_a_call_may_share_an_id_msg_3(story):
    story.step()
    story.say("words", "c")
    story.running("c")
    story.of(events.ToolSucceeded)
    assert [messages.part_key(part) for part in story.assistant.parts] == [("text", "c"), ("tool", "c")]


# -- approvals -----------------------------------------------------------------------------------------------------------------


def test_an_approval_waits_is_decided_and_stays_with_its_call(story):
    story.step()
    story.pending()
    story.of(events.ToolApprovalRequested, input={"a": 1}, deadline=9)
    assert story.part.approval == messages.Approval({"a": 1}, 9)
    story.of(events.ToolApprovalResolved, decision="deny", by="me", note="no")
    decided = messages.Approval({"a": 1}, 9, "deny", "me", "no")
    assert story.part.approval == decided
    story.of(events.ToolCalled, name="look", input={"a": 1})
    assert story.part.approval == decided


def test_the_first_decision_wins_apr_2(story):
    story.step()
    story.pending()
    story.of(events.ToolApprovalRequested, input={})
    before = story.of(events.ToolApprovalResolved, decision="deny", by="me")
    assert story.of(events.ToolApprovalResolved, decision="approve", by="you") is before


def test_a_second_request_does_not_open_a_decided_approval_again_apr_2(story):
    story.step()
    story.pending()
    story.of(events.ToolApprovalRequested, input={"a": 1})
    before = story.of(events.ToolApprovalResolved, decision="deny", by="me")
    assert story.of(events.ToolApprovalRequested, input={"a": 2}) is before


def test_a_decision_about_a_call_that_asked_nobody_changes_nothing(story):
    story.step()
    before = story.pending()
    assert story.of(events.ToolApprovalResolved, decision="approve", by="me") is before


# -- interrupt and recovery --------------------------------------------------------------------------------------------


def cut_off(story, how):
    """An assistant with a call in each state and an open text, stopped; the time it was stopped at."""
    story.step()
    story.running("done")
    story.of(events.ToolSucceeded, "done", content=({"text": "all"},))
    story.running("runs", given={"a": 1})
    story.of(events.ToolProgress, "runs", **SHOWN)
    story.pending("raw", raw='{"a": 1}')
    story.pending("asked", raw="{}")
    story.of(events.ToolApprovalRequested, "asked", input={"b": 2})
    story.tell(events.TextStarted, assistant_message_id="a", text_id="t")
    if how == "interrupted":
        story.tell(events.StepInterrupted, assistant_message_id="a", error=STOPPED)
    else:
        story.tell(events.StepRecovered, assistant_message_id="a", execution_id="exe", phase="unknown")
    return story.told[-1].created


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("interrupted", "Tool execution interrupted"),
        ("recovered", "Tool execution outcome unknown after server restart"),
    ],
)
def test_a_stop_makes_open_calls_errors_and_keeps_what_each_state_may_keep_msg_6_msg_7(story, how, text):
    stopped = cut_off(story, how)
    done, runs, raw, asked = story.assistant.parts[:4]
    failure = messages.Failure("unknown", text)
    assert done.state == messages.Completed({}, None, ({"text": "all"},))
    assert runs.state == messages.Errored({"a": 1}, failure, **SHOWN)
    assert raw.state == messages.Errored({}, failure)
    assert asked.state == messages.Errored({"b": 2}, failure)
    assert done.time.completed < stopped
    assert {part.time.completed for part in (runs, raw, asked)} == {stopped}


def test_an_interrupt_completes_its_assistant_with_the_error_of_the_fact_msg_6(story):
    stopped = cut_off(story, "interrupted")
    assert (story.assistant.finish, story.assistant.error) == ("error", STOPPED)
    assert story.assistant.time.completed == stopped
    assert story.assistant.parts[4:] == (messages.TextPart("t"),)
    assert story.assistant.tokens is None


def test_a_recovery_puts_its_notice_behind_the_parts_it_closes_msg_7(story):
    cut_off(story, "recovered")
    assert [messages.part_key(part) for part in story.assistant.parts[4:]] == [("text", "t"), ("text", "recovery:exe")]
