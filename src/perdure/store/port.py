"""The port: what a store is to everything above it.

Lives here: `Store` (units of work on one database) and `Tx` (the verbs a unit may use, grouped by noun). Not here: any
session rule, any SQL. A unit `work(tx)` is a short synchronous function, pure but for `tx`: it runs inside one
transaction, off the event loop, and may run again when the database asks for it, so memory changes only after commit,
in `committed`. Units whose caller was cancelled still commit or fail as a whole; cancellation reaches the caller when
that is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from perdure.store.approvals import Approvals
from perdure.store.claims import Claims
from perdure.store.content import Content
from perdure.store.context import Context
from perdure.store.events import Events
from perdure.store.inbox import Inbox
from perdure.store.messages import Messages
from perdure.store.recoveries import Recoveries
from perdure.store.sessions import Sessions
from perdure.store.upkeep import Upkeep

T = TypeVar("T")


class Tx:
    """The verbs of one connection, valid inside a unit of work only."""

    __slots__ = (
        "_remembering",
        "approvals",
        "claims",
        "content",
        "context",
        "events",
        "inbox",
        "messages",
        "recoveries",
        "sessions",
        "upkeep",
    )

    def __init__(self, statements: Any, connection: Any) -> None:
        """Bind every group to a connection; made once a connection, used for each of its units."""
        self.events = Events(statements, connection)
        self.sessions = Sessions(statements, connection, self.events)
        self.messages = Messages(statements, connection, self.events)
        self.inbox = Inbox(statements, connection, self.events)
        self.claims = Claims(statements, connection)
        self.recoveries = Recoveries(statements, connection)
        self.approvals = Approvals(statements, connection)
        self.context = Context(statements, connection)
        self.content = Content(statements, connection)
        self._remembering = (
            self.events,
            self.sessions,
            self.messages,
            self.inbox,
            self.claims,
            self.approvals,
            self.context,
        )
        self.upkeep = Upkeep(
            statements,
            connection,
            self.sessions,
            self.claims,
            events=self.events,
            inbox=self.inbox,
            context=self.context,
            content=self.content,
        )

    def begin(self) -> None:
        """A unit begins, whatever became of the one before."""
        self.events.begin()
        self.messages.begin()

    def flush(self) -> None:
        """Write what the unit still keeps. Raises `InvalidDurableEvent` for an event id that is in the log already."""
        self.sessions.flush()
        self.messages.flush()
        self.events.flush()

    def end(self) -> None:
        """The unit did what it wanted to: write what it keeps, and remember what the next may need. Raises as `flush`."""
        self.flush()
        for group in self._remembering:
            group.keep()

    def forget(self) -> None:
        """What is remembered may no longer be so: another connection committed, or units before were rolled back."""
        for group in self._remembering:
            group.forget()


class Store(Protocol):
    """One database."""

    async def write(self, work: Callable[[Tx], T], *, committed: Callable[[T], None] | None = None) -> T:
        """Run `work` in one transaction and return what it returned once that is committed.

        `committed(result)` is called on the event loop after the commit, in commit order over all units of this store,
        before any of their callers goes on. What `work` raises rolls back its unit alone and is raised here. Raises
        `StoreBusy` past the deadline, `StoreFull`, `StoreFailed`, `StoreCorrupt`; none of these leaves anything of the
        unit behind.
        """
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on one consistent snapshot; it sees every unit whose `write` has returned here. Never blocks the
        writer.
        """
        ...

    def on_foreign_commit(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` on the event loop soon after another process committed; returns what ends that."""
        ...

    async def close(self) -> None:
        """Finish accepted units, then let go of the database."""
        ...
