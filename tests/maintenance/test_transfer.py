"""Export and import: what goes out comes in again to the byte, content included, once, whole or not at all, and says what is
wrong by line.
"""

import base64
import hashlib
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import errors
from perdure.core import codec, events, messages
from perdure.log import replay
from perdure.maintenance import opening, transfer, verify
from perdure.store.events import EventRow
from perdure.store.sqlite import SqliteStore


async def exported(log, only=None):
    return [line async for some in transfer.export(log, only) for line in some.lines]


async def imported(log, lines):
    text = lines if isinstance(lines, bytes) else b"".join(lines)
    return [one async for one in transfer.import_file(log, io.BytesIO(text))]


async def refused(log, lines):
    with pytest.raises(errors.InvalidDurableEvent) as found:
        await imported(log, lines)
    return str(found.value)


def changed(line, **fields):
    return (json.dumps({**json.loads(line), **fields}) + "\n").encode()


@pytest.fixture
async def other(tmp_path, kit):
    """An empty database beside the full one."""
    store = await SqliteStore.open(tmp_path / "other.db")
    log = kit.log(store, "3")
    yield log
    log.close()
    await store.close()


@pytest.fixture
async def lines(log):
    return await exported(log)


async def test_a_line_holds_the_event_in_its_stored_form(lines, store):
    row = await store.read(lambda tx: tx.events.at("s1", 4))
    line = json.loads(lines[4])
    assert list(line) == ["id", "aggregate_id", "seq", "type", "created", "data", "metadata"]
    assert (line["id"], line["aggregate_id"], line["seq"], line["type"]) == (row.id, "s1", 4, row.type)
    assert line["created"] == row.created
    assert line["data"] == json.loads(row.data)
    assert row.data.encode() in lines[4]
    assert line["metadata"] == {"n": 1}
    assert all(one.count(b"\n") == 1 for one in lines)


async def test_what_goes_out_comes_in_to_the_byte_and_its_sessions_are_held_log_28(lines, other, database, kit):
    report = await imported(other, lines)
    count = len(list(kit.story("s")))
    assert [(one.aggregate_id, one.lines, one.appended, one.held) for one in report] == [
        ("s1", count, count, True),
        ("s2", count, count, True),
    ]
    for session in ("s1", "s2"):
        assert (await other.store.read(lambda tx, one=session: tx.sessions.get(one))).held
        await other.store.write(lambda tx, one=session: tx.sessions.set_held(one, held=False))
    assert kit.dump(database.with_name("other.db")) == kit.dump(database)
    assert [one.problems async for one in verify.verify(other)] == [(), ()]
    assert await exported(other) == lines


async def test_an_import_is_idempotent_and_holds_only_what_grew_log_22_log_28(lines, other):
    await imported(other, lines[:10])
    await other.store.write(lambda tx: tx.sessions.set_held("s1", held=False))
    assert [(one.appended, one.held) for one in await imported(other, lines[:10])] == [(0, False)]
    assert not (await other.store.read(lambda tx: tx.sessions.get("s1"))).held
    assert [one.appended for one in await imported(other, lines + lines)] == [len(lines) // 2 - 10, len(lines) // 2]
    assert (await other.store.read(lambda tx: tx.sessions.get("s1"))).held
    assert await exported(other) == lines


async def test_an_import_keeps_wakes_as_they_are_recorded_and_makes_no_claim_log_28(lines, other, store):
    await imported(other, lines)

    def wakes(tx):
        return [(one.id, one.wake_pending) for one in tx.upkeep.inputs("s1")], tx.claims.all()

    assert await other.store.read(wakes) == await store.read(wakes)
    assert any(pending for _, pending in (await other.store.read(wakes))[0])


async def test_aggregates_may_stand_mixed_in_a_file(lines, other):
    half = len(lines) // 2
    mixed = [line for pair in zip(lines[:half], lines[half:], strict=True) for line in pair]
    assert [one.aggregate_id for one in await imported(other, [b"\n", *mixed, b"  \n"])] == ["s1", "s2"]
    assert await exported(other) == lines


async def test_one_session_can_be_exported_alone(log, lines):
    assert await exported(log, "s2") == lines[len(lines) // 2 :]
    with pytest.raises(errors.SessionNotFound):
        await exported(log, "nobody")


def at(lines, number, **fields):
    return [*lines[:number], changed(lines[number], **fields), *lines[number + 1 :]]


REFUSALS = [
    (lambda lines: at(lines, 5, created=7), "Line 6: Replay diverged at aggregate s1 sequence 5"),
    (lambda lines: at(lines, 5, id="evt_else"), "Line 6: Replay diverged at aggregate s1 sequence 5"),
    (lambda lines: at(lines, 5, type="x.y.1"), "Line 6: Unknown durable event type x.y.1"),
    (lambda lines: at(lines, 5, aggregate_id="s2"), None),
    (lambda lines: at(lines, 5, data={"session_id": 1}), None),
    (lambda lines: at(lines, 5, data=[]), None),
    (lambda lines: at(lines, 5, metadata=[1]), None),
]


@pytest.mark.parametrize(("spoil", "words"), REFUSALS)
async def test_a_spoilt_line_is_refused_by_number_where_the_log_is_there_already_log_20_log_22(
    log, lines, spoil, words
):
    message = await refused(log, spoil(lines))
    assert message == words if words else message.startswith("Line 6: Event ")
    assert await exported(log) == lines


FRESH = [
    (lambda lines: lines[:5] + lines[6:], "Line 6: Sequence mismatch for aggregate s1: expected 5, got 6"),
    (lambda lines: lines[3:], "Line 1: Sequence mismatch for aggregate s1: expected 0, got 3"),
    (lambda lines: [lines[1], lines[0]], "Line 1: Sequence mismatch for aggregate s1: expected 0, got 1"),
    (lambda lines: at(lines, 5, type="session.created.2"), "Line 6: Unknown durable event type session.created.2"),
    (
        lambda lines: [*lines[:5], changed(lines[4], seq=5)],
        "Line 6: Event {4} already exists at aggregate s1 sequence 4",
    ),
    (lambda lines: [*lines[:5], changed(lines[4], id="x")], "Line 6: Replay diverged at aggregate s1 sequence 4"),
    (lambda lines: [*lines[:3], b"{}\n"], "Line 4: no stored event: Object missing required field `id`"),
    (lambda lines: [*lines[:3], b"nonsense\n"], "Line 4: no stored event: JSON is malformed"),
    (lambda lines: [*lines[:3], lines[3][:-9]], "Line 4: no stored event"),
    (lambda lines: at(lines, 5, seq=-1), "Line 6: no stored event: Expected `int` >= 0"),
    (lambda lines: at(lines, 5, seq=2**70), "Line 6: no stored event"),
    (lambda lines: at(lines, 5, seq=1.5), "Line 6: no stored event: Expected `int`, got `float`"),
    (lambda lines: at(lines, 5, created=None), "Line 6: no stored event"),
    (lambda lines: at(lines, 5, created=2**63), "Line 6: no stored event"),
    (lambda lines: [changed(lines[4], seq=0)], "Line 1: "),
]


@pytest.mark.parametrize(("spoil", "words"), FRESH)
async def test_a_spoilt_line_leaves_nothing_of_its_aggregate_log_20_log_24_log_4(lines, other, spoil, words):
    message = await refused(other, spoil(lines))
    assert message.startswith(words.replace("{4}", json.loads(lines[4])["id"])), message
    assert await exported(other) == []
    assert await other.store.read(lambda tx: tx.sessions.get("s1")) is None


async def test_a_line_that_is_no_utf_8_is_refused(lines, other):
    assert (await refused(other, [lines[0], lines[1].replace(b'"t"', b'"\xff"')])).startswith("Line 2: ")
    deep = b'{"id":"e","aggregate_id":"a","seq":0,"type":"t.1","created":1,"data":' + b"[" * 100_000 + b"]" * 100_000
    assert (await refused(other, [lines[0], deep + b"}\n"])).startswith("Line 2: ")
    assert await exported(other) == []


async def test_what_was_imported_before_a_refusal_stays_and_what_comes_after_does_not(lines, other):
    half = len(lines) // 2
    spoilt = [*lines[:half], *lines[half : half + 3], changed(lines[half + 4], id="again")]
    assert (await refused(other, spoilt)).startswith(f"Line {half + 4}: Sequence mismatch for aggregate s2")
    assert await exported(other) == lines[:half]


async def test_every_line_is_looked_at_before_anything_is_written(lines, other):
    assert (await refused(other, [*lines, b"{"])).startswith(f"Line {len(lines) + 1}: ")
    assert await exported(other) == []


async def test_an_id_that_another_session_has_is_refused_by_line_log_4(lines, other):
    await imported(other, lines)
    taken = [changed(lines[0], aggregate_id="s9", data={"session_id": "s9", "agent": "x"})]
    event_id = json.loads(lines[0])["id"]
    assert await refused(other, taken) == f"Line 1: Event {event_id} already exists at aggregate s1 sequence 0"
    fresh = [changed(taken[0], id="evt_s9")]
    message_id = json.loads(lines[4])["data"]["message_id"]
    data = {**json.loads(lines[4])["data"], "session_id": "s9"}
    clash = changed(lines[4], id="evt_s9_1", aggregate_id="s9", seq=1, data=data)
    words = await refused(other, [*fresh, clash])
    assert words == (
        "Line 2: Event evt_s9_1 at aggregate s9 sequence 1 cannot be projected: "
        f"Message id {message_id} is already taken"
    )
    assert await exported(other) == lines


async def test_a_claimed_session_takes_no_import_log_28(lines, other):
    await imported(other, lines[:3])
    claim = {"purpose": "turn", "phase": "safe", "now": 1, "expires_at": 2}
    await other.store.write(lambda tx: tx.claims.insert("exe", "s1", "own", **claim))
    assert await refused(other, lines[:4]) == "Line 4: Session s1 is claimed: nothing is replayed into it"
    assert [one.appended for one in await imported(other, lines[:3])] == [0]


async def test_a_session_that_was_deleted_here_does_not_come_back(lines, log):
    def delete(unit):
        unit.append(events.SessionDeleted(session_id="s1"))
        unit.remove("s1")

    await log.transact(delete)
    assert await refused(log, lines) == "Line 1: Session s1 was deleted here; nothing of it comes back"
    assert await log.last_seq("s1") == -1


async def test_stored_white_space_survives_and_a_line_break_in_it_becomes_a_space_log_22(other, tmp_path, kit):
    data = '{ "session_id" :\n"s1",\r\n "agent": "x\\n" }'
    await replay.replay(other, EventRow("evt_1", "s1", 0, "session.created.1", 5, data))
    lines = await exported(other)
    assert lines[0].endswith(b'"data":{ "session_id" : "s1",   "agent": "x\\n" },"metadata":null}\n')
    assert [one.appended for one in await imported(other, lines)] == [0]
    store = await SqliteStore.open(tmp_path / "third.db")
    third = kit.log(store)
    await imported(third, lines)
    assert await exported(third) == lines
    await store.close()


async def test_an_event_that_holds_no_json_cannot_be_exported_and_is_named(database, kit):
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 4")
    async with opening.log(database) as log:
        with pytest.raises(errors.Undecodable, match="at aggregate s1 sequence 4 holds no JSON"):
            await exported(log)


async def test_a_session_that_goes_while_it_is_exported_is_named(log, monkeypatch):
    monkeypatch.setattr(transfer, "PAGE", 10)
    export = transfer.export(log, "s1")
    await anext(export)
    await replay.remove(log, "s1")
    with pytest.raises(errors.SessionGone):
        await anext(export)


BYTES = st.sampled_from([b'"', b"{", b"}", b"\n", b"1", b"\xff", b"null", b"\x00", b",", b"", b"s2", b"\\ud800"])
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 3), BYTES)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(EDIT, min_size=1, max_size=4), swap=st.booleans())
async def test_no_bytes_whatever_bring_in_anything_that_does_not_verify_log_20(lines, tmp_path, kit, edits, swap):
    text = b"".join(lines[:24])
    for where, length, put in edits:
        start = int(where * len(text))
        text = text[:start] + put + text[start + length :]
    if swap:
        rows = text.split(b"\n")
        rows[2:4] = reversed(rows[2:4])
        text = b"\n".join(rows)
    store = await SqliteStore.open(tmp_path / "fuzz.db", seam="inline")
    log = kit.log(store)
    words = "Line "
    try:
        await imported(log, text)
    except errors.InvalidDurableEvent as error:
        words = str(error)
    assert words.startswith("Line ")
    checked = [one async for one in verify.verify(log)]
    assert [one.problems for one in checked if one.problems] == []
    for one in checked:
        await log.transact(
            lambda unit, one=one: (unit.tx.sessions.delete(one.aggregate_id), unit.remove(one.aggregate_id))
        )
    await store.close()


async def test_prompts_with_files_keep_their_hash(other):
    prompt = messages.Prompt((messages.PromptPart("image", mime="image/png", hash="0" * 64),))
    facts = [
        events.SessionCreated(session_id="s1", agent="x"),
        events.PromptAdmitted(session_id="s1", message_id="m", kind="user", prompt=prompt, delivery="steer"),
    ]
    rows = [
        EventRow(f"evt_{seq}", "s1", seq, codec.versioned(type(fact)), 5, codec.dump(fact))
        for seq, fact in enumerate(facts)
    ]
    await imported(other, [transfer.line_of(row) for row in rows])
    stored = await other.store.read(lambda tx: tx.inbox.get("m"))
    assert codec.load(stored.prompt, messages.Prompt) == prompt


# -- content ---------------------------------------------------------------------------------------------------------------

PICTURE, REPORT = b"\x89PNG \xff\x00", b"all work " * 50_000
HASHES = {hashlib.sha256(data).hexdigest(): data for data in (PICTURE, REPORT)}


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
async def full(log):
    """Lines of an export whose sessions share a report."""

    def work(tx):
        for session_id, data in (("s1", PICTURE), ("s1", REPORT), ("s2", REPORT)):
            tx.content.use(session_id, tx.content.put(data))

    await log.store.write(work)
    return await exported(log)


async def content(log):
    def work(tx):
        rows = tx.events._c.execute("SELECT hash, bytes FROM content").fetchall()
        return {row[0]: bytes(row[1]) for row in rows}, {one: tx.content.uses(one) for one in ("s1", "s2")}

    return await log.store.read(work)


async def test_what_sessions_refer_to_goes_out_once_and_comes_in_for_each_log_29(lines, full, other):
    pieces = [json.loads(line) for line in full if b'"hash"' in line]
    assert [(one["aggregate_id"], one["hash"]) for one in pieces] == [
        *(("s1", one) for one in sorted(HASHES)),
        ("s2", sha(REPORT)),
    ]
    assert {one["hash"]: base64.b64decode(one["data"]) for one in pieces if "data" in one} == HASHES
    assert [line for line in full if b'"hash"' not in line] == lines
    report = await imported(other, full)
    assert [(one.aggregate_id, one.lines, one.pieces) for one in report] == [
        ("s1", len(lines) // 2, 2),
        ("s2", len(lines) // 2, 1),
    ]
    assert await content(other) == (HASHES, {"s1": sorted(HASHES), "s2": [sha(REPORT)]})
    assert await exported(other) == full
    assert [(one.appended, one.held) for one in await imported(other, full)] == [(0, False)] * 2
    assert await exported(other) == full


async def test_one_session_alone_has_all_its_bytes_and_those_that_are_here_need_none_log_29(log, full, other):
    alone = await exported(log, "s2")
    assert base64.b64decode(json.loads(alone[0])["data"]) == REPORT
    await imported(other, alone)
    assert await content(other) == ({sha(REPORT): REPORT}, {"s1": [], "s2": [sha(REPORT)]})
    without = [changed(line, data=None) if sha(REPORT).encode() in line else line for line in full]
    await imported(other, without)
    assert (await content(other))[0] == HASHES


async def test_a_file_without_content_is_imported_as_ever_and_its_bytes_may_follow_log_29(lines, full, other):
    await imported(other, lines)
    assert (await content(other))[0] == {}
    assert [(one.appended, one.held) for one in await imported(other, full)] == [(0, False)] * 2
    assert (await content(other))[0] == HASHES


def piece(of=PICTURE, **fields):
    said = {"hash": sha(of), "aggregate_id": "s1", "data": base64.b64encode(of).decode()}
    return (json.dumps({**said, **fields}) + "\n").encode()


def bare():
    return (json.dumps({"hash": sha(PICTURE), "aggregate_id": "s1"}) + "\n").encode()


SPOILT = [
    (piece(hash="0" * 64), f"Line 1: the bytes of content {'0' * 64} are not those of that hash"),
    (piece(b"else", hash=sha(PICTURE)), f"Line 1: the bytes of content {sha(PICTURE)} are not those of that hash"),
    (bare(), f"Line 1: the bytes of content {sha(PICTURE)} are neither in this file nor here"),
    (piece(hash=sha(PICTURE).upper()), "Line 1: no content: Expected `str` matching regex"),
    (piece(hash=7), "Line 1: no content: Expected `str`, got `int`"),
    (piece(data="no base64!"), "Line 1: no content: Invalid base64 encoded string"),
    (piece(data=7), "Line 1: no content: Expected `bytes"),
    (piece(aggregate_id=None), "Line 1: no content: Expected `str`, got `null`"),
    (piece()[:-20] + b"\n", "Line 1: no stored event: "),
]


@pytest.mark.parametrize(("line", "words"), SPOILT)
async def test_content_that_is_not_what_it_says_leaves_nothing_of_its_session_log_29(lines, other, line, words):
    message = await refused(other, [line, *lines])
    assert message.startswith(words), message
    assert await exported(other) == []
    assert await content(other) == ({}, {"s1": [], "s2": []})


@pytest.mark.parametrize("session_id", ["s1", "nobody"])
async def test_a_file_cut_off_before_the_session_of_its_content_is_refused_log_29(full, other, session_id):
    assert (await refused(other, [piece(aggregate_id=session_id)])).endswith(
        f"session {session_id}, which this content is for, is neither in this file nor here"
    )
    assert (await content(other))[0] == {}
    assert (await refused(other, b"".join(full)[:-3])).startswith(f"Line {len(full)}: no stored event")
    assert (await content(other))[0] == {}


async def test_damaged_content_is_not_exported_log_29(database, log, full):
    await log.store.write(lambda tx: tx.events._c.execute("UPDATE content SET bytes = x'00' WHERE length(bytes) < 100"))
    with pytest.raises(errors.StoreCorrupt, match=sha(PICTURE)):
        await exported(log)


async def test_a_session_that_goes_between_two_pieces_of_its_content_is_named_log_29(log, full):
    export = transfer.export(log, "s1")
    await anext(export)
    await log.store.write(lambda tx: tx.content.release("s1"))
    with pytest.raises(errors.SessionGone):
        await anext(export)


async def test_a_damaged_session_leaves_its_content_to_the_next_that_refers_to_it_log_29(database, log, kit, full):
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 40")
    skipped = {}
    lines = [line async for some in transfer.export(log, skip=skipped.__setitem__) for line in some.lines]
    assert list(skipped) == ["s1"]
    assert {json.loads(line)["aggregate_id"] for line in lines} == {"s2"}
    asked = [json.loads(line) for line in full]
    shared = {one["hash"] for one in asked if one["aggregate_id"] == "s2" and "hash" in one}
    assert shared
    assert {json.loads(line)["hash"] for line in lines if b'"data"' in line and b'"hash"' in line} == shared
