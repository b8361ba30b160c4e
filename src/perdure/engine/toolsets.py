"""The toolsets of an engine: opened before anything runs, closed after everything has.

Lives here: opening each once, however many agents share it, and which tools an agent has in the end. Not here: what a
toolset is (`agent.py`), any kind of one (`tools/`). A toolset that cannot be opened keeps the engine from starting: a
recovered turn whose tools are silently missing would go on without them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from perdure import agent as agents
from perdure.runner import turn
from perdure.tools import function

STOP_S, LAST_S = 10.0, 0.25
"""How long (seconds) all of them may take to stop, and to clean up once that is over and they are cancelled."""

_logger = logging.getLogger("perdure.engine")


class Toolsets:
    """The toolsets that the agents of one engine name."""

    def __init__(self, declared: Sequence[agents.Agent]) -> None:
        """Open nothing yet."""
        self._all = list({id(one): one for agent in declared for one in agent.toolsets}.values())
        self._tools: dict[int, Sequence[agents.Tool]] = {}

    async def start(self, owner_id: str) -> None:
        """Open all of them side by side; if one fails, close the others again and raise what it raised."""
        outcomes = await asyncio.gather(*(one.start(owner_id) for one in self._all), return_exceptions=True)
        failures: list[BaseException] = []
        for one, outcome in zip(self._all, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                self._tools[id(one)] = outcome
        if failures:
            await self.stop()
            raise failures[0]

    def complete(self, ready: turn.Ready) -> turn.Ready:
        """An agent with the tools of its toolsets added. Raises `ConfigError` for two of one name."""
        found = [tool for one in ready.agent.toolsets for tool in self._tools[id(one)]]
        ready.agent.check_names([*ready.agent.tools, *found])
        own = {tool.name: ready.toolbox[tool.name] for tool in ready.agent.tools}
        return dataclasses.replace(ready, toolbox={**own, **{tool.name: function.Bound(tool) for tool in found}})

    async def stop(self, within_s: float = STOP_S) -> None:
        """Close what is open, side by side; one that fails to close, or does not in time, keeps no other open."""
        stopping = [asyncio.create_task(_stop(one)) for one in self._all if self._tools.pop(id(one), None) is not None]
        if not stopping:
            return
        _, late = await asyncio.wait(stopping, timeout=within_s)
        if late:
            _logger.warning("left a toolset that does not stop", extra={"count": len(late)})
            for one in late:
                one.cancel()
            await asyncio.wait(late, timeout=LAST_S)


async def _stop(toolset: agents.Toolset) -> None:
    try:
        await toolset.stop()
    except Exception:
        _logger.exception("toolset failed to stop")
