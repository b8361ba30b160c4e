"""`perdure serve`: sessions over HTTP.

Lives here: from arguments to a running server, in an order that leaves nothing half done: settings, app, token, socket,
database, and only then the line that says where it listens. Not here: serving itself (`server/`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from typing import Annotated

from cyclopts import Parameter
from pydantic import SecretStr

from perdure import config, errors
from perdure.cli import apps, leaving, logs
from perdure.engine import perdure as embedded
from perdure.server import app as server
from perdure.server import auth, run
from perdure.version import VERSION


@dataclass(frozen=True, slots=True)
class Options:
    """What can be said when serving.

    Parameters
    ----------
    host
        Address to bind (PERDURE_HOST, 127.0.0.1). A wider one than loopback needs a configured token.
    port
        Port (PERDURE_PORT, 7433); 0 takes a free one.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    token
        Bearer token (PERDURE_TOKEN, which the list of processes does not show); else one is made and kept in a file.
    model
        Model of the agent 'default' where no app is named, as PROVIDER:NAME (PERDURE_MODEL).
    workspace
        Give the agent 'default' tools for the files below this directory, and a shell that starts there.
    mcp
        Give it the tools of this MCP server, a command or a URL; may be repeated.
    log_level
        debug, info, warning or error (PERDURE_LOG_LEVEL, info).
    log_format
        text, or json for one JSON object a line (PERDURE_LOG_FORMAT, text).
    access_log
        Log every request.
    json
        Say where the server listens as one line of JSON.

    """

    host: str | None = None
    port: int | None = None
    database: str | None = None
    token: str | None = None
    model: str | None = None
    workspace: Annotated[Path | None, Parameter(show_default=False)] = None
    mcp: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = ()
    log_level: str | None = None
    log_format: str | None = None
    access_log: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    json: Annotated[bool, Parameter(negative=(), show_default=False)] = False


def command(
    app: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = Options(),
) -> int:
    """Serve sessions over HTTP.

    Parameters
    ----------
    app
        MODULE:NAME of a Perdure instance; without it there is one agent, 'default'.
    options
        Everything else.

    """
    settings = config.settings(
        host=options.host,
        port=options.port,
        database_url=options.database,
        token=None if options.token is None else SecretStr(options.token),
        model=options.model,
        log_level=options.log_level,
        log_format=options.log_format,
    )
    logs.configure(settings.log_level.lower(), settings.log_format.lower())
    wanted = apps.Wanted(app, options.model, options.workspace, options.mcp, options.database)
    perdure = apps.find(wanted, settings)
    perdure.engine.settings.database_path  # noqa: B018, refuses what is no path, before anything is opened
    credential = auth.credential(settings)
    with bind(settings.host, settings.port) as listening:
        return asyncio.run(_serve(perdure, settings, credential, listening, options))


async def _serve(
    perdure: embedded.Perdure,
    settings: config.Settings,
    credential: auth.Credential,
    listening: socket.socket,
    options: Options,
) -> int:
    app = server.create_app(perdure, settings, token=credential.token)

    def ready() -> None:
        _settle_collector()
        print(_line(url_of(settings.host, listening), credential, perdure, as_json=options.json), flush=True)

    workers = leaving.own_workers()
    stopped_by = await run.run(app, listening, ready=ready, access_log=options.access_log)
    return await leaving.leave(128 + SIGINT if stopped_by == SIGINT else 0, workers)


def _settle_collector() -> None:
    """What the imports made stays for good: a full collection would go through it in vain, and every session waits for some
    20 ms meanwhile. And what 50 turns have in hand at once is no garbage yet: to look for some at every 700 objects took a
    tenth of the CPU of a turn.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def _line(url: str, credential: auth.Credential, perdure: embedded.Perdure, *, as_json: bool) -> str:
    if as_json:
        file = None if credential.file is None else str(credential.file)
        return json.dumps({"url": url, "token_file": file, "epoch": perdure.engine.epoch})
    token = "configured" if credential.file is None else f"in {credential.file}"
    return f"Perdure {VERSION} listens on {url} (token {token})"


# -- the socket --------------------------------------------------------------------------------------------------------------


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `ConfigError` where the port is taken or the address is not ours."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise errors.ConfigError(f"Cannot bind {host}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise errors.ConfigError(f"Cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Where the socket is reached."""
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
