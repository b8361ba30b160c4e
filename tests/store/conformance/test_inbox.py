"""Every verb on inputs, on every store."""

import pytest

from perdure import errors
from perdure.core import bodies, codec, events, messages
from perdure.core.value import replace
from perdure.store.events import EventRow
from perdure.store.inbox import InputRow


async def test_an_input_comes_back_as_it_was_admitted(store, build):
    def work(tx):
        build.session(tx)
        made = build.input(tx, "msg_1", kind="synthetic", text="é", delivery="queue", wake_pending=True)
        return made, build.input(tx, "msg_1", seq=9, text="other")

    assert await store.write(work) == (True, False)
    row = await store.read(lambda tx: tx.inbox.get("msg_1"))
    assert row == InputRow(
        id="msg_1",
        session_id="ses_1",
        kind="synthetic",
        prompt=row.prompt,
        delivery="queue",
        admitted_delivery="queue",
        time_created=1,
        admitted_seq=0,
        promoted_seq=None,
        wake_pending=True,
        execution_requests=0,
        retries=0,
        retried_by=None,
        outcome=None,
        error=None,
        settled_seq=None,
        usage=None,
    )
    assert "é" in row.prompt
    assert row.pending
    assert await store.read(lambda tx: tx.inbox.get("no")) is None


async def test_pending_inputs_stand_in_admission_order_until_promoted_or_settled(store, build):
    def work(tx):
        build.session(tx)
        build.session(tx, "ses_2")
        for name, seq in (("c", 3), ("a", 1), ("b", 2)):
            build.input(tx, name, seq=seq)
        build.input(tx, "z", "ses_2")
        seen = [[row.id for row in tx.inbox.pending("ses_1")]]
        assert tx.inbox.promote("b", 10)
        tx.inbox.settle("c", "cancelled", None, 11)
        seen.append([row.id for row in tx.inbox.pending("ses_1")])
        return seen, tx.inbox.promote("b", 12), tx.inbox.promote("c", 12), tx.inbox.promote("no", 12)

    assert await store.write(work) == ([["a", "b", "c"], ["a"]], False, False, False)


async def test_a_promotion_settles_the_wake_in_the_same_statement(store, build):
    def work(tx):
        build.session(tx)
        build.input(tx, "a", wake_pending=True)
        woken = tx.inbox.woken_sessions()
        tx.inbox.promote("a", 5)
        row = tx.inbox.get("a")
        return woken, row.promoted_seq, row.wake_pending, tx.inbox.woken_sessions(), row.pending

    assert await store.write(work) == (["ses_1"], 5, False, [], False)


async def test_wakes_are_requested_counted_and_cleared(store, build):
    def wakes(tx):
        return [row.id for row in tx.inbox.pending("ses_1") if row.wake_pending]

    def work(tx):
        build.session(tx)
        for name, seq in (("a", 1), ("b", 2), ("c", 3), ("go on", 4)):
            build.input(tx, name, seq=seq)
        recovered = events.StepRecovered(session_id="ses_1", execution_id="exe_0", phase="safe")
        tx.recoveries.insert(recovered, "go on", 1)
        tx.inbox.request("b")
        seen = [wakes(tx)]
        tx.inbox.request_all("ses_1")
        seen.append(wakes(tx))
        tx.inbox.clear_wakes("ses_1", 3)
        seen.append(wakes(tx))
        tx.inbox.promote("a", 10)
        tx.inbox.request("a")
        tx.inbox.count_request("a")
        tx.inbox.count_request("a")
        return seen, tx.inbox.get("a").execution_requests, tx.inbox.get("a").wake_pending

    seen, requests, wake = await store.write(work)
    assert seen == [["b"], ["a", "b", "c"], ["c"]], "a continuation has its own row"
    assert (requests, wake) == (2, False)


def running_ids(tx):
    return [row.id for row in tx.inbox.running("ses_1")]


@pytest.mark.parametrize("error", [None, messages.Failure("model", "no")])
async def test_the_first_outcome_stands(store, build, error):
    def work(tx):
        build.session(tx)
        build.input(tx, "a", promoted_seq=1)
        running = running_ids(tx)
        tx.inbox.settle("a", "failed", error, 7)
        tx.inbox.settle("a", "succeeded", None, 8)
        return running, tx.inbox.get("a"), running_ids(tx)

    running, row, after = await store.write(work)
    assert (running, after) == (["a"], [])
    assert (row.outcome, row.error, row.settled_seq) == ("failed", error, 7)


async def test_usage_comes_with_an_outcome_and_stays_where_none_is_told(store, build):
    used = messages.Usage(messages.Tokens(1, 2, 3, 4, 5), 6, 7, 8)

    def work(tx):
        build.session(tx)
        build.input(tx, "a", promoted_seq=1)
        tx.inbox.settle("a", "failed", None, 7, used)
        tx.inbox.reopen("a", "retry", wake_pending=False)
        tx.inbox.settle("a", "failed", None, 9)
        return tx.inbox.get("a").usage

    assert await store.write(work) == used


async def test_delivery_changes_while_pending_and_what_was_admitted_stays(store, build):
    def work(tx):
        build.session(tx)
        build.input(tx, "a", seq=1)
        build.input(tx, "b", seq=2, promoted_seq=3)
        for name in ("a", "b"):
            tx.inbox.set_delivery(name, "queue")
        return [(row.delivery, row.admitted_delivery) for row in map(tx.inbox.get, ("a", "b"))]

    assert await store.write(work) == [("queue", "steer"), ("steer", "steer")]


async def test_a_retried_prompt_runs_again_once_its_retry_input_is_promoted(store, build):
    def work(tx):
        build.session(tx)
        build.input(tx, "a", seq=1, promoted_seq=2)
        tx.inbox.settle("a", "failed", messages.Failure("model", "no"), 3)
        build.input(tx, "retry", seq=4, kind="synthetic")
        tx.inbox.reopen("a", "retry", wake_pending=False)
        row = tx.inbox.get("a")
        waiting = running_ids(tx)
        tx.inbox.promote("retry", 5)
        return row, tx.inbox.target_of("retry"), tx.inbox.target_of("a"), waiting, running_ids(tx)

    row, target, nothing, waiting, running = await store.write(work)
    assert (row.outcome, row.error, row.settled_seq, row.retries, row.retried_by) == (None, None, None, 1, "retry")
    assert target == row
    assert nothing is None
    assert waiting == []
    assert running == ["a", "retry"]


async def test_a_withdrawn_prompt_is_reopened_as_pending(store, build):
    def work(tx):
        build.session(tx)
        build.input(tx, "a", seq=1)
        tx.inbox.settle("a", "cancelled", None, 2)
        tx.inbox.reopen("a", None, wake_pending=True)
        return tx.inbox.get("a")

    row = await store.write(work)
    assert (row.pending, row.wake_pending, row.retries, row.retried_by) == (True, True, 1, None)


# -- prompts that stand in the log -------------------------------------------------------------------------------------------

LONG = "é" * bodies.INLINE
ASKED = {"session_id": "ses_1", "message_id": "msg_in", "kind": "user", "delivery": "steer"}
ADMITTED = events.PromptAdmitted(**ASKED, prompt=messages.text_prompt(LONG))
PROMOTED = events.PromptPromoted(**ASKED, prompt=messages.text_prompt(LONG), time_created=1)


def admit(tx, build, fact):
    """A long prompt, and the fact that should have brought it at 7."""
    build.session(tx)
    tx.events.put_sequence("ses_1", 7, None)
    if fact:
        kind = codec.session_registry().stored_type(fact)
        tx.events.append(EventRow("evt_7", "ses_1", 7, kind, 1, codec.dump(fact)))
    build.input(tx, seq=7, text=LONG)


@pytest.mark.parametrize("fact", [ADMITTED, PROMOTED])
async def test_a_long_prompt_stands_once_in_the_fact_that_brought_its_input(store, build, fact):
    text = codec.dump(messages.text_prompt(LONG))

    def prompts(tx):
        row = tx.inbox.get("msg_in")
        return row.prompt, tx.inbox.prompt(row), tx.inbox.whole(row).prompt, tx.upkeep.inputs("ses_1")[0].prompt

    def forgetful(tx):
        tx.inbox.forget()
        return prompts(tx)

    def work(tx):
        admit(tx, build, fact)
        return prompts(tx), forgetful(tx)

    found = ("", text, text, text)
    assert await store.write(work) == (found, found)
    assert await store.write(prompts) == found
    assert await store.read(prompts) == found
    assert await store.read(build.rows("SELECT prompt FROM session_input")) == [("",)]


@pytest.mark.parametrize(
    "fact",
    [
        None,
        replace(ADMITTED, message_id="another"),
        events.ContextUpdated(session_id="ses_1", message_id="msg_in", text=LONG),
    ],
)
async def test_an_input_never_has_the_prompt_of_anything_but_its_fact_msg_8(store, build, fact):
    await store.write(lambda tx: admit(tx, build, fact))
    with pytest.raises(
        errors.MessageUndecodable, match=r"msg_in of session ses_1 .* its fact 7 should hold the prompt"
    ):
        await store.read(lambda tx: tx.inbox.prompt(tx.inbox.get("msg_in")))
    assert (await store.read(lambda tx: tx.inbox.whole(tx.inbox.get("msg_in")))).prompt == "", "which is no JSON"
