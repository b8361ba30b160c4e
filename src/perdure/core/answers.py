"""What callers are told: of a prompt, of a session, of a turn that lost its owner.

Lives here: the values that the embedded engine, the server and the client give alike, so that code moves between them
unchanged. Not here: how they are found out (`session/`) and how they look on the wire (`server/wire.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perdure.core import events, messages
from perdure.core.attempts import Attempt

State = Literal["idle", "running", "waiting", "retrying", "recovering", "blocked", "held"]
Cause = Literal[
    "owner",
    "context",
    "next_step",
    "model",
    "tool",
    "compaction",
    "interrupt",
    "provider",
    "attempt",
    "owner_gone",
    "recovery_failed",
    "approval",
    "decision",
    "resume",
    "source",
    "damaged",
    "imported",
]
"""Running: it waits for an `owner`, reads its `context`, is about to take its `next_step`, waits for the `model`, a `tool` or
a `compaction`, settles an `interrupt`. Retrying: the `provider` failed. Recovering: the next `attempt`, the `owner_gone`, or a
`recovery_failed`. Waiting for a person: an `approval`, the `decision` about a recovery, or to `resume` inputs. Blocked: by a
`source` of the context, or by rows that are `damaged`. Held: it was `imported`.
"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a prompt. `state` is admitted, running or settled; `outcome` and `error` come with settled. `usage` is
    that of the turns it ran in, so far; prompts that share a turn share its usage.
    """

    id: str
    session_id: str
    state: Literal["admitted", "running", "settled"]
    delivery: messages.Delivery
    admitted_seq: int
    promoted_seq: int | None = None
    settled_seq: int | None = None
    outcome: messages.Outcome | None = None
    error: messages.Failure | None = None
    usage: messages.Usage = field(default_factory=messages.Usage)


@dataclass(frozen=True, slots=True)
class AttemptPage:
    """Some of a session's requests to providers, in order; `next` is the seq to go on after, where there are more."""

    data: tuple[Attempt, ...] = ()
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """What a session does and what it waits for; times in epoch ms. `reason` is for people, `cause` is what a program decides
    by; an idle session has neither.
    """

    status: State
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    owner: str | None = None
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A turn that waits; `armed`: it goes on by itself, `not_before` at the earliest (epoch ms). `attempts` counts how
    often that was tried.
    """

    execution_id: str
    session_id: str
    phase: events.Phase
    armed: bool
    attempts: int
    time_created: int
    error: str | None = None
    not_before: int | None = None
