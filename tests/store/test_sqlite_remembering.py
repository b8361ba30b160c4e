"""What the writer remembers of rows between units: never more than what stands in the file (DB-1, EX-2)."""

import pytest

from perdure.core import events, messages
from perdure.store import approvals, claims, context, inbox, sessions
from perdure.store.context import EpochRow
from perdure.store.sqlite import SqliteStore

USED = messages.Usage(messages.Tokens(1, 2, 3, 4, 5), 6, 7, 8)


def busy(build):
    """A session under a claim, with a prompt that runs and one that waits."""

    def work(tx):
        build.session(tx)
        build.claim(tx)
        tx.sessions.open_execution("ses_1", "exe_1", "turn", 2)
        build.input(tx, "runs", seq=1, promoted_seq=3)
        build.input(tx, "waits", seq=2)
        tx.context.put_epoch("ses_1", EpochRow("You are.", "{}", 0))

    return work


def state(tx):
    """All that a unit of a turn asks for."""
    row = tx.sessions.get("ses_1")
    return {
        "execution": row.execution_id,
        "usage": (row.usage, row.turn_usage),
        "attempts": row.wake_attempts,
        "claim": tx.claims.of_session("ses_1"),
        "fenced": tx.claims.fence("exe_1", "own_1"),
        "running": [one.id for one in tx.inbox.running("ses_1")],
        "pending": [(one.id, one.wake_pending) for one in tx.inbox.pending("ses_1")],
        "epoch": tx.context.epoch("ses_1"),
    }


def everything(tx):
    """Another unit of a turn, which changes all of it."""
    tx.sessions.set_usage("ses_1", USED, USED)
    tx.sessions.add_wake_attempt("ses_1")
    tx.sessions.close_execution("ses_1", "exe_1", 9)
    tx.claims.set_phase("exe_1", "own_1", "unknown", "msg_1")
    tx.claims.mark_interrupted("ses_1")
    tx.inbox.settle("runs", "succeeded", None, 9)
    tx.inbox.promote("waits", 10)
    tx.context.put_epoch("ses_1", EpochRow("You are.", '{"a":"b"}', 9))


@pytest.fixture
async def pair(tmp_path, build):
    """Two stores on one file, as two processes have them, and a busy session that both have looked at."""
    both = [await SqliteStore.open(tmp_path / "log.db") for _ in range(2)]
    await both[0].write(busy(build))
    for store in both:
        await store.write(state)
    yield both
    for store in both:
        await store.close()


async def test_what_a_unit_changed_is_known_to_the_next_and_stands_in_the_file_db_1(pair):
    ours, _ = pair
    before = await ours.write(state)
    await ours.write(everything)
    after = await ours.write(state)
    assert after == await ours.read(state) != before
    assert after["usage"] == (USED, USED)
    assert (after["running"], after["pending"]) == (["waits"], [])


async def test_what_another_process_committed_is_seen_by_the_next_unit_ex_2(pair):
    ours, theirs = pair
    await theirs.write(everything)
    assert await ours.write(state) == await theirs.write(state)
    assert (await ours.write(state))["claim"].interrupted


async def test_a_claim_that_another_process_took_over_fences_the_former_owner_off_ex_2(pair):
    ours, theirs = pair

    def take_over(tx):
        assert tx.claims.delete_dead(tx.claims.of_session("ses_1"))
        tx.claims.insert("exe_2", "ses_1", "own_2", purpose="turn", phase="safe", now=5, expires_at=500)

    await theirs.write(take_over)
    assert await ours.write(lambda tx: tx.claims.fence("exe_1", "own_1")) is None


async def test_a_unit_that_fails_leaves_nothing_of_what_it_knew_db_1(pair):
    ours, _ = pair
    before = await ours.write(state)

    def fails(tx):
        everything(tx)
        raise LookupError

    with pytest.raises(LookupError):
        await ours.write(fails)
    assert await ours.write(state) == await ours.read(state) == before


async def test_what_a_unit_changed_of_a_session_is_in_every_answer_about_it_db_1(pair):
    ours, _ = pair

    def work(tx):
        tx.sessions.set_usage("ses_1", USED, USED)
        listed = tx.sessions.page((99, "z"), 9)[0]
        tx.sessions.set_parked("ses_1", "exe_1", parked=True)
        stirring = tx.sessions.stirring(9)
        tx.sessions.add_wake_attempt("ses_1")
        tx.sessions.set_agent("ses_1", "other", 7)
        return listed.usage, stirring, tx.sessions.get("ses_1")

    used, stirring, row = await ours.write(work)
    assert (used, stirring) == (USED, ["ses_1"])
    assert (row.agent, row.wake_attempts, row.parked, row.usage) == ("other", 1, True, USED)
    assert await ours.read(lambda tx: tx.sessions.get("ses_1")) == row


async def test_a_call_that_waits_is_closed_whoever_asked_for_it_and_when_db_1(pair, build):
    ours, theirs = pair
    asked = events.ToolApprovalRequested(session_id="ses_1", assistant_message_id="msg_1", call_id="c", input={})

    def ask(tx):
        tx.approvals.put(asked, "exe_1", 5)

    def fails(tx):
        tx.approvals.close("ses_1")
        raise LookupError

    await ours.write(lambda tx: tx.messages.insert("ses_1", build.assistant()))
    for store in (ours, theirs, ours):
        await ours.write(lambda tx: tx.approvals.close("ses_1"))
        await store.write(ask)
        with pytest.raises(LookupError):
            await ours.write(fails)
        assert [row.call_id for row in await ours.read(lambda tx: tx.approvals.waiting("ses_1"))] == ["c"]
        await ours.write(lambda tx: tx.approvals.close("ses_1"))
        assert await ours.read(lambda tx: tx.approvals.waiting("ses_1")) == []


async def test_a_deleted_session_is_forgotten_with_all_its_rows_db_1(pair):
    ours, _ = pair

    def work(tx):
        tx.sessions.delete("ses_1")
        tx.forget()

    await ours.write(work)
    gone = await ours.write(
        lambda tx: (tx.sessions.get("ses_1"), tx.claims.of_session("ses_1"), tx.inbox.pending("ses_1"))
    )
    assert gone == (None, None, [])


async def test_what_is_remembered_has_a_bound(pair, build, monkeypatch):
    ours, _ = pair
    for module in (sessions, inbox, claims, context, approvals):
        monkeypatch.setattr(module, "KEPT", 3)

    def many(tx):
        for number in range(9):
            build.session(tx, f"ses_{number}x")
            build.input(tx, f"in_{number}", f"ses_{number}x")
            assert tx.sessions.get(f"ses_{number}x")
            assert tx.claims.of_session(f"ses_{number}x") is None
            tx.context.put_epoch(f"ses_{number}x", EpochRow("", "{}", 0))
            assert tx.context.epoch(f"ses_{number}x")
            tx.approvals.close(f"ses_{number}x")
        return tx

    tx = await ours.write(many)
    assert (tx.sessions._rows, tx.inbox._rows, tx.claims._of, tx.context._epochs) == ({}, {}, {}, {})
    assert tx.approvals._closed == set()
    assert (await ours.write(state))["running"] == ["runs"]


async def test_long_texts_are_not_remembered_however_few_they_are_and_read_again_by_who_asks_for_them_db_1(pair, build):
    ours, _ = pair
    long = "x" * (sessions.LONG + 1)

    def work(tx):
        build.session(tx, "ses_2", metadata={"about": long})
        build.input(tx, "long", "ses_2", text=long)
        build.input(tx, "short", "ses_2", seq=1)
        tx.context.put_epoch("ses_2", EpochRow(long, "{}", 0))
        return tx

    tx = await ours.write(work)
    for change in (
        lambda tx: tx.sessions.add_wake_attempt("ses_2"),
        lambda tx: tx.inbox.promote("long", 5),
        lambda tx: [one.id for one in tx.inbox.pending("ses_2")],
    ):
        found = await ours.write(change)
        assert "ses_2" not in tx.sessions._rows
        assert long not in repr((tx.inbox._rows, tx.inbox._unsettled, tx.inbox._found))
    assert found == ["short"]
    assert (await ours.write(lambda tx: tx.context.epoch("ses_2"))).baseline == long
    assert "ses_2" not in tx.context._epochs
    row = await ours.write(lambda tx: tx.sessions.get("ses_2"))
    assert (row.metadata, row.wake_attempts) == ({"about": long}, 1)
    assert [one.id for one in await ours.write(lambda tx: tx.inbox.running("ses_2"))] == ["long"]
