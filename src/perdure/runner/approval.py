"""Which calls need a person first: pure.

Lives here: the rule over a tool's own wish, the session's policy by name, and calls of unknown outcome (APR-1, APR-4).
Not here: asking, parking, deciding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from perdure import agent as agents
from perdure.core import events, messages, transcript
from perdure.runner import arguments, loops

Need = Literal["run", "ask", "deny"]
UNKNOWN = frozenset({"unknown", "timeout"})
"""Errors of a call that may have happened all the same."""
_logger = logging.getLogger("perdure.runner")


def need(tool: agents.Tool, given: messages.JsonObject, policy: events.Policy, unknown: frozenset[str]) -> Need:
    """Whether a call runs, waits for a person or is denied at once. A rule of the user's that raises asks."""
    if tool.effect == "write" and policy.repeat_unknown != "allow" and loops.key(tool.name, given) in unknown:
        return "ask" if policy.repeat_unknown == "ask" else "deny"
    wish = (policy.approval or {}).get(tool.name, tool.approval)
    if callable(wish):
        try:
            return "ask" if wish(arguments.copied(given)) else "run"
        except Exception:
            _logger.exception("approval rule failed; the call waits for a person", extra={"tool": tool.name})
            return "ask"
    return "ask" if wish == "always" else "run"


class UnknownCalls:
    """Write calls of a transcript whose outcome nobody knows; those of settled messages are looked for once."""

    __slots__ = ("_calls", "_count", "_last")

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._count, self._last = 0, None
        self._calls: frozenset[str] = frozenset()

    def of(self, held: transcript.Either) -> frozenset[str]:
        """All of them now."""
        if self._count and held.since(self._count - 1)[:1] != (self._last,):
            self.__init__()
        fresh = held.since(self._count)
        settled = next((i for i, one in enumerate(fresh) if not messages.message_is_settled(one)), len(fresh))
        if settled:
            self._calls |= unknown_calls(fresh[:settled])
            self._count, self._last = self._count + settled, fresh[settled - 1]
        return self._calls | unknown_calls(fresh[settled:])


def unknown_calls(found: Iterable[messages.Message]) -> frozenset[str]:
    """Write calls of messages whose outcome nobody knows."""
    return frozenset(
        loops.key(part.name, part.state.input)
        for message in found
        if isinstance(message, messages.Assistant)
        for part in message.parts
        if isinstance(part, messages.ToolPart)
        and part.effect == "write"
        and isinstance(part.state, messages.Errored)
        and part.state.error.type in UNKNOWN
        and part.time.ran is not None
    )
