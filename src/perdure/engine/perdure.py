"""The public face: `Perdure` and the sessions it holds.

Lives here: the nouns a user's code works with, embedded in their process. Not here: rules and wiring; each verb is a
unit of a service and a ring of the doorbell after it. The client for a remote server has the same nouns.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from perdure import agent as agents
from perdure import config, errors, ids, pricing
from perdure.core import events, messages
from perdure.core.answers import AttemptPage, Receipt
from perdure.engine import parts
from perdure.engine.engine import Engine, World
from perdure.engine.parts import Part
from perdure.engine.recoveries import Recoveries
from perdure.log.log import Synced
from perdure.models import port as models
from perdure.session import admission, approvals, attempts, fork, sessions, status
from perdure.store.approvals import ApprovalRow
from perdure.store.inbox import InputRow
from perdure.store.sessions import Damaged, SessionRow

SETTLING = (events.ExecutionEnded, events.PromptWithdrawn, events.ExecutionInterruptRequested)


class Perdure:
    """An engine in this process: `async with Perdure(agents=[…]) as app`.

    `database` is a SQLite file (default PERDURE_DATABASE_URL, else ./perdure.db); `models` are models of your own by
    `provider:name`, `prices` your own price table and `windows` your context windows (tokens) by the same names. Several
    processes may work on one file at once; an `idle` one runs nothing: it looks, and stores what is asked for another to
    run; one that is `read_only` only looks, and neither creates nor changes a file.
    """

    def __init__(
        self,
        agents: Sequence[agents.Agent] = (),
        *,
        database: str | None = None,
        models: Mapping[str, models.Model] | None = None,
        settings: config.Settings | None = None,
        world: World | None = None,
        prices: Mapping[str, pricing.Price] | None = None,
        windows: Mapping[str, int] | None = None,
        idle: bool = False,
        read_only: bool = False,
    ) -> None:
        """Check what is declared; nothing is opened yet. Raises `ConfigError`, `UnknownModel`."""
        chosen = settings or config.settings()
        if database is not None:
            chosen = chosen.model_copy(update={"database_url": database})
        self.engine = Engine(chosen, agents, models, world, prices, windows=windows, idle=idle, read_only=read_only)
        self.sessions = Sessions(self.engine)
        self.recoveries = Recoveries(self.engine)

    async def __aenter__(self) -> Self:
        """Open the database and take up whatever was left unfinished. Raises `StoreUnusable`, `SchemaTooNew`."""
        await self.engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully."""
        await self.engine.stop()

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncGenerator[events.Recorded[Any], None]:
        """Facts of all sessions after a commit position, in the order of each session; with `follow` also those to come. A
        fact's `position` is where to go on from; those of a deleted session may be missing. Close it when done.

        Raises `CursorBeyondEnd`.
        """
        async with aclosing(self.engine.log.feed(after)) as feed:
            async for event in feed:
                if not isinstance(event, Synced):
                    yield event
                elif not follow:
                    return

    async def approvals(self) -> list[ApprovalRow]:
        """Calls that wait for a person, of all sessions."""
        return await self.engine.store.read(lambda tx: tx.approvals.list())


@dataclass(frozen=True, slots=True)
class Page:
    """Some sessions, newest first, where the next page starts, and those of the page that cannot be decoded."""

    data: list[SessionRow]
    next: tuple[int, str] | None
    damaged: list[Damaged] = field(default_factory=list[Damaged])


class Sessions:
    """The sessions of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Work on `engine`."""
        self._engine = engine

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
        `InvalidInput`, `SessionConflict`, `SessionGone`.
        """
        engine = self._engine
        session_id = ids.mint("ses", engine.world.entropy) if id is None else ids.check("Session id", id)
        if model is not None:
            engine.models.check(model)
        created = events.SessionCreated(
            session_id=session_id,
            agent=self._agent(agent),
            model=model,
            title=title,
            metadata=metadata,
            policy=policy,
        )
        row = await engine.log.transact(lambda unit: sessions.create(unit, created))
        return Session(engine, row.id)

    def _agent(self, name: str | None) -> str:
        known = self._engine.agents
        if name is None and len(known) == 1:
            return next(iter(known))
        if name is None or name not in known:
            asked = "Name an agent" if name is None else f"There is no agent {name!r} here"
            raise errors.UnknownAgent(f"{asked}; there are: {', '.join(sorted(known)) or 'none'}")
        return name

    async def get(self, session_id: str) -> Session:
        """A session by id. Raises `InvalidId`, `SessionNotFound`, `SessionGone`."""
        ids.check_shape("Session id", session_id)
        await self._engine.store.read(lambda tx: sessions.flags(tx, session_id))
        return Session(self._engine, session_id)

    async def list(self, *, limit: int = 50, before: tuple[int, str] | None = None) -> Page:
        """Sessions, newest first. Raises `InvalidInput` for a `limit` below 1."""
        parts.check_limit(limit)
        start = before or (2**62, "")
        found = await self._engine.store.read(lambda tx: tx.sessions.page(start, limit + 1))
        more = len(found) > limit
        found = found[:limit]
        return Page(
            [one for one in found if isinstance(one, SessionRow)],
            (found[-1].time_created, found[-1].id) if more else None,
            [one for one in found if isinstance(one, Damaged)],
        )


class Session:
    """One session. Cheap: an id and its engine."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        """Use `Sessions.create` or `Sessions.get`."""
        self._engine, self.id = engine, session_id

    async def info(self) -> SessionRow:
        """Its settings and totals."""
        return await self._engine.store.read(lambda tx: sessions.get(tx, self.id))

    async def update(
        self, changes: events.Changes, *, agent: str | None = None, model: str | None = None
    ) -> SessionRow:
        """Change title, metadata, archived or policy, and who answers from the next step on, all in one commit.

        Raises `UnknownAgent`, `UnknownModel`, `SessionNotFound`, `SessionGone`, `InvalidInput`.
        """
        if agent is not None and agent not in self._engine.agents:
            raise errors.UnknownAgent(f"There is no agent {agent!r} here")
        if model is not None:
            self._engine.models.check(model)
        message_ids = [ids.mint("msg", self._engine.world.entropy) for _ in range(2)]

        def work(unit: admission.Unit) -> SessionRow:
            sessions.update(unit, self.id, changes)
            if agent is not None:
                sessions.switch_agent(unit, self.id, message_ids[0], agent)
            if model is not None:
                sessions.switch_model(unit, self.id, message_ids[1], model)
            return sessions.get(unit.tx, self.id)

        # A copy, for the writer remembers the row, and whoever gets it may change what its objects hold.
        return copy.deepcopy(await self._engine.log.transact(work))

    async def switch_agent(self, agent: str) -> None:
        """Let another agent answer from the next step on. Raises `UnknownAgent`."""
        await self.update(events.Changes(), agent=agent)

    async def switch_model(self, model: str) -> None:
        """Let another model answer from the next step on. Raises `UnknownModel`."""
        await self.update(events.Changes(), model=model)

    async def fork(self, *, id: str | None = None, seq: int | None = None) -> Session:
        """A new session with this one's facts up to `seq`. Raises `CursorBeyondEnd`, `SessionConflict`."""
        child = ids.mint("ses", self._engine.world.entropy) if id is None else ids.check("Session id", id)
        registry = self._engine.log.registry
        await self._engine.log.transact(lambda unit: fork.fork(unit, registry, self.id, child, seq))
        return Session(self._engine, child)

    async def delete(self) -> None:
        """Delete it for good, also while it runs. Raises `SessionNotFound`, `SessionGone`."""
        await self._engine.delete(self.id)

    # -- prompts -----------------------------------------------------------------------------------------------------------

    async def prompt(
        self,
        prompt: str | Sequence[Part],
        *,
        id: str | None = None,
        delivery: messages.Delivery = "steer",
        resume: bool = True,
    ) -> Receipt:
        """Admit a prompt; it is durable when this returns, and safe to send again under the same `id`.

        `delivery`: `steer` joins the open turn at its next step, `queue` waits for a turn of its own. `resume=False`
        admits only. Raises `PromptConflict` for another prompt under that id, `InvalidId`, `InvalidInput`,
        `SessionNotFound`, `SessionGone`.
        """
        parts.check_delivery(delivery)
        message_id = ids.mint("msg", self._engine.world.entropy) if id is None else ids.check("Prompt id", id)
        given = parts.of(prompt)

        def work(unit: admission.Unit) -> admission.Admitted:
            stored = tuple(part.store(unit, self.id) for part in given)
            return admission.admit(unit, self.id, message_id, messages.Prompt(stored), delivery, resume=resume)

        return await self._engine.admit(self.id, work)

    async def receipt(self, message_id: str) -> Receipt:
        """What became of a prompt. Raises `InvalidId`, `PromptNotFound`, `SessionNotFound`, `SessionGone`."""
        ids.check_shape("Prompt id", message_id)

        def work(tx: Any) -> Receipt:
            try:
                return admission.receipt_of(tx, self.id, message_id)
            except errors.PromptNotFound:
                sessions.get(tx, self.id)  # which says so where there is no such session
                raise

        return await self._engine.store.read(work)

    async def inbox(self) -> list[InputRow]:
        """Inputs that wait, in admission order. Raises `SessionNotFound`, `SessionGone`."""

        def work(tx: Any) -> list[InputRow]:
            return [tx.inbox.whole(row) for row in tx.inbox.pending(sessions.get(tx, self.id).id)]

        return await self._engine.store.read(work)

    async def cancel(self, message_id: str) -> Receipt:
        """Withdraw a waiting prompt. Raises `InvalidId`, `PromptNotFound`, `LifecycleConflict`."""
        ids.check_shape("Prompt id", message_id)
        return await self._engine.log.transact(lambda unit: admission.cancel(unit, self.id, message_id))

    async def change_delivery(self, message_id: str, delivery: messages.Delivery) -> Receipt:
        """Deliver a waiting prompt otherwise. Raises `InvalidId`, `InvalidInput`, `PromptNotFound`, `LifecycleConflict`."""
        ids.check_shape("Prompt id", message_id)
        parts.check_delivery(delivery)
        receipt = await self._engine.log.transact(
            lambda unit: admission.change_delivery(unit, self.id, message_id, delivery)
        )
        self._engine.ring(self.id)  # a steer may go where a queued input had to wait
        return receipt

    async def retry(self, message_id: str) -> Receipt:
        """Run a failed or interrupted prompt again. Raises `InvalidId`, `PromptNotFound`, `LifecycleConflict`."""
        ids.check_shape("Prompt id", message_id)
        return await self._engine.admit(self.id, lambda unit: admission.retry(unit, self.id, message_id))

    async def resume(self) -> None:
        """Run whatever waits, a recovery that awaits a decision included."""
        if await self._engine.log.transact(lambda unit: admission.resume(unit, self.id)):
            self._engine.ring(self.id)

    async def interrupt(self, reason: str = "interrupt") -> bool:
        """Stop the open turn for good; whether there was one. Waiting inputs stay."""
        return await self._engine.interrupt(self.id, reason)

    async def decide(
        self,
        call_id: str,
        decision: messages.Decision,
        *,
        by: str = "user",
        note: str | None = None,
        message_id: str | None = None,
    ) -> ApprovalRow:
        """Approve or deny a call that waits; `message_id`, of its row, tells it from a later call of the same id.

        Raises `ApprovalNotFound`, `AlreadyDecided`, `InvalidInput`, `InvalidId`.
        """
        if message_id is not None:
            ids.check_shape("Message id", message_id)
        if decision not in {"approve", "deny"}:
            raise errors.InvalidInput(f"decision must be approve or deny, not {decision!r}")
        if "\x00" in by or "\x00" in (note or ""):
            raise errors.InvalidInput("by and note must not contain NUL")
        row = await self._engine.log.transact(
            lambda unit: approvals.decide(unit, self.id, call_id, decision, by=by, note=note, message_id=message_id)
        )
        self._engine.ring(self.id)
        return row

    async def approvals(self) -> list[ApprovalRow]:
        """Calls of this session that wait for a person. Raises `SessionNotFound`, `SessionGone`."""
        return await self._engine.store.read(lambda tx: tx.approvals.waiting(sessions.get(tx, self.id).id))

    async def attempts(self, *, after: int = -1, limit: int = 100) -> AttemptPage:
        """Requests to providers that began after a seq, and what each used, read from the log; the page ends between two
        messages. Raises `SessionNotFound`, `SessionGone`, `InvalidInput` for a `limit` below 1.
        """
        parts.check_limit(limit)
        log = self._engine.log
        return await log.store.read(lambda tx: attempts.page(tx, log.registry, self.id, after, limit))

    async def compact(self) -> str:
        """Summarise the older part of the conversation now; the compaction's id once its start is durable.

        Raises `SessionBusy`.
        """
        return await self._engine.compact(self.id)

    async def wait(self, message_id: str | None = None, *, timeout: float | None = None) -> Receipt | None:
        """Wait until a prompt is settled and give its receipt; without an id, until nothing is owed in the session.

        `timeout` in seconds; on time-out the receipt as it is. Raises `PromptNotFound`, `SessionNotFound`, `SessionGone`,
        also where the session is deleted meanwhile.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout), aclosing(self._engine.log.changes(self.id, SETTLING)) as changes:
                told: list[Receipt] | None = None
                async for _ in changes:
                    if told:
                        return told[0]
                    if message_id is None:
                        if await self._engine.store.read(lambda tx: status.at_rest(tx, self.id)):
                            return None
                    elif (told := self._engine.claims.told(self.id, message_id)) is not None:
                        continue  # what settles it is still to come
                    elif (receipt := await self.receipt(message_id)).state == "settled":
                        return receipt
                await self.info()  # the log is gone, and this says so
        return None if message_id is None else await self.receipt(message_id)

    # -- reading -----------------------------------------------------------------------------------------------------------

    async def messages(self, *, after: int = -1, before: int | None = None, limit: int = 200) -> list[messages.Message]:
        """The transcript after a seq, in order, assistants with their parts; with `before` the last of it before that seq."""
        parts.check_limit(limit)

        def work(tx: Any) -> list[messages.Message]:
            sessions.get(tx, self.id)
            return tx.messages.page(self.id, after, limit, before)

        return await self._engine.store.read(work)

    async def status(self) -> status.Status:
        """What the session is doing."""
        now = self._engine.world.clock.now_ms()
        budget = self._engine.settings.recovery_budget
        found = await self._engine.store.read(lambda tx: status.status_of(tx, self.id, now, budget=budget))
        return status.blocked_by(found, self._engine.parts.blocked.get(self.id))

    async def events(
        self, *, after: int = -1, follow: bool = True, signals: bool = False
    ) -> AsyncGenerator[events.Event, None]:
        """Facts after a seq, in order; with `follow` also those to come, with `signals` also live text. Close it when
        done. Raises `CursorBeyondEnd`, `SessionNotFound`, `SessionGone`.
        """
        await self.info()
        async with aclosing(self._engine.log.follow(self.id, after, signals=signals, begun=True)) as following:
            end = await self._engine.log.last_seq(self.id)
            if not follow and end == after:
                return
            async for event in following:
                if isinstance(event, Synced):
                    if not follow:
                        return
                    continue
                yield event
