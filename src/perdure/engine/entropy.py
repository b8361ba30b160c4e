"""Chance for an engine: the system's random bytes, drawn many at a time.

Lives here: `Pool`. Why not `os.urandom` for each id: every call lets go of the interpreter's lock, and while another
thread is busy the way back costs a thousand times what the bytes do. A forked child draws its own.
"""

from __future__ import annotations

import os

DRAW = 4096


class Pool:
    """Gives random bytes: `pool(n)`. For one thread, the event loop's."""

    __slots__ = ("_at", "_bytes", "_pid")

    def __init__(self) -> None:
        """Draw nothing yet."""
        self._bytes, self._at, self._pid = b"", 0, 0

    def __call__(self, size: int) -> bytes:
        """The next `size` bytes (at most 4096), never given before."""
        if self._at + size > len(self._bytes) or self._pid != os.getpid():
            self._bytes, self._at, self._pid = os.urandom(DRAW), 0, os.getpid()
        start = self._at
        self._at += size
        return self._bytes[start : self._at]
