"""Every verb on messages and parts, on every store (MSG-2, MSG-3, MSG-8)."""

import itertools

import pytest

from perdure import errors
from perdure.core import bodies, codec, events, messages
from perdure.core.value import replace
from perdure.store.events import EventRow


class Refused(Exception):
    """What a unit raises to be rolled back."""


AT = messages.MessageTime(5, 6)
PROMPT = messages.Prompt(
    (
        messages.PromptPart("text", "hi"),
        messages.PromptPart("image", mime="image/png", name="a.png", hash="0" * 64),
    )
)
FAILURE = messages.Failure("model", "no")
KINDS = [
    messages.User("msg_1", 1, AT, PROMPT, "queue"),
    messages.Synthetic("msg_1", 1, AT, "go on"),
    messages.System("msg_1", 1, AT, "it is noon"),
    messages.Assistant("msg_1", 1, AT, "main", "p:m"),
    messages.Assistant(
        "msg_1",
        1,
        AT,
        "main",
        "p:m",
        finish="stop",
        tokens=messages.Tokens(1, 2, 3, 4, 5),
        cost=9,
        error=FAILURE,
        retry=messages.Retry(2, 99, FAILURE),
    ),
    messages.AgentSwitched("msg_1", 1, AT, "other"),
    messages.ModelSwitched("msg_1", 1, AT, "p:n", "p:m"),
    messages.ModelSwitched("msg_1", 1, AT, "p:n", None),
    messages.Compaction("msg_1", 1, AT, "auto", "completed", "short", "late", None),
    messages.Compaction("msg_1", 1, AT, "manual", "failed", error=FAILURE),
]
STATES = [
    messages.Pending('{"a'),
    messages.Running({"a": 1}, {"b": None}, ({"type": "text", "text": "x"},)),
    messages.Completed({"a": 1}, {}, ()),
    messages.Errored({"a": 1}, FAILURE, {"b": 2}, ({"c": 3},)),
]
PARTS = [
    messages.TextPart("p", "done", True),
    messages.TextPart("p"),
    messages.ReasoningPart("p", "hm", {"signature": "s"}, True),
    messages.ReasoningPart("p"),
    *(messages.ToolPart("p", "look", state, messages.PartTime(1, 2, None), "read", True) for state in STATES),
    messages.ToolPart("p", "look", messages.Completed({}, None, ()), messages.PartTime(1)),
    messages.ToolPart(
        "p", "look", STATES[0], messages.PartTime(1), approval=messages.Approval({"a": 1}, 50, "deny", "ann", "no")
    ),
]


@pytest.mark.parametrize("message", KINDS)
async def test_a_message_comes_back_as_it_was_put_msg_2(store, build, message):
    def work(tx):
        build.session(tx)
        return tx.messages.insert("ses_1", message), tx.messages.insert("ses_1", message)

    assert await store.write(work) == (True, False)
    assert await store.read(lambda tx: tx.messages.get("msg_1")) == message
    assert await store.read(lambda tx: tx.messages.page("ses_1", 0, 9)) == [message]
    assert await store.read(lambda tx: (tx.messages.owner("msg_1"), tx.messages.owner("no"))) == ("ses_1", None)
    assert await store.read(lambda tx: tx.messages.get("no")) is None


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_comes_back_as_it_was_put_msg_3(store, build, part):
    kind, part_id = messages.part_key(part)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, part)
        return tx.messages.last_part("ses_1", "msg_1", kind, part_id)

    assert await store.write(work) == (0, part)
    (message,) = await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))
    assert message == build.assistant(parts=(part,))


async def test_a_header_is_changed_without_touching_its_parts(store, build):
    part = messages.TextPart("t", "x", True)
    ended = build.assistant(finish="stop", cost=3)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, part)
        tx.messages.update(ended)
        return tx.messages.get("msg_1"), tx.messages.page("ses_1", -1, 9)

    header, page = await store.write(work)
    assert header == ended
    assert page == [replace(ended, parts=(part,))]


async def test_parts_stand_in_order_and_the_last_of_an_id_counts(store, build):
    first = messages.ToolPart("call", "look", STATES[2], messages.PartTime(1))
    second = messages.ToolPart("call", "look", STATES[1], messages.PartTime(2))
    text, open_text = messages.TextPart("t", "x", True), messages.TextPart("u")

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        seen = []
        for part in (text, first, second, open_text):
            ordinal = tx.messages.next_ordinal("msg_1")
            tx.messages.put_part("ses_1", "msg_1", ordinal, part)
            seen.append(ordinal)
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("t", "y", True))
        return seen, tx.messages.last_part("ses_1", "msg_1", "tool", "call"), tx.messages.open_parts("ses_1", "msg_1")

    ordinals, last, still_open = await store.write(work)
    assert ordinals == [0, 1, 2, 3]
    assert last == (2, second)
    assert still_open == [(2, second), (3, open_text)]
    (message,) = await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))
    assert message.parts == (messages.TextPart("t", "y", True), first, second, open_text)
    assert await store.read(lambda tx: tx.messages.last_part("ses_1", "msg_1", "text", "call")) is None


async def test_pages_and_the_newest_of_a_kind_go_by_seq(store, build):
    def work(tx):
        build.session(tx)
        nothing = tx.messages.newest_assistant("ses_1"), tx.messages.newest_compaction("ses_1")
        for seq in (4, 2, 9):
            tx.messages.insert("ses_1", build.assistant(f"msg_{seq}", seq))
        tx.messages.insert("ses_1", messages.Compaction("msg_10", 10, AT, "auto"))
        return nothing

    assert await store.write(work) == (None, None)
    page = await store.read(lambda tx: tx.messages.page("ses_1", 2, 2))
    assert [one.seq for one in page] == [4, 9]
    newest = await store.read(
        lambda tx: (tx.messages.newest_assistant("ses_1"), tx.messages.newest_compaction("ses_1"))
    )
    assert [one.id for one in newest] == ["msg_9", "msg_10"]


@pytest.mark.parametrize("data", ["", "{}", "nonsense", '{"id":1}'])
async def test_a_message_that_cannot_be_read_is_named_msg_8(store, build, data):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", messages.Synthetic("msg_1", 1, AT, "go on"))
        build.sql(f"UPDATE session_message SET data = '{data}'")(tx)

    await store.write(work)
    with pytest.raises(errors.MessageUndecodable, match="msg_1 of session ses_1"):
        await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))


async def test_a_part_that_cannot_be_read_is_named_msg_8(store, build):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p"))
        tx.flush()
        build.sql("UPDATE session_part SET data = '{}'")(tx)

    await store.write(work)
    with pytest.raises(errors.MessageUndecodable, match="msg_1"):
        await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))


async def test_a_unit_sees_what_it_changed_and_the_rows_have_it_once_it_ends_msg_1(store, build):
    ended = messages.TextPart("p", "all of it", ended=True)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p"))
        tx.messages.put_part("ses_1", "msg_1", 0, ended)
        tx.messages.put_part("ses_1", "msg_1", 1, messages.TextPart("q"))
        tx.messages.update(replace(tx.messages.newest_assistant("ses_1"), finish="stop"))
        last = tx.messages.last_part("ses_1", "msg_1", "text", "p")
        return last, tx.messages.next_ordinal("msg_1"), tx.messages.open_parts("ses_1", "msg_1")

    assert await store.write(work) == ((0, ended), 2, [(1, messages.TextPart("q"))])
    [whole] = await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))
    assert whole.finish == "stop"
    assert whole.parts == (ended, messages.TextPart("q"))


async def test_what_a_failed_unit_changed_is_not_seen_by_the_next(store, build):
    def setup(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())

    def failing(tx):
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p"))
        tx.messages.update(replace(tx.messages.newest_assistant("ses_1"), finish="stop"))
        raise Refused

    await store.write(setup)
    with pytest.raises(Refused):
        await store.write(failing)
    newest, ordinal = await store.write(
        lambda tx: (tx.messages.newest_assistant("ses_1"), tx.messages.next_ordinal("msg_1"))
    )
    assert (newest.finish, ordinal) == (None, 0)


async def test_a_part_written_to_an_earlier_place_does_not_become_the_last_of_its_id(store, build):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p", "first"))
        tx.messages.put_part("ses_1", "msg_1", 1, messages.TextPart("p", "second"))

    def change(tx):
        tx.messages.newest_assistant("ses_1")
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p", "first again"))
        return tx.messages.last_part("ses_1", "msg_1", "text", "p")

    await store.write(work)
    assert await store.write(change) == (1, messages.TextPart("p", "second"))


class Two:
    """Two sessions with an assistant each, and works that append a fact beside what they do."""

    def __init__(self, build):
        self.build, self.count = build, itertools.count()

    def setup(self, tx):
        for number in (1, 2):
            self.build.session(tx, f"ses_{number}")
            self.append(tx, f"ses_{number}")
            tx.messages.insert(f"ses_{number}", self.build.assistant(f"msg_{number}"))

    def append(self, tx, session_id="ses_1"):
        tx.events.append(self.build.event(f"evt_{next(self.count)}", session_id, tx.events.next_seq(session_id)))

    def look(self, tx):
        """What the next unit takes the first assistant for."""
        self.append(tx)
        return tx.messages.newest_assistant("ses_1").finish


@pytest.mark.parametrize("first", ["looked at", "changed unseen", "a part of it put unseen"])
async def test_a_unit_of_several_sessions_leaves_nothing_behind_of_what_they_were_before(store, build, first):
    two = Two(build)
    part = messages.TextPart("p", "new", ended=True)

    def work(tx):
        if first == "looked at":
            tx.messages.newest_assistant("ses_1")
        two.append(tx)
        if first == "a part of it put unseen":
            tx.messages.put_part("ses_1", "msg_1", 0, part)
        tx.messages.update(replace(tx.messages.get("msg_1"), finish="stop"))
        two.append(tx, "ses_2")
        tx.messages.newest_assistant("ses_2")

    def last_part(tx):
        two.append(tx)
        tx.messages.newest_assistant("ses_1")
        return tx.messages.last_part("ses_1", "msg_1", "text", "p")

    await store.write(two.setup)
    await store.write(two.look)
    assert await store.write(last_part) is None
    await store.write(work)
    assert await store.write(two.look) == "stop"
    assert await store.write(last_part) == ((0, part) if "part" in first else None)


async def test_a_part_put_where_none_was_found_is_found(store, build):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())

    def put(tx):
        tx.messages.newest_assistant("ses_1")
        found = tx.messages.last_part("ses_1", "msg_1", "text", "p")
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p", "here"))
        return found, tx.messages.last_part("ses_1", "msg_1", "text", "p")

    await store.write(work)
    assert await store.write(put) == (None, (0, messages.TextPart("p", "here")))


async def test_the_next_place_counts_parts_that_were_put_unasked(store, build):
    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())

    def put(tx):
        tx.messages.newest_assistant("ses_1")
        tx.messages.put_part("ses_1", "msg_1", 0, messages.TextPart("p", "here"))
        return tx.messages.next_ordinal("msg_1")

    await store.write(work)
    assert await store.write(put) == 1


async def test_what_another_connection_changed_is_seen_also_where_no_number_was_taken(store, build, again):
    two, other = Two(build), await again()
    await store.write(two.setup)
    await store.write(two.look)
    mended = build.assistant(finish="stop")
    await other.write(lambda tx: tx.messages.update(mended))  # as a rebuild does, at the same seq
    assert await store.write(two.look) == "stop"


# -- bodies that stand in the log --------------------------------------------------------------------------------------------

LONG = "é" * bodies.INLINE
OWN = {"session_id": "ses_1", "assistant_message_id": "msg_1"}
ANSWER = ({"type": "text", "text": LONG},)
TIME = messages.PartTime(1, 2, 3)
HELD = [
    (messages.TextPart("p", LONG, True), events.TextEnded(**OWN, text_id="p", text=LONG)),
    (
        messages.ReasoningPart("p", "hm", {"signature": LONG}, True),
        events.ReasoningEnded(**OWN, reasoning_id="p", text="hm", provider_metadata={"signature": LONG}),
    ),
    (
        messages.ToolPart("p", "look", messages.Completed({"a": 1}, {"b": None}, ANSWER), TIME, "read", True),
        events.ToolSucceeded(**OWN, call_id="p", structured={"b": None}, content=ANSWER),
    ),
    (
        messages.ToolPart("p", "look", messages.Errored({"a": 1}, FAILURE, None, ANSWER), TIME),
        events.ToolFailed(**OWN, call_id="p", error=FAILURE, content=ANSWER),
    ),
]


def told(tx, fact, at=7, **more):
    """Put the fact into the log at that place."""
    kind = codec.session_registry().stored_type(fact)
    tx.events.put_sequence("ses_1", at, None)
    tx.events.append(EventRow(f"evt_{at}", "ses_1", at, kind, 1, codec.dump(fact)), **more)


@pytest.mark.parametrize(("part", "fact"), HELD)
async def test_a_long_body_stands_once_in_the_fact_that_brought_it_msg_3(store, build, part, fact):
    key = messages.part_key(part)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, part, 7)
        told(tx, fact)
        return tx.messages.page("ses_1", -1, 9)

    whole = build.assistant(parts=(part,))
    assert await store.write(work) == [whole]
    assert await store.read(lambda tx: tx.messages.page("ses_1", -1, 9)) == [whole]
    assert await store.read(lambda tx: tx.messages.page("ses_1", -1, 9, before=99)) == [whole]
    assert await store.read(lambda tx: tx.messages.last_part("ses_1", "msg_1", *key)) == (0, part)
    ((data, held_by),) = await store.read(build.rows("SELECT data, held_by FROM session_part"))
    assert LONG not in data
    assert held_by == 7


@pytest.mark.parametrize(("part", "fact"), HELD)
@pytest.mark.parametrize("names", ["assistant_message_id", "text_id", "reasoning_id", "call_id", None])
async def test_a_body_is_never_read_from_anything_but_its_fact_msg_8(store, build, part, fact, names):
    if names and not hasattr(fact, names):
        fact = events.ContextUpdated(session_id="ses_1", message_id="msg_1", text=LONG)
    elif names:
        fact = replace(fact, **{names: "another"})

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, part, 7)
        told(tx, fact, 7 if names else 8)

    await store.write(work)
    with pytest.raises(errors.MessageUndecodable, match=r"msg_1 of session ses_1 .* its fact 7 "):
        await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))


async def test_short_bodies_and_parts_that_change_again_stand_in_their_rows(store, build):
    short = messages.TextPart("p", LONG[1:], True)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        tx.messages.put_part("ses_1", "msg_1", 0, short, 7)
        tx.messages.put_part("ses_1", "msg_1", 1, HELD[2][0], 8)
        tx.flush()
        tx.messages.put_part("ses_1", "msg_1", 1, HELD[2][0])

    await store.write(work)
    assert await store.read(build.rows("SELECT count(held_by) FROM session_part")) == [(0,)]
    (message,) = await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))
    assert message.parts == (short, HELD[2][0])


# -- prompts that stand in the log -------------------------------------------------------------------------------------------

PROMPT = messages.text_prompt(LONG)
USER = messages.User("msg_u", 9, messages.MessageTime(1), PROMPT, "steer")
ASKED = {"session_id": "ses_1", "message_id": "msg_u", "kind": "user", "prompt": PROMPT, "delivery": "steer"}
ADMITTED = events.PromptAdmitted(**ASKED, request_execution=True)
PROMOTED = events.PromptPromoted(**ASKED, time_created=1)


def user(tx, build, *, admitted=True, promoted=PROMOTED):
    """A user message whose promotion stands at 9, admitted at 7 or never."""
    build.session(tx)
    if admitted:
        told(tx, ADMITTED)
    tx.messages.insert("ses_1", USER)
    if promoted:
        told(tx, promoted, 9, **({"admitted": 7} if admitted else {}))


@pytest.mark.parametrize("admitted", [True, False])
async def test_a_long_prompt_is_read_from_the_fact_that_promoted_it_and_the_one_it_leaves_it_to(store, build, admitted):
    def work(tx):
        user(tx, build, admitted=admitted)
        return [tx.messages.get("msg_u"), *tx.messages.page("ses_1", -1, 9)]

    assert await store.write(work) == [USER, USER]
    assert await store.read(lambda tx: tx.messages.get("msg_u")) == USER
    assert await store.read(lambda tx: tx.messages.page("ses_1", -1, 9)) == [USER]
    assert await store.read(lambda tx: tx.messages.page("ses_1", -1, 9, before=99)) == [USER]
    text = "(SELECT count(*) FROM event WHERE instr(data, 'é')), (SELECT data FROM session_message)"
    assert await store.read(build.rows(f"SELECT {text}")) == [(1, '{"time":{},"delivery":"steer"}')]


async def test_pages_mix_long_prompts_with_short_ones_and_answers(store, build):
    short = messages.User("msg_s", 10, messages.MessageTime(1), messages.text_prompt('"prompt":' * 9), "queue")

    def work(tx):
        user(tx, build)
        tx.messages.insert("ses_1", short)
        tx.messages.insert("ses_1", build.assistant(seq=11))

    await store.write(work)
    assert await store.read(lambda tx: tx.messages.page("ses_1", -1, 9)) == [USER, short, build.assistant(seq=11)]


@pytest.mark.parametrize(
    ("admitted", "promoted"),
    [
        (True, None),
        (False, None),
        (False, replace(PROMOTED, message_id="another")),
        (False, events.ContextUpdated(session_id="ses_1", message_id="msg_u", text=LONG)),
    ],
)
async def test_a_prompt_is_never_read_from_anything_but_its_fact_msg_8(store, build, admitted, promoted):
    await store.write(lambda tx: user(tx, build, admitted=admitted, promoted=promoted))
    for ask in (lambda tx: tx.messages.get("msg_u"), lambda tx: tx.messages.page("ses_1", -1, 9)):
        with pytest.raises(errors.MessageUndecodable, match=r"msg_u of session ses_1 .* its fact 9 "):
            await store.read(ask)


async def test_a_prompt_whose_admission_is_lost_is_no_empty_prompt_msg_8(store, build):
    await store.write(lambda tx: user(tx, build))
    await store.write(build.sql("DROP TRIGGER event_is_append_only_delete"))
    await store.write(build.sql("DELETE FROM event WHERE seq = 7"))
    with pytest.raises(errors.MessageUndecodable, match=r"msg_u of session ses_1 .* its fact 9 "):
        await store.read(lambda tx: tx.messages.page("ses_1", -1, 9))
