"""Where a command's sessions are: a server, or a database that this process opens itself.

Lives here: the options that say so, the one interface behind which both stand, and opening either. Not here: what a
command does with it. Client and engine are imported when one of them is opened, and so not for `--help`. Commands that
start turns (`Runner`) open an engine that runs them; all others (`Where`) open one that runs nothing, so that looking at a
database never takes a turn away from whoever has its agent: what they ask for is stored, and whoever serves that database
does it.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol
from urllib.parse import urlsplit

from cyclopts import Parameter
from pydantic import SecretStr

from perdure import config, errors
from perdure.core import answers, events, messages
from perdure.server import auth

if TYPE_CHECKING:
    from perdure.client import Client
    from perdure.engine import perdure as embedded

CLIENT, APPS = "perdure.client", "perdure.cli.apps"

Json = Annotated[bool, Parameter(name="--json", negative=(), show_default=False)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Word = Annotated[str | None, Parameter(show_default=False)]


@dataclass(frozen=True, slots=True)
class Where:
    """Where the sessions are.

    Parameters
    ----------
    url
        Server to ask (PERDURE_URL), such as http://127.0.0.1:7433.
    token
        Its token (PERDURE_TOKEN; of a server on this machine, else the one that 'perdure serve' made).
    database
        Without a server: the SQLite file (PERDURE_DATABASE_URL, ./perdure.db).

    """

    url: Annotated[Word, Parameter(env_var="PERDURE_URL", show_env_var=False)] = None
    token: Word = None
    database: Word = None


@dataclass(frozen=True, slots=True)
class Runner:
    """Where the sessions are, and who answers in them.

    Parameters
    ----------
    url
        Server to ask (PERDURE_URL), such as http://127.0.0.1:7433.
    token
        Its token (PERDURE_TOKEN; of a server on this machine, else the one that 'perdure serve' made).
    database
        Without a server: the SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    app
        Without a server: MODULE:NAME of a Perdure instance.
    agent
        Agent of a new session, where there are several.
    model
        Model as PROVIDER:NAME: of a new session, or without server and app of the agent 'default' (PERDURE_MODEL).
    workspace
        Give the agent 'default' tools for the files below this directory, and a shell that starts there.
    mcp
        Give it the tools of this MCP server, a command or a URL; may be repeated.

    """

    url: Annotated[Word, Parameter(env_var="PERDURE_URL", show_env_var=False)] = None
    token: Word = None
    database: Word = None
    app: Word = None
    agent: Word = None
    model: Word = None
    workspace: Annotated[Path | None, Parameter(show_default=False)] = None
    mcp: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = ()


HERE, RUNNING_HERE = Where(), Runner()
"""Nothing said: a server only where PERDURE_URL names one."""


# -- the one interface -------------------------------------------------------------------------------------------------------


class Info(Protocol):
    """What commands read of a session."""

    @property
    def id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def title(self) -> str | None: ...
    @property
    def archived(self) -> bool: ...
    @property
    def time_created(self) -> int: ...
    @property
    def time_updated(self) -> int: ...
    @property
    def usage(self) -> messages.Usage: ...


class Approval(Protocol):
    """What commands read of a call that waits."""

    @property
    def session_id(self) -> str: ...
    @property
    def message_id(self) -> str: ...
    @property
    def call_id(self) -> str: ...
    @property
    def decision(self) -> messages.Decision | None: ...


class Input(Protocol):
    """What commands read of an input that waits."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> messages.InputKind: ...
    @property
    def prompt(self) -> str: ...
    @property
    def delivery(self) -> messages.Delivery: ...


class Session(Protocol):
    """A session, there or here."""

    id: str

    async def info(self) -> Info: ...
    async def update(self, changes: events.Changes) -> Info: ...
    async def prompt(
        self,
        prompt: str,
        *,
        id: str | None = None,
        delivery: messages.Delivery = "steer",
        resume: bool = True,
    ) -> answers.Receipt: ...
    async def receipt(self, message_id: str) -> answers.Receipt: ...
    async def inbox(self) -> Sequence[Input]: ...
    async def retry(self, message_id: str) -> answers.Receipt: ...
    async def resume(self) -> None: ...
    async def interrupt(self, reason: str = "interrupt") -> bool: ...
    async def decide(
        self,
        call_id: str,
        decision: messages.Decision,
        *,
        by: str = "user",
        note: str | None = None,
        message_id: str | None = None,
    ) -> Approval: ...
    async def approvals(self) -> Sequence[Approval]: ...
    async def attempts(self, *, after: int = -1, limit: int = 100) -> answers.AttemptPage: ...
    async def compact(self) -> str: ...
    async def messages(
        self, *, after: int = -1, before: int | None = None, limit: int = 200
    ) -> list[messages.Message]: ...
    async def status(self) -> answers.Status: ...
    def events(
        self, *, after: int = -1, follow: bool = True, signals: bool = False
    ) -> AsyncGenerator[events.Event, None]: ...


class Damaged(Protocol):
    """A session that cannot be decoded."""

    @property
    def id(self) -> str: ...
    @property
    def why(self) -> str: ...


class Page(Protocol):
    """Some sessions."""

    @property
    def data(self) -> Sequence[Info]: ...
    @property
    def damaged(self) -> Sequence[Damaged]: ...
    @property
    def next(self) -> Any: ...


class Sessions(Protocol):
    """The sessions, there or here."""

    async def create(
        self,
        agent: str | None = None,
        *,
        id: str | None = None,
        title: str | None = None,
        model: str | None = None,
    ) -> Session: ...
    async def get(self, session_id: str) -> Session: ...
    async def list(self, *, limit: int = 50, before: Any = None) -> Page: ...


class Recoveries(Protocol):
    """Turns that wait."""

    async def list(self) -> list[answers.Recovery]: ...
    async def retry(self, execution_id: str) -> None: ...
    async def dismiss(self, execution_id: str) -> None: ...


class App(Protocol):
    """A server, or an engine in this process."""

    @property
    def sessions(self) -> Sessions: ...
    @property
    def recoveries(self) -> Recoveries: ...


# -- opening it --------------------------------------------------------------------------------------------------------------


def _unheard(up: bool) -> None:  # noqa: FBT001, what a listener is called with
    """Nobody listens."""
    del up


@contextlib.asynccontextmanager
async def connect(
    where: Where | Runner,
    *,
    read_only: bool = False,
    existing: bool = False,
    patience: float | None = 60.0,
    link: Callable[[bool], None] = _unheard,
) -> AsyncGenerator[App, None]:
    """The sessions meant by `where`; `patience` and `link` as with `Client`. A database that is only to be looked at is
    opened `read_only`, and neither made nor changed; one that must be `existing` is not made either.

    Raises `ConfigError`, what opening a database raises, `ServerUnreachable`, `Unauthorized`.
    """
    settings = config.settings(
        database_url=where.database, token=None if where.token is None else SecretStr(where.token)
    )
    if where.url:  # an empty PERDURE_URL is as good as none
        _refuse_both(where)
        made: type[Client] = importlib.import_module(CLIENT).Client
        async with made(where.url, token=token_for(where.url, settings), patience=patience, link=link) as client:
            yield client
    else:
        async with _engine(where, settings, read_only=read_only, existing=existing) as engine:
            yield engine


def _refuse_both(where: Where | Runner) -> None:
    """Refuse what only makes sense without a server."""
    given = [name for name in ("database", "app", "workspace", "mcp") if getattr(where, name, None)]
    if given:
        raise errors.ConfigError(f"--{given[0]} is for working without a server, yet there is one: {where.url}")


def again(where: Where | Runner) -> str:
    """What a later command has to be told to find the same sessions: the options given, or nothing. Never the token."""
    if where.url:
        return "" if where.url == os.environ.get("PERDURE_URL") else f" --url {shlex.quote(where.url)}"
    return "" if where.database is None else f" --database {shlex.quote(where.database)}"


def again_running(runner: Runner) -> str:
    """The same for a command that answers too."""
    given: list[tuple[str, str | Path | None]] = []
    if not runner.url:
        given += [("app", runner.app), ("model", runner.model), ("workspace", runner.workspace)]
        given += [("mcp", one) for one in runner.mcp]
    options = [f" --{name} {shlex.quote(str(value))}" for name, value in given if value is not None]
    return "".join([again(runner), *options])


def token_for(url: str, settings: config.Settings) -> str | None:
    """The token for a server: the one given; for a server on this machine, else the one that was made for it.

    Of this person's own token file nothing is ever sent to another machine.
    """
    if settings.token is not None:
        return settings.token.get_secret_value()
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(OSError, ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return auth.token_file().read_text().strip() or None
    return None


def _engine(where: Where | Runner, settings: config.Settings, *, read_only: bool, existing: bool) -> embedded.Perdure:
    path = settings.database_path
    would_fill = not read_only and path.is_file() and not path.stat().st_size
    if (existing or isinstance(where, Where)) and (would_fill or not path.exists()):
        making = ", or --create to make it" if existing else ""
        why = f"There is no database {path}: give --url of a server, or --database of a file{making}"
        raise errors.ConfigError(why)
    apps: Any = importlib.import_module(APPS)
    if isinstance(where, Where):
        return apps.idle(settings, read_only=read_only)
    wanted = apps.Wanted(where.app, where.model, where.workspace, where.mcp, where.database)
    return apps.find(wanted, settings)


@dataclass(frozen=True, slots=True)
class Wish:
    """Which session is meant: that of an id, made if there is none where that was said; without an id a fresh one."""

    session: str | None
    create: bool

    def __post_init__(self) -> None:
        """Raise `InvalidInput` where it is to be made without saying under which id."""
        if self.create and self.session is None:
            raise errors.InvalidInput("--create says that --session ID may be made: name the id")

    @property
    def existing(self) -> bool:
        """Whether it has to be there."""
        return self.session is not None and not self.create


async def find(app: App, where: Where | Runner, wish: Wish, title: str | None = None) -> Session:
    """The session that is meant. Raises `SessionNotFound` where one that has to be there is not."""
    if wish.session is not None:
        try:
            return await app.sessions.get(wish.session)
        except errors.SessionNotFound:
            if not wish.create:
                words = f"Session {wish.session} does not exist: is the id right? --create makes it"
                raise errors.SessionNotFound(words) from None
    named = (where.agent, where.model if where.url else None) if isinstance(where, Runner) else (None, None)
    try:
        return await app.sessions.create(named[0], id=wish.session, title=title, model=named[1])
    except errors.SessionConflict:
        if wish.session is None:
            raise
        return await app.sessions.get(wish.session)  # somebody else made it meanwhile
