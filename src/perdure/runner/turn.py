"""One turn under its claim, and what a runner needs to run any.

Lives here: `Parts`, the organs a drain works with, and `Turn`, the value its steps pass along: which session, agent and
model, what it has used, and the one door through which its commits go. Not here: the order of steps (`drain.py`), a
step's inside (`step.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perdure import agent as agents
from perdure import clock as clocks
from perdure import errors, ids
from perdure.core import budget, compaction, events, messages, request
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.models import port as models
from perdure.runner import loops, retry, tools
from perdure.runner.publisher import Publisher
from perdure.session import context, history
from perdure.session.claims import Claims, Held
from perdure.store import claims as rows
from perdure.store.context import DraftRow
from perdure.store.sessions import SessionRow

T = TypeVar("T")
Price = Callable[[messages.Tokens, str], int | None]
"""Price of a call by `provider:name`, in micro-dollars; None where nobody knows."""


def _unknown(model_name: str) -> None:
    """Nobody knows a window."""
    del model_name


@dataclass(frozen=True, slots=True)
class Ready:
    """An agent with its tools bound, its context sources named and, once the engine has started, its own model made."""

    agent: agents.Agent
    toolbox: tools.Toolbox
    sources: tuple[context.Source, ...] = ()
    model: models.Model | None = None


@dataclass(frozen=True, slots=True)
class Handed:
    """A claim taken for a drain that is about to start, with the turn that began with it, if one did."""

    held: Held
    turn: Turn | None = None


@dataclass(slots=True)
class Parts:
    """What drains of one engine share.

    `live` holds the publishers of steps that stream now, `handed` what drains are about to start with, `blocked` the
    context source a session waits for, each by session.
    """

    log: Log
    clock: clocks.Clock
    entropy: ids.Entropy
    claims: Claims
    histories: history.Histories
    agents: Mapping[str, Ready]
    model: Callable[[str], models.Model]
    price: Price
    ring: Callable[[str], None]
    window: Callable[[str], int | None] = _unknown
    retries: retry.Plan = field(default_factory=retry.Plan)
    live: dict[str, Publisher] = field(default_factory=dict[str, Publisher])
    handed: dict[str, Handed] = field(default_factory=dict[str, "Handed"])
    blocked: dict[str, str] = field(default_factory=dict[str, str])

    def mint(self, prefix: str) -> str:
        """A fresh id."""
        return ids.mint(prefix, self.entropy)

    def chance(self) -> float:
        """A random number in [0, 1)."""
        return int.from_bytes(self.entropy(4), "big") / 2**32


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that a person approved and that is durable as called."""

    call_id: str
    name: str
    input: messages.JsonObject


@dataclass(slots=True)
class Turn:
    """A turn in progress; `message_id` is the assistant of its current step, `baseline` its system text, `session` the row
    whose settings that step goes by.

    `step` counts steps since the last promotion, `attempt` attempts of the current step; `spent` is what the turn used
    before the current step, `began` when it began (epoch ms); `drafted`: the current step has had drafts. `resumed` are the
    calls to run where the step waited for approvals; `unknown` the session's calls of unknown outcome, once they were
    looked up.
    """

    parts: Parts
    held: Held
    ready: Ready
    model: models.Model
    model_name: str
    message_id: str
    session: SessionRow
    baseline: str = ""
    step: int = 1
    attempt: int = 1
    began: int = 0
    spent: budget.Spent = field(default_factory=budget.Spent)
    streak: loops.Streak = field(default_factory=loops.Streak)
    compaction_id: str | None = None
    overflowed: bool = False
    publisher: Publisher | None = None
    drafted: bool = False
    resumed: tuple[Approved, ...] | None = None
    unknown: frozenset[str] | None = None

    @property
    def session_id(self) -> str:
        """Its session."""
        return self.held.session_id

    @property
    def policy(self) -> events.Policy:
        """What its session allows."""
        return self.session.policy

    @property
    def last_step(self) -> bool:
        """Whether the current step is the last one allowed."""
        return self.step >= (self.policy.max_steps or self.ready.agent.max_steps)

    @property
    def limit(self) -> compaction.Limit | None:
        """The window of the model that answers, None where nobody knows it: an agent's number is that of its own model."""
        agent = self.ready.agent
        declared = agent.context_tokens if self.model_name == agent.model_name else None
        tokens = declared or self.parts.window(self.model_name)
        return compaction.Limit(tokens) if tokens else None

    def window(self, visible: Sequence[messages.Message]) -> compaction.Limit:
        """The window that a summary has to make room in."""
        return compaction.refused(visible, self.limit) if self.overflowed else self.limit or compaction.UNKNOWN

    @property
    def speaker(self) -> request.Speaker:
        """Whom requests are for."""
        return request.Speaker(self.model.provider, self.model.name)

    async def commit(
        self,
        work: Callable[[Unit, rows.ClaimRow], T],
        *,
        settling: bool = False,
        durable: Callable[[], None] | None = None,
    ) -> T:
        """Run a fenced unit; `durable` is called once it is, even if the caller no longer waits. Raises `ClaimLost`,
        `Interrupted`.
        """

        def committed(appended: Sequence[events.Recorded[Any]]) -> None:
            del appended
            if durable:
                durable()

        return await self.parts.claims.commit(self.held, work, settling=settling, committed=committed)

    async def record(self, facts: Sequence[Any], drafts: Sequence[DraftRow], durable: Callable[[], None]) -> None:
        """Commit facts and drafts of the step in progress (the publisher's `Sink`)."""

        def work(unit: Unit, claim: rows.ClaimRow) -> None:
            if claim.assistant_message_id != self.message_id:
                return  # the commit that ended this step went through while its drain was being cancelled
            self.append(unit, facts)
            for draft in drafts:
                unit.tx.context.put_draft(self.session_id, draft)

        self.drafted = self.drafted or bool(drafts)
        await self.commit(work, durable=durable)

    def append(self, unit: Unit, facts: Sequence[Any]) -> None:
        """Append facts of the current step in order; a part that ends takes its draft along (PUB-3)."""
        for fact in facts:
            unit.append(fact)
            if not self.drafted:
                continue
            if isinstance(fact, events.TextEnded):
                unit.tx.context.delete_draft(fact.session_id, fact.assistant_message_id, "text", fact.text_id)
            elif isinstance(fact, events.ReasoningEnded):
                unit.tx.context.delete_draft(fact.session_id, fact.assistant_message_id, "reasoning", fact.reasoning_id)

    def heard(self) -> bool:
        """Whether anybody would hear a signal now (the publisher's `Sink`)."""
        return self.parts.log.live.hears_signals(self.session_id)

    def announce(self, signal: Any) -> None:
        """Announce an ephemeral signal (the publisher's `Sink`), unless another owner may be at work by now (EX-3)."""
        if self.parts.claims.trusts(self.held):
            self.parts.log.signal_nowait(signal)


def choose_agent(parts: Parts, agent_name: str, model_name: str | None) -> tuple[Ready, models.Model, str]:
    """The agent and model that answer now. Raises `UnknownAgent`, `UnknownModel`."""
    ready = parts.agents.get(agent_name)
    if ready is None:
        known = ", ".join(sorted(parts.agents)) or "none"
        raise errors.UnknownAgent(f"Agent {agent_name!r} does not exist here (there are: {known})")
    if model_name is None and ready.model:
        return ready, ready.model, ready.agent.model_name
    name = model_name or ready.agent.model_name
    return ready, parts.model(name), name
