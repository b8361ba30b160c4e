"""Rows of `content`: bytes under their SHA-256 hash."""

from __future__ import annotations

import hashlib
from typing import Any


class Content:
    """Verbs on content."""

    __slots__ = ("_c", "_q")

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind to a connection."""
        self._q, self._c = statements, connection

    def put(self, data: bytes) -> str:
        """Keep the bytes; their hash."""
        digest = hashlib.sha256(data).hexdigest()
        self._q.content_put(self._c, hash=digest, bytes=data)
        return digest

    def get(self, digest: str) -> bytes | None:
        """The bytes of a hash."""
        return self._q.content_get(self._c, hash=digest)
