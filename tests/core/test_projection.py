"""The rows of a session as its log says they are: one test a rule, told to rows and to memory alike (MSG-1)."""

import pytest

from perdure import errors, ids
from perdure.core import events, messages, projection

FAILURE = messages.Failure("timeout", "Too slow")
HI = messages.text_prompt("hi")


class Told:
    """One session of the desk."""

    def __init__(self, desk, session_id):
        self.desk, self.session_id, self.held = desk, session_id, projection.Projection()
        self.tell(events.SessionCreated, agent="main")

    def tell(self, cls, **fields):
        return self.tell_all((cls, fields))

    def tell_all(self, *facts):
        """Commit the facts in one unit; the rows with them."""
        self.held = self.desk.tell(self.held, [cls(session_id=self.session_id, **fields) for cls, fields in facts])
        assert self.desk.rows(self.session_id) == self.held
        return self.held

    def admit(self, message_id="in", delivery="steer", **more):
        fields = {"message_id": message_id, "kind": "user", "prompt": HI, "delivery": delivery, **more}
        self.tell(events.PromptAdmitted, **fields)
        return self.held.inputs[message_id]

    def promote(self, message_id="in"):
        one = self.held.inputs[message_id]
        fields = {"message_id": one.id, "kind": one.kind, "prompt": HI, "delivery": one.delivery}
        self.tell(events.PromptPromoted, **fields, time_created=one.time_created)

    def execute(self, execution_id="exe", **more):
        fields = {"execution_id": execution_id, "owner_id": "own", "purpose": "turn", "attempt": 1, **more}
        self.tell(events.ExecutionStarted, **fields)

    def step(self, amid="a"):
        self.tell(events.StepStarted, assistant_message_id=amid, agent="main", model="scripted:m")

    def ask_a_person(self, amid="a", call_id="c"):
        named = {"assistant_message_id": amid, "call_id": call_id}
        self.tell(events.ToolInputStarted, **named, name="look")
        self.tell(events.ToolApprovalRequested, **named, input={})

    def recover(self, execution_id="exe", phase="ready", amid=None, **more):
        said = {"kind": "synthetic", "prompt": HI, "delivery": "queue"}
        self.tell_all(
            (
                events.StepRecovered,
                {"execution_id": execution_id, "phase": phase, "assistant_message_id": amid, **more},
            ),
            (events.PromptAdmitted, {"message_id": ids.continue_message(execution_id), **said}),
        )
        return self.held.recoveries[execution_id]


@pytest.fixture
def told(desk):
    return Told(desk, "ses_1")


# -- settings and totals -----------------------------------------------------------------------------------------------------


def test_settings_that_are_not_given_stay_msg_1(told):
    policy = events.Policy("ask")
    told.tell(events.SessionUpdated, changes=events.Changes("title", {"a": 1}, archived=True, policy=policy))
    told.tell(events.SessionUpdated, changes=events.Changes(archived=False))
    session = told.held.session
    assert (session.title, session.metadata, session.archived, session.policy) == ("title", {"a": 1}, False, policy)


def test_a_session_is_created_once(told):
    with pytest.raises(errors.SessionAlreadyProjected):
        projection.apply(
            told.held, events.Recorded("e", "ses_1", 1, 1, events.SessionCreated(session_id="ses_1", agent="x"))
        )
    before = told.held
    assert told.tell(events.SessionCreated, agent="other") is before


def test_a_call_of_unknown_cost_is_counted_as_such(told):
    told.tell(events.UsageRecorded, source="step.recovered")
    told.tell(events.UsageRecorded, source="summary", tokens=messages.Tokens(1), cost=2)
    assert told.held.session.usage == messages.Usage(messages.Tokens(1), 2, 1, 1)


def test_what_a_fork_inherited_is_counted_with_its_parent_alone_api_3(desk):
    step = {"session_id": "child", "assistant_message_id": "a"}
    used = events.UsageRecorded(session_id="child", source="summary", tokens=messages.Tokens(1), cost=2)
    facts = [
        events.SessionCreated(session_id="child", agent="main", forked_from=events.Origin("parent", 3)),
        events.StepStarted(**step, agent="main", model="scripted:m"),
        events.StepEnded(**step, finish="stop", tokens=messages.Tokens(7), cost=9),
        used,
        used,
    ]
    held = desk.tell(projection.Projection(), facts)
    assert desk.rows("child") == held
    assert held.session.usage == held.session.turn_usage == messages.Usage(messages.Tokens(1), 2)


TOKENS = messages.Tokens(5, 4, 3, 2, 1)


def _use(told, source="summary", tokens=TOKENS, cost=7):
    told.tell(events.UsageRecorded, source=source, tokens=tokens, cost=cost)


def _end(told, *message_ids, execution_id="exe", outcome="succeeded"):
    told.tell(events.ExecutionEnded, execution_id=execution_id, outcome=outcome, message_ids=message_ids)


def test_a_settled_prompt_has_the_usage_of_its_turn_and_the_next_turn_starts_from_nothing_run_7_run_8_msg_1(told):
    told.admit()
    told.promote()
    told.execute()
    told.step()
    _use(told, "step.retried")
    told.tell(events.StepEnded, assistant_message_id="a", finish="stop", tokens=TOKENS, cost=3)
    assert told.held.inputs["in"].usage is None
    assert told.held.session.turn_usage == messages.Usage(TOKENS.plus(TOKENS), 10)
    _end(told, "in")
    assert told.held.inputs["in"].usage == messages.Usage(TOKENS.plus(TOKENS), 10)
    assert told.held.session.turn_usage is None
    told.execute("next", purpose="compaction")
    _use(told)
    _end(told, execution_id="next")
    assert told.held.inputs["in"].usage == messages.Usage(TOKENS.plus(TOKENS), 10)
    assert told.held.session.usage == messages.Usage(TOKENS.plus(TOKENS).plus(TOKENS), 17)


def test_what_nobody_knows_is_flagged_in_prompt_and_session_and_never_zero_run_7_run_8(told):
    told.admit()
    told.promote()
    told.execute()
    _use(told, tokens=None, cost=None)
    _use(told, cost=None)
    _end(told, "in")
    assert told.held.inputs["in"].usage == told.held.session.usage == messages.Usage(TOKENS, 0, 2, 1)


def test_prompts_that_share_a_turn_share_its_usage_run_7_run_8(told):
    told.admit("first")
    told.promote("first")
    told.execute()
    _use(told)
    told.admit("steer")
    told.promote("steer")
    _use(told)
    _end(told, "first", "steer")
    both = messages.Usage(TOKENS.plus(TOKENS), 14)
    assert [told.held.inputs[one].usage for one in ("first", "steer")] == [both, both]
    assert told.held.session.usage == both


def test_a_turn_that_a_crash_cut_goes_on_with_what_it_used_msg_1(told):
    told.admit()
    told.promote()
    told.execute()
    _use(told)
    told.recover()
    _use(told, "step.recovered", tokens=None, cost=None)
    assert told.held.session.turn_usage == messages.Usage(TOKENS, 7, 1, 1)
    told.execute("second")
    _use(told)
    _end(told, "in", execution_id="second")
    assert told.held.inputs["in"].usage == messages.Usage(TOKENS.plus(TOKENS), 14, 1, 1)


def test_running_a_prompt_again_adds_to_its_usage_and_a_turn_that_used_nothing_adds_nothing_run_7_run_8(told):
    told.admit()
    told.promote()
    for number in (1, 2, 3):
        told.execute(f"exe_{number}")
        if number < 3:
            _use(told)
        _end(told, "in", execution_id=f"exe_{number}", outcome="failed")
        told.tell(events.PromptRetried, message_id="in", retry_message_id=f"again_{number}")
    assert told.held.inputs["in"].usage == messages.Usage(TOKENS.plus(TOKENS), 14)


def test_an_outcome_told_twice_counts_once_msg_5(told):
    told.admit()
    told.promote()
    told.execute()
    _use(told)
    _end(told, "in")
    _use(told)
    _end(told, "in")
    assert told.held.inputs["in"].usage == messages.Usage(TOKENS, 7)


def test_a_deleted_session_has_no_rows_but_its_tombstone(told):
    told.admit()
    told.tell(events.SessionDeleted)
    assert told.held == projection.Projection(transcript=told.held.transcript, gone=told.held.gone)
    assert told.held.gone


# -- inbox -------------------------------------------------------------------------------------------------------------------


def test_a_prompt_goes_from_pending_to_running_to_settled_in_9(told):
    told.admit(request_execution=True)
    told.promote()
    one = told.held.inputs["in"]
    assert (one.promoted_seq, one.wake_pending, one.pending) == (2, False, False)
    told.execute()
    told.tell(events.ExecutionEnded, execution_id="exe", outcome="failed", message_ids=("in",), error=FAILURE)
    one = told.held.inputs["in"]
    assert (one.outcome, one.error, one.settled_seq) == ("failed", FAILURE, 4)


def test_a_promotion_that_differs_from_its_input_is_refused_in_9(told):
    one = told.admit()
    before = told.held
    fields = {"message_id": "in", "kind": "user", "prompt": HI, "delivery": "steer", "time_created": one.time_created}
    other = messages.text_prompt("ho")
    for change in ({"kind": "synthetic"}, {"delivery": "queue"}, {"time_created": 1}, {"prompt": other}):
        assert told.tell(events.PromptPromoted, **{**fields, **change}) is before


def test_a_historical_promotion_brings_its_input_along_in_9(told):
    fields = {"message_id": "old", "kind": "user", "prompt": HI, "delivery": "steer", "time_created": 5}
    told.tell(events.PromptPromoted, **fields)
    one = told.held.inputs["old"]
    assert (one.admitted_seq, one.promoted_seq, one.time_created) == (1, 1, 5)


def test_a_prompt_that_entered_the_transcript_cannot_be_withdrawn_any_more(told):
    told.admit()
    told.promote()
    told.tell(events.PromptWithdrawn, message_id="in", reason="cancelled")
    assert told.held.inputs["in"].outcome is None


def test_a_prompt_that_waits_is_not_settled_by_the_end_of_a_turn(told):
    told.admit()
    told.tell(events.ExecutionEnded, execution_id="exe", outcome="failed", message_ids=("in",))
    assert told.held.inputs["in"].pending


def test_only_an_outcome_can_be_retried_and_only_in_the_way_that_fits_in_12(told):
    told.admit()
    told.tell(events.PromptRetried, message_id="in")
    assert told.held.inputs["in"].retries == 0
    told.promote()
    told.tell(events.ExecutionEnded, execution_id="exe", outcome="failed", message_ids=("in",))
    told.tell(events.PromptRetried, message_id="in")
    assert told.held.inputs["in"].outcome == "failed"
    told.tell(events.PromptRetried, message_id="in", retry_message_id="again")
    one = told.held.inputs["in"]
    assert (one.outcome, one.retried_by, one.retries, one.wake_pending) == (None, "again", 1, False)


def test_a_withdrawn_retry_input_takes_its_target_along_in_12(told):
    told.admit()
    told.promote()
    told.tell(events.ExecutionEnded, execution_id="exe", outcome="failed", message_ids=("in",))
    told.tell(events.PromptRetried, message_id="in", retry_message_id="again")
    told.admit("again", "queue")
    told.tell(events.PromptWithdrawn, message_id="again", reason="failed", error=FAILURE)
    assert {one.outcome for one in told.held.inputs.values()} == {"failed"}


def test_a_turn_promises_every_waiting_input_but_a_continuation_in_15(told):
    told.execute("dead")
    told.recover("dead", armed=False)
    told.admit("one", "queue")
    told.execute()
    woken = {one.id for one in told.held.inputs.values() if one.wake_pending}
    assert woken == {"one"}


def test_an_interrupt_of_another_execution_than_the_open_one_changes_nothing_ex_8(told):
    told.execute()
    told.admit(request_execution=True)
    told.tell(events.ExecutionInterruptRequested, execution_id="other", reason="stop")
    assert told.held.inputs["in"].wake_pending
    told.tell(events.ExecutionInterruptRequested, execution_id="exe", reason="stop")
    assert not told.held.inputs["in"].wake_pending


# -- recovery ----------------------------------------------------------------------------------------------------------------


def test_a_recovery_row_remembers_the_back_off_its_owner_died_in_msg_1(told):
    told.execute()
    told.step()
    told.tell(events.RetryScheduled, assistant_message_id="a", attempt=3, at=9_000, error=FAILURE)
    recovery = told.recover(amid="a")
    assert (recovery.not_before, recovery.attempt, recovery.wake_pending) == (9_000, 3, True)
    assert told.held.session.execution_id is None


def test_a_recovery_names_only_an_assistant_its_session_has(told):
    told.execute()
    assert told.recover(amid="nobody").assistant_message_id is None


def test_a_decision_arms_a_recovery_and_its_promotion_settles_the_wake_rec_7(told):
    told.execute()
    told.recover(armed=False)
    again = ids.continue_message("exe")
    told.tell(events.PromptExecutionRequested, message_id=again)
    assert told.held.recoveries["exe"].wake_pending
    assert not told.held.inputs[again].wake_pending
    told.promote(again)
    assert not told.held.recoveries["exe"].wake_pending
    told.tell(events.PromptExecutionRequested, message_id=again)
    assert not told.held.recoveries["exe"].wake_pending


def test_an_execution_is_recovered_once_msg_5(told):
    told.execute()
    first = told.recover()
    told.tell(events.StepRecovered, execution_id="exe", phase="unknown")
    assert told.held.recoveries == {"exe": first}


# -- approvals ---------------------------------------------------------------------------------------------------------------


def test_an_approval_belongs_to_the_open_execution_and_the_first_decision_wins_apr_2(told):
    told.execute()
    told.step()
    told.ask_a_person()
    named = {"assistant_message_id": "a", "call_id": "c"}
    told.tell(events.ToolApprovalResolved, **named, decision="deny", by="me", note="no")
    told.tell(events.ToolApprovalResolved, **named, decision="approve", by="you")
    one = told.held.approvals["a", "c"]
    assert (one.execution_id, one.decision, one.by, one.note) == ("exe", "deny", "me", "no")


@pytest.mark.parametrize("amid", ["older", "nobody"])
def test_an_approval_asked_for_by_no_current_assistant_makes_no_row_msg_4(told, amid):
    told.step("older")
    told.step("a")
    told.tell(events.ToolApprovalRequested, assistant_message_id=amid, call_id="c", input={})
    assert not told.held.approvals


def test_a_late_interrupt_of_an_older_assistant_closes_no_approval_msg_4(told):
    told.step("older")
    told.step("a")
    told.ask_a_person()
    told.tell(events.StepInterrupted, assistant_message_id="older", error=FAILURE)
    assert told.held.approvals
    told.tell(events.StepInterrupted, assistant_message_id="a", error=FAILURE)
    assert not told.held.approvals


# -- other sessions ----------------------------------------------------------------------------------------------------------


def test_no_fact_of_one_session_touches_a_row_of_another_msg_1(desk, told):
    told.execute()
    told.step()
    told.ask_a_person()
    told.admit("waits", request_execution=True)
    told.admit("runs")
    told.promote("runs")
    other = Told(desk, "ses_2")
    for message_id in ("waits", "runs"):
        other.tell(events.PromptExecutionRequested, message_id=message_id)
        other.tell(events.PromptDeliveryChanged, message_id=message_id, delivery="queue")
        other.tell(events.PromptWithdrawn, message_id=message_id, reason="cancelled")
        other.tell(events.PromptRetried, message_id=message_id)
    other.tell(events.ExecutionEnded, execution_id="exe", outcome="failed", message_ids=("waits", "runs"))
    other.tell(events.ExecutionInterruptRequested, execution_id="exe", reason="stop")
    named = {"assistant_message_id": "a", "call_id": "c"}
    other.tell(events.ToolApprovalResolved, **named, decision="approve", by="me")
    other.tell(events.ToolCalled, **named, name="look", input={})
    other.tell(events.StepInterrupted, assistant_message_id="a", error=FAILURE)
    assert desk.rows("ses_1") == told.held
