"""The attempts of a session, read from its log when somebody asks (RUN-8).

Lives here: reading a log until a page of attempts is whole. Not here: which fact says what of an attempt
(`core/attempts.py`). Nothing is stored; what a fork inherited is its parent's.
"""

from __future__ import annotations

from perdure.core import attempts, codec, events
from perdure.core.answers import AttemptPage
from perdure.session import sessions
from perdure.store import port

PAGE = 500
KINDS = ("session.step.", "session.retry.", "session.compaction.", "session.usage.")


def page(tx: port.Tx, registry: codec.Registry, session_id: str, after: int, limit: int) -> AttemptPage:
    """The attempts that began after a seq, some `limit` of them: a page ends between two messages.

    Raises `SessionNotFound`, `SessionGone`.
    """
    origin = sessions.get(tx, session_id).forked_from
    place = max(after, origin.seq) if origin else after
    told = attempts.Attempts()
    while rows := tx.events.page(session_id, place, PAGE):
        for row in rows:
            if row.type.startswith(KINDS):
                fact = registry.upcast(registry.decode(row.type, row.data))
                recorded = events.Recorded(row.id, session_id, row.seq, row.created, fact)
                if len(told.found) >= limit and told.starts(recorded):
                    return AttemptPage(tuple(told.found), row.seq - 1)
                told.apply(recorded)
        place = rows[-1].seq
    return AttemptPage(tuple(told.found))
