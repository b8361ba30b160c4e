"""Rows of `content`, bytes under their SHA-256 hash, and of `content_use`, the sessions that refer to them."""

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

    def use(self, session_id: str, digest: str) -> None:
        """The session refers to these bytes; they stay as long as it does."""
        self._q.content_use(self._c, session_id=session_id, hash=digest)

    def uses(self, session_id: str) -> list[str]:
        """What the session refers to."""
        return [row[0] for row in self._q.content_uses(self._c, session_id=session_id)]

    def lend(self, session_id: str, child_id: str) -> None:
        """Another session refers to all that this one does."""
        self._q.content_lend(self._c, session_id=session_id, child_id=child_id)

    def release(self, session_id: str) -> None:
        """The session refers to nothing any more; bytes that none refers to are gone."""
        digests = self.uses(session_id)
        self._q.content_unuse(self._c, session_id=session_id)
        for digest in digests:
            self._q.content_drop_unused(self._c, hash=digest)
