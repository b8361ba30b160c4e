"""What the tests of the store share: works that append and read, and builders of rows that others hang on."""

import pytest

from perdure.core import events, messages
from perdure.store.events import EventRow


class Build:
    """Works and rows by short names; a `work` is what `store.write` and `store.read` take."""

    @staticmethod
    def event(event_id="evt_1", aggregate="a", seq=0, *, type="t.1", created=1, data="{}", metadata=None):
        return EventRow(event_id, aggregate, seq, type, created, data, metadata, 0)

    @classmethod
    def append(cls, event_id, aggregate="a", data="{}"):
        """A work that takes the next seq, appends, and answers the seq."""

        def work(tx):
            seq = tx.events.next_seq(aggregate)
            tx.events.append(cls.event(event_id, aggregate, seq, data=data))
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
