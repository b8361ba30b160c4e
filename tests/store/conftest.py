"""What the tests of the store share: works that append and read, and builders of rows that others hang on."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import perdure
from perdure import ids
from perdure.core import events, messages
from perdure.store.events import EventRow
from perdure.testing.fault_vfs import FaultVFS


class Build:
    """Works and rows by short names; a `work` is what `store.write` and `store.read` take."""

    @staticmethod
    def event(event_id="evt_1", aggregate="a", seq=0, *, type="t.1", created=1, data="{}", metadata=None):
        return EventRow(event_id, aggregate, seq, type, created, data, metadata, 0)

    @classmethod
    def append(cls, event_id=None, aggregate="a", data="{}"):
        """A work that takes the next seq, appends, and answers the seq."""

        def work(tx):
            seq = tx.events.next_seq(aggregate)
            row = cls.event(event_id or ids.event_at(aggregate, seq), aggregate, seq, data=data)
            tx.events.append(row, zlib.crc32(row.id.encode()))
            return seq

        return work

    @staticmethod
    def ids(tx):
        """The ids in the log, in commit order."""
        return [row.id for row in tx.events.feed(0, 1_000_000)]

    @staticmethod
    def sql(text):
        """A work that runs a statement no verb has."""
        return lambda tx: tx.events._c.execute(text)

    @staticmethod
    def rows(text):
        """A work that asks what no verb asks."""
        return lambda tx: [tuple(row) for row in tx.events._c.execute(text).fetchall()]

    @staticmethod
    def session(tx, session_id="ses_1", time=1, **settings):
        """A session without any fact: its log has a number and nothing else."""
        if tx.events.sequence(session_id)[0] < 0:
            tx.events.put_sequence(session_id, 0, None)
        return tx.sessions.insert(events.SessionCreated(session_id=session_id, agent="main", **settings), time)

    @staticmethod
    def input(tx, message_id="msg_in", session_id="ses_1", seq=0, *, kind="user", text="hi", delivery="steer", **more):
        prompt = messages.text_prompt(text)
        return tx.inbox.insert(message_id, session_id, kind, prompt, delivery, time_created=1, admitted_seq=seq, **more)

    @staticmethod
    def assistant(message_id="msg_1", seq=1, **more):
        return messages.Assistant(message_id, seq, messages.MessageTime(1), "main", "scripted:x", **more)

    @staticmethod
    def claim(tx, claim_id="exe_1", session_id="ses_1", owner="own_1", *, expires_at=100):
        return tx.claims.insert(claim_id, session_id, owner, purpose="turn", phase="safe", now=1, expires_at=expires_at)


@pytest.fixture(scope="session")
def build():
    return Build


class Processes:
    """Starts programs that use the store, each with `path`, `args` and the names of this file's `Build` at hand."""

    def __init__(self, path):
        self.path = path
        self.started = []

    def start(self, code, *args):
        prelude = (
            "import asyncio, os, signal, sys\n"
            "import conftest\n"
            "from perdure import errors\n"
            "from perdure.store import sqlite\n"
            "build, path, args = conftest.Build, sys.argv[1], sys.argv[2:]\n"
        )
        places = [str(Path(__file__).parent), str(Path(perdure.__file__).parent.parent)]
        started = subprocess.Popen(
            [sys.executable, "-c", prelude + code, str(self.path), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )
        self.started.append(started)
        return started

    def stop(self):
        for one in self.started:
            one.kill()
            one.communicate()


@pytest.fixture
def processes(tmp_path):
    """Other processes on the file `log.db` of this test."""
    processes = Processes(tmp_path / "log.db")
    yield processes
    processes.stop()


@pytest.fixture
def disk(request):
    """A disk that fails on demand; open a store with `vfs=disk.name`."""
    return FaultVFS(f"disk of {request.node.name}")
