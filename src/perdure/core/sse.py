"""Server-sent events, cut out of a stream of bytes.

Lives here: the incremental parser that turns byte chunks, however they were split, into frames. Not here: what the data
means, and the field `retry`, for whoever reads has a back-off of its own. It works on bytes, because a chunk may end
inside a UTF-8 character while a line end never can, and keeps the pieces of an unfinished line in a list, so that a
long line costs its length and not its square.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """One event holds more than `MAX_EVENT_BYTES`."""


class Frame(NamedTuple):
    """One event: its data, and its name and id where it has them. An id is this frame's own, never the last one seen."""

    data: bytes
    name: bytes = b""
    id: bytes = b""


class Parser:
    """Feed it bytes, get back every frame they completed."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = self._id = b""
        self._size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes of the stream; raises `EventTooLarge`."""
        if not chunk:
            return []
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        *lines, rest = chunk.split(b"\n")
        if lines and self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces.clear()
        frames: list[Frame] = []
        for line in lines:
            self._line(line, frames)
        if rest:
            self._pieces.append(rest)
            self._grow(len(rest))
        return frames

    def close(self) -> list[Frame]:
        """The stream ended. Servers that forget the last blank line are common, so what stands complete is an event
        too.
        """
        frames: list[Frame] = []
        if self._pieces:
            self._line(b"".join(self._pieces), frames)
            self._pieces.clear()
        self._line(b"", frames)
        return frames

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        # A CR ends its line at once; the LF that may follow in the next chunk belongs to it.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                frames.append(Frame(data, self._name, self._id))
                self._data.clear()
            self._name = self._id = b""
            self._size = 0
        elif line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._grow(len(value))
        elif line == b"data":
            self._data.append(b"")
        else:
            self._about(line)

    def _about(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.removeprefix(b" ")
        elif field == b"id":
            self._id = value.removeprefix(b" ")

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > self._max:
            raise EventTooLarge(f"An event of the stream is larger than {self._max} bytes")
