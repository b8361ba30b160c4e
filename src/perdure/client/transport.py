"""Requests to one server, tried again while it is away.

Lives here: the HTTP connection, the token, which failures are tried again and for how long. Not here: what is asked
(`client.py`, `session.py`) and the stream of events (`following.py`). A request that never left may always go again;
one that may have arrived only where sending it twice means no more than once, which whoever sends it says. What the
server itself answers is never tried again: that is an error of ours, or the answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import httpx2

from perdure import errors
from perdure.client import problems, wire
from perdure.core import codec

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
FIRST_CONTACT_S = 3.0
SILENCE_S = 60.0
"""How long an answer or a stream may be silent; the server's heartbeat is much more frequent."""

_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_GATEWAY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class Backoff:
    """Pauses that grow up to a bound, until patience (seconds, None: for ever) is at an end."""

    def __init__(self, patience: float | None) -> None:
        """Begin to count now."""
        self._patience = patience
        self.again()

    def again(self) -> None:
        """It went well: begin anew."""
        self._pause, self._since = FIRST_PAUSE_S, time.monotonic()

    async def pause(self, why: Exception | str) -> None:
        """Wait before the next try. Raises `ServerUnreachable` once patience is at an end."""
        gone = time.monotonic() - self._since
        if self._patience is not None and gone + self._pause > self._patience:
            raise problems.ServerUnreachable(f"The server cannot be reached: {_words(why)}")
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)


def _words(why: Exception | str) -> str:
    return why if isinstance(why, str) else str(why) or type(why).__name__


class Transport:
    """One server; `link(up)` hears when it goes away and when it is back."""

    def __init__(self, url: str, token: str | None, patience: float | None, link: Callable[[bool], None]) -> None:
        """Connect to nothing yet. Raises `ConfigError` for what is no URL of a server."""
        self.patience, self._link, self._up = patience, link, True
        headers = {"Authorization": f"Bearer {_checked(token)}"} if token else {}
        try:
            base = httpx2.URL(url.rstrip("/").removesuffix("/v1"))  # which every route begins with
        except httpx2.InvalidURL as error:
            raise errors.ConfigError(f"{url!r} is no URL: {error}") from None
        if base.scheme not in {"http", "https"} or not base.host:
            raise errors.ConfigError(f"{url!r} is no URL of a server, such as http://127.0.0.1:7433")
        self.http = httpx2.AsyncClient(
            base_url=base,
            headers=headers,
            timeout=httpx2.Timeout(SILENCE_S, connect=10.0, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=not _is_here(base.host),  # a proxy is for the world outside
        )

    def linked(self, *, up: bool) -> None:
        """Tell whoever listens, if that is news."""
        if up != self._up:
            self._up = up
            self._link(up)

    async def greet(self) -> None:
        """See that a server is there and takes the token; a wrong address is found out soon."""
        patience = FIRST_CONTACT_S if self.patience is None else min(FIRST_CONTACT_S, self.patience)
        await self._request("GET", "/v1/sessions", None, {"limit": 1}, safe=True, patience=patience)

    async def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Read something. Raises what the server's problem says, and `ServerUnreachable`."""
        params = {name: value for name, value in query.items() if value is not None}
        return wire.read(await self._request("GET", path, None, params, safe=True, patience=self.patience), kind)

    async def call(self, method: str, path: str, kind: type[T], body: Any = None, *, safe: bool = False) -> T:
        """Ask for something; `safe` where twice means no more than once. Raises as `get`."""
        return wire.read(await self._request(method, path, body, {}, safe=safe, patience=self.patience), kind)

    async def send(self, method: str, path: str, body: Any = None, *, safe: bool = False) -> None:
        """Likewise, where no answer matters."""
        await self._request(method, path, body, {}, safe=safe, patience=self.patience)

    async def _request(
        self, method: str, path: str, body: Any, params: Mapping[str, Any], *, safe: bool, patience: float | None
    ) -> bytes:
        content = None if body is None else codec.dump(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        backoff = Backoff(patience)
        while True:
            try:
                answer = await self.http.request(method, path, content=content, params=params, headers=headers)
            except httpx2.TransportError as error:
                self.linked(up=False)
                if not (safe or isinstance(error, _NEVER_LEFT)):
                    words = f"The connection broke before the answer: {_words(error)}; it may have been done"
                    raise problems.ServerUnreachable(words) from None
                await backoff.pause(error)
                continue
            if answer.is_success:
                self.linked(up=True)
                return answer.content
            error = problems.error_of(answer.status_code, answer.content)
            if not (safe and answer.status_code in _GATEWAY and isinstance(error, problems.ServerUnreachable)):
                raise error
            await backoff.pause(error)


def _checked(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise errors.ConfigError("The token must be printable ASCII without spaces")
    return token


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
