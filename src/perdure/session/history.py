"""The active transcript in memory.

Lives here: `Histories`, a bounded store of transcripts of sessions that were active lately, brought up to date from the
log's tail instead of being read again, so that a turn costs the same however long its session is. What is kept of idle
sessions is bounded by its size, so that a few huge ones fill no memory. Not here: what the model is shown
(`core/request.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from perdure.core import events, messages, transcript
from perdure.core.value import Value, names
from perdure.log.log import Log
from perdure.store import port

T = TypeVar("T")
PAGE = 500
KEEP = 16 * 2**20
EACH = 48
"""What a value weighs beside its characters."""


class Histories:
    """Transcripts of the sessions that are busy, and of those that were lately up to a weight of `keep` characters."""

    def __init__(self, log: Log, *, keep: int = KEEP) -> None:
        """Read through `log`."""
        self._log, self._keep = log, keep
        self._held: OrderedDict[str, transcript.Builder] = OrderedDict()
        self._weights: dict[str, int] = {}
        self._total = 0
        self._busy: set[str] = set()
        # The newest fact of a session that was committed here and is not in its transcript yet.
        self._missed: dict[str, int] = {}
        self._derived: dict[str, dict[Callable[[], Any], Any]] = {}
        log.live.tap(self._heard)

    @contextmanager
    def busy(self, session_id: str) -> Generator[None, None, None]:
        """Keep a session's transcript for the length of a block, however many others are held."""
        self._busy.add(session_id)
        try:
            yield
        finally:
            self._busy.discard(session_id)
            if session_id not in self._held:
                self._missed.pop(session_id, None)
            self._trim()

    async def current(self, session_id: str, upto: int = -1) -> transcript.Builder:
        """The transcript of a session this process executes: as far as its own commits go and at least `upto`, which is all
        that a model sees; what others appended since (admissions, requests) is no message yet. It goes on growing.
        """
        held = self._held.get(session_id)
        known = held and held.seq >= max(upto, self._missed.get(session_id, -1))
        return held if held and known else await self.load(session_id)

    def at_hand(self, session_id: str) -> transcript.Transcript | None:
        """The transcript of a session where it is held, as far as that goes."""
        held = self._held.get(session_id)
        return held.freeze() if held else None

    async def load(self, session_id: str) -> transcript.Builder:
        """The session's transcript as it is now. It goes on growing."""
        held = self._held.get(session_id)
        if held is None:
            found = await self._log.store.read(lambda tx: read(tx, session_id))
            held = transcript.Builder(found)
            self._weigh(session_id, found.messages)
        else:
            while await self._catch_up(session_id, held) == PAGE:
                pass
        self._held[session_id] = held
        self._held.move_to_end(session_id)
        self._trim()
        return held

    async def _catch_up(self, session_id: str, held: transcript.Builder) -> int:
        """Fold a page of what was missed; how much that was."""
        missed = await self._log.read(session_id, held.seq, PAGE)
        for recorded in missed:
            if held.apply(recorded):
                self._weigh(session_id, recorded.data)
        return len(missed)

    def _heard(self, facts: Sequence[events.Recorded[Any]]) -> None:
        """Bring transcripts that are held up to facts committed here. One that does not follow without a gap, or while the
        transcript is on its way here, is left to the next `load`.
        """
        for event in facts:
            session_id = event.aggregate_id
            held = self._held.get(session_id)
            if held and event.seq == held.seq + 1:
                if held.apply(event):
                    self._weigh(session_id, event.data)
            elif event.seq > held.seq if held else session_id in self._busy:
                self._missed[session_id] = event.seq

    def derived(self, session_id: str, kind: Callable[[], T]) -> T:
        """What a reader of the session's transcript keeps of it, one value a kind, for as long as the transcript is held."""
        kept = self._derived.setdefault(session_id, {})
        return kept[kind] if kind in kept else kept.setdefault(kind, kind())

    def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._held.pop(session_id, None)
        self._total -= self._weights.pop(session_id, 0)
        self._missed.pop(session_id, None)
        self._derived.pop(session_id, None)

    def _weigh(self, session_id: str, more: object) -> None:
        """Count what came to a session: for a fact, no less than what the transcript has of it."""
        added = weight(more)
        self._weights[session_id] = self._weights.get(session_id, 0) + added
        self._total += added

    def _trim(self) -> None:
        """Drop what was not used for longest, the busy ones excepted."""
        if self._total <= self._keep:
            return
        idle = self._total - sum(self._weights.get(one, 0) for one in self._busy)
        if idle <= self._keep:
            return
        for session_id in [one for one in self._held if one not in self._busy]:
            idle -= self._weights.get(session_id, 0)  # none, where it was dropped while it was read
            self.drop(session_id)
            if idle <= self._keep:
                return


_PLAIN = {int, float, bool, type(None)}


def weight(value: object) -> int:
    """About how many characters a value takes in memory, however it is nested."""
    found, waiting = 0, [value]
    while waiting:
        one: Any = waiting.pop()
        kind: type[Any] = one.__class__
        if kind is str:
            found += EACH + len(one)
        elif kind in _PLAIN:
            found += EACH if one is not None else 0
        else:
            found += EACH
            if kind is dict:
                waiting += one
                waiting += one.values()
            elif kind is list or kind is tuple:
                waiting += one
            elif issubclass(kind, Value):
                waiting += msgspec.structs.astuple(one)
            else:
                waiting += [getattr(one, name) for name in names(kind)]
    return found


def read(tx: port.Tx, session_id: str) -> transcript.Transcript:
    """The whole transcript from rows, as far as the log goes."""
    seq, _ = tx.events.sequence(session_id)
    found: list[messages.Message] = []
    while page := tx.messages.page(session_id, found[-1].seq if found else -1, PAGE):
        found += page
    return transcript.Transcript(tuple(found), seq)
