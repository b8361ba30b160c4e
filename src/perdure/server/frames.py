"""Events as SSE frames, each encoded once per process and sent to every reader as the same bytes.

Lives here: the frame's form and a small memory of recent frames. History is not remembered: it is read by one reader at
a time, and would push out what all of them are about to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import codec, events
from perdure.server import wire

HEARTBEAT = b":\n\n"
REMEMBERED = 4 * 2**20


def frame(event: events.Event) -> bytes:
    """An event as a session's stream has it: `id` is the seq of a durable one, `event` its type."""
    number = f"id: {event.seq}\n" if isinstance(event, events.Recorded) else ""
    return f"{number}event: {event.data.event_type}\ndata: {_line(wire.event(event))}\n\n".encode()


def feed_frame(event: events.Recorded[Any]) -> bytes:
    """A fact as the stream of all sessions has it: `id` is its commit position."""
    return f"id: {event.position}\nevent: {event.data.event_type}\ndata: {_line(wire.event(event))}\n\n".encode()


class Frames:
    """Recent frames by event id, up to a number of bytes; the oldest go first."""

    def __init__(self, render: Callable[[Any], bytes] = frame, limit: int = REMEMBERED) -> None:
        """Remember at most `limit` bytes of what `render` makes."""
        self._render, self._limit, self._held = render, limit, 0
        self._frames: dict[str, bytes] = {}

    def live(self, event: events.Event) -> bytes:
        """The frame of an event that every reader is about to send."""
        known = self._frames.get(event.id)
        if known is None:
            known = self._frames[event.id] = self._render(event)
            self._held += len(known)
            while self._held > self._limit:
                self._held -= len(self._frames.pop(next(iter(self._frames))))
        return known


def note(name: str, value: object) -> bytes:
    """A frame that is no event of the log: hello, synced, problem."""
    return f"event: {name}\ndata: {_line(codec.dump(value))}\n\n".encode()


def _line(text: str) -> str:
    """JSON as one line for every client, those too that take Unicode's own line ends for ends of lines."""
    if text.isascii():
        return text
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
