"""Who may call: the token or a page's cookie, and the names under which the server may be called (SEC-1).

Lives here: finding or making the token, and the check of a request's Host, Authorization, Cookie and Origin headers. Not
here: users, roles, CORS; there are none. A generated token is one per person, in `$XDG_STATE_HOME/perdure/token` (else
`~/.local/state/perdure/token`), readable by its owner alone: outside every project directory, so that no commit and no
backup takes it along, and where every command finds it. The Host check keeps a web page from reaching a loopback server
under a name of its own (DNS rebinding); addresses cannot be rebound, so they always pass. A cookie is sent by the browser
and not by the page, so with it a request counts only where the browser says that it comes from a page of this very server.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure import config, errors
from perdure.server.cookies import Cookies

Headers = Iterable[tuple[bytes, bytes]]
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Credential:
    """The token, and the file it was generated into, if it was."""

    token: str
    file: Path | None = None

    def __repr__(self) -> str:
        """Never the token itself."""
        return f"Credential(file={self.file})"


def credential(settings: config.Settings) -> Credential:
    """The configured token, else the generated one. Raises `ConfigError`; a wider bind than loopback needs a configured one."""
    if settings.token is not None:
        token = settings.token.get_secret_value()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise errors.ConfigError("PERDURE_TOKEN must be printable ASCII without spaces, and not empty")
        return Credential(token)
    if not is_loopback(settings.host):
        msg = f"Binding {settings.host} opens the server to other machines: set PERDURE_TOKEN, or bind 127.0.0.1"
        raise errors.ConfigError(msg)
    path = token_file()
    try:
        return Credential(_read(path) or _make(path), path)
    except OSError as error:
        raise errors.ConfigError(f"The token file {path} cannot be used: {error.strerror}; set PERDURE_TOKEN") from None


def token_file() -> Path:
    """Where a generated token is kept."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path("~/.local/state").expanduser()
    return base / "perdure" / "token"


def _read(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(handle) as file:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise errors.ConfigError(f"The token file {path} can be read by others: remove it, and a new one is made")
        token = file.read(1024).strip()
    if not token:
        raise errors.ConfigError(f"The token file {path} is empty: remove it, and a new one is made")
    return token


def _make(path: Path) -> str:
    """Write a fresh token whole, then give it its name; whoever comes second reads the first one's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    draft = path.with_name(f"token.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(token + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read(path) or token


def is_loopback(host: str) -> bool:
    """Whether binding `host` keeps other machines out."""
    return host == "localhost" or ((address := _address(host)) is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class Guard:
    """The check every request passes before it is routed."""

    def __init__(self, settings: config.Settings, token: str, cookies: Cookies) -> None:
        """Ask for `token` or one of `cookies`; answer to addresses, localhost, the bound name and `allowed_hosts`."""
        named = {one.strip().lower() for one in settings.allowed_hosts.split(",") if one.strip()}
        self._any = "*" in named
        self._names = {"localhost", settings.host.lower(), *named}
        if not is_loopback(settings.host):
            self._names.add(socket.gethostname().lower())
        self._expected, self.cookies = token.encode(), cookies

    def check_host(self, headers: Headers) -> None:
        """Raise `Forbidden` for a name this server was not started with."""
        given = next((value for name, value in headers if name == b"host"), b"").decode("latin-1")
        name = _without_port(given).lower()
        if not (self._any or name in self._names or _address(name) is not None):
            raise errors.Forbidden(f"This server does not answer to the name {name[:100]!r}")

    def check_caller(self, method: str, headers: Headers) -> None:
        """Raise `Unauthorized` without the token or a cookie, `Forbidden` for a cookie that a foreign page sent."""
        given = dict(headers)
        if b"authorization" in given or not self.cookies.holds(given.get(b"cookie", b"")):
            scheme, _, token = given.get(b"authorization", b"").partition(b" ")
            self.check(token.strip() if scheme.lower() == b"bearer" else b"")
            return
        from_here = given.get(b"sec-fetch-site", b"same-origin") in {b"same-origin", b"none"}
        if not from_here or (method not in SAFE and not self._same_origin(given)):
            raise errors.Forbidden("A page of another origin may not use the log-in cookie")

    def check(self, token: bytes) -> None:
        """Raise `Unauthorized` for another token than ours."""
        if not hmac.compare_digest(token, self._expected):
            raise errors.Unauthorized

    def check_page(self, headers: Headers) -> None:
        """Raise `Forbidden` where a page of another origin logs in here, whoever's token it has."""
        given = dict(headers)
        if b"origin" in given and not self._same_origin(given):
            raise errors.Forbidden("A page of another origin may not log in here")

    @staticmethod
    def _same_origin(given: Mapping[bytes, bytes]) -> bool:
        """Whether the browser says that the page is ours; a request without a word of a browser is nobody's page."""
        origin = given.get(b"origin")
        if origin is None:
            return given.get(b"sec-fetch-site") == b"same-origin"
        return origin.partition(b"://")[2].lower() == given.get(b"host", b"").lower() != b""


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
