"""The app a command works with: one that is named, or one agent called 'default'.

Lives here: loading MODULE:NAME, and the agent that is made of --model, --workspace and --mcp where nothing is named. Not
here: serving it (`serve.py`), talking to it (`connect.py`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure import agent, config, errors
from perdure.engine import perdure as embedded
from perdure.tools.local import toolset

NO_MODEL = "There is no model: give --model PROVIDER:NAME, set PERDURE_MODEL, or name an app as MODULE:NAME"
MCP = "perdure.tools.mcp"
WORKSPACE = "You are a helpful assistant. You work in the directory {}; your file tools see nothing outside it."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said about the app. What is None or empty was not said."""

    app: str | None = None
    model: str | None = None
    workspace: Path | None = None
    mcp: Sequence[str] = ()
    database: str | None = None


def find(wanted: Wanted, settings: config.Settings) -> embedded.Perdure:
    """The app. Raises `ConfigError` that names what is wrong, `UnknownModel`."""
    if wanted.app is None:
        return _default(wanted, settings)
    for name in ("model", "workspace", "mcp"):
        if getattr(wanted, name):
            raise errors.ConfigError(f"--{name} is for working without an app: the agents of an app have their own")
    found = load(wanted.app)
    if wanted.database is not None:
        found.engine.settings = found.engine.settings.model_copy(update={"database_url": wanted.database})
    return found


def idle(settings: config.Settings, *, read_only: bool) -> embedded.Perdure:
    """One without agents, for commands that run nothing."""
    return embedded.Perdure(settings=settings, idle=True, read_only=read_only)


def _default(wanted: Wanted, settings: config.Settings) -> embedded.Perdure:
    model = wanted.model or settings.model
    if not model:
        raise errors.ConfigError(NO_MODEL)
    place = wanted.workspace
    tools = [] if place is None else toolset.local_toolset(place)
    instructions = "" if place is None else WORKSPACE.format(place.resolve())
    servers = [_server(one) for one in wanted.mcp]
    return embedded.Perdure([agent.Agent("default", model, instructions, tools, toolsets=servers)], settings=settings)


def _server(named: str) -> agent.Toolset:
    """The tools of an MCP server: the module is the door of an extra, opened for whoever asks for it."""
    return importlib.import_module(MCP).mcp(named)


def load(named: str) -> embedded.Perdure:
    """The Perdure instance of that name. Raises `ConfigError` that names the module and the cause."""
    module_name, _, name = named.partition(":")
    if not module_name or not name:
        raise errors.ConfigError(f"Name the app as MODULE:NAME, not {named!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise errors.ConfigError(f"{module_name} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, embedded.Perdure):
        if found is None:
            raise errors.ConfigError(f"{module_name} has no {name}")
        raise errors.ConfigError(f"{named} is of type {type(found).__name__}, not a Perdure instance")
    return found
