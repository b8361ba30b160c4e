"""The database is the judge: rows that must not exist cannot be written, whoever writes them (LOG-9, DB)."""

import pytest

from perdure import errors
from perdure.core import events, messages
from perdure.store.context import DraftRow, EpochRow

MESSAGE = "INSERT INTO session_message (id, session, type, seq, time_created, data)"
SESSION = "(SELECT number FROM session WHERE id = 'ses_1')"
INPUT = "INSERT INTO session_input (id, session, kind, prompt, delivery, admitted_delivery, time_created, admitted_seq"


async def refused(store, build, text):
    with pytest.raises(errors.Defect):
        await store.write(build.sql(text))


async def test_an_event_cannot_be_changed_log_9(store, build):
    await store.write(build.append("evt_1"))
    await refused(store, build, "UPDATE event SET data = '[]' WHERE id = 'evt_1'")
    await refused(store, build, "UPDATE event SET seq = seq + 1")
    assert (await store.read(lambda tx: tx.events.by_id("evt_1"))).data == "{}"


async def test_an_event_cannot_be_deleted_while_its_sequence_row_stands_log_9(store, build):
    await store.write(build.append("evt_1"))
    await refused(store, build, "DELETE FROM event")
    assert await store.read(build.ids) == ["evt_1"]


async def test_events_go_once_their_sequence_row_is_gone_log_9(store, build):
    await store.write(build.append("evt_1"))
    await store.write(build.append("evt_2", "b"))
    await store.write(lambda tx: tx.events.remove("a"))
    assert await store.read(build.ids) == ["evt_2"]
    assert await store.write(build.append("evt_1")) == 0, "seq 0 may come again"


async def test_a_removed_tail_never_lends_its_position_again(store, build):
    await store.write(build.append("evt_1"))
    before = await store.read(lambda tx: tx.events.last_position())
    await store.write(lambda tx: tx.events.remove("a"))
    await store.write(build.append("evt_2"))
    assert await store.read(lambda tx: tx.events.last_position()) > before


async def test_a_removed_aggregate_never_lends_its_number_to_another(store, build):
    """Or what is left of its events, by whatever accident, would be another's."""
    numbers = []
    for name in ("a", "b", "b"):
        await store.write(build.append(f"evt_{name}", name))
        numbers += await store.read(build.rows(f"SELECT aggregate FROM event_sequence WHERE aggregate_id = '{name}'"))
        if name == "b":
            await store.write(lambda tx: tx.events.remove("b"))
    assert len(set(numbers)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO event (id, aggregate, seq, type, created, data) VALUES ('evt_2', 1, 0, 1, 1, '{}')",
        "INSERT INTO event (id, aggregate, seq, type, created, data) VALUES ('evt_2', 1, -1, 1, 1, '{}')",
        "INSERT INTO event_sequence (aggregate_id, seq) VALUES ('b', -1)",
        "INSERT INTO event_sequence (aggregate_id, seq) VALUES ('a', 5)",
        "UPDATE session SET archived = 2",
        "UPDATE session SET parked = 1",
        "UPDATE session SET execution_id = 'exe_9'",
        "UPDATE session SET execution_purpose = 'turn'",
        "UPDATE session SET execution_id = 'exe_9', execution_purpose = 'play'",
        "UPDATE session SET wake_attempts = -1",
        "UPDATE session SET wake_attempts = 9007199254740992",
        f"{INPUT}) VALUES ('i2', {SESSION}, 'other', '{{}}', 'steer', 'steer', 1, 9)",
        f"{INPUT}) VALUES ('i2', {SESSION}, 'user', '{{}}', 'mail', 'steer', 1, 9)",
        f"{INPUT}) VALUES ('i2', {SESSION}, 'user', '{{}}', 'steer', 'steer', 1, 0)",
        f"{INPUT}) VALUES ('i2', 99, 'user', '{{}}', 'steer', 'steer', 1, 9)",
        f"{INPUT}, outcome) VALUES ('i2', {SESSION}, 'user', '{{}}', 'steer', 'steer', 1, 9, 'succeeded')",
        f"{INPUT}, outcome, settled_seq) VALUES ('i2', {SESSION}, 'user', '{{}}', 'steer', 'steer', 1, 9, 'fine', 10)",
        f"{INPUT}, promoted_seq, wake_pending) VALUES ('i2', {SESSION}, 'user', '{{}}', 'steer', 'steer', 1, 9, 10, 1)",
        "UPDATE session_execution SET phase = 'dreaming'",
        "UPDATE session_execution SET interrupted = 2",
        "UPDATE session_execution SET session_id = 'ses_no'",
        "UPDATE session_recovery SET wake_attempts = -1",
        "UPDATE session_recovery SET continuation_message_id = 'msg_no'",
        "UPDATE session_approval SET decision = 'perhaps'",
        "UPDATE session_part SET kind = 'smell'",
        "UPDATE session_part SET message = 99",
        "UPDATE session_message SET type = 'parrot'",
        f"{MESSAGE} VALUES ('msg_2', {SESSION}, 'user', 1, 1, '{{}}')",
        f"{MESSAGE} VALUES ('msg_2', 99, 'user', 9, 1, '{{}}')",
        "DELETE FROM session_input",
        "DELETE FROM session_message",
    ],
)
async def test_an_impossible_row_is_refused(store, build, text):
    await store.write(lambda tx: whole_session(tx, build))
    before = await store.read(lambda tx: counts(tx, build))
    await refused(store, build, text)
    assert await store.read(lambda tx: counts(tx, build)) == before


async def test_everything_of_a_session_goes_with_it(store, build):
    def both(tx):
        whole_session(tx, build)
        whole_session(tx, build, "ses_2", "2")

    await store.write(both)
    before = await store.read(lambda tx: counts(tx, build))
    await store.write(lambda tx: tx.sessions.delete("ses_1"))
    after = await store.read(lambda tx: counts(tx, build))
    kept = ("event", "event_sequence")
    assert after == {name: count if name in kept else count // 2 for name, count in before.items()}
    await store.write(lambda tx: tx.sessions.delete("ses_2"))
    assert [name for name, count in (await store.read(lambda tx: counts(tx, build))).items() if count] == list(kept)


TABLES = """event event_sequence session session_message session_part session_input session_execution session_recovery
session_approval session_context_epoch session_draft"""


def counts(tx, build):
    return {name: build.rows(f"SELECT count(*) FROM {name}")(tx)[0][0] for name in TABLES.split()}


def whole_session(tx, build, session_id="ses_1", tag="1"):
    """A row in every table that hangs on a session."""
    build.append(f"evt_{tag}", f"a{tag if tag != '1' else ''}")(tx)
    build.session(tx, session_id)
    build.input(tx, f"msg_in{tag}", session_id)
    tx.messages.insert(session_id, build.assistant(f"msg_{tag}"))
    tx.messages.put_part(session_id, f"msg_{tag}", 0, messages.TextPart("t"))
    build.claim(tx, f"exe_{tag}", session_id)
    recovered = events.StepRecovered(
        session_id=session_id, execution_id=f"old_{tag}", phase="safe", assistant_message_id=f"msg_{tag}"
    )
    tx.recoveries.insert(recovered, f"msg_in{tag}", 1)
    tx.approvals.put(
        events.ToolApprovalRequested(
            session_id=session_id, assistant_message_id=f"msg_{tag}", call_id="call", input={}
        ),
        f"exe_{tag}",
        1,
    )
    tx.context.put_epoch(session_id, EpochRow("be kind", "{}", 0))
    tx.context.put_draft(session_id, DraftRow(f"msg_{tag}", "t", "text", "so far"))
