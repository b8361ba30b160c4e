"""A prompt becomes durable once, under its caller's id, and is wanted only when somebody wanted it (IN-1 to IN-7, IN-10)."""

import asyncio

import pytest

from perdure import Part, errors
from perdure.core import events, messages
from perdure.models.scripted import Gate, Hang, Text
from perdure.server import problems
from perdure.session import admission

SESSION = "ses"


async def requested(node):
    return await node.facts(events.PromptExecutionRequested)


async def admitted(node):
    return await node.facts(events.PromptAdmitted)


async def open_again(node, nodes):
    """Another engine on the same file, as after a restart."""
    await node.crash()
    return await nodes(deaf=True)


# -- IN-1, IN-4 --------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_durable_and_not_in_the_transcript_when_its_receipt_returns_in_1(deaf, nodes):
    session = await deaf.session()
    receipt = await session.prompt("Hello", id="hello")
    again = await open_again(deaf, nodes)
    assert (receipt.state, receipt.delivery) == ("admitted", "steer")
    assert await (await again.session()).receipt("hello") == receipt
    assert await (await again.session()).messages() == []


async def test_a_prompt_without_resume_is_admitted_only_and_rings_nobody_in_1(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    await deaf.sweep()
    assert deaf.bells == []
    row = await deaf.row("hello")
    assert (row.wake_pending, row.delivery) == (False, "steer")


async def test_a_prompt_rings_once_and_its_intent_is_stored_in_1(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    assert deaf.bells == [SESSION]
    assert (await deaf.row("hello")).wake_pending


async def test_prompts_without_an_id_are_two_inputs_in_1(deaf):
    session = await deaf.session()
    first, second = await session.prompt("Hello"), await session.prompt("Hello")
    assert first.id != second.id
    assert [row.id for row in await session.inbox()] == [first.id, second.id]


async def test_the_bytes_of_a_part_are_stored_once_under_their_hash_in_1(deaf):
    session = await deaf.session()
    parts = [Part("text", text="Look"), Part("image", data=b"\x89PNG", mime="image/png")]
    await session.prompt(parts, id="one")
    await session.prompt(parts, id="two")
    (fact, other) = await admitted(deaf)
    assert fact.prompt == other.prompt
    digest = fact.prompt.parts[1].hash
    assert await deaf.read(lambda tx: tx.content.get(digest)) == b"\x89PNG"


@pytest.mark.parametrize("prompt", ["", [], [Part("text", text="")], [Part("sound", data=b"x")]])
async def test_a_prompt_of_nothing_or_of_an_unknown_part_is_refused_and_stores_nothing_in_1(deaf, prompt):
    session = await deaf.session()
    with pytest.raises(errors.InvalidInput):
        await session.prompt(prompt, id="empty")
    assert await session.inbox() == []


async def test_intent_is_durable_before_the_bell_rings_in_4(deaf):
    session = await deaf.session()
    seen = []

    def look(session_id):
        seen.append(asyncio.ensure_future(deaf.row("hello")))

    deaf.engine.coordinator.wake = look
    await session.prompt("Hello", id="hello")
    assert [(await row).wake_pending for row in seen] == [True]


async def test_a_prompt_whose_every_bell_was_lost_is_answered_by_the_next_sweep_in_4(deaf, nodes):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    await deaf.crash()
    alive = await nodes([[Text("Hi")]])
    receipt = await (await alive.session()).wait("hello")
    assert receipt.outcome == "succeeded"


# -- IN-2, IN-3 --------------------------------------------------------------------------------------------------------


async def test_an_exact_retry_of_a_pending_prompt_returns_its_receipt_and_writes_nothing_in_2(deaf):
    session = await deaf.session()
    first = await session.prompt("Hello", id="hello")
    names = await deaf.names()
    assert await session.prompt([Part("text", text="Hello")], id="hello") == first
    assert await deaf.names() == names


@pytest.mark.parametrize("resume", [True, False])
async def test_resume_does_not_count_when_retries_are_compared_in_2(deaf, resume):
    session = await deaf.session()
    first = await session.prompt("Hello", id="hello", resume=resume)
    assert await session.prompt("Hello", id="hello", resume=not resume) == first


async def test_a_retry_is_compared_with_the_delivery_first_admitted_in_2(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", delivery="queue")
    await session.change_delivery("hello", "steer")
    receipt = await session.prompt("Hello", id="hello", delivery="queue")
    assert receipt.delivery == "steer"
    with pytest.raises(errors.PromptConflict):
        await session.prompt("Hello", id="hello", delivery="steer")


@pytest.mark.parametrize(
    ("text", "delivery"), [("Goodbye", "steer"), ("Hello", "queue"), ("Goodbye", "queue"), ("Hello ", "steer")]
)
async def test_another_prompt_or_delivery_under_one_id_conflicts_with_one_admission_and_no_transcript_in_2(
    deaf, text, delivery
):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    with pytest.raises(errors.PromptConflict) as conflict:
        await session.prompt(text, id="hello", delivery=delivery)
    assert (conflict.value.session_id, conflict.value.message_id) == (SESSION, "hello")
    assert len(await admitted(deaf)) == 1
    assert await session.messages() == []


async def test_an_id_of_another_session_conflicts_and_stores_nothing_there_in_2(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    other = await deaf.session("other")
    with pytest.raises(errors.PromptConflict):
        await other.prompt("Hello", id="hello")
    assert await other.inbox() == []


async def test_an_id_of_another_kind_of_message_conflicts_and_stores_nothing_in_2(deaf):
    session = await deaf.session()
    fact = events.SyntheticAdded(session_id=SESSION, message_id="note", text="Hello")
    await deaf.log.publish(fact)
    with pytest.raises(errors.PromptConflict):
        await session.prompt("Hello", id="note")
    assert await session.inbox() == []


async def test_a_settled_prompt_sent_again_answers_with_its_outcome_and_writes_nothing_in_2(nodes):
    alive = await nodes([[Text("Hi")]])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    settled = await session.wait("hello")
    names = await alive.names()
    assert await session.prompt("Hello", id="hello") == settled
    assert (settled.state, settled.outcome) == ("settled", "succeeded")
    await alive.quiet()
    assert await alive.names() == names


async def test_two_concurrent_exact_retries_make_one_row_and_one_admission_in_3(deaf):
    session = await deaf.session()
    receipts = await asyncio.gather(*(session.prompt("Hello", id="hello") for _ in range(2)))
    assert receipts[0] == receipts[1]
    assert len(await admitted(deaf)) == 1
    assert len(await session.inbox()) == 1


async def test_two_engines_admitting_one_id_agree_and_the_loser_of_different_prompts_gets_a_conflict_in_3(deaf, nodes):
    other = await nodes(deaf=True)
    mine, theirs = await deaf.session(), await other.session()
    same = await asyncio.gather(mine.prompt("Hello", id="same"), theirs.prompt("Hello", id="same"))
    assert same[0] == same[1]
    differing = await asyncio.gather(
        mine.prompt("Yes", id="answer"), theirs.prompt("No", id="answer"), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in differing) == ["PromptConflict", "Receipt"]
    assert len(await admitted(deaf)) == 2


async def test_nobody_who_prompts_ever_sees_a_lifecycle_conflict_in_3(deaf):
    session = await deaf.session()
    kinds = [("Yes", "steer"), ("No", "steer"), ("Yes", "queue")] * 4
    answers = await asyncio.gather(
        *(session.prompt(text, id="answer", delivery=delivery) for text, delivery in kinds), return_exceptions=True
    )
    assert {type(one) for one in answers} == {type(answers[0]), errors.PromptConflict}
    assert len(await admitted(deaf)) == 1


# -- IN-5, IN-6, IN-7 --------------------------------------------------------------------------------------------------


async def test_two_concurrent_resuming_retries_of_an_admit_only_prompt_store_one_request_and_ring_twice_in_5(
    deaf, nodes
):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    await asyncio.gather(*(session.prompt("Hello", id="hello") for _ in range(2)))
    assert deaf.bells == [SESSION, SESSION]
    assert [one.message_id for one in await requested(deaf)] == ["hello"]
    assert (await deaf.row("hello")).wake_pending
    again = await open_again(deaf, nodes)
    await again.sweep()
    assert again.bells == [SESSION], "one bell at recovery"
    assert len(await requested(again)) == 1


async def test_the_first_request_of_an_input_has_a_fixed_id_and_each_later_one_a_number_in_5(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    for _ in range(3):
        await session.prompt("Hello", id="hello")
        await session.interrupt()
    recorded = await deaf.log.read(SESSION, limit=100)
    ids = [one.id for one in recorded if isinstance(one.data, events.PromptExecutionRequested)]
    assert ids == [f"evt_prompt_execution_hello{suffix}" for suffix in ("", "#1", "#2")]


async def test_requesting_an_input_that_is_missing_or_of_another_session_is_a_lifecycle_conflict_in_5(deaf):
    await (await deaf.session()).prompt("Hello", id="hello", resume=False)
    await deaf.session("other")
    for session_id, message_id in ((SESSION, "nobody"), ("other", "hello")):
        with pytest.raises(errors.LifecycleConflict):
            await deaf.transact(lambda unit, s=session_id, m=message_id: admission.request_execution(unit, s, m))
    assert await requested(deaf) == []


async def test_requesting_an_input_that_is_withdrawn_answers_no_and_writes_nothing_in_5(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    await session.cancel("hello")
    assert not await deaf.transact(lambda unit: admission.request_execution(unit, SESSION, "hello"))
    assert await requested(deaf) == []


async def test_resume_stores_the_wish_for_every_pending_input_before_it_rings_in_5(deaf):
    session = await deaf.session()
    for message_id in ("one", "two"):
        await session.prompt(message_id, id=message_id, resume=False, delivery="queue")
    await session.resume()
    assert deaf.bells == [SESSION]
    assert [one.message_id for one in await requested(deaf)] == ["one", "two"]
    await session.resume()
    assert len(await requested(deaf)) == 2


async def test_resume_of_a_session_where_nothing_waits_rings_nobody_in_5(deaf):
    session = await deaf.session()
    await session.resume()
    assert deaf.bells == []


async def test_an_exact_retry_of_an_unpromoted_prompt_rings_once_in_6(deaf):
    session = await deaf.session()
    await session.prompt("Hello", id="hello")
    deaf.bells.clear()
    await session.prompt("Hello", id="hello")
    assert deaf.bells == [SESSION]
    assert await requested(deaf) == []


async def test_a_retry_of_a_promoted_prompt_never_rings_and_leaves_it_and_the_others_alone_in_6(nodes):
    gate = Gate()
    alive = await nodes([[Hang(gate), Text("Hi")]])
    session = await alive.session()
    await session.prompt("Hello", id="hello")
    await gate.arrived()
    await session.prompt("Later", id="later", resume=False, delivery="queue")
    before, other = await alive.row("hello"), await alive.row("later")
    rung = []
    alive.engine.ring = rung.append
    names = await alive.names()
    receipt = await session.prompt("Hello", id="hello")
    assert (rung, receipt.state) == ([], "running")
    assert (await alive.row("hello"), await alive.row("later")) == (before, other)
    assert before.promoted_seq is not None
    assert await alive.names() == names


async def test_a_conflicting_retry_with_resume_never_arms_a_wake_in_6(deaf, nodes):
    session = await deaf.session()
    await session.prompt("Hello", id="hello", resume=False)
    with pytest.raises(errors.PromptConflict) as conflict:
        await session.prompt("Goodbye", id="hello", resume=True)
    assert type(conflict.value).__name__ == "PromptConflict"
    assert not (await deaf.row("hello")).wake_pending
    assert await requested(deaf) == []
    await deaf.sweep()
    assert deaf.bells == []
    again = await open_again(deaf, nodes)
    await again.sweep()
    assert again.bells == []
    assert await requested(again) == []
    assert not (await again.row("hello")).wake_pending


async def test_a_conflict_is_answered_409():
    """IN-2, IN-6."""
    assert problems.status_of(errors.PromptConflict) == 409


async def test_an_admission_recorded_without_the_flag_is_admit_only_in_7(deaf, nodes):
    fact = events.PromptAdmitted(
        session_id=SESSION, message_id="old", kind="user", prompt=messages.text_prompt("Hello"), delivery="steer"
    )
    await deaf.log.publish(fact)
    stored = await deaf.read(lambda tx: tx.events.page(SESSION, 0, 1)[0].data)
    assert '"request_execution":true' not in stored.replace(" ", "")
    assert not (await deaf.row("old")).wake_pending
    again = await open_again(deaf, nodes)
    await again.sweep()
    assert again.bells == []


# -- IN-10 -------------------------------------------------------------------------------------------------------------


async def test_order_is_admission_order_whatever_the_ids_look_like_in_10(deaf):
    session = await deaf.session()
    for message_id in ("z", "a", "M", "0"):
        await session.prompt(message_id, id=message_id, resume=False)
    assert [row.id for row in await session.inbox()] == ["z", "a", "M", "0"]


@pytest.mark.parametrize("good", ["a", "A-Z.a_z:0@9~x+y-", "x" * 200, "...", "msg_mine"])
async def test_an_id_of_the_allowed_characters_is_taken_in_10(deaf, good):
    session = await deaf.session()
    assert (await session.prompt("Hello", id=good)).id == good


@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "..",
        "x" * 201,
        "a b",
        "a/b",
        "ä",
        "a\n",
        "a\x00",
        "msg_recovered_x",
        "msg_continue_x",
        "msg_retry_x",
        "evt_x",
    ],
)
async def test_any_other_id_is_refused_with_words_and_stores_nothing_in_10(deaf, bad):
    session = await deaf.session()
    with pytest.raises(errors.InvalidId) as refused:
        await session.prompt("Hello", id=bad)
    assert "must" in str(refused.value)
    assert await session.inbox() == []
    with pytest.raises(errors.InvalidId):
        await deaf.app.sessions.create("main", id=bad)
