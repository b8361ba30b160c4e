"""What stands before the conversation: the frozen baseline of a context epoch (CTX-1, CTX-2).

Lives here: reading sources, and planning what a boundary commits about them. Not here: when a boundary is, compaction.
A baseline is frozen because providers cache a prompt by its prefix: later changes are told in the conversation instead
of changing what came before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from perdure import errors
from perdure.core import codec, events, text
from perdure.log.unit import Unit
from perdure.store.context import EpochRow

PATIENCE_S = 60.0
"""How long a source may take."""
_logger = logging.getLogger("perdure.context")


class Source(Protocol):
    """One piece of the context, by name."""

    @property
    def name(self) -> str:
        """What the model is told this is."""
        ...

    async def read(self) -> str | None:
        """The text now, None if there is none. Raises `SourceUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Instructions:
    """An agent's own instructions."""

    text: str
    name: str = "instructions"

    async def read(self) -> str | None:
        """Always there."""
        return self.text or None


@dataclass(frozen=True, slots=True)
class Observation:
    """What the sources said at one boundary; names in `unavailable` said nothing."""

    values: dict[str, str]
    unavailable: tuple[str, ...] = ()


def fixed(sources: Sequence[Source]) -> Observation | None:
    """What sources say that always say the same; None where one has to be asked."""
    if not all(isinstance(source, Instructions) for source in sources):
        return None
    said = [source for source in sources if isinstance(source, Instructions) and source.text]
    return Observation({source.name: text.clean_text(source.text) for source in said})


async def observe(sources: Sequence[Source]) -> Observation:
    """Read every source once. One that raises anything, gives no text or does not answer cannot be read now; it ends no
    turn and holds up none for ever.
    """
    values: dict[str, str] = {}
    unavailable: list[str] = []
    for source in sources:
        try:
            if isinstance(source, Instructions):  # which keep nobody waiting
                value = source.text or None
            else:
                async with asyncio.timeout(PATIENCE_S):
                    value = await source.read()
            if value is not None:
                values[source.name] = text.clean_text(value)
        except errors.SourceUnavailable:
            unavailable.append(source.name)
        except Exception:
            _logger.exception("context source failed", extra={"source": source.name})
            unavailable.append(source.name)
    return Observation(values, tuple(unavailable))


def settle(unit: Unit, session_id: str, seen: Observation, message_id: str) -> str:
    """Open the epoch, or tell the model what changed since and move the snapshot on; the baseline. Part of a fenced
    unit.

    Raises `ContextBlocked` where there is no epoch yet and a source could not be read.
    """
    epoch = unit.tx.context.epoch(session_id)
    if epoch is None:
        if seen.unavailable:
            raise errors.ContextBlocked(f"Context source {seen.unavailable[0]!r} cannot be read")
        baseline = "\n\n".join(seen.values.values())
        seq, _ = unit.tx.events.sequence(session_id)
        unit.tx.context.put_epoch(session_id, EpochRow(baseline, codec.dump(seen.values), seq))
        return baseline
    known = codec.load(epoch.snapshot, dict[str, str])
    current = {**{name: known[name] for name in seen.unavailable if name in known}, **seen.values}
    if current != known:
        changed = [f"{name} is now:\n{words}" for name, words in current.items() if known.get(name) != words]
        removed = [f"{name} no longer applies." for name in known if name not in current]
        fact = events.ContextUpdated(
            session_id=session_id, message_id=message_id, text="\n\n".join([*changed, *removed])
        )
        unit.append(fact)
        unit.tx.context.put_epoch(session_id, EpochRow(epoch.baseline, codec.dump(current), epoch.baseline_seq))
    return epoch.baseline
