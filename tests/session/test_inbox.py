"""From the inbox into the transcript and to an outcome (IN-8, IN-9, IN-11 to IN-15), and the rule that chooses (RUN-1)."""

import asyncio
import itertools

import pytest

from perdure import errors
from perdure.core import codec, events, inbox, messages
from perdure.errors import ModelErrorKind
from perdure.models.scripted import Fail, Gate, Hang, Text
from perdure.session import admission, promotion

SESSION = "ses"
HI = [Text("Hi")]
BROKEN = [Fail(ModelErrorKind.AUTH, "No")]


async def prompts(session, **deliveries):
    for message_id, delivery in deliveries.items():
        await session.prompt(message_id, id=message_id, delivery=delivery, resume=False)


def promote_next(unit):
    return promotion.promote_next(unit, SESSION, promotion.eligible(unit, SESSION)).ids


# -- the rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "open_turn", "closed_turn"),
    [
        ("", "", ""),
        ("s1 s2", "s1 s2", "s1 s2"),
        ("q1 s1 q2 s2", "s1 s2", "s1 s2"),
        ("q1 q2", "", "q1"),
        ("c1 q1", "", "c1"),
        ("q1 c1", "", "c1"),
        ("u1 q1", "", ""),
        ("c1 s1", "s1", "s1 -c1"),
        ("u1 q1 s1", "s1", "s1 -u1"),
    ],
)
def test_steers_go_first_then_a_continuation_then_the_oldest_queued_in_8_rec_5(waiting, open_turn, closed_turn):
    """`c` is an armed continuation, `u` an unarmed one, `-` what the choice supersedes."""
    rows = [
        inbox.Waiting(name, "steer" if name[0] == "s" else "queue", False, name[0] in "cu", name[0] == "c")
        for name in waiting.split()
    ]

    def told(choice):
        return " ".join([*choice.promote, *(f"-{one}" for one in choice.supersede)])

    assert told(inbox.choose(rows, turn_open=True)) == open_turn
    assert told(inbox.choose(rows, turn_open=False)) == closed_turn


# -- IN-8 --------------------------------------------------------------------------------------------------------------


async def test_steers_are_promoted_together_in_admission_order_then_queued_ones_one_by_one_in_8(deaf):
    session = await deaf.session()
    await prompts(session, q1="queue", s1="steer", q2="queue", s2="steer")
    promoted = [await deaf.transact(promote_next) for _ in range(4)]
    assert promoted == [("s1", "s2"), ("q1",), ("q2",), ()]


async def test_with_a_turn_open_only_steers_join_in_8(deaf):
    await prompts(await deaf.session(), q1="queue", s1="steer")

    def join(unit):
        choice = inbox.choose(promotion.waiting(unit.tx, SESSION, unit.now), turn_open=True)
        return promotion.promote(unit, SESSION, choice).ids

    assert await deaf.transact(join) == ("s1",)
    assert await deaf.transact(join) == ()


async def test_two_concurrent_promoters_make_one_event_and_one_message_in_8(deaf, nodes):
    other = await nodes(deaf=True)
    session = await deaf.session()
    await prompts(session, hello="steer")
    promoted = await asyncio.gather(deaf.transact(promote_next), other.transact(promote_next))
    assert sorted(promoted) == [(), ("hello",)]
    assert len(await deaf.facts(events.PromptPromoted)) == 1
    assert [one.id for one in await session.messages()] == ["hello"]


async def test_a_promotion_that_is_rolled_back_leaves_the_input_pending_in_8(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")

    def broken(unit):
        promote_next(unit)
        raise errors.Defect("after the promotion")

    with pytest.raises(errors.Defect):
        await deaf.transact(broken)
    row = await deaf.row("hello")
    assert (row.pending, row.wake_pending) == (True, True)
    assert await session.messages() == []


async def test_an_input_that_is_no_longer_pending_is_promoted_by_nobody_in_8(deaf):
    session = await deaf.session()
    await prompts(session, hello="steer")
    await session.cancel("hello")
    with pytest.raises(errors.LifecycleConflict):
        await deaf.transact(lambda unit: promotion.promote(unit, SESSION, inbox.Choice(("hello",))))
    assert await deaf.facts(events.PromptPromoted) == []


# -- IN-9 --------------------------------------------------------------------------------------------------------------


def promotion_of(row, **changes):
    fields = {
        "session_id": SESSION,
        "message_id": row.id,
        "kind": row.kind,
        "prompt": messages.text_prompt(row.id),
        "delivery": row.delivery,
        "time_created": row.time_created,
    }
    return events.PromptPromoted(**{**fields, **changes})


async def test_a_promotion_sets_its_seq_and_clears_the_wake_together_in_9(deaf):
    session = await deaf.session()
    await session.prompt("hello", id="hello")
    recorded = await deaf.log.publish(promotion_of(await deaf.row("hello")))
    row = await deaf.row("hello")
    assert (row.promoted_seq, row.wake_pending) == (recorded.seq, False)
    assert [(one.id, one.seq) for one in await session.messages()] == [("hello", recorded.seq)]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "synthetic"},
        {"delivery": "queue"},
        {"time_created": 1},
        {"prompt": messages.text_prompt("something else")},
    ],
)
async def test_a_promotion_that_does_not_fit_the_input_is_refused_and_changes_nothing_in_9(deaf, changes):
    session = await deaf.session()
    await session.prompt("hello", id="hello")
    before, names = await deaf.row("hello"), await deaf.names()
    with pytest.raises(errors.LifecycleConflict):
        await deaf.log.publish(promotion_of(before, **changes))
    assert (await deaf.row("hello"), await deaf.names()) == (before, names)
    assert await session.messages() == []


async def test_a_promotion_checks_the_current_delivery_not_the_first_in_9(deaf):
    session = await deaf.session()
    await prompts(session, hello="queue")
    await session.change_delivery("hello", "steer")
    await deaf.log.publish(promotion_of(await deaf.row("hello")))
    assert not (await deaf.row("hello")).pending


async def test_a_second_promotion_of_an_input_is_refused_in_9(deaf):
    await prompts(await deaf.session(), hello="steer")
    row = await deaf.row("hello")
    await deaf.log.publish(promotion_of(row))
    with pytest.raises(errors.LifecycleConflict):
        await deaf.log.publish(promotion_of(row))


async def test_a_promotion_of_an_input_nobody_admitted_inserts_the_historical_row_in_9(deaf):
    fact = events.PromptPromoted(
        session_id=SESSION,
        message_id="old",
        kind="user",
        prompt=messages.text_prompt("Hello"),
        delivery="steer",
        time_created=5,
    )
    recorded = await deaf.log.publish(fact)
    row = await deaf.row("old")
    assert (row.admitted_seq, row.promoted_seq, row.time_created) == (recorded.seq, recorded.seq, 5)
    assert not row.wake_pending


# -- IN-11 -------------------------------------------------------------------------------------------------------------


async def test_a_receipt_tells_admitted_running_and_settled_with_outcome_and_error_in_11(nodes):
    gate = Gate()
    alive = await nodes([[Hang(gate), *BROKEN]])
    session = await alive.session()
    await session.prompt("Later", id="later", delivery="queue", resume=False)
    assert (await session.receipt("later")).state == "admitted"
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    running = await session.receipt("hello")
    assert (running.state, running.outcome, running.promoted_seq is None) == ("running", None, False)
    await session.cancel("later")
    assert (await session.receipt("later")).outcome == "cancelled"
    gate.open()
    settled = await session.wait("hello")
    assert (settled.state, settled.outcome) == ("settled", "failed")
    assert settled.error.type == "auth"
    assert settled.settled_seq == await alive.log.last_seq(SESSION)
    assert (await session.prompt("Hello", id="hello")).outcome == "failed", "a failed prompt keeps its id"


async def test_a_receipt_of_an_unknown_prompt_is_not_found_in_11(deaf):
    with pytest.raises(errors.PromptNotFound):
        await (await deaf.session()).receipt("nobody")


# -- IN-12 -------------------------------------------------------------------------------------------------------------


async def test_a_failed_prompt_runs_again_by_one_synthetic_input_and_gets_one_more_outcome_in_12(nodes, check):
    gate = Gate()
    alive = await nodes([BROKEN, [Hang(gate), Text("Hi")]])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "failed"
    await alive.quiet()
    receipt = await session.retry("hello")
    await gate.arrived()
    assert (receipt.state, receipt.outcome) == ("admitted", None)
    assert (await session.receipt("hello")).state == "running"
    gate.open()
    assert (await session.wait("hello")).outcome == "succeeded"
    await alive.quiet()
    assert await alive.outcome("msg_retry_hello_1") == "succeeded"
    kinds = [type(one).__name__ for one in await session.messages()]
    assert kinds.count("User") == 1, "no user message is added"
    retried = next(one for one in await alive.facts(events.PromptAdmitted) if one.message_id == "msg_retry_hello_1")
    assert (retried.kind, retried.delivery, retried.request_execution) == ("synthetic", "queue", True)
    names = await alive.names()
    assert names[names.index("prompt.retried") + 1] == "prompt.admitted"
    await check(alive)


async def test_until_its_retry_input_is_promoted_no_other_turn_settles_the_prompt_in_12(nodes, check):
    gate = Gate()
    alive = await nodes([BROKEN, [Hang(gate), Text("Other")], HI])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await session.prompt("Other", id="other")
    await gate.arrived()
    await session.retry("hello")
    assert (await session.receipt("hello")).state == "admitted"
    gate.open()
    await session.wait("other")
    await session.wait("hello")
    await alive.quiet()
    ends = [one.message_ids for one in await alive.facts(events.ExecutionEnded)]
    assert [set(one) for one in ends] == [{"hello"}, {"other"}, {"hello", "msg_retry_hello_1"}]
    await check(alive)


async def test_each_retry_has_a_number_of_its_own_in_12(nodes):
    alive = await nodes([BROKEN, BROKEN, BROKEN])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    for n in (1, 2):
        await session.wait("hello")
        await alive.quiet()
        await session.retry("hello")
        await session.wait("hello")
        assert await alive.outcome(f"msg_retry_hello_{n}") == "failed"


async def test_only_a_failed_or_interrupted_prompt_can_be_retried_in_12(nodes):
    alive = await nodes([HI])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    await session.wait("hello")
    await prompts(session, waiting="queue", gone="queue")
    await session.cancel("gone")
    names = await alive.names()
    for message_id in ("hello", "waiting", "gone"):
        with pytest.raises(errors.LifecycleConflict):
            await session.retry(message_id)
    with pytest.raises(errors.PromptNotFound):
        await session.retry("nobody")
    assert await alive.names() == names


async def test_a_second_retry_before_the_first_has_ended_conflicts_in_12(deaf):
    session = await deaf.session()
    await session.prompt("hello", id="hello")

    def fail(unit):
        promote_next(unit)
        fact = events.ExecutionStarted(
            session_id=SESSION, execution_id="exe", owner_id="own", purpose="turn", attempt=1
        )
        unit.append(fact)
        unit.append(
            events.ExecutionEnded(session_id=SESSION, execution_id="exe", outcome="failed", message_ids=("hello",))
        )

    await deaf.transact(fail)
    await session.retry("hello")
    with pytest.raises(errors.LifecycleConflict):
        await session.retry("hello")


async def test_a_prompt_that_failed_before_it_was_promoted_becomes_pending_again_and_woken_in_12(nodes, check):
    missing = await nodes(agents=[])
    await missing.log.publish(events.SessionCreated(session_id=SESSION, agent="main"))
    session = await missing.app.sessions.get(SESSION)
    await session.prompt("Hello", id="hello")
    assert (await session.wait("hello")).outcome == "failed"
    await missing.quiet()
    await missing.stop()
    alive = await nodes([HI])
    session = await alive.app.sessions.get(SESSION)
    receipt = await session.retry("hello")
    assert receipt.state == "admitted"
    assert (await session.wait("hello")).outcome == "succeeded"
    assert await alive.row("msg_retry_hello_1") is None
    await alive.quiet()
    await check(alive)


async def test_a_steer_accepted_while_the_step_fails_opens_the_next_turn_in_12(nodes, check):
    gate = Gate()
    alive = await nodes([[Hang(gate), *BROKEN], HI])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await session.prompt("And", id="and")
    gate.open()
    assert (await session.wait("hello")).outcome == "failed"
    assert (await session.wait("and")).outcome == "succeeded"
    await alive.quiet()
    await check(alive)


# -- IN-13 -------------------------------------------------------------------------------------------------------------


async def test_a_pending_prompt_can_be_cancelled_once_in_13(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    receipt = await session.cancel("hello")
    assert (receipt.state, receipt.outcome) == ("settled", "cancelled")
    assert not (await deaf.row("hello")).wake_pending
    with pytest.raises(errors.LifecycleConflict):
        await session.cancel("hello")
    assert len(await deaf.facts(events.PromptWithdrawn)) == 1


async def test_a_pending_prompt_can_change_its_delivery_and_keeps_its_place_in_13(deaf):
    session = await deaf.session()
    await prompts(session, a="queue", b="queue")
    assert (await session.change_delivery("b", "steer")).delivery == "steer"
    names = await deaf.names()
    await session.change_delivery("b", "steer")
    assert await deaf.names() == names
    assert [row.id for row in await session.inbox()] == ["a", "b"]
    assert await deaf.transact(promote_next) == ("b",)


async def test_continuations_and_retry_inputs_are_not_touched_by_callers_in_13(deaf):
    session = await deaf.session()
    for message_id in ("msg_retry_hello_1", "msg_continue_exe"):
        fact = events.PromptAdmitted(
            session_id=SESSION,
            message_id=message_id,
            kind="synthetic",
            prompt=messages.text_prompt("Go on"),
            delivery="queue",
        )
        await deaf.log.publish(fact)
        with pytest.raises(errors.LifecycleConflict):
            await session.cancel(message_id)
        with pytest.raises(errors.LifecycleConflict):
            await session.change_delivery(message_id, "steer")
        assert (await deaf.row(message_id)).pending


# -- IN-14 -------------------------------------------------------------------------------------------------------------


async def spoil(node, *message_ids):
    """Make stored prompts undecodable, as an older or newer program may have left them."""

    def work(tx):
        for message_id in message_ids:
            tx.inbox._c.execute("UPDATE session_input SET prompt = ? WHERE id = ?", ('{"parts": 7}', message_id))
        tx.forget()

    await node.engine.store.write(work)


async def test_a_stored_prompt_that_cannot_be_decoded_is_withdrawn_as_failed_and_the_others_go_on_in_14(
    deaf, nodes, check
):
    session = await deaf.session()
    for message_id in ("bad", "worse", "good"):
        await session.prompt(message_id, id=message_id, delivery="queue")
    await spoil(deaf, "bad", "worse")
    await deaf.crash()
    alive = await nodes([HI])
    session = await alive.session()
    assert (await session.wait("good")).outcome == "succeeded"
    for message_id in ("bad", "worse"):
        receipt = await session.receipt(message_id)
        assert (receipt.outcome, receipt.error.type) == ("failed", "undecodable")
    await alive.quiet()
    await check(alive)


async def test_a_long_prompt_whose_fact_cannot_be_read_is_withdrawn_as_failed_and_the_others_go_on_in_14(deaf, nodes):
    session = await deaf.session()
    await session.prompt("x" * 999, id="bad", delivery="queue")
    await session.prompt("y" * 999, id="good", delivery="queue")

    def spoil(tx):
        tx.inbox._c.execute("UPDATE session_input SET id = 'worse' WHERE id = 'bad'")
        tx.forget()

    await deaf.engine.store.write(spoil)
    waiting = {one.id: one.prompt for one in await session.inbox()}
    assert waiting == {"worse": "", "good": codec.dump(messages.text_prompt("y" * 999))}
    await deaf.crash()
    alive = await nodes([HI])
    session = await alive.session()
    assert (await session.wait("good")).outcome == "succeeded"
    receipt = await session.receipt("worse")
    assert (receipt.outcome, receipt.error.type) == ("failed", "message-undecodable")
    await alive.quiet()


async def test_steers_that_cannot_be_decoded_supersede_no_continuation_in_14_rec_5(deaf):
    await recovered(deaf)
    await (await deaf.session()).prompt("bad", id="bad")
    await spoil(deaf, "bad")
    assert await deaf.transact(promote_next) == ("msg_continue_exe_dead",)
    assert await deaf.outcome("bad") == "failed"


async def test_a_continuation_that_cannot_be_decoded_ends_its_turn_failed_in_14(deaf):
    await recovered(deaf)
    await spoil(deaf, "msg_continue_exe_dead")
    assert await deaf.transact(promote_next) == ()
    assert await deaf.outcome("hello") == "failed"
    (ended,) = await deaf.facts(events.ExecutionEnded)
    assert (ended.execution_id, ended.outcome) == ("exe_dead", "failed")


async def recovered(node):
    """A turn of prompt `hello` that was recovered and waits to go on."""
    await (await node.session()).prompt("hello", id="hello")

    def work(unit):
        promote_next(unit)
        unit.append(
            events.ExecutionStarted(
                session_id=SESSION, execution_id="exe_dead", owner_id="own", purpose="turn", attempt=1
            )
        )
        unit.append(events.StepRecovered(session_id=SESSION, execution_id="exe_dead", phase="ready", armed=True))
        unit.append(
            events.PromptAdmitted(
                session_id=SESSION,
                message_id="msg_continue_exe_dead",
                kind="synthetic",
                prompt=messages.text_prompt("Go on"),
                delivery="queue",
            )
        )

    await node.transact(work)


# -- IN-15 -------------------------------------------------------------------------------------------------------------


async def test_a_drain_that_nobody_wanted_starts_nothing_in_15(nodes):
    alive = await nodes([])
    session = await alive.session()
    await prompts(session, hello="steer")
    names = await alive.names()
    alive.engine.ring(SESSION)
    await alive.quiet()
    assert await alive.names() == names
    assert alive.model.requests == []


async def test_once_a_drain_runs_every_pending_input_is_taken_in_order_in_15(nodes, check):
    alive = await nodes([HI] * 4)
    session = await alive.session()
    await prompts(session, a="queue", b="queue")
    await session.prompt("c", id="c")
    for message_id in "abc":
        assert (await session.wait(message_id)).outcome == "succeeded"
    promoted = [one.message_id for one in await alive.facts(events.PromptPromoted)]
    assert promoted == ["c", "a", "b"]
    await alive.quiet()
    await check(alive)


async def test_the_start_of_a_turn_promises_to_run_every_input_that_waits_then_in_15(nodes):
    gate = Gate()
    alive = await nodes([[Hang(gate), Text("Hi")], HI])
    session = await alive.session()
    await prompts(session, later="queue")
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    assert (await alive.row("later")).wake_pending, "a crash now would not lose it"
    gate.open()
    assert (await session.wait("later")).outcome == "succeeded"


@pytest.mark.parametrize("order", list(itertools.permutations("qsQS"))[:8])
async def test_whatever_is_admitted_while_a_turn_runs_reaches_its_outcome_in_12_ex_10(nodes, check, order):
    gate = Gate()
    alive = await nodes(lambda asked: [Hang(gate), Text("Hi")])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    for kind in order:
        await session.prompt(kind, id=kind, delivery="queue" if kind in "qQ" else "steer", resume=kind.islower())
    gate.open()
    for message_id in ("hello", *order):
        assert (await session.wait(message_id)).outcome == "succeeded"
    await alive.quiet()
    await check(alive)


async def test_a_receipt_is_the_same_for_every_reader_in_11(deaf, nodes):
    other = await nodes(deaf=True)
    await (await deaf.session()).prompt("Hello", id="hello")
    read = [await node.read(lambda tx: admission.receipt_of(tx, SESSION, "hello")) for node in (deaf, other)]
    assert read[0] == read[1]
