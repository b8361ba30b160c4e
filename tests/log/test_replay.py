"""Replay of stored events: what is refused, in which order, and what an event in its stored form keeps."""

import asyncio

import pytest

from perdure import errors
from perdure.core import codec, events
from perdure.core.value import replace
from perdure.log import projections, replay
from perdure.store.events import EventRow


def event(seq, *, id=None, thread="a", type="test.noted.1", created=5, data=None, metadata=None):
    """An event in its stored form, with spaces that no encoder of ours would write."""
    data = data or f'{{ "thread":"{thread}", "text" : "n{seq}" }}'
    return EventRow(id or f"evt_{thread}_{seq}", thread, seq, type, created, data, metadata)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def log(store, kit, seen):
    log = kit.log(store, projectors=(lambda tx, recorded: seen.append(recorded),))
    yield log
    log.close()


async def refused(log, row, **options):
    """The words of a refusal, which leaves nothing behind."""
    before = await log.store.read(lambda tx: (tx.events.feed(0, 1_000), tx.events.aggregates("", 99)))
    with pytest.raises(errors.InvalidDurableEvent) as found:
        await (replay.replay_all if isinstance(row, list) else replay.replay)(log, row, **options)
    assert await log.store.read(lambda tx: (tx.events.feed(0, 1_000), tx.events.aggregates("", 99))) == before
    return str(found.value)


async def test_a_replayed_event_is_stored_to_the_byte_and_projected_decoded_log_20(log, kit, seen):
    row = event(0, metadata='{"by" : "x"}', created=7)
    recorded = await replay.replay(log, row)
    assert await kit.stored(log) == [("evt_a_0", 0, "test.noted.1", 7, row.data, row.metadata)]
    assert seen == [replace(recorded, position=-1)], "projected before it is stored"
    assert (recorded.data, recorded.created, recorded.metadata) == (kit.Noted(text="n0"), 7, {"by": "x"})
    assert await log.read("a") == [recorded]


async def test_an_unknown_type_is_refused_log_20(log):
    for unknown in ("test.noted.2", "test.noted", "nothing.1", "test.noted.01", ""):
        assert await refused(log, event(0, type=unknown)) == f"Unknown durable event type {unknown}"


@pytest.mark.parametrize(
    "data",
    ["", "nonsense", "[]", '{"thread":1}', '{"thread":"a","text":null}', '{"thread":"a"', "\udc80", "[" * 9_000],
)
async def test_a_payload_that_cannot_be_decoded_is_refused_log_20(log, seen, data):
    assert "evt_a_0 of type test.noted.1 cannot be decoded" in await refused(log, event(0, data=data or " "))
    assert seen == []


async def test_an_event_of_another_aggregate_than_its_envelopes_is_refused_before_any_write_log_20(log, seen):
    row = event(0, data='{"thread":"b","text":""}')
    assert await refused(log, row) == "Event evt_a_0 names aggregate a, its payload b"
    assert seen == []


async def test_the_payload_is_decoded_before_the_aggregate_is_compared_log_20(log):
    assert "cannot be decoded" in await refused(log, event(0, data='{"thread":"b","text":4}'))


async def test_strict_and_owned_by_another_is_refused_even_for_an_exact_replay_log_21(log, kit):
    await replay.replay(log, event(0), owner_id="one")
    for row in (event(0), event(1), event(7), event(0, created=99)):
        for owner in ("two", None):
            assert await refused(log, row, owner_id=owner, strict=True) == "Aggregate a is owned by one"
    assert await replay.replay(log, event(0), owner_id="one", strict=True) is None
    assert (await replay.replay(log, event(1), owner_id="one", strict=True)).seq == 1
    assert await kit.sequence(log) == (1, "one")


async def test_an_exact_replay_is_a_no_op_whatever_its_spacing_and_metadata_log_22(log, kit, seen):
    await replay.replay(log, event(0, metadata='{"a":1}'))
    stored = await kit.stored(log)
    seen.clear()
    for same in (
        event(0),
        event(0, metadata='{"b":2}'),
        event(0, data='{"text":"n0","thread":"a"}'),
        event(0, data='{"text":"\\u006e0","thread":"a"}'),
    ):
        assert await replay.replay(log, same, publish=True) is None
    assert await kit.stored(log) == stored
    assert seen == []


NUMBERS = '{"thread":"a","numbers":{"n":[1,2.0,true,null,{"x":{}}]}}'


@pytest.mark.parametrize(
    "other",
    [
        {"id": "evt_else"},
        {"created": 6},
        {"type": "test.counted.1"},
        {"data": '{"thread":"a","numbers":{"n":[1,2.0,true,null,{"x":{}}]},"extra":0}'},
        {"data": '{"thread":"a","numbers":{"n":[1.0,2.0,true,null,{"x":{}}]}}'},
        {"data": '{"thread":"a","numbers":{"n":[1,2,true,null,{"x":{}}]}}'},
        {"data": '{"thread":"a","numbers":{"n":[1,2.0,1,null,{"x":{}}]}}'},
        {"data": '{"thread":"a","numbers":{"n":[2.0,1,true,null,{"x":{}}]}}'},
        {"data": '{"thread":"a","text":"","numbers":{"n":[1,2.0,true,null,{"x":{}}]}}'},
    ],
)
async def test_anything_else_at_a_used_seq_diverges_log_22(log, other):
    row = event(0, data=NUMBERS)
    await replay.replay(log, row)
    await replay.replay(log, event(1))
    assert await refused(log, replace(row, **other)) == "Replay diverged at aggregate a sequence 0"
    assert await replay.replay(log, row) is None


async def test_an_event_diverges_even_from_a_stored_one_that_no_longer_decodes_log_22(log, kit):
    def damaged(tx):
        tx.events.next_seq("a")
        tx.events.append(event(0, data="{damaged"))

    await log.store.write(damaged)
    assert await refused(log, event(0)) == "Replay diverged at aggregate a sequence 0"


async def test_equality_is_of_what_is_stored_before_any_upcast_log_22(store, kit):
    @events.durable("test.old", version=1, aggregate="thread")
    class Old:
        thread: str
        nmae: str

    @events.durable("test.old", version=2, aggregate="thread")
    class New:
        thread: str
        name: str

    seen = []
    registry = codec.Registry([New])
    registry.define(Old, lambda old: New(thread=old.thread, name=old.nmae))
    log = kit.log(store, registry=registry, projectors=(lambda tx, recorded: seen.append(recorded.data),))
    row = event(0, type="test.old.1", data='{"thread":"a","nmae":"x"}')
    await replay.replay(log, row)
    assert seen == [New(thread="a", name="x")]
    assert await replay.replay(log, row) is None
    newer = event(0, type="test.old.2", data='{"thread":"a","name":"x"}')
    assert await refused(log, newer) == "Replay diverged at aggregate a sequence 0"
    assert (await kit.stored(log))[0][2] == "test.old.1"


async def test_an_exact_replay_with_an_owner_claims_an_unowned_aggregate_log_22(log, kit):
    await log.publish(kit.Noted(), event_id="evt_a_0")
    row = (await kit.rows(log))[0]
    await replay.replay(log, row)
    assert await kit.sequence(log) == (0, None)
    await replay.replay(log, row, owner_id="one")
    assert await kit.sequence(log) == (0, "one")
    assert await refused(log, row, owner_id="two", strict=True) == "Aggregate a is owned by one"


async def test_an_exact_replay_never_takes_an_aggregate_from_its_owner_log_22(log, kit):
    await replay.replay(log, event(0), owner_id="one")
    assert await replay.replay(log, event(0), owner_id="two") is None
    assert await replay.replay(log, event(0)) is None
    assert await kit.sequence(log) == (0, "one")


async def test_a_divergent_event_is_refused_before_its_owner_is_looked_at_log_22(log):
    await replay.replay(log, event(0), owner_id="one")
    assert "diverged" in await refused(log, event(0, created=9), owner_id="two")


async def test_an_owned_aggregate_takes_nothing_from_another_owner_and_says_nothing_log_23(log, kit, seen):
    await replay.replay(log, event(0), owner_id="one")
    seen.clear()
    for owner in ("two", None):
        for seq in (1, 5):
            assert await replay.replay(log, event(seq), owner_id=owner, publish=True) is None
    assert await kit.sequence(log) == (0, "one")
    assert seen == []


async def test_a_new_or_unowned_aggregate_gets_the_owner_of_what_is_appended_log_23(log, kit):
    await replay.replay(log, event(0), owner_id="one")
    assert await kit.sequence(log) == (0, "one")
    await replay.replay(log, event(0, thread="b"))
    assert await kit.sequence(log, "b") == (0, None)
    await replay.replay(log, event(1, thread="b"), owner_id="two")
    assert await kit.sequence(log, "b") == (1, "two")
    assert await replay.replay(log, event(2, thread="b"), owner_id="one") is None
    assert await kit.sequence(log, "b") == (1, "two")


@pytest.mark.parametrize(("there", "seq"), [(0, 1), (0, 7), (2, 3), (2, 9)])
async def test_a_gap_is_refused_with_both_numbers_log_24(log, there, seq):
    for number in range(there):
        await replay.replay(log, event(number))
    assert await refused(log, event(seq)) == f"Sequence mismatch for aggregate a: expected {there}, got {seq}"


async def test_a_refused_gap_leaves_no_owner_behind_log_24(log, kit):
    assert "expected 0, got 4" in await refused(log, event(4), owner_id="one")
    assert await kit.sequence(log) == (-1, None)


async def test_an_id_known_elsewhere_is_refused_by_name_after_the_gap_is_log_24_log_4(log, seen):
    await replay.replay(log, event(0, thread="b", id="evt_1"))
    await replay.replay(log, event(0))
    seen.clear()
    assert "expected 1, got 2" in await refused(log, event(2, id="evt_1"))
    assert await refused(log, event(1, id="evt_1")) == "Event evt_1 already exists at aggregate b sequence 0"
    assert await refused(log, event(1, id="evt_a_0")) == "Event evt_a_0 already exists at aggregate a sequence 0"
    assert seen == []


async def test_only_what_is_newly_committed_and_to_be_published_notifies_once_log_25(log, kit):
    heard = []

    async def listener(one):
        heard.append((one.seq, await log.read("a")))

    log.live.listen(listener)
    with log.live.subscribe(kit.Noted) as channel:
        await replay.replay(log, event(0))
        recorded = await replay.replay(log, event(1), publish=True)
        await replay.replay(log, event(1), publish=True)
        await refused(log, event(1, created=0), publish=True)
        await refused(log, event(5), publish=True)
        await replay.claim(log, "a", "one")
        await replay.replay(log, event(2), owner_id="two", publish=True)
        assert await kit.take(aiter(channel), 1) == [recorded]
        assert channel._queue.empty()
    assert [(seq, [one.seq for one in there]) for seq, there in heard] == [(1, [0, 1])]


async def test_followers_see_replayed_events_published_or_not_log_7_log_25(log, kit):
    await replay.replay(log, event(0))
    following = log.follow("a")
    await kit.take(following, 2)
    await replay.replay(log, event(1))
    await replay.replay(log, event(2), publish=True)
    assert [one.seq for one in await kit.take(following, 2)] == [1, 2]
    await following.aclose()


async def test_replay_all_is_one_transaction_of_one_contiguous_aggregate_log_26(log, kit, seen):
    rows = [event(number) for number in range(5)]
    assert [one.seq for one in await replay.replay_all(log, rows[:2])] == [0, 1]
    assert [one.seq for one in await replay.replay_all(log, rows)] == [2, 3, 4]
    assert await replay.replay_all(log, rows) == []
    assert await replay.replay_all(log, []) == []
    seen.clear()
    assert await refused(log, [event(5), event(7)]) == "Sequence mismatch for aggregate a: expected 6, got 7"
    assert "holds an event of aggregate b" in await refused(log, [event(5), event(0, thread="b")])
    assert "Unknown" in await refused(log, [event(5), event(6, type="x.1")])
    assert seen == []
    assert "already exists" in await refused(log, [event(5), event(6, id="evt_a_5")])


async def test_a_batch_that_fails_at_its_last_event_leaves_nothing_log_26(store, kit):
    def project(tx, recorded):
        if recorded.seq == 3:
            raise ZeroDivisionError

    log = kit.log(store, projectors=(project,))
    with pytest.raises(ZeroDivisionError):
        await replay.replay_all(log, [event(number) for number in range(4)])
    assert await kit.sequence(log) == (-1, None)


async def test_claim_overwrites_the_owner_and_remove_lets_seq_0_come_again_log_26(log, kit):
    await replay.replay_all(log, [event(0), event(1)], owner_id="one")
    await replay.claim(log, "a", "two")
    assert await kit.sequence(log) == (1, "two")
    await replay.remove(log, "a")
    assert await kit.sequence(log) == (-1, None)
    assert await kit.stored(log) == []
    assert (await replay.replay(log, event(0))).seq == 0
    assert await kit.sequence(log) == (0, None)


async def test_a_local_publish_ignores_ownership_and_leaves_it_log_27(log, kit):
    await replay.replay(log, event(0), owner_id="one")
    assert (await log.publish(kit.Noted())).seq == 1
    assert await kit.sequence(log) == (1, "one")


def claimed(tx):
    tx.claims.insert("exe_1", "ses_1", "own_1", purpose="turn", phase="safe", now=1, expires_at=2)


async def test_replay_into_a_claimed_session_is_refused_log_28(store, kit):
    log = kit.log(store, projectors=(projections.project,))
    created = await log.publish(events.SessionCreated(session_id="ses_1", agent="main"))
    await store.write(claimed)
    updated = events.SessionUpdated(session_id="ses_1", changes=events.Changes(title="x"))
    row = EventRow("evt_2", "ses_1", 1, "session.updated.1", 5, codec.dump(updated))
    assert await refused(log, row) == "Session ses_1 is claimed: nothing is replayed into it"
    assert "diverged" in await refused(log, replace(row, seq=0))
    assert "expected 1, got 2" in await refused(log, replace(row, seq=2))
    (stored,) = await kit.rows(log, "ses_1")
    assert stored.id == created.id
    assert await replay.replay(log, stored) is None
    await store.write(lambda tx: tx.claims.delete("exe_1", "own_1"))
    assert (await replay.replay(log, row)).seq == 1
    assert (await store.read(lambda tx: tx.sessions.get("ses_1"))).title == "x"


async def test_no_replay_makes_a_claim_log_28(store, kit):
    log = kit.log(store, projectors=(projections.project,))
    facts = [
        events.SessionCreated(session_id="ses_1", agent="main"),
        events.ExecutionStarted(session_id="ses_1", execution_id="exe_1", owner_id="o", purpose="turn", attempt=1),
    ]
    rows = [
        EventRow(f"evt_{seq}", "ses_1", seq, codec.versioned(type(fact)), 5, codec.dump(fact))
        for seq, fact in enumerate(facts)
    ]
    await replay.replay_all(log, rows)
    session, claim = await store.read(lambda tx: (tx.sessions.get("ses_1"), tx.claims.of_session("ses_1")))
    assert session.execution_id == "exe_1"
    assert claim is None


async def test_what_a_projector_refuses_is_refused_by_replay_in_its_words_log_20(store, kit):
    log = kit.log(store, projectors=(projections.project,))
    created = codec.dump(events.SessionCreated(session_id="ses_1", agent="main"))
    await replay.replay(log, EventRow("evt_0", "ses_1", 0, "session.created.1", 5, created))
    words = await refused(log, EventRow("evt_1", "ses_1", 1, "session.created.1", 5, created))
    assert words == (
        "Event evt_1 at aggregate ses_1 sequence 1 cannot be projected: Session ses_1 is already projected"
    )


async def test_a_replayed_deletion_leaves_a_tombstone_and_no_log_log_26(store, kit):
    log = kit.log(store, projectors=(projections.project,))
    facts = [events.SessionCreated(session_id="ses_1", agent="main"), events.SessionDeleted(session_id="ses_1")]
    rows = [
        EventRow(f"evt_{seq}", "ses_1", seq, codec.versioned(type(fact)), 5 + seq, codec.dump(fact))
        for seq, fact in enumerate(facts)
    ]
    await replay.replay_all(log, rows[:1])
    following = log.follow("ses_1")
    await kit.take(following, 2)
    await replay.replay(log, rows[1])
    assert [one.seq for one in await kit.take(following, 1)] == [1]
    with pytest.raises(StopAsyncIteration):
        await kit.take(following, 1)
    assert await kit.sequence(log, "ses_1") == (-1, None)
    assert await store.read(lambda tx: (tx.sessions.get("ses_1"), tx.sessions.tombstone("ses_1"))) == (None, 6)


async def test_fifty_replays_of_the_same_event_at_once_append_it_once_log_22(threaded, kit):
    log = kit.log(threaded)
    done = await asyncio.gather(*(replay.replay(log, event(0), owner_id=f"own_{n % 2}") for n in range(50)))
    assert [one.seq for one in done if one] == [0]
    assert len(await kit.stored(log)) == 1
