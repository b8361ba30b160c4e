"""Requests to providers as a log tells of them, told fact by fact (RUN-8)."""

from perdure.core import events, messages
from perdure.core.attempts import Attempts

TOKENS = messages.Tokens(5, 4, 3, 2, 1)
FAILURE = messages.Failure("rate_limit", "Too much")
UNKNOWN = messages.usage_of(None, None)


def told(*facts):
    """The attempts that these facts of one session tell of."""
    found = Attempts()
    for seq, (cls, fields) in enumerate(facts):
        found.apply(events.Recorded(f"e{seq}", "s", seq, seq, cls(session_id="s", **fields)))
    return found.found


def started(amid):
    return events.StepStarted, {"assistant_message_id": amid, "agent": "main", "model": "p:m"}


def ended(amid):
    return events.StepEnded, {"assistant_message_id": amid, "finish": "stop", "tokens": TOKENS, "cost": 7}


def used(source, tokens=None, cost=None):
    return events.UsageRecorded, {"source": source, "tokens": tokens, "cost": cost}


def test_a_request_made_again_is_another_attempt_for_the_same_message_run_8():
    retried = events.RetryScheduled, {"assistant_message_id": "a", "attempt": 2, "at": 9, "error": FAILURE}
    first, second = told(started("a"), used("step.retried", TOKENS, 7), retried, started("a"), ended("a"))
    assert (first.number, first.outcome, first.error, first.seq) == (1, "failed", FAILURE, 0)
    assert (second.number, second.outcome, second.error, second.seq) == (2, "succeeded", None, 3)
    assert first.usage == second.usage == messages.Usage(TOKENS, 7)


def test_a_summary_stands_between_the_attempt_that_did_not_fit_and_the_next_run_8():
    summary = {"message_id": "c"}
    found = told(
        started("a"),
        (events.CompactionStarted, {**summary, "reason": "auto"}),
        used("compaction.retried"),
        (events.CompactionEnded, {**summary, "summary": "all", "recent": ""}),
        used("compaction", TOKENS, 7),
        started("a"),
    )
    assert [(one.kind, one.number, one.outcome) for one in found] == [
        ("step", 1, "failed"),
        ("summary", 1, "failed"),
        ("summary", 2, "succeeded"),
        ("step", 2, "running"),
    ]
    assert [one.usage for one in found[1:3]] == [UNKNOWN, messages.Usage(TOKENS, 7)]


def test_what_a_recovery_and_an_interrupt_tell_is_the_attempts_they_close_run_8():
    recovered = events.StepRecovered, {"execution_id": "x", "phase": "unknown", "assistant_message_id": "a"}
    stopped = events.StepInterrupted, {"assistant_message_id": "b", "error": FAILURE}
    lost, cut = told(started("a"), recovered, used("step.recovered"), started("b"), stopped, used("step.interrupted"))
    assert [(one.outcome, one.usage) for one in (lost, cut)] == [("unknown", UNKNOWN), ("interrupted", UNKNOWN)]


def test_a_fact_of_another_message_changes_no_attempt_and_usage_of_none_is_kept_msg_4_run_8():
    alone, one = told(used("step.failed", TOKENS, 7), started("a"), ended("b"))
    assert (alone.message_id, alone.outcome, alone.usage) == ("", "unknown", messages.Usage(TOKENS, 7))
    assert (one.outcome, one.usage) == ("running", messages.Usage())
