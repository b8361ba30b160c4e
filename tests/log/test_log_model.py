"""Any run of publishing, replaying, claiming, removing, reopening and crashing, held against a model of a few lines."""

import asyncio
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from perdure import errors
from perdure.core import codec, events
from perdure.core.value import replace
from perdure.log import replay
from perdure.log.log import Log
from perdure.store.events import EventRow
from perdure.store.sqlite import SqliteStore

THREADS = st.sampled_from(["a", "b"])
OWNERS = st.sampled_from([None, "one", "two"])
TEXTS = st.sampled_from(["x", "y"])
CHOSEN = st.none() | st.sampled_from(["evt_1", "evt_2", "evt_3"])


@events.durable("test.noted", aggregate="thread")
class Noted:
    thread: str
    text: str


class Clock:
    def now_ms(self):
        return 5


def stored(event_id, thread, seq, text, created=5):
    return EventRow(event_id, thread, seq, "test.noted.1", created, codec.dump(Noted(thread=thread, text=text)))


class Model:
    """What a log is: a list an aggregate, an owner an aggregate, every id once; told to listeners as it grows."""

    def __init__(self):
        self.threads, self.owners, self.told = {}, {}, []

    def place_of(self, event_id):
        return next((row for rows in self.threads.values() for row in rows if row.id == event_id), None)

    def append(self, row, *, notify):
        self.threads.setdefault(row.aggregate_id, []).append(row)
        if notify:
            self.told.append((row.aggregate_id, row.seq))

    def replay(self, row, owner, *, strict, publish):
        """What a replay does: "refused" and why, "nothing", or "appended"."""
        rows, owned = self.threads.get(row.aggregate_id, []), self.owners.get(row.aggregate_id)
        if strict and owned and owned != owner:
            return "is owned by"
        if row.seq < len(rows):
            if rows[row.seq] != row:
                return "diverged"
            self.owners[row.aggregate_id] = owned or owner
            return None
        if owned and owned != owner:
            return None
        if row.seq > len(rows):
            return "Sequence mismatch"
        if self.place_of(row.id):
            return "already exists"
        self.owners[row.aggregate_id] = owner
        self.append(row, notify=publish)
        return None


class Died(Exception):
    """The process is gone."""


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop, self.chance = asyncio.new_event_loop(), random.Random(1)
        self.model, self.told, self.seen = Model(), [], []
        self.path = Path(self.folder.name) / "log.db"
        self.open()

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def open(self):
        self.store = self.run(SqliteStore.open(self.path, seam="inline"))
        self.log = Log(
            self.store,
            clock=Clock(),
            entropy=self.chance.randbytes,
            registry=codec.Registry([Noted]),
            projectors=(lambda tx, recorded: self.seen.append(recorded),),
        )
        self.log.live.listen(self.hear)

    async def hear(self, event):
        self.told.append((event.aggregate_id, event.seq))

    def teardown(self):
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def refused(self, coroutine, words):
        with pytest.raises(errors.InvalidDurableEvent) as found:
            self.run(coroutine)
        assert words in str(found.value)

    @rule(thread=THREADS, text=TEXTS, chosen=CHOSEN)
    def publish(self, thread, text, chosen):
        publishing = self.log.publish(Noted(thread=thread, text=text), event_id=chosen)
        if chosen and (known := self.model.place_of(chosen)):
            self.refused(publishing, f"Event {chosen} already exists at aggregate {known.aggregate_id} sequence ")
            return
        recorded = self.run(publishing)
        assert recorded.seq == len(self.model.threads.get(thread, []))
        self.model.append(stored(recorded.id, thread, recorded.seq, text), notify=True)

    @rule(thread=THREADS, texts=st.lists(TEXTS, max_size=4), data=st.data())
    def publish_many(self, thread, texts, data):
        chosen = data.draw(st.none() | st.lists(CHOSEN.filter(bool), min_size=len(texts), max_size=len(texts)))
        publishing = self.log.publish_many([Noted(thread=thread, text=text) for text in texts], event_ids=chosen)
        if chosen and len(set(chosen)) < len(chosen):
            self.refused(publishing, "none twice")
        elif chosen and any(map(self.model.place_of, chosen)):
            self.refused(publishing, "already exists")
        else:
            for recorded in self.run(publishing):
                self.model.append(stored(recorded.id, thread, recorded.seq, recorded.data.text), notify=True)

    @rule(
        thread=THREADS, seq=st.integers(0, 4), text=TEXTS, owner=OWNERS, flags=st.tuples(st.booleans(), st.booleans())
    )
    def replay_made_up(self, thread, seq, text, owner, flags):
        self.replay(stored(f"evt_{seq}", thread, seq, text), owner, *flags)

    @rule(
        thread=THREADS,
        pick=st.integers(0, 9),
        owner=OWNERS,
        flags=st.tuples(st.booleans(), st.booleans()),
        data=st.data(),
    )
    def replay_what_is_there(self, thread, pick, owner, flags, data):
        rows = self.model.threads.get(thread)
        if rows:
            row = rows[pick % len(rows)]
            changed = data.draw(st.sampled_from([{}, {}, {"created": 6}, {"id": "evt_9"}]))
            self.replay(replace(row, **changed), owner, *flags)

    def replay(self, row, owner, strict, publish):
        words = self.model.replay(row, owner, strict=strict, publish=publish)
        replaying = replay.replay(self.log, row, owner_id=owner, strict=strict, publish=publish)
        if words:
            self.refused(replaying, words)
        else:
            self.run(replaying)

    @rule(thread=THREADS, owner=OWNERS.filter(bool))
    def claim(self, thread, owner):
        self.run(replay.claim(self.log, thread, owner))
        if self.model.threads.get(thread):
            self.model.owners[thread] = owner

    @rule(thread=THREADS)
    def remove(self, thread):
        self.run(replay.remove(self.log, thread))
        self.model.threads.pop(thread, None)
        self.model.owners.pop(thread, None)

    @rule()
    def reopen(self):
        self.run(self.store.close())
        self.open()

    @rule(thread=THREADS, half_way=st.booleans())
    def crash(self, thread, half_way):
        """Go on with the files as they lie there while the process is alive, perhaps in the middle of a unit."""
        left = self.path.with_name(f"{self.chance.getrandbits(64)}.db")

        def lie_there(unit):
            unit.append(Noted(thread=thread, text="never committed"))
            self.seen.pop()
            self.leave(left)
            raise Died

        if half_way:
            with pytest.raises(Died):
                self.run(self.log.transact(lie_there))
        else:
            self.leave(left)
        self.run(self.store.close())
        self.path = left
        self.open()

    def leave(self, left):
        for end in ("", "-wal"):
            if (file := self.path.with_name(self.path.name + end)).exists():
                shutil.copyfile(file, left.with_name(left.name + end))

    @invariant()
    def holds(self):
        for thread in "ab":
            rows = self.run(self.store.read(lambda tx, thread=thread: tx.events.page(thread, -1, 1_000)))
            assert [replace(row, position=-1) for row in rows] == self.model.threads.get(thread, [])
            last = (len(rows) - 1, self.model.owners.get(thread) if rows else None)
            assert self.run(self.store.read(lambda tx, thread=thread: tx.events.sequence(thread))) == last
        assert self.told == self.model.told


@pytest.mark.slow
def test_any_run_of_the_log_is_the_models_log_1_log_4_log_5_log_22_log_23_log_24_log_26():
    run_state_machine_as_test(Machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))
