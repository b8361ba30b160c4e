"""The active transcript in memory.

Lives here: `Histories`, a bounded store of transcripts of sessions that were active lately, brought up to date from the
log's tail instead of being read again, so that a turn costs the same however long its session is. Not here: what the
model is shown (`core/request.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

from perdure.core import events, messages, transcript
from perdure.log.log import Log
from perdure.store import port

T = TypeVar("T")
PAGE = 500


class Histories:
    """Transcripts of the sessions that are busy, and of at most `keep` that were lately."""

    def __init__(self, log: Log, *, keep: int = 64) -> None:
        """Read through `log`."""
        self._log, self._keep = log, keep
        self._held: OrderedDict[str, transcript.Builder] = OrderedDict()
        self._busy: set[str] = set()
        self._behind: set[str] = set()
        self._derived: dict[str, dict[Callable[[], Any], Any]] = {}

    @contextmanager
    def busy(self, session_id: str) -> Generator[None, None, None]:
        """Keep a session's transcript for the length of a block, however many others are held."""
        self._busy.add(session_id)
        try:
            yield
        finally:
            self._busy.discard(session_id)
            self._trim()

    async def current(self, session_id: str) -> transcript.Transcript:
        """The transcript of a session this process executes: as far as its own commits go, which is all that a model
        sees; what others appended meanwhile (admissions, requests) is no message yet.
        """
        held = self._held.get(session_id)
        return held.freeze() if held and session_id not in self._behind else await self.load(session_id)

    async def load(self, session_id: str) -> transcript.Transcript:
        """The session's transcript as it is now."""
        held = self._held.get(session_id)
        if held is None:
            held = transcript.Builder(await self._log.store.read(lambda tx: read(tx, session_id)))
        else:
            while missed := await self._log.read(session_id, held.seq):
                for recorded in missed:
                    held.apply(recorded)
        self._behind.discard(session_id)
        self._keep_it(session_id, held)
        return held.freeze()

    def apply(self, session_id: str, recorded: Iterable[events.Recorded[Any]]) -> None:
        """Bring a transcript that is held up to facts just committed. What does not follow without a gap is left to
        the next `load`.
        """
        held = self._held.get(session_id)
        if held is None:
            return
        for event in recorded:
            if event.seq == held.seq + 1:
                held.apply(event)
            elif event.seq > held.seq:
                self._behind.add(session_id)
        self._keep_it(session_id, held)

    def derived(self, session_id: str, kind: Callable[[], T]) -> T:
        """What a reader of the session's transcript keeps of it, one value a kind, for as long as the transcript is held."""
        kept = self._derived.setdefault(session_id, {})
        return kept[kind] if kind in kept else kept.setdefault(kind, kind())

    def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._held.pop(session_id, None)
        self._behind.discard(session_id)
        self._derived.pop(session_id, None)

    def _keep_it(self, session_id: str, held: transcript.Builder) -> None:
        self._held[session_id] = held
        self._held.move_to_end(session_id)
        self._trim()

    def _trim(self) -> None:
        """Drop what was not used for longest, the busy ones excepted."""
        idle = len(self._held) - len(self._busy)
        if idle > self._keep:
            for session_id in [one for one in self._held if one not in self._busy][: idle - self._keep]:
                self.drop(session_id)


def read(tx: port.Tx, session_id: str) -> transcript.Transcript:
    """The whole transcript from rows, as far as the log goes."""
    seq, _ = tx.events.sequence(session_id)
    found: list[messages.Message] = []
    while page := tx.messages.page(session_id, found[-1].seq if found else -1, PAGE):
        found += page
    return transcript.Transcript(tuple(found), seq)
