"""What these tests share: a database with sessions that hold every kind of fact, and ways to damage it."""

import asyncio
import random
import shutil
from pathlib import Path

import apsw
import pytest

from perdure.core import codec, events, messages
from perdure.log import projections
from perdure.log.log import Log
from perdure.store.context import DraftRow, EpochRow
from perdure.store.sqlite import SqliteStore

FAILURE = messages.Failure("rate_limit", "Too much")
TOKENS = messages.Tokens(7, 5, 3, 2, 1)
HOSTILE = 'é\u2028"\\\n\x00\U0001f9ff'


def story(s):  # noqa: PLR0915 - one line a fact
    """Facts of one session, of every kind but its deletion, ending with an open turn and a prompt that waits."""
    m, e = (f"{s}_{name}" for name in ("msg", "exe"))
    prompt = messages.text_prompt(HOSTILE * 99)
    admitted = {"session_id": s, "kind": "user", "prompt": prompt, "delivery": "steer"}
    promoted = {"session_id": s, "kind": "user", "prompt": prompt, "time_created": 1_000}
    one = {"session_id": s, "assistant_message_id": f"{m}_a1"}
    call = {**one, "call_id": "call_1"}
    yield events.SessionCreated(session_id=s, agent="main", title=HOSTILE, metadata={"a": [1, 1.0, None]})
    yield events.SessionUpdated(session_id=s, changes=events.Changes(title="t", policy=events.Policy(recovery="ask")))
    yield events.AgentSwitched(session_id=s, message_id=f"{m}_s1", agent="other")
    yield events.ModelSwitched(session_id=s, message_id=f"{m}_s2", model="scripted:x")
    yield events.PromptAdmitted(**admitted, message_id=f"{m}_1", request_execution=True)
    yield events.PromptAdmitted(**admitted, message_id=f"{m}_2")
    yield events.PromptAdmitted(**admitted, message_id=f"{m}_3")
    yield events.PromptExecutionRequested(session_id=s, message_id=f"{m}_2")
    yield events.PromptDeliveryChanged(session_id=s, message_id=f"{m}_2", delivery="queue")
    yield events.PromptWithdrawn(session_id=s, message_id=f"{m}_3", reason="cancelled")
    yield events.ExecutionStarted(session_id=s, execution_id=f"{e}_1", owner_id="own", purpose="turn", attempt=1)
    yield events.PromptPromoted(**promoted, message_id=f"{m}_1", delivery="steer")
    yield events.StepStarted(**one, agent="main", model="scripted:x")
    yield events.RetryScheduled(**one, attempt=1, at=2_000, error=FAILURE)
    yield events.StepStarted(**one, agent="main", model="scripted:x")
    yield events.ReasoningStarted(**one, reasoning_id="r")
    yield events.ReasoningEnded(**one, reasoning_id="r", text="hm", provider_metadata={"x": {}})
    yield events.TextStarted(**one, text_id="t")
    yield events.TextEnded(**one, text_id="t", text=HOSTILE)
    yield events.ToolInputStarted(**call, name="refund")
    yield events.ToolInputEnded(**call, text='{"order":7}')
    yield events.ToolApprovalRequested(**call, input={"order": 7}, deadline=9_000)
    yield events.ExecutionParked(session_id=s, execution_id=f"{e}_1", waiting=("call_1",))
    yield events.ToolApprovalResolved(**call, decision="approve", by="me")
    yield events.ExecutionResumed(session_id=s, execution_id=f"{e}_1")
    yield events.ToolCalled(**call, name="refund", input={"order": 7})
    yield events.ToolProgress(**call, structured={"done": 0.5}, content=({"text": "half"},))
    yield events.ToolSucceeded(**call, structured={"done": 1}, content=({"text": "all"},))
    yield events.StepEnded(**one, finish="tool_calls", tokens=TOKENS, cost=12)
    yield events.SyntheticAdded(session_id=s, message_id=f"{m}_y", text="go on")
    yield events.ContextUpdated(session_id=s, message_id=f"{m}_c", text="it is late")
    yield events.CompactionStarted(session_id=s, message_id=f"{m}_k", reason="auto")
    yield events.CompactionEnded(session_id=s, message_id=f"{m}_k", summary="so far", recent="")
    two = {"session_id": s, "assistant_message_id": f"{m}_a2"}
    yield events.StepStarted(**two, agent="main", model="scripted:x")
    yield events.ToolInputStarted(**two, call_id="c2", name="x")
    yield events.ToolFailed(**two, call_id="c2", error=FAILURE)
    yield events.StepFailed(**two, error=FAILURE)
    failed = {"outcome": "failed", "message_ids": (f"{m}_1",), "error": FAILURE}
    yield events.ExecutionEnded(session_id=s, execution_id=f"{e}_1", **failed)
    yield events.PromptRetried(session_id=s, message_id=f"{m}_1", retry_message_id=f"msg_retry_{m}_1_1")
    again = {"prompt": messages.text_prompt("again"), "delivery": "queue", "request_execution": True}
    yield events.PromptAdmitted(session_id=s, message_id=f"msg_retry_{m}_1_1", kind="synthetic", **again)
    yield events.ExecutionStarted(session_id=s, execution_id=f"{e}_2", owner_id="own", purpose="turn", attempt=1)
    three = {"session_id": s, "assistant_message_id": f"{m}_a3"}
    yield events.StepStarted(**three, agent="main", model="scripted:x")
    yield events.StepRecovered(session_id=s, execution_id=f"{e}_2", phase="unknown", assistant_message_id=f"{m}_a3")
    yield events.UsageRecorded(session_id=s, source="step.recovered")
    cont = {"prompt": messages.text_prompt("go on"), "delivery": "queue"}
    yield events.PromptAdmitted(session_id=s, message_id=f"msg_continue_{e}_2", kind="synthetic", **cont)
    yield events.ExecutionInterruptRequested(session_id=s, reason="stop")
    yield events.CompactionStarted(session_id=s, message_id=f"{m}_k2", reason="manual")
    yield events.CompactionFailed(session_id=s, message_id=f"{m}_k2", error=FAILURE)
    yield events.ExecutionStarted(session_id=s, execution_id=f"{e}_3", owner_id="own", purpose="turn", attempt=2)
    yield events.PromptPromoted(**promoted, message_id=f"{m}_2", delivery="queue")
    four = {"session_id": s, "assistant_message_id": f"{m}_a4"}
    yield events.StepStarted(**four, agent="main", model="scripted:x")
    yield events.StepInterrupted(**four, error=FAILURE)
    six = {"session_id": s, "assistant_message_id": f"{m}_a6"}
    yield events.StepStarted(**six, agent="main", model="scripted:x")
    yield events.TextStarted(**six, text_id="long")
    yield events.TextEnded(**six, text_id="long", text=HOSTILE * 99)
    yield events.StepEnded(**six, finish="stop")
    yield events.StepStarted(session_id=s, assistant_message_id=f"{m}_a5", agent="main", model="scripted:x")
    yield events.TextStarted(session_id=s, assistant_message_id=f"{m}_a5", text_id="open")


class Clock:
    def now_ms(self):
        return 1_000

    def suspend_ms(self):
        return 1_000


class Kit:
    story = staticmethod(story)

    @staticmethod
    def log(store, salt="1"):
        return Log(
            store,
            clock=Clock(),
            entropy=random.Random(salt).randbytes,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )

    @classmethod
    async def fill(cls, path, *sessions):
        """A database with these sessions."""
        store = await SqliteStore.open(path)
        log = cls.log(store)
        for session in sessions:
            facts = list(story(session))
            await log.transact(lambda unit, facts=facts: [unit.append(fact, metadata={"n": 1}) for fact in facts])
        await store.close()
        return path

    @staticmethod
    async def operate(store, session, expires_at=5):
        """Rows that no log knows."""

        def work(tx):
            tx.sessions.set_held(session, held=True)
            tx.sessions.set_wake_attempts(session, 2)
            claim = {"purpose": "turn", "phase": "unknown", "now": 1, "expires_at": expires_at}
            tx.claims.insert(f"{session}_exe_3", session, "own@elsewhere/1/2", **claim)
            tx.claims.mark_interrupted(session)
            tx.recoveries.add_attempt(f"{session}_exe_2")
            tx.recoveries.set_error(f"{session}_exe_2", "gave up")
            tx.context.put_epoch(session, EpochRow("base", "{}", 3))
            tx.context.put_draft(session, DraftRow(f"{session}_msg_a5", "open", "text", "so f"))

        await store.write(work)

    @staticmethod
    def damage(path, *statements):
        """Change a file in ways that no program of ours would."""
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA foreign_keys = off")
        for statement in statements:
            connection.execute(statement)
        connection.close()

    @staticmethod
    def dump(path):
        """Every row of every table, but the commit order, what proves a commit, the numbers of messages and the migrations'
        times.
        """
        connection = apsw.Connection(str(path))
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        of = "(SELECT id FROM session_message WHERE number = message)"
        shown = {
            "event": "id, aggregate, seq, type, created, data, metadata",
            "session_message": "id, session, type, seq, time_created, data",
            "session_part": f"{of}, ordinal, kind, part_id, open, data, held_by",
        }
        rows = {
            name: sorted(map(repr, connection.execute(f"SELECT {shown.get(name, '*')} FROM {name}")))
            for name in tables
            if name not in {"schema_migration", "sqlite_sequence"}
        }
        connection.close()
        return rows


ALLOW = ("DROP TRIGGER event_is_append_only_update", "DROP TRIGGER event_is_append_only_delete")


@pytest.fixture(scope="session")
def kit():
    Kit.ALLOW = ALLOW
    return Kit


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """Two sessions, `s1` and `s2`; made once, in a loop of its own."""
    return asyncio.run(Kit.fill(tmp_path_factory.mktemp("filled") / "perdure.db", "s1", "s2"))


@pytest.fixture
def database(filled, tmp_path):
    """A copy of them."""
    return Path(shutil.copy(filled, tmp_path / "perdure.db"))


@pytest.fixture
async def store(database):
    store = await SqliteStore.open(database)
    yield store
    await store.close()


@pytest.fixture
async def log(store):
    log = Kit.log(store, "2")
    yield log
    log.close()
