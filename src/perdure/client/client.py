"""The client's face: `Client` and the sessions of its server.

Lives here: opening and closing, creating, finding and listing. Not here: what is done with one session (`session.py`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from perdure import ids
from perdure.client import following, wire
from perdure.client.session import Session
from perdure.client.transport import Transport
from perdure.core import answers, events, messages


def _nobody(up: bool) -> None:  # noqa: FBT001, what a listener is called with
    """Nobody listens."""
    del up


class Health(msgspec.Struct):
    """The server answers; another epoch means that it was started anew."""

    status: str
    version: str
    epoch: str


class Client:
    """A server's sessions: `async with Client(url, token=…) as app`, and all else as with the embedded `Perdure`.

    `patience` is how long (seconds, None: for ever) a server may be away before that is an error; `link` is told when it
    goes and when it is back.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience: float | None = 60.0,
        link: Callable[[bool], None] = _nobody,
    ) -> None:
        """Connect to nothing yet. Raises `ConfigError` for what is no URL of a server."""
        self._transport = Transport(url, token, patience, link)
        self.sessions = Sessions(self._transport)
        self.recoveries = Recoveries(self._transport)

    async def __aenter__(self) -> Self:
        """See that the server is there and takes the token. Raises `ServerUnreachable`, `Unauthorized`, `Forbidden`."""
        try:
            await self._transport.greet()
        except BaseException:
            await self._transport.http.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections; nothing on the server ends with them."""
        await self._transport.http.aclose()

    async def health(self) -> Health:
        """The server's version and epoch."""
        return await self._transport.get("/health", Health)

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncGenerator[events.Recorded[Any], None]:
        """Facts of all sessions after a commit position, in the order of each session; with `follow` also those to come. A
        fact's `position` is where to go on from; those of a deleted session may be missing. Close it when done.

        It outlives the connection and the server: each fact comes exactly once. Raises `CursorBeyondEnd`,
        `HistoryReplaced`.
        """
        async with aclosing(following.feed(self._transport, after, follow=follow)) as feed:
            async for event in feed:
                yield event

    async def approvals(self) -> list[wire.ApprovalInfo]:
        """Calls that wait for a person, of all sessions."""
        return (await self._transport.get("/v1/approvals", wire.ApprovalList)).data


@dataclass(frozen=True, slots=True)
class Page:
    """Some sessions, newest first, where the next page starts, and those of the page that cannot be decoded."""

    data: list[wire.SessionInfo]
    next: str | None
    damaged: list[wire.Damaged] = field(default_factory=list[wire.Damaged])


class Sessions:
    """The sessions of a server."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def create(
        self,
        agent: str | None = None,
        *,
        id: str | None = None,
        title: str | None = None,
        metadata: messages.JsonObject | None = None,
        model: str | None = None,
        policy: events.Policy | None = None,
    ) -> Session:
        """Create a session, or find the one created with the same id and settings.

        `agent` may be left out where there is just one. Raises `UnknownAgent`, `UnknownModel`, `InvalidId`,
        `SessionConflict`, `SessionGone`.
        """
        body = wire.given(
            id=id or ids.mint("ses", os.urandom),
            agent=agent,
            title=title,
            metadata=metadata,
            model=model,
            policy=policy,
        )
        made = await self._transport.call("POST", "/v1/sessions", wire.SessionView, body, safe=True)
        return Session(self._transport, made.id)

    async def get(self, session_id: str) -> Session:
        """A session by id. Raises `SessionNotFound`, `SessionGone`."""
        session = Session(self._transport, ids.check_shape("Session id", session_id))
        await session.status()  # which reads even where the rest of a session does not
        return session

    async def list(self, *, limit: int = 50, before: str | None = None) -> Page:
        """Sessions, newest first; `before` is the `next` of the page before."""
        page = await self._transport.get("/v1/sessions", wire.SessionPage, limit=limit, cursor=before)
        damaged = [wire.Damaged(one.id, one.detail) for one in page.damaged]
        return Page([one.info() for one in page.data], page.next, damaged)


class Recoveries:
    """Turns that lost their owner and wait: for their continuation, for a decision, or for a recovery that fails."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def list(self) -> list[answers.Recovery]:
        """Those of every session, the most hopeful first."""
        return (await self._transport.get("/v1/recoveries", wire.RecoveryList)).data

    async def retry(self, execution_id: str) -> None:
        """Go on with a turn that waits for a decision, or try a recovery that failed again at once.

        Raises `RecoveryNotFound`, `LifecycleConflict` where nothing waits any more, `SessionGone`.
        """
        await self._transport.send("POST", f"{_path(execution_id)}/retry")

    async def dismiss(self, execution_id: str) -> None:
        """End such a turn for good; its session takes new prompts. Raises as `retry`."""
        await self._transport.send("POST", f"{_path(execution_id)}/dismiss")


def _path(execution_id: str) -> str:
    return f"/v1/recoveries/{ids.check_shape('Execution id', execution_id)}"
