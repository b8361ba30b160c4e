"""Every verb on inputs, on every store."""

import pytest

from perdure.core import events, messages
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
