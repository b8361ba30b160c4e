"""Verify finds what is wrong and nothing else; rebuild makes the rows again and keeps what no log knows."""

import typing

import pytest

from perdure import errors
from perdure.core import events
from perdure.maintenance import opening, rebuild, verify


async def problems(path, only=None):
    async with opening.log(path) as log:
        return [
            (one.aggregate_id, one.kind, one.detail)
            async for checked in verify.verify(log, only)
            for one in checked.problems
        ]


def test_the_story_holds_every_fact_but_deletion(kit):
    told = {type(fact) for fact in kit.story("s")}
    assert set(typing.get_args(events.Fact)) - told == {events.SessionDeleted}


async def test_a_sound_database_has_no_problems_msg_1(database):
    assert await problems(database) == []
    async with opening.log(database) as log:
        checked = [(one.aggregate_id, one.events) async for one in verify.verify(log)]
        with pytest.raises(errors.SessionNotFound):
            [one async for one in verify.verify(log, "nobody")]
    assert [name for name, _ in checked] == ["s1", "s2"]
    assert len({count for _, count in checked}) == 1


LOG_DAMAGE = [
    ("DELETE FROM event WHERE aggregate = 1 AND seq = 3", "gap", "expected 3"),
    ("DELETE FROM event WHERE aggregate = 1 AND seq > 50", "gap", "the last event is 50"),
    ("UPDATE event_sequence SET seq = seq + 1 WHERE aggregate_id = 's1'", "gap", "the sequence row says"),
    ("UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 4", "undecodable", "sequence 4"),
    ("UPDATE event SET type = 'x.1' WHERE aggregate = 1 AND seq = 4", "undecodable", "x.1"),
    ("UPDATE event SET metadata = '[]' WHERE aggregate = 1 AND seq = 4", "undecodable", "sequence 4"),
    (
        "UPDATE event SET data = json_insert(data, '$.session_id', 's2') WHERE aggregate = 1 AND seq = 4",
        "undecodable",
        "its payload s2",
    ),
    ("DELETE FROM event_sequence WHERE aggregate_id = 's1'", "gap", "the sequence row says -1"),
    ("UPDATE event SET earlier = NULL WHERE aggregate = 1 AND seq = 13", "undecodable", "sequence 13"),
    ("UPDATE event SET earlier = 0 WHERE aggregate = 1 AND seq = 13", "undecodable", "sequence 13"),
    ("UPDATE event SET type = 77 WHERE aggregate = 1 AND seq = 4", "undecodable", "type 77"),
]


@pytest.mark.parametrize(("statement", "kind", "words"), LOG_DAMAGE)
async def test_damage_to_the_log_is_found_in_its_aggregate_alone_log_11(database, kit, statement, kind, words):
    kit.damage(database, *kit.ALLOW, statement)
    found = await problems(database)
    assert {one[0] for one in found} == {"s1"}
    assert any(one[1] == kind and words in one[2] for one in found), found
    assert await problems(database, "s2") == []


OF_A1 = "message = (SELECT number FROM session_message WHERE id = 's1_msg_a1')"
ROW_DAMAGE = [
    ("UPDATE session SET title = 'x' WHERE id = 's1'", "session: title is 'x'"),
    ("UPDATE session SET cost = cost + 1 WHERE id = 's1'", "session: usage"),
    ("DELETE FROM session WHERE id = 's1'", "session: missing"),
    ("UPDATE session SET policy = '{' WHERE id = 's1'", "Session s1 cannot be decoded"),
    ("UPDATE session SET metadata = '[]' WHERE id = 's1'", "Session s1 cannot be decoded"),
    ("UPDATE session SET turn_usage = 'x' WHERE id = 's1'", "Session s1 cannot be decoded"),
    ("UPDATE session_input SET error = 'x' WHERE id = 's1_msg_1'", "s1_msg_1 of session s1 cannot be decoded"),
    ("UPDATE session SET number = 99 WHERE id = 's1'", "session: number is 99, the log says 1"),
    (
        (
            "UPDATE session SET number = 99 WHERE id = 's1'",
            "UPDATE session_message SET session = 99 WHERE session = 1",
            "UPDATE session_input SET session = 99 WHERE session = 1",
        ),
        "session: number is 99, the log says 1",
    ),
    ("UPDATE session_input SET usage = '{}' WHERE id = 's1_msg_1'", "input s1_msg_1: usage is Usage("),
    ("UPDATE session_input SET wake_pending = 0 WHERE id = 'msg_retry_s1_msg_1_1'", "wake_pending is False"),
    ("UPDATE session_input SET prompt = '{}' WHERE id = 's1_msg_1'", "input s1_msg_1: prompt is '{}', the log says"),
    ("UPDATE session_input SET admitted_seq = 99 WHERE id = 's1_msg_1'", "input s1_msg_1: prompt is '', the log says"),
    ("UPDATE session_message SET seq = 99 WHERE id = 's1_msg_1'", "its fact 99 should hold the prompt: it is missing"),
    ("DELETE FROM session_input WHERE id = 's1_msg_3'", "input s1_msg_3: missing"),
    ("UPDATE session_approval SET decision = 'deny' WHERE session_id = 's1'", "decision is 'deny'"),
    ("DELETE FROM session_approval WHERE session_id = 's1'", "approval s1_msg_a1 call_1: missing"),
    ("UPDATE session_recovery SET phase = 'ready' WHERE session_id = 's1'", "phase is 'ready'"),
    ("DELETE FROM session_recovery WHERE session_id = 's1'", "recovery s1_exe_2: missing"),
    ("DELETE FROM session_message WHERE id = 's1_msg_y'", "message s1_msg_y: missing"),
    ("UPDATE session_message SET time_created = 7 WHERE id = 's1_msg_y'", "message s1_msg_y: time is "),
    (f"DELETE FROM session_part WHERE {OF_A1} AND kind = 'text'", "message s1_msg_a1: parts"),
    ("UPDATE session_message SET data = '{' WHERE id = 's1_msg_1'", "s1_msg_1 of session s1 cannot be decoded"),
    ("UPDATE session_message SET data = replace(data, 'go on', 'stop') WHERE id = 's1_msg_y'", "text is 'stop'"),
    (f"UPDATE session_part SET data = '{{}}' WHERE {OF_A1}", "s1_msg_a1 of session s1 cannot be decoded"),
    (
        """INSERT INTO session_message SELECT 99, 'extra', session, type, 9999, 1, data
                  FROM session_message WHERE id = 's1_msg_y'""",
        "message extra: the log knows none",
    ),
    (
        f"UPDATE session_part SET held_by = 9 WHERE {OF_A1.replace('a1', 'a6')}",
        "s1_msg_a6 of session s1 cannot be decoded",
    ),
    ("UPDATE session_message SET seq = 9999 WHERE id = 's1_msg_y'", "message s1_msg_y: seq is 9999, the log says"),
]


@pytest.mark.parametrize(("statement", "words"), ROW_DAMAGE)
async def test_rows_that_are_not_what_the_log_says_are_found_and_rebuilt_msg_1(database, kit, statement, words):
    sound = kit.dump(database)
    kit.damage(database, *((statement,) if isinstance(statement, str) else statement))
    found = await problems(database)
    assert {one[:2] for one in found} == {("s1", "rows")}
    assert any(words in one[2] for one in found), found
    async with opening.log(database) as log:
        assert await rebuild.rebuild(log, "s1") == len(list(kit.story("s1")))
    assert await problems(database) == []
    if "DELETE FROM session " not in statement:
        assert kit.dump(database) == sound


async def test_what_nothing_leads_to_is_found(database, kit):
    kit.damage(database, *kit.ALLOW, "DELETE FROM event_sequence", "DELETE FROM event WHERE aggregate = 2")
    found = await problems(database)
    assert ("s1", "gap") in {one[:2] for one in found}
    assert ("s2", "rows", "session: the log knows none") in found


async def test_events_whose_sequence_row_is_lost_are_found_under_the_name_they_tell(database, kit):
    kit.damage(database, "DELETE FROM event_sequence")
    assert {one for one in await problems(database) if one[1] == "gap"} == {
        (name, "gap", f"the sequence row says -1, the last event is {len(list(kit.story(name))) - 1}")
        for name in ("s1", "s2")
    }
    assert {one[0] for one in await problems(database, "s2")} == {"s2"}
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1")
    assert {one[0] for one in await problems(database)} == {"(number 1)", "s1", "s2"}


async def test_many_problems_of_one_aggregate_are_cut_short(database, kit):
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1")
    found = await problems(database)
    assert len(found) == verify.SOME + 1
    assert found[-1][2].startswith("and ")


async def test_a_rebuild_keeps_what_no_log_knows_msg_1(database, store, log, kit):
    await kit.operate(store, "s1")
    before = await store.read(lambda tx: tx.upkeep.keep("s1"))
    assert None not in (before.session, before.claim, before.epoch)
    assert before.recoveries[0].recovery_error == "gave up"
    assert before.drafts
    rows = kit.dump(database)
    for damage in ("title = title", "policy = '{'"):
        kit.damage(database, f"UPDATE session SET {damage} WHERE id = 's1'")
        await rebuild.rebuild(log, "s1")
        assert await store.read(lambda tx: tx.upkeep.keep("s1")) == before
        assert kit.dump(database) == rows


async def test_a_rebuild_is_refused_under_a_live_claim_and_changes_nothing_msg_1(database, store, log, kit):
    await kit.operate(store, "s1", expires_at=1_001)
    rows = kit.dump(database)
    with pytest.raises(errors.SessionBusy):
        await rebuild.rebuild(log, "s1")
    assert kit.dump(database) == rows


async def test_a_rebuild_of_a_log_that_cannot_be_read_changes_nothing_msg_1(database, kit):
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 40")
    kit.damage(database, "DELETE FROM event WHERE aggregate = 2 AND seq = 40")
    rows = kit.dump(database)
    async with opening.log(database) as log:
        for session in ("s1", "s2"):
            with pytest.raises(errors.Undecodable):
                await rebuild.rebuild(log, session)
        with pytest.raises(errors.SessionNotFound):
            await rebuild.rebuild(log, "nobody")
    assert kit.dump(database) == rows


async def test_a_log_with_a_fact_that_rows_refuse_is_found_and_not_rebuilt_msg_1(database, kit):
    twice = 'type = \'session.created.1\', data = \'{"session_id":"s1","agent":"main"}\''
    kit.damage(database, *kit.ALLOW, f"UPDATE event SET {twice} WHERE aggregate = 1 AND seq = 40")
    assert [(one[0], one[1], "cannot be projected" in one[2]) for one in await problems(database)] == [
        ("s1", "rows", True)
    ]
    rows = kit.dump(database)
    async with opening.log(database) as log:
        with pytest.raises(errors.Undecodable, match="at sequence 40 cannot be projected"):
            await rebuild.rebuild(log, "s1")
    assert kit.dump(database) == rows


async def test_a_row_that_went_to_another_session_is_taken_from_it_first(database, kit):
    sound = kit.dump(database)
    kit.damage(database, "UPDATE session_message SET session = 2, seq = 9999 WHERE id = 's1_msg_y'")
    rows = kit.dump(database)
    async with opening.log(database) as log:
        with pytest.raises(errors.Defect):
            await rebuild.rebuild(log, "s1")
        assert kit.dump(database) == rows
        await rebuild.rebuild(log, "s2")
        await rebuild.rebuild(log, "s1")
    assert kit.dump(database) == sound


async def test_every_session_is_found_for_a_rebuild(log):
    assert await rebuild.sessions(log) == ["s1", "s2"]


async def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(errors.StoreUnusable):
        async with opening.log(tmp_path / "none.db"):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_events_that_no_sequence_row_leads_to_are_found_also_where_one_session_is_asked_for(database, kit):
    """A second run of events that name s1, beside its proper log."""
    columns = "seq, type, created, data, metadata, proof, earlier"
    stray = f"INSERT INTO event (aggregate, {columns}) SELECT 99, {columns} FROM event WHERE aggregate = 1 AND seq < 3"
    kit.damage(database, *kit.ALLOW, stray)
    async with opening.log(database) as log:
        alone = [one async for one in verify.verify(log, "s1")]
        whole = [one async for one in verify.verify(log)]
        assert [one.problems async for one in verify.verify(log, "s2")] == [()]
    assert [one.events for one in alone] == [3, len(list(kit.story("s1")))]
    assert alone[0].problems
    assert not alone[1].problems
    assert [one for one in whole if one.aggregate_id == "s1"] == alone
