"""The log-in cookie of a page: a signed note that its bearer knew the token (SEC-1).

Lives here: writing, checking and unwriting the cookie. Not here: when it counts (`auth.py`). The server remembers no log-in,
so a page stays logged in while servers come and go: the cookie holds when it ends and a signature by the token. To end
every log-in before its time, change the token. Its name tells tokens apart, since a browser sends the cookies of a host
to all of its ports.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

NAME = "perdure_"
"""What the names of all begin with."""

LIFETIME_MS = 30 * 24 * 3600 * 1000


class Cookies:
    """The cookies of one token."""

    def __init__(self, token: str, now: Callable[[], int]) -> None:
        """`now` gives epoch ms."""
        self._key = hashlib.sha256(b"perdure cookie\x00" + token.encode()).digest()
        self._now = now
        self.name = NAME + self._sign(b"name")[:8]

    def _sign(self, text: bytes) -> str:
        return hmac.digest(self._key, text, "sha256").hex()

    def write(self, *, secure: bool) -> str:
        """A `Set-Cookie` that logs in; `secure` where the page came over https."""
        head = f"{self._now() + LIFETIME_MS}.{secrets.token_hex(16)}"
        return self._set(f"{head}.{self._sign(head.encode())}", LIFETIME_MS // 1000, secure=secure)

    def unwrite(self, *, secure: bool) -> str:
        """A `Set-Cookie` that logs out."""
        return self._set("", 0, secure=secure)

    def _set(self, value: str, seconds: int, *, secure: bool) -> str:
        ending = "; Secure" if secure else ""
        return f"{self.name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{ending}"

    def holds(self, header: bytes) -> bool:
        """Whether one of the cookies in a `Cookie` header logs in now."""
        name = self.name.encode()
        given = (one.strip().partition(b"=") for one in header.split(b";"))
        return any(self._valid(value) for key, _, value in given if key == name)

    def _valid(self, value: bytes) -> bool:
        head, _, signature = value.rpartition(b".")
        if not hmac.compare_digest(signature, self._sign(head).encode()):
            return False
        return int(head.partition(b".")[0]) > self._now()
