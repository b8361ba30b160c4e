"""The active transcript in memory.

Lives here: `Histories`, a bounded store of transcripts of sessions that were active lately, brought up to date from the
log's tail instead of being read again, so that a turn costs the same however long its session is. Not here: what the
model is shown (`core/request.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from perdure.core import events, lowering, messages, transcript
from perdure.log.log import Log
from perdure.store import port

PAGE = 500


class Histories:
    """Transcripts of at most `keep` sessions, the least lately used one dropped first."""

    def __init__(self, log: Log, *, keep: int = 64) -> None:
        """Read through `log`."""
        self._log, self._keep = log, keep
        self._held: OrderedDict[str, transcript.Transcript] = OrderedDict()
        self._lowerings: dict[str, lowering.Lowering] = {}

    async def load(self, session_id: str) -> transcript.Transcript:
        """The session's transcript as it is now."""
        held = self._held.get(session_id)
        if held is None:
            held = await self._log.store.read(lambda tx: read(tx, session_id))
        else:
            while missed := await self._log.read(session_id, held.seq):
                for recorded in missed:
                    held = transcript.apply(held, recorded)
        self._keep_it(session_id, held)
        return held

    def apply(self, session_id: str, recorded: Iterable[events.Recorded[Any]]) -> None:
        """Bring a transcript that is held up to facts just committed. What does not follow without a gap is left to
        the next `load`.
        """
        held = self._held.get(session_id)
        if held is None:
            return
        for event in recorded:
            if event.seq == held.seq + 1:
                held = transcript.apply(held, event)
        self._keep_it(session_id, held)

    def lowering(self, session_id: str) -> lowering.Lowering:
        """What is kept of the session's lowered transcript, for as long as that is held."""
        return self._lowerings.setdefault(session_id, lowering.Lowering())

    def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._held.pop(session_id, None)
        self._lowerings.pop(session_id, None)

    def _keep_it(self, session_id: str, held: transcript.Transcript) -> None:
        self._held[session_id] = held
        self._held.move_to_end(session_id)
        while len(self._held) > self._keep:
            self.drop(next(iter(self._held)))


def read(tx: port.Tx, session_id: str) -> transcript.Transcript:
    """The whole transcript from rows, as far as the log goes."""
    seq, _ = tx.events.sequence(session_id)
    found: list[messages.Message] = []
    while page := tx.messages.page(session_id, found[-1].seq if found else -1, PAGE):
        found += page
    return transcript.Transcript(tuple(found), seq)
