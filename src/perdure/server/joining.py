"""What one reader of a session is sent: history, the boundary, text in progress, then everything as it comes (PUB-3).

Lives here: joining the log's follower with the text of parts that are still open, so that a reader that arrives in the
middle of a part has all of it and no piece twice. Not here: sockets (`sse.py`), frames' form (`frames.py`).

The follower is registered before history is read, so live text that came meanwhile waits in its buffer. At the boundary
the text so far is taken from the publisher without an await in between; what the buffer then repeats is cut by its
offset. A gap, as a buffer leaves that was given up for another look at the log, is filled the same way; where the part is
over by then, its end has all of it, and what comes before that is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from perdure import ids
from perdure.core import events
from perdure.log.log import Synced
from perdure.server import frames
from perdure.server.serving import Serving

Key = tuple[str, str, str]
ENDED = (events.TextEnded, events.ReasoningEnded, events.ToolInputEnded)


async def reader(here: Serving, session_id: str, after: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    """The frames of one reader. Raises what following the log raises."""
    engine = here.perdure.engine
    yield frames.note("hello", {"epoch": engine.epoch, "session_id": session_id})
    texts = Texts(here, session_id)
    live = False
    async with aclosing(engine.log.follow(session_id, after, signals=True, begun=True)) as following:
        async for item in following:
            if isinstance(item, Synced):
                yield frames.note("synced", {"seq": item.seq})
                if not follow:
                    return
                live = True
                for signal in await texts.so_far():
                    yield frames.frame(signal)
            elif isinstance(item, events.Announced):
                for signal in texts.past(item):
                    yield here.frames.live(item) if signal is item else frames.frame(signal)
            else:
                texts.heard(item)
                yield here.frames.live(item) if live else frames.frame(item)


class Texts:
    """How much of each open part the reader has, in code points."""

    def __init__(self, here: Serving, session_id: str) -> None:
        """A reader that has nothing yet."""
        self._engine, self._session_id = here.perdure.engine, session_id
        self._known: dict[Key, int] = {}
        self._ended: set[Key] = set()

    def heard(self, event: events.Recorded[Any]) -> None:
        """A fact was sent: with the end of a part the reader has all of it."""
        if isinstance(event.data, events.StepStarted):
            self._known.clear()
            self._ended.clear()
        elif isinstance(event.data, ENDED):
            key = _key(event.data)
            self._known.pop(key, None)
            self._ended.add(key)

    async def so_far(self) -> list[events.Event]:
        """The text of every open part: of the publisher that writes it here, else as it was drafted elsewhere."""
        if self._session_id in self._engine.parts.live:
            return list(self._catch_up())
        drafts = await self._engine.store.read(lambda tx: tx.context.drafts(self._session_id))
        return [
            self._signal(draft.message_id, draft.kind, draft.part_id, draft.text, 0)
            for draft in drafts
            if draft.text and (draft.message_id, draft.kind, draft.part_id) not in self._ended
        ]

    def _catch_up(self) -> Iterator[events.Event]:
        publisher = self._engine.parts.live.get(self._session_id)
        if publisher is None:
            return
        for kind, part_id, text in publisher.snapshot():
            key = (publisher.message_id, kind, part_id)
            start = self._known.get(key, 0)
            if start < len(text) and key not in self._ended:
                self._known[key] = len(text)
                yield self._signal(*key, text[start:], start)

    def past(self, announced: events.Announced[Any]) -> Iterator[events.Event]:
        """What of a signal the reader does not have yet."""
        signal = announced.data
        if isinstance(signal, events.CompactionDelta):
            yield announced
            return
        key = _key(signal)
        if key in self._ended:
            return
        if signal.offset > self._known.get(key, 0):
            yield from self._catch_up()
        known, end = self._known.get(key, 0), signal.offset + len(signal.delta)
        if end <= known or signal.offset > known:
            return  # had already, or behind a gap that nobody can fill any more: the end of the part is on its way
        self._known[key] = end
        if signal.offset < known:
            yield self._signal(*key, signal.delta[known - signal.offset :], known)
        else:
            yield announced

    def _signal(self, message_id: str, kind: str, part_id: str, text: str, offset: int) -> events.Announced[Any]:
        about: dict[str, Any] = {
            "session_id": self._session_id,
            "assistant_message_id": message_id,
            "delta": text,
            "offset": offset,
        }
        world = self._engine.world
        made: events.Signal
        if kind == "text":
            made = events.TextDelta(text_id=part_id, **about)
        elif kind == "reasoning":
            made = events.ReasoningDelta(reasoning_id=part_id, **about)
        else:
            made = events.ToolInputDelta(call_id=part_id, **about)
        return events.Announced(ids.mint("evt", world.entropy), world.clock.now_ms(), made)


def _key(event: Any) -> Key:
    """Message, kind and id of the part an event is about."""
    if isinstance(event, events.TextDelta | events.TextEnded):
        return event.assistant_message_id, "text", event.text_id
    if isinstance(event, events.ReasoningDelta | events.ReasoningEnded):
        return event.assistant_message_id, "reasoning", event.reasoning_id
    return event.assistant_message_id, "tool", event.call_id
