"""Building an engine, starting and stopping it in the right order.

Lives here: which organ gets which, the doorbells between them, the order of shutdown. Clock, entropy and the probe that
crash tests use enter here and nowhere else, so that a simulated run can own them all. Not here: rules, the public face
(`perdure.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure import agent as agents
from perdure import clock as clocks
from perdure import config, errors, ids, pricing
from perdure.core import codec
from perdure.core.answers import Receipt
from perdure.engine import toolsets
from perdure.engine.entropy import Pool
from perdure.log import log as logs
from perdure.log import projections
from perdure.log.unit import Unit
from perdure.models import catalogue
from perdure.models import port as models
from perdure.models import windows as context_windows
from perdure.runner import coordinator, drain, outset, sweep, turn
from perdure.session import admission, claims, context, deletion, history, interruption, owner
from perdure.store import sqlite
from perdure.tools import function, processes

LAST_S = 0.5
"""How long toolsets have to stop where turns have used up the grace period."""

_logger = logging.getLogger("perdure.engine")


@dataclass(frozen=True, slots=True)
class World:
    """What an engine takes from outside: time, chance, who it is, how units run and who watches the writer."""

    clock: clocks.Clock = field(default_factory=clocks.SystemClock)
    entropy: ids.Entropy = field(default_factory=Pool)
    owner: Callable[[ids.Entropy], str] = owner.mint
    seam: Literal["thread", "inline"] | sqlite.Wrap = "thread"
    probe: Callable[[str], None] | None = None


class Engine:
    """The running organs of one process."""

    def __init__(
        self,
        settings: config.Settings,
        declared: Sequence[agents.Agent],
        own_models: Mapping[str, models.Model] | None = None,
        world: World | None = None,
        prices: Mapping[str, pricing.Price] | None = None,
        *,
        windows: Mapping[str, int] | None = None,
        idle: bool = False,
        read_only: bool = False,
    ) -> None:
        """Check what was declared; opens nothing. An idle engine runs nothing: it stores what is asked, for others to
        run; one that is `read_only` stores nothing either. Raises `ConfigError`, `UnknownModel`.
        """
        self.settings, self.world = settings, world or World()
        self.idle, self.read_only = idle or read_only, read_only
        self.epoch = self.owner_id = ""
        self.models = catalogue.Catalogue(config.provider_key, own_models)
        self.agents = {one.name: self._ready(one) for one in declared}
        if len(self.agents) < len(declared):
            raise errors.ConfigError("Two agents have the same name")
        self._toolsets = toolsets.Toolsets(declared)
        self._own_prices, self._windows = prices or {}, context_windows.Windows(windows)
        self._opened = False
        self._leaving: int | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._starting: set[asyncio.Future[Any]] = set()

    def _ready(self, one: agents.Agent) -> turn.Ready:
        if isinstance(one.model, str):
            self.models.check(one.model)
        sources = (context.Instructions(one.instructions), *one.context)
        model = None if isinstance(one.model, str) else one.model
        return turn.Ready(one, {tool.name: function.Bound(tool) for tool in one.tools}, sources, model)

    async def start(self) -> None:
        """Open tools and database, recover what dead owners left, begin to sweep. Raises `StoreUnusable`,
        `SchemaTooNew`, `ConfigError`.
        """
        # Here and not before: a process may fork between declaring an engine and starting it.
        self._leaving = None
        self.epoch = ids.mint("epoch", self.world.entropy)
        self.owner_id = self.world.owner(self.world.entropy)
        if self.idle:
            await self._open(pricing.Prices(self._own_prices))
            return
        if self.world.seam == "thread" and (ended := processes.end_leftovers(owner.is_dead)):
            _logger.warning("ended processes of a dead owner's tools", extra={"count": ended})
        await self._toolsets.start(self.owner_id)
        try:
            self.agents.update({name: self._toolsets.complete(ready) for name, ready in self.agents.items()})
            prices = self._load() if self.world.seam != "thread" else await asyncio.to_thread(self._load)
            await self._open(prices)
        except BaseException:
            await self._toolsets.stop()
            raise
        self._sweeping = asyncio.create_task(self._sweep.run())

    def _load(self) -> pricing.Prices:
        """Make the declared models and read the lists of prices and windows: all may import for a second, before anything
        runs.
        """
        for name, ready in [*self.agents.items()]:
            if isinstance(ready.agent.model, str):
                self.agents[name] = dataclasses.replace(ready, model=self.models.resolve(ready.agent.model))
        self._windows.listed = context_windows.packaged()
        return pricing.Prices(self._own_prices, pricing.packaged(self.world.clock.now_ms))

    async def _open(self, prices: pricing.Prices) -> None:
        world = self.world
        path = self.settings.database_path
        if self.read_only:
            self.store = await sqlite.SqliteStore.look(path)
        else:
            shared = self.settings.allow_network_files
            self.store = await sqlite.SqliteStore.open(path, seam=world.seam, probe=world.probe, shared=shared)
        self.log = logs.Log(
            self.store,
            clock=world.clock,
            entropy=world.entropy,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )
        self.claims = claims.Claims(
            self.log,
            world.clock,
            world.entropy,
            self.owner_id,
            lease_ms=int(self.settings.lease_seconds * 1000),
            budget=self.settings.recovery_budget,
        )
        self.histories = history.Histories(self.log)
        self.parts = turn.Parts(
            self.log,
            world.clock,
            world.entropy,
            self.claims,
            self.histories,
            self.agents,
            self.models.resolve,
            prices.cost,
            self.ring,
            self._windows.of,
        )
        self.coordinator = coordinator.Coordinator[str](
            self._drain, failed=self._drain_failed, parallel=self.settings.parallel
        )
        self._sweep = sweep.Sweep(
            self.log,
            world.clock,
            self.owner_id,
            ring=self.coordinator.wake,
            interrupt=self.interrupt_here,
            executing=self.claims.executing,
            budget=self.settings.recovery_budget,
        )
        self._stop_foreign = self.store.on_foreign_commit(self._sweep.soon)
        self._opened = True

    def leave(self) -> None:
        """It is about to stop: the grace period counts from here, whatever else has to end before."""
        self._leaving = self.world.clock.suspend_ms()

    def _grace_left(self) -> float:
        """How many seconds of the grace period are left."""
        gone = 0 if self._leaving is None else self.world.clock.suspend_ms() - self._leaving
        return max(self.settings.grace_seconds - gone / 1000, 0)

    async def stop(self) -> None:
        """Let running steps finish within the grace period, leave the rest to whoever comes next, close everything."""
        if not self._opened:
            return
        self._opened = False
        self._stop_foreign()
        if self._sweeping:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
            self._sweeping = None
        self.claims.stopping = True
        if self._leaving is None:
            self.leave()
        if self._starting:  # none of them ends with a stop that is given up
            await asyncio.wait(self._starting)
        await self.coordinator.close(self._grace_left())
        for handed in self.parts.handed.values():  # no drain began with these
            with contextlib.suppress(errors.ClaimLost, errors.StoreError):
                await self.claims.expire(handed.held)
        await self._toolsets.stop(self._grace_left() + LAST_S)
        self.claims.close()
        self.log.close()
        await self.models.close()
        await self.store.close()

    # -- doorbells ---------------------------------------------------------------------------------------------------------

    def ring(self, session_id: str) -> None:
        """A session has stored intent to run: advisory, the sweep rings again if this is lost."""
        if not (self.idle or self.claims.stopping):
            self.coordinator.wake(session_id)

    async def admit(self, session_id: str, work: Callable[[Unit], admission.Admitted]) -> Receipt:
        """Run a unit that may store a wish to run, and see that it comes true. Where the session is at rest and this process
        may run it at once, the same commit takes the claim (EX-1).
        """
        busy = self.claims.stopping or self.claims.executing(session_id)
        # Those under way will have a drain each: a turn begun that had to wait for a slot would lose its lease there.
        if self.idle or busy or not self.coordinator.has_room(before=len(self._starting)):
            return self._rung(session_id, await self.log.transact(work))
        begun = outset.Outset(self.parts, session_id)
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin(under_way)
        try:
            admitted = await self._admit_and_take(work, begun)
        finally:
            under_way.set_result(None)
        return admitted.receipt if begun.taken else self._rung(session_id, admitted)

    async def _admit_and_take(
        self, work: Callable[[Unit], admission.Admitted], begun: outset.Outset
    ) -> admission.Admitted:
        """Admit, take the claim and begin in one commit; where the turn cannot begin there, its drain finds out why."""

        def unit_of(*, begin: bool) -> Callable[[Unit], admission.Admitted]:
            def and_take(unit: Unit) -> admission.Admitted:
                stands = begun.stands(unit)
                admitted = work(unit)
                if not stands:
                    begun.reset()
                    if admitted.ring:
                        begun.run(unit, begin=begin)
                return admitted

            return and_take

        def committed(appended: object) -> None:
            del appended
            if handed := begun.handed():
                self._hand(handed)

        try:
            return await self.log.transact(unit_of(begin=True), committed=committed)
        except outset.NotBegun:
            return await self.log.transact(unit_of(begin=False), committed=committed)

    def _rung(self, session_id: str, admitted: admission.Admitted) -> Receipt:
        if admitted.ring:
            self.ring(session_id)
        return admitted.receipt

    def _hand(self, handed: turn.Handed) -> None:
        """Have a claim run that was just taken. Where a drain would not begin with it at once it is given back, for nobody
        renews it, unless its turn has begun; while stopping, `stop` lets go of it.
        """
        session_id = handed.held.session_id
        if handed.turn or self.claims.stopping or self.coordinator.free(session_id):
            self.parts.handed[session_id] = handed
            self.ring(session_id)
        else:
            self._begin(asyncio.create_task(self._give_back(handed.held)))

    async def _give_back(self, held: claims.Held) -> None:
        with contextlib.suppress(errors.ClaimLost, errors.StoreError):
            await self.claims.release(held)
        self.ring(held.session_id)

    def _begin(self, future: asyncio.Future[Any]) -> None:
        """Have `stop` wait for something that may leave a claim behind."""
        self._starting.add(future)
        future.add_done_callback(self._starting.discard)

    def sweep_soon(self) -> None:
        """Something changed that a sweep should see."""
        self._sweep.soon()

    async def interrupt(self, session_id: str, reason: str, execution_id: str | None = None) -> bool:
        """Record an interrupt, then stop what runs here; whether there was anything to stop."""
        asked = await self.log.transact(lambda unit: interruption.request(unit, session_id, reason, execution_id))
        if asked.marked:
            self.interrupt_here(session_id, asked.marked)
        return asked.found

    def interrupt_here(self, session_id: str, execution_id: str) -> None:
        """Stop an execution that is marked, if this process runs it still: by now it may run the next one."""
        if self.claims.executing(session_id) == execution_id:
            self.coordinator.interrupt(session_id)
        elif self._about_to_run(session_id) == execution_id:
            self.parts.handed[session_id].held.marked = True

    def _about_to_run(self, session_id: str) -> str | None:
        handed = self.parts.handed.get(session_id)
        return handed.held.execution_id if handed else None

    async def delete(self, session_id: str) -> None:
        """Delete a session for good, giving a running turn at most the grace period. Raises `SessionNotFound`.

        From the request on nothing is admitted; should this process die meanwhile, a sweep finishes.
        """
        try:
            await self.log.transact(lambda unit: deletion.request(unit, session_id))
        except errors.Undecodable:
            await self.log.transact(lambda unit: deletion.request_damaged(unit, session_id))
        if execution_id := self.claims.executing(session_id) or self._about_to_run(session_id):
            self.interrupt_here(session_id, execution_id)
        deadline = self.world.clock.suspend_ms() + int(self.settings.grace_seconds * 1000)
        while self.world.clock.suspend_ms() < deadline:
            now = self.world.clock.now_ms()
            if await self.store.read(lambda tx, now=now: deletion.settled(tx, session_id, now)):
                break
            await self.world.clock.sleep_ms(20)
        await self.log.transact(lambda unit: deletion.finish(unit, session_id))
        self.histories.drop(session_id)
        self.parts.blocked.pop(session_id, None)

    async def compact(self, session_id: str) -> str:
        """Start a compaction; its message id once that is durable. Raises `SessionBusy`, `SessionNotFound`."""
        # A caller that goes away must not leave a claim behind that nobody runs.
        starting = asyncio.create_task(self._start_compaction(session_id))
        self._begin(starting)
        return await asyncio.shield(starting)

    async def _start_compaction(self, session_id: str) -> str:
        message_id = ids.mint("msg", self.world.entropy)
        self.parts.handed[session_id] = turn.Handed(await self.claims.acquire_compaction(session_id, message_id))
        self.coordinator.wake(session_id)
        return message_id

    async def _drain(self, busy: coordinator.Busy[str]) -> None:
        await drain.drain(self.parts, busy)

    def _drain_failed(self, session_id: str, error: Exception) -> None:
        _logger.error(
            "drain failed; its lease ends and recovery follows", extra={"session_id": session_id}, exc_info=error
        )
