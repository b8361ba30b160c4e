"""What the tests of the core share: a story, told fact by fact to a transcript in memory, and a desk, where the same
facts are told to rows.
"""

import asyncio
import dataclasses
import itertools
import random

import pytest

from perdure import errors
from perdure.core import codec, events, messages, projection, rows, transcript
from perdure.log import projections
from perdure.log.log import Log
from perdure.maintenance import rebuild
from perdure.session import history
from perdure.store.sqlite import SqliteStore

SESSION = "ses_1"


class Story:
    """Facts of one session, each with the next seq, told at a time of its own (epoch ms = 1000 + seq)."""

    def __init__(self):
        self.told = []
        self.transcript = transcript.Transcript()

    def tell(self, cls, **fields):
        """Tell one fact; the messages that are there now."""
        seq = len(self.told)
        event = events.Recorded(f"evt_{seq}", SESSION, seq, 1000 + seq, cls(session_id=SESSION, **fields))
        self.told.append(event)
        self.transcript = transcript.apply(self.transcript, event)
        return self.transcript.messages

    def step(self, amid="a", model="scripted:m"):
        """A step begins."""
        return self.tell(events.StepStarted, assistant_message_id=amid, agent="main", model=model)

    def end(self, amid="a", finish="stop", **more):
        """A step ends."""
        return self.tell(events.StepEnded, assistant_message_id=amid, finish=finish, **more)

    def pending(self, call_id="c", amid="a", raw="", name="look"):
        """The model writes a call."""
        self.tell(events.ToolInputStarted, assistant_message_id=amid, call_id=call_id, name=name)
        return self.tell(events.ToolInputEnded, assistant_message_id=amid, call_id=call_id, text=raw)

    def running(self, call_id="c", amid="a", given=None, effect="write", name="look", **more):
        """A call is made."""
        self.pending(call_id, amid, codec.dump(given or {}), name)
        more |= {"name": name, "input": given or {}, "effect": effect}
        return self.tell(events.ToolCalled, assistant_message_id=amid, call_id=call_id, **more)

    def of(self, cls, call_id="c", amid="a", **fields):
        """A fact of a call."""
        return self.tell(cls, assistant_message_id=amid, call_id=call_id, **fields)

    def say(self, text, text_id="t", amid="a"):
        """A text, whole."""
        self.tell(events.TextStarted, assistant_message_id=amid, text_id=text_id)
        return self.tell(events.TextEnded, assistant_message_id=amid, text_id=text_id, text=text)

    def think(self, text, reasoning_id="r", amid="a", metadata=None):
        """A thought, whole."""
        named = {"assistant_message_id": amid, "reasoning_id": reasoning_id}
        self.tell(events.ReasoningStarted, **named)
        return self.tell(events.ReasoningEnded, **named, text=text, provider_metadata=metadata)

    def ask(self, text, message_id="u"):
        """A prompt enters the transcript."""
        prompt = text if isinstance(text, messages.Prompt) else messages.text_prompt(text)
        common = {"kind": "user", "prompt": prompt, "delivery": "steer", "time_created": 7}
        return self.tell(events.PromptPromoted, message_id=message_id, **common)

    @property
    def assistant(self):
        """The newest assistant."""
        return self.transcript.newest_assistant()

    @property
    def part(self):
        """The newest assistant's last part."""
        return self.assistant.parts[-1]


@pytest.fixture
def story():
    return Story()


@pytest.fixture(scope="session")
def story_of():
    """Makes a story an example, for tests of many examples."""
    return Story


class Ticking:
    """A clock that stands still until it is told."""

    now = 1_000

    def now_ms(self):
        return self.now

    def suspend_ms(self):
        return self.now


class Desk:
    """A log on a real file, and how to read back everything its rows say of a session."""

    def __init__(self, path):
        self.loop = asyncio.new_event_loop()
        self.store = self.run(SqliteStore.open(path, seam="inline"))
        self.clock = Ticking()
        self.log = Log(
            self.store,
            clock=self.clock,
            entropy=random.Random(1).randbytes,
            registry=codec.session_registry(),
            projectors=[projections.project],
        )
        self.sessions = itertools.count(1)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def close(self):
        self.run(self.store.close())
        self.loop.close()

    def tell(self, held, payloads):
        """Commit the facts in one unit and fold them; the projection with them, or as it was where both refused."""
        self.clock.now += 1
        folded, refused = held, None
        for seq, payload in enumerate(payloads, start=held.seq + 1):
            event = events.Recorded(f"evt_{seq}", codec.aggregate_of(payload), seq, self.clock.now, payload)
            try:
                folded = projection.apply(folded, event)
            except errors.Conflict as error:
                refused = type(error)
                break
        if refused:
            with pytest.raises(refused):
                self.run(self.log.transact(lambda unit: [unit.append(payload) for payload in payloads]))
            return held
        appended = self.run(self.log.transact(lambda unit: [unit.append(payload) for payload in payloads]))
        assert [event.seq for event in appended] == list(range(held.seq + 1, folded.seq + 1))
        return folded

    def rebuilt(self, session_id):
        """Every column of every row of a session, before a rebuild and after."""
        before = self.run(self.store.read(lambda tx: stored(tx, session_id)))
        self.run(rebuild.rebuild(self.log, session_id))
        return before, self.run(self.store.read(lambda tx: stored(tx, session_id)))

    def rows(self, session_id):
        """Everything the rows say of a session, in the words of the fold."""
        return self.run(self.store.read(lambda tx: read(tx, session_id)))


OF = "session = (SELECT number FROM session WHERE id = ?)"
MESSAGE = f"SELECT id, session, type, seq, time_created, data FROM session_message WHERE {OF}"
PART = f"""SELECT m.id, ordinal, kind, part_id, open, p.data, held_by
          FROM session_message m JOIN session_part p ON p.message = m.number WHERE {OF}"""
OWN = "session_id = ?"
TABLES = {"session": "id = ?", "session_input": OF, "session_approval": OWN, "session_recovery": OWN, "tombstone": OWN}


def stored(tx, session_id):
    def found(statement):
        return sorted(map(repr, tx.events._c.execute(statement, (session_id,)).fetchall()))

    rows = {name: found(f"SELECT * FROM {name} WHERE {where}") for name, where in TABLES.items()}
    return {**rows, "session_message": found(MESSAGE), "session_part": found(PART)}


def read(tx, session_id):
    def column(statement):
        return [row[0] for row in tx.events._c.execute(statement, (session_id,)).fetchall()]

    def shape(cls, row):
        return cls(**{field.name: getattr(row, field.name) for field in dataclasses.fields(cls)})

    session = tx.sessions.get(session_id)
    inputs = [tx.inbox.whole(tx.inbox.get(one)) for one in column(f"SELECT id FROM session_input WHERE {OF}")]
    found = [tx.recoveries.get(one) for one in column("SELECT execution_id FROM session_recovery WHERE session_id = ?")]
    approvals = tx.events._c.execute(
        "SELECT session_id, message_id, call_id, execution_id, time_created, deadline, decision, by, note"
        " FROM session_approval WHERE session_id = ?",
        (session_id,),
    ).fetchall()
    return projection.Projection(
        session and shape(rows.Session, session),
        {row.id: shape(rows.Input, row) for row in inputs},
        {(row[1], row[2]): rows.Approval(*row) for row in approvals},
        {row.execution_id: shape(rows.Recovery, row) for row in found},
        history.read(tx, session_id),
        tx.sessions.tombstone(session_id),
    )


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "log.db")
    yield desk
    desk.close()
