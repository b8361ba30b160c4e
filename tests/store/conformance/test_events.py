"""Every verb on events and sequence rows, on every store."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import errors, ids
from perdure.core import events, messages
from perdure.store import events as rows

FRESH = itertools.count()
NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(data=NO_SURROGATES, metadata=st.none() | NO_SURROGATES, created=st.integers(-(2**63), 2**63 - 1))
async def test_an_event_comes_back_as_it_was_stored(store, build, data, metadata, created):
    tag = next(FRESH)
    row = build.event(f"evt_{tag}", f"a{tag}", 0, data=data, metadata=metadata, created=created)

    def work(tx):
        assert tx.events.next_seq(row.aggregate_id) == 0
        tx.events.append(row)
        tx.flush()
        return tx.events.positions

    [position] = await store.write(work)
    stored = build.event(row.id, row.aggregate_id, 0, data=data, metadata=metadata, created=created)
    found = await store.read(
        lambda tx: (tx.events.by_id(row.id), tx.events.at(row.aggregate_id, 0), tx.events.page(row.aggregate_id, -1, 9))
    )
    by_id, at, page = found
    assert by_id == at == page[0]
    assert by_id.position == position
    assert (by_id.data, by_id.metadata, by_id.created, by_id.type) == (data, metadata, created, stored.type)


@QUICK
@given(count=st.integers(0, 12), after=st.integers(-1, 12), limit=st.integers(1, 14))
async def test_a_page_holds_the_events_after_a_seq_in_order_log_10(store, build, count, after, limit):
    tag = next(FRESH)

    def work(tx):
        for number in range(count):
            build.append(f"evt_{tag}_{number}", f"a{tag}")(tx)
            build.append(f"evt_other_{tag}_{number}", f"b{tag}")(tx)

    await store.write(work)
    page = await store.read(lambda tx: tx.events.page(f"a{tag}", after, limit))
    assert [row.seq for row in page] == list(range(count))[after + 1 :][:limit]


async def test_a_session_id_stands_in_the_first_fact_of_its_log_alone_db(store, build):
    texts = ['{"session_id":"a","n":0}', '{"session_id":"a","n":1}', '{"n":2,"session_id":"a"}', '{"session_id":"b"}']
    for seq, text in enumerate(texts):
        await store.write(build.append(f"evt_{seq}", data=text))
    assert await store.read(build.rows("SELECT data FROM event ORDER BY position")) == [
        (f" {texts[0]}",),
        ('{"n":1}',),
        (f" {texts[2]}",),
        (f" {texts[3]}",),
    ]
    for found in await store.read(lambda tx: (tx.events.page("a", -1, 9), tx.events.feed(0, 9))):
        assert [row.data for row in found] == texts
    assert await store.read(lambda tx: (tx.events.at("a", 1).data, tx.events.by_id("evt_1").data)) == (texts[1],) * 2


STEP, PROMOTED = "session.step.started.1", "session.prompt.promoted.1"


def fact(kind, rest="", assistant=None, session="s"):
    """An event without number and its JSON."""
    named = f',"assistant_message_id":"{assistant}"' if assistant else ""
    return kind, f'{{"session_id":"{session}"{named}{rest}}}'


def appending(build, *facts, admitted=None, fail=False):
    def work(tx):
        for kind, data in facts:
            seq = tx.events.next_seq("s")
            row = build.event(ids.event_at("s", seq), "s", seq, type=kind, data=data)
            tx.events.append(row, None, admitted=admitted)
            if kind == "session.created.1":
                tx.sessions.insert(events.SessionCreated(session_id="s", agent="x"), 0)
            elif kind == STEP:  # as its projector does
                named = json.loads(data)["assistant_message_id"]
                tx.messages.insert("s", messages.Assistant(named, seq, messages.MessageTime(0), "x", "y"))
        if fail:
            tx.flush()
            raise Refused

    return work


class Refused(Exception):
    pass


BEGUN = [fact("session.created.1"), fact(STEP, ',"agent":"x"', "m1")]


async def stored(store, build):
    return await store.read(build.rows("SELECT data, earlier FROM event ORDER BY position"))


async def whole(store):
    def look(tx):
        page, feed = tx.events.page("s", -1, 99), tx.events.feed(0, 99)
        one_by_one = [tx.events.at("s", row.seq) for row in page]
        assert page == feed == one_by_one == [tx.events.by_id(row.id) for row in page]
        return [(row.type, row.data) for row in page]

    return await store.read(look)


async def test_a_fact_of_a_step_names_the_one_that_the_step_began_with_db(store, build):
    rest = [
        fact("t.1", ',"n":1', "m1"),
        fact("t.1", "", "m1"),
        fact("t.1", ',"n":1', "m2"),
        fact("t.1", ',"n":1'),
        fact(STEP, ',"agent":"x"', "m2"),
        fact("t.1", ',"n":2', "m2"),
        fact("t.1", ',"n":2', "m1"),
    ]
    for one in (BEGUN, rest[:1], rest[1:5], rest[5:]):
        await store.write(appending(build, *one))
    assert [earlier for _, earlier in await stored(store, build)] == [None, None, 1, 1, None, None, None, 6, None]
    assert (await stored(store, build))[2:4] == [('{"n":1}', 1), ("{}", 1)]
    assert await whole(store) == BEGUN + rest


async def test_whoever_reads_the_file_by_hand_finds_names_and_what_is_left_to_earlier_facts_db(store, build):
    await store.write(appending(build, *BEGUN, fact("t.1", ',"n":1', "m1")))
    log = await store.read(build.rows("SELECT aggregate_id, seq, type, data, earlier, earlier_data FROM event_log"))
    assert sorted(log)[1:] == [
        ("s", 1, STEP, '{"assistant_message_id":"m1","agent":"x"}', None, None),
        ("s", 2, "t.1", '{"n":1}', 1, '{"assistant_message_id":"m1","agent":"x"}'),
    ]


async def test_a_step_whose_unit_failed_is_named_by_no_fact_db(store, build):
    await store.write(appending(build, *BEGUN))
    with pytest.raises(Refused):
        await store.write(appending(build, fact(STEP, ',"agent":"x"', "m2"), fact("t.9", ',"n":1', "m2"), fail=True))
    after = [fact("t.9", ',"n":1', "m2"), fact("t.1", ',"n":1', "m1")]
    await store.write(appending(build, *after))
    assert (await stored(store, build))[2:] == [('{"assistant_message_id":"m2","n":1}', None), ('{"n":1}', 1)]
    assert await whole(store) == BEGUN + after


async def test_a_step_that_another_store_began_is_named_from_then_on_db(store, build, again):
    another = await again()
    await store.write(appending(build, *BEGUN, fact("t.1", ',"n":1', "m1")))
    await another.write(appending(build, fact("t.2", ',"n":2', "m1"), fact(STEP, ',"agent":"x"', "m2")))
    await store.write(appending(build, fact("t.2", ',"n":3', "m2"), fact("t.1", ',"n":3', "m1")))
    assert [earlier for _, earlier in await stored(store, build)] == [None, None, 1, 1, None, 4, None]
    assert [data for _, data in await whole(another)][3:] == [
        data
        for _, data in (
            fact("t.2", ',"n":2', "m1"),
            fact(STEP, ',"agent":"x"', "m2"),
            fact("t.2", ',"n":3', "m2"),
            fact("t.1", ',"n":3', "m1"),
        )
    ]


async def test_a_prompt_that_is_promoted_names_the_fact_that_admitted_it_where_that_says_the_same_db(store, build):
    said = ',"message_id":"m","kind":"user","prompt":{"parts":[]},"delivery":"steer"'
    admitted = fact("session.prompt.admitted.1", f'{said},"request_execution":true')
    same, later = fact(PROMOTED, f'{said},"time_created":1'), fact(PROMOTED, f'{said},"time_created":2')
    queued = fact(PROMOTED, f'{said.replace("steer", "queue")},"time_created":1')
    await store.write(appending(build, fact("session.created.1"), admitted))
    for one in (same, later, queued):
        await store.write(appending(build, one, admitted=1))
    await store.write(appending(build, same, admitted=77))
    await store.write(appending(build, admitted, same, admitted=7))  # which is not stored yet
    assert [earlier for _, earlier in await stored(store, build)] == [None, None, 1, *[None] * 5]
    assert (await stored(store, build))[2] == ("{}", 1)
    assert await whole(store) == [fact("session.created.1"), admitted, same, later, queued, same, admitted, same]


async def test_what_a_prompt_said_that_is_in_no_log_tells_nothing_of_another_in_its_place_db(store, build):
    said = ',"message_id":"m","kind":"user","prompt":{"parts":[]},"delivery":"steer"'
    admitted = fact("session.prompt.admitted.1", f'{said},"request_execution":true')
    promoted, begun = fact(PROMOTED, f'{said},"time_created":1'), fact("session.created.1")
    other = fact("session.prompt.admitted.1", f'{said.replace("steer", "queue")},"request_execution":true')
    await store.write(appending(build, begun))
    with pytest.raises(Refused):
        await store.write(appending(build, admitted, fail=True))
    await store.write(appending(build, other))
    await store.write(appending(build, promoted, admitted=1))
    await store.write(appending(build, admitted))
    await store.write(lambda tx: tx.events.remove("s"))
    rest = [begun, begun, begun, other, promoted]
    await store.write(appending(build, *rest[:4]))
    await store.write(appending(build, promoted, admitted=3))
    assert [earlier for _, earlier in await stored(store, build)] == [None] * 5
    assert await whole(store) == rest


async def test_a_log_that_was_removed_leaves_no_step_to_a_new_one_of_its_name_db(store, build):
    await store.write(appending(build, *BEGUN))
    await store.write(lambda tx: tx.events.remove("s"))
    again = [fact("session.created.1"), fact("t.1", ',"n":1', "m1")]
    await store.write(appending(build, *again))
    assert await whole(store) == again


async def test_the_feed_is_in_commit_order_over_all_aggregates(store, build):
    for number in range(6):
        await store.write(build.append(f"evt_{number}", f"a{number % 2}"))
    feed = await store.read(lambda tx: tx.events.feed(0, 100))
    assert [row.id for row in feed] == [f"evt_{number}" for number in range(6)]
    assert [row.seq for row in feed] == [0, 0, 1, 1, 2, 2]
    positions = [row.position for row in feed]
    assert positions == sorted(positions)
    assert await store.read(lambda tx: tx.events.last_position()) == positions[-1]
    rest = await store.read(lambda tx: tx.events.feed(positions[2], 2))
    assert [row.id for row in rest] == ["evt_3", "evt_4"]


async def test_an_id_that_is_in_the_log_is_not_stored_twice_log_4(store, build):
    await store.write(build.append("evt_1"))

    def again(tx):
        tx.events.next_seq("b")
        tx.events.append(build.event("evt_2", "b", 0))
        tx.events.next_seq("b")
        tx.events.append(build.event("evt_1", "b", 1))

    with pytest.raises(errors.InvalidDurableEvent, match="evt_1 already exists at aggregate a sequence 0"):
        await store.write(again)
    assert await store.read(lambda tx: (tx.events.sequence("b"), tx.events.by_id("evt_2"))) == ((-1, None), None)
    assert (await store.read(lambda tx: tx.events.by_id("evt_1"))).aggregate_id == "a"


async def test_an_event_without_a_chosen_id_has_one_by_its_place_log_4(store, build):
    for aggregate in ("a", "a", "a/0", "", "x\n"):
        await store.write(build.append(None, aggregate))
    named = ["evt_a/0", "evt_a/1", "evt_a/0/0", "evt_/0", "evt_x\n/0"]
    assert await store.read(build.ids) == named
    assert await store.read(build.rows("SELECT count(id) FROM event")) == [(0,)]
    assert [(await store.read(lambda tx, one=one: tx.events.by_id(one))).id for one in named] == named
    for nothing in ("evt_a/2", "evt_a/00", "evt_a/-0", "evt_a/", "evt_b/0", f"evt_a/{9**30}"):
        assert await store.read(lambda tx, one=nothing: tx.events.by_id(one)) is None


@pytest.mark.parametrize("place", ["evt_a/0", "evt_a/1", "evt_b/0"])
async def test_no_two_events_have_one_id_whichever_comes_first_log_4(store, build, place):
    """An id that names a place is that place's event's, stored already or not, or nobody's."""
    await store.write(build.append())
    with pytest.raises(errors.InvalidDurableEvent) as refused:
        await store.write(build.append(place, "c"))
    known = "Event evt_a/0 already exists at aggregate a sequence 0"
    assert str(refused.value) == known if place == "evt_a/0" else place in str(refused.value)
    assert await store.write(build.append("evt_a/1")) == 1, "its own place it may name"
    assert await store.read(build.ids) == ["evt_a/0", "evt_a/1"]
    await store.write(build.append("evt_mine"))
    assert await store.read(lambda tx: tx.events.by_id("evt_a/2")) is None, "the event there has an id of its own"


async def test_a_chosen_id_comes_back_as_it_was_whatever_it_is_log_4(store, build):
    row = build.event("", "a", 0)
    await store.write(lambda tx: (tx.events.put_sequence("a", 0, None), tx.events.append(row)))
    assert await store.read(
        lambda tx: (tx.events.at("a", 0).id, tx.events.by_id("").seq, tx.events.by_id("evt_a/0"))
    ) == (
        "",
        0,
        None,
    )
    with pytest.raises(errors.InvalidDurableEvent, match="already exists at aggregate a sequence 0"):
        await store.write(lambda tx: (tx.events.put_sequence("b", 0, None), tx.events.append(build.event("", "b", 0))))


async def test_a_unit_knows_the_first_event_it_appended_and_no_other_units(store, build):
    def work(tx):
        build.append("evt_1")(tx)
        build.append("evt_2")(tx)
        tx.flush()
        return tx.events.appended

    first = await store.write(work)
    assert first[0] == (await store.read(lambda tx: tx.events.by_id("evt_1"))).position
    assert await store.read(lambda tx: tx.events.holds(first))
    assert not await store.read(lambda tx: tx.events.holds((first[0], first[1] + 1)))
    assert not await store.read(lambda tx: tx.events.holds((first[0] + 1, first[1])))
    assert await store.write(lambda tx: tx.events.appended) is None


async def test_an_empty_log_has_no_position_no_page_and_no_event(store):
    def work(tx):
        log = tx.events
        return (
            log.last_position(),
            log.page("a", -1, 9),
            log.feed(0, 9),
            log.by_id("evt"),
            log.at("a", 0),
            log.lock("a"),
        )

    assert await store.read(work) == (0, [], [], None, None, -1)


async def test_sequence_rows_number_lock_and_own(store, build):
    def work(tx):
        log = tx.events
        assert [log.next_seq("a"), log.next_seq("a"), log.next_seq("b")] == [0, 1, 0]
        assert (log.lock("a"), log.lock("b"), log.lock("c")) == (1, 0, -1)
        log.own("a", "node_1")
        log.put_sequence("c", 7, "node_2")
        log.put_sequence("b", 3, None)
        return log.sequence("a"), log.sequence("b"), log.sequence("c"), log.sequence("d")

    assert await store.write(work) == ((1, "node_1"), (3, None), (7, "node_2"), (-1, None))
    assert await store.write(lambda tx: tx.events.next_seq("c")) == 8
    assert await store.read(lambda tx: tx.events.aggregates("", 9)) == [("a", 1), ("b", 3), ("c", 8)]
    assert await store.read(lambda tx: tx.events.aggregates("a", 1)) == [("b", 3)]


async def test_numbers_go_on_where_the_row_stands_whoever_moved_it_log_1(store, again, build):
    """What a store remembers of a sequence row serves until another connection commits, or anything is rolled back."""
    other = await again()
    assert [
        await one.write(build.append(f"evt_{number}")) for number, one in enumerate([store, store, other, store])
    ] == [*range(4)]

    def fails(tx):
        build.append("evt_bad")(tx)
        build.append("evt_bad_b", "b")(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write(fails)
    assert await store.write(build.append("evt_4")) == 4
    assert await store.write(build.append("evt_b", "b")) == 0
    await store.write(lambda tx: tx.events.put_sequence("a", 9, None))
    assert await store.write(build.append("evt_10")) == 10
    await store.write(lambda tx: tx.events.remove("a"))
    assert await store.write(build.append("evt_a")) == 0
    assert await store.read(lambda tx: (tx.events.sequence("a"), tx.events.sequence("b"))) == ((0, None), (0, None))


async def test_a_sequence_row_that_is_not_what_was_remembered_is_a_defect(store, build):
    await store.write(build.append("evt_1"))

    def moved(tx):
        build.sql("UPDATE event_sequence SET seq = 5")(tx)
        return build.append("evt_2")(tx)

    with pytest.raises(errors.Defect, match="sequence row of a is not at 0"):
        await store.write(moved)
    assert await store.write(build.append("evt_2")) == 1


async def test_what_is_remembered_of_sequence_rows_is_bounded(store, build, monkeypatch):
    monkeypatch.setattr(rows, "KEPT", 3)
    for turn in range(2):
        for number in range(5):
            assert await store.write(build.append(f"evt_{number}_{turn}", f"a{number}")) == turn
    assert len(await store.write(lambda tx: tx.events._kept)) == 3


async def test_the_newest_of_a_type_is_found(store, build):
    def work(tx):
        for seq, kind in enumerate(["x.1", "y.1", "x.1", "y.1"]):
            tx.events.next_seq("a")
            tx.events.append(build.event(f"evt_{seq}", "a", seq, type=kind))
        return [tx.events.newest_of("a", kind) for kind in ("x.1", "y.1", "z.1")]

    assert await store.write(work) == [2, 3, -1]


@pytest.mark.parametrize("text", ["", "\x00", "a\x00b", "\U0001f9ff", "'; DROP TABLE event; --", "\ufeff", "\u2028"])
async def test_text_is_kept_to_the_last_code_point(store, build, text):
    await store.write(build.append("evt_1", f"a{text}", data=text))
    (row,) = await store.read(lambda tx: tx.events.feed(0, 9))
    assert (row.aggregate_id, row.data) == (f"a{text}", text)
