"""Durable sessions for LLM agents.

This door is light on purpose: a name is loaded when it is first asked for, so that `import perdure` costs nothing and a
declaration costs only itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from perdure.version import VERSION

if TYPE_CHECKING:
    from perdure.agent import Agent, Tool, ToolContext, ToolError, ToolResult, tool
    from perdure.client.client import Client
    from perdure.core.events import Budget, Policy, Retrying
    from perdure.engine.perdure import Part, Perdure, Session
    from perdure.errors import PerdureError
    from perdure.pricing import Price
    from perdure.session.sources import DateSource, FileSource, FunctionSource
    from perdure.tools.local.toolset import local_toolset
    from perdure.tools.mcp import mcp


__version__ = VERSION

_HOMES = {
    "Agent": "perdure.agent",
    "Tool": "perdure.agent",
    "ToolContext": "perdure.agent",
    "ToolError": "perdure.agent",
    "ToolResult": "perdure.agent",
    "tool": "perdure.agent",
    "Budget": "perdure.core.events",
    "Policy": "perdure.core.events",
    "Retrying": "perdure.core.events",
    "Client": "perdure.client.client",
    "DateSource": "perdure.session.sources",
    "FileSource": "perdure.session.sources",
    "FunctionSource": "perdure.session.sources",
    "Part": "perdure.engine.perdure",
    "Perdure": "perdure.engine.perdure",
    "Session": "perdure.engine.perdure",
    "PerdureError": "perdure.errors",
    "Price": "perdure.pricing",
    "local_toolset": "perdure.tools.local.toolset",
    "mcp": "perdure.tools.mcp",
}

__all__ = [
    "Agent",
    "Budget",
    "Client",
    "DateSource",
    "FileSource",
    "FunctionSource",
    "Part",
    "Perdure",
    "PerdureError",
    "Policy",
    "Price",
    "Retrying",
    "Session",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "__version__",
    "local_toolset",
    "mcp",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
