"""Every verb on sessions, tombstones, epochs, drafts, approvals and content, on every store."""

import hashlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core import events, messages
from perdure.store.context import DraftRow, EpochRow


async def test_a_new_session_has_its_settings_and_empty_totals(store, build):
    policy = events.Policy(recovery="ask", max_steps=3)
    origin = events.Origin("ses_0", 4)

    def work(tx):
        made = build.session(tx, model="m", title="t", metadata={"a": [1]}, policy=policy, forked_from=origin, time=7)
        return made, build.session(tx, title="other")

    assert await store.write(work) == (True, False)
    row = await store.read(lambda tx: tx.sessions.get("ses_1"))
    assert (row.agent, row.model, row.title, row.metadata) == ("main", "m", "t", {"a": [1]})
    assert (row.policy, row.forked_from) == (policy, origin)
    assert (row.time_created, row.time_updated) == (7, 7)
    assert row.usage == messages.Usage()
    assert (row.archived, row.parked, row.held, row.deleting, row.wake_attempts) == (False, False, False, False, 0)
    assert (row.execution_id, row.execution_purpose) == (None, None)
    assert await store.read(lambda tx: tx.sessions.get("ses_no")) is None


async def test_an_update_changes_what_is_given_and_nothing_else(store, build):
    def work(tx):
        build.session(tx, title="t", metadata={"a": 1})
        tx.sessions.update("ses_1", events.Changes(archived=True), 5)
        first = tx.sessions.get("ses_1")
        tx.sessions.update("ses_1", events.Changes("u", {"b": 2}, False, events.Policy(recovery="never")), 6)
        return first, tx.sessions.get("ses_1")

    first, second = await store.write(work)
    assert (first.title, first.metadata, first.archived, first.time_updated) == ("t", {"a": 1}, True, 5)
    assert (second.title, second.metadata, second.archived) == ("u", {"b": 2}, False)
    assert second.policy.recovery == "never"


async def test_agent_model_and_time_are_set(store, build):
    def work(tx):
        build.session(tx)
        tx.sessions.set_agent("ses_1", "other", 2)
        tx.sessions.set_model("ses_1", "p:m", 3)
        return tx.sessions.get("ses_1")

    row = await store.write(work)
    assert (row.agent, row.model, row.time_updated) == ("other", "p:m", 3)


async def test_the_usage_of_a_session_and_of_its_turn_are_kept_apart(store, build):
    whole = messages.Usage(messages.Tokens(1, 2, 3, 4, 5), 10, 1, 2)
    turn = messages.Usage(messages.Tokens(output=2), 3, 0, 1)

    def state(tx):
        row = tx.sessions.get("ses_1")
        return row.usage, row.turn_usage

    def work(tx):
        build.session(tx)
        seen = [state(tx)]
        tx.sessions.set_usage("ses_1", whole, turn)
        seen.append(state(tx))
        tx.sessions.close_execution("ses_1", "exe_none", 9, settled=True)
        return [*seen, state(tx)]

    assert await store.write(work) == [(messages.Usage(), None), (whole, turn), (whole, None)]


async def test_an_execution_opens_parks_and_closes(store, build):
    def state(tx):
        row = tx.sessions.get("ses_1")
        return row.execution_id, row.execution_purpose, row.parked

    def work(tx):
        build.session(tx)
        seen = []
        tx.sessions.open_execution("ses_1", "exe_1", "turn", 2)
        seen.append(state(tx))
        tx.sessions.set_parked("ses_1", "exe_1", parked=True)
        seen.append(state(tx))
        tx.sessions.set_parked("ses_1", "exe_other", parked=False)
        tx.sessions.close_execution("ses_1", "exe_other", 3)
        seen.append(state(tx))
        tx.sessions.close_execution("ses_1", "exe_1", 4)
        seen.append(state(tx))
        return seen

    assert await store.write(work) == [
        ("exe_1", "turn", False),
        ("exe_1", "turn", True),
        ("exe_1", "turn", True),
        (None, None, False),
    ]


async def test_flags_and_attempts_are_kept(store, build):
    def work(tx):
        build.session(tx)
        build.session(tx, "ses_2")
        tx.sessions.set_held("ses_1", held=True)
        tx.sessions.set_deleting("ses_2")
        counted = [tx.sessions.add_wake_attempt("ses_1"), tx.sessions.add_wake_attempt("ses_1")]
        tx.sessions.drop_wake_attempt("ses_1")
        tx.sessions.drop_wake_attempt("ses_2")
        tx.sessions.set_wake_attempts("ses_2", 9)
        return counted, tx.sessions.get("ses_1"), tx.sessions.get("ses_2"), tx.sessions.deleting()

    counted, first, second, deleting = await store.write(work)
    assert counted == [1, 2]
    assert (first.held, first.deleting, first.wake_attempts) == (True, False, 1)
    assert (second.held, second.deleting, second.wake_attempts) == (False, True, 9)
    assert deleting == ["ses_2"]
    await store.write(lambda tx: tx.sessions.set_held("ses_1", held=False))
    assert not (await store.read(lambda tx: tx.sessions.get("ses_1"))).held


async def test_sessions_are_listed_newest_first_in_pages(store, build):
    times = {"ses_a": 1, "ses_b": 3, "ses_c": 2, "ses_d": 3}

    def work(tx):
        for session_id, time in times.items():
            build.session(tx, session_id, time)

    await store.write(work)
    order = sorted(times, key=lambda one: (times[one], one), reverse=True)
    cursor, seen = (10, ""), []
    while page := await store.read(lambda tx, cursor=cursor: tx.sessions.page(cursor, 3)):
        seen += [row.id for row in page]
        cursor = (page[-1].time_created, page[-1].id)
    assert seen == order


async def test_a_deleted_session_leaves_a_tombstone(store, build):
    def work(tx):
        build.session(tx)
        tx.sessions.delete("ses_1")
        tx.sessions.put_tombstone("ses_1", 5)
        tx.sessions.put_tombstone("ses_1", 6)
        return tx.sessions.get("ses_1"), tx.sessions.tombstone("ses_1"), tx.sessions.tombstone("ses_2")

    assert await store.write(work) == (None, 5, None)


async def test_an_epoch_is_put_and_replaced(store, build):
    def work(tx):
        build.session(tx)
        before = tx.context.epoch("ses_1")
        tx.context.put_epoch("ses_1", EpochRow("be kind", "{}", 3))
        first = tx.context.epoch("ses_1")
        tx.context.put_epoch("ses_1", EpochRow("be brief", '{"a":1}', 9))
        return before, first, tx.context.epoch("ses_1")

    assert await store.write(work) == (None, EpochRow("be kind", "{}", 3), EpochRow("be brief", '{"a":1}', 9))


async def test_drafts_grow_end_and_are_cleared(store, build):
    def work(tx):
        build.session(tx)
        for text in ("so", "so far"):
            tx.context.put_draft("ses_1", DraftRow("msg_1", "t", "text", text))
        tx.context.put_draft("ses_1", DraftRow("msg_1", "t", "reasoning", "hm"))
        tx.context.put_draft("ses_1", DraftRow("msg_0", "t", "text", "old"))
        seen = [tx.context.drafts("ses_1")]
        tx.context.delete_draft("ses_1", "msg_1", "text", "t")
        seen.append(tx.context.drafts("ses_1"))
        tx.context.clear_drafts("ses_1")
        return [*seen, tx.context.drafts("ses_1")]

    first, second, third = await store.write(work)
    assert [(one.message_id, one.kind, one.text) for one in first] == [
        ("msg_0", "text", "old"),
        ("msg_1", "reasoning", "hm"),
        ("msg_1", "text", "so far"),
    ]
    assert [one.text for one in second] == ["old", "hm"]
    assert third == []


async def test_the_first_decision_on_an_approval_wins(store, build):
    def approval(tx, kind, call_id, **more):
        return kind(session_id="ses_1", assistant_message_id="msg_1", call_id=call_id, **more)

    def work(tx):
        build.session(tx)
        tx.messages.insert("ses_1", build.assistant())
        for call_id, deadline in (("one", 50), ("two", None)):
            asked = approval(tx, events.ToolApprovalRequested, call_id, input={}, deadline=deadline)
            tx.approvals.put(asked, "exe_1", 5)
            tx.approvals.put(asked, "exe_2", 6)
        for decision, by in (("approve", "ann"), ("deny", "bob")):
            tx.approvals.resolve(approval(tx, events.ToolApprovalResolved, "one", decision=decision, by=by, note="n"))
        rows = build.rows(
            "SELECT call_id, execution_id, time_created, deadline, decision, by, note FROM session_approval ORDER BY 1"
        )
        before = rows(tx)
        tx.approvals.close("ses_1")
        return before, rows(tx)

    before, after = await store.write(work)
    one = ("one", "exe_1", 5, 50, "approve", "ann", "n")
    assert before == [one, ("two", "exe_1", 5, None, None, None, None)]
    assert after == [one]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
async def test_bytes_are_kept_under_their_hash(store, data):
    def work(tx):
        return tx.content.put(data), tx.content.put(data)

    first, second = await store.write(work)
    assert first == second == hashlib.sha256(data).hexdigest()
    assert await store.read(lambda tx: tx.content.get(first)) == data
    assert await store.read(lambda tx: tx.content.get("0" * 64)) is None


async def test_bytes_go_with_the_last_session_that_refers_to_them(store, build):
    def work(tx):
        for session_id in ("ses_1", "ses_2", "ses_3"):
            build.session(tx, session_id)
        shared, own = tx.content.put(b"shared"), tx.content.put(b"own")
        tx.content.use("ses_1", shared)
        tx.content.use("ses_1", shared)
        tx.content.use("ses_1", own)
        tx.content.use("ses_2", shared)
        tx.content.lend("ses_2", "ses_3")
        return shared, own

    def left(tx):
        return tx.content.get(shared), tx.content.get(own), [tx.content.uses(f"ses_{n}") for n in (1, 2, 3)]

    shared, own = await store.write(work)
    assert await store.read(left) == (b"shared", b"own", [sorted([shared, own]), [shared], [shared]])
    await store.write(lambda tx: tx.content.release("ses_1"))
    assert await store.read(left) == (b"shared", None, [[], [shared], [shared]])
    await store.write(lambda tx: tx.content.release("ses_2"))
    assert (await store.read(left))[0] == b"shared"
    await store.write(lambda tx: tx.content.release("ses_3"))
    assert await store.read(left) == (None, None, [[], [], []])
