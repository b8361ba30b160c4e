"""Which calls need a person first: pure.

Lives here: the rule over a tool's own wish, the session's policy by name, and calls of unknown outcome (APR-1, APR-4).
Not here: asking, parking, deciding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from perdure import agent as agents
from perdure.core import events, messages
from perdure.runner import loops

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
            return "ask" if wish(given) else "run"
        except Exception:
            _logger.exception("approval rule failed; the call waits for a person", extra={"tool": tool.name})
            return "ask"
    return "ask" if wish == "always" else "run"


def unknown_calls(transcript: Iterable[messages.Message]) -> frozenset[str]:
    """Write calls of a session whose outcome nobody knows."""
    return frozenset(
        loops.key(part.name, part.state.input)
        for message in transcript
        if isinstance(message, messages.Assistant)
        for part in message.parts
        if isinstance(part, messages.ToolPart)
        and part.effect == "write"
        and isinstance(part.state, messages.Errored)
        and part.state.error.type in UNKNOWN
        and part.time.ran is not None
    )
