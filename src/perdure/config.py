"""Settings: one frozen value, from arguments, `PERDURE_*` variables or a file.

Lives here: names, defaults and checks of what a person may set. Not here: what is done with them (`engine/`, `server/`,
`cli/`). Anything wrong is a `ConfigError` that names the setting.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pydantic

from perdure import errors

PREFIX = "PERDURE_"


class Settings(pydantic.BaseModel):
    """What can be set. Each field is `PERDURE_` and its name in the environment, or its name in a TOML file: the one that
    PERDURE_CONFIG names, else ./perdure.toml if there is one. An argument wins over the environment, that over the file.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    database_url: str = "./perdure.db"
    host: str = "127.0.0.1"
    port: int = pydantic.Field(default=7433, ge=0, le=65535)
    token: pydantic.SecretStr | None = None
    model: str | None = None
    lease_seconds: float = pydantic.Field(default=30.0, gt=0, le=3600)
    grace_seconds: float = pydantic.Field(default=10.0, ge=0, le=3600)
    recovery_budget: int = pydantic.Field(default=3, ge=0, le=1000)
    parallel: int = pydantic.Field(default=1000, ge=1)
    log_level: str = "info"
    log_format: str = "text"
    allowed_hosts: str = ""
    max_body_mib: float = pydantic.Field(default=32.0, gt=0, le=1024)
    heartbeat_seconds: float = pydantic.Field(default=15.0, gt=0, le=3600)
    stall_seconds: float = pydantic.Field(default=30.0, gt=0, le=3600)
    allow_network_files: bool = False

    @pydantic.model_validator(mode="before")
    @classmethod
    def _found(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments, environment, file: the first that says something counts."""
        return {**from_file(cls), **from_environment(cls), **given}

    @property
    def database_path(self) -> Path:
        """The SQLite file. Raises `ConfigError` for another kind of URL."""
        url = self.database_url
        for prefix in ("sqlite:///", "sqlite:"):
            if url.startswith(prefix):
                return Path(url.removeprefix(prefix))
        if "://" in url:
            scheme = url.split("://", 1)[0]
            raise errors.ConfigError(f"PERDURE_DATABASE_URL: {scheme}:// is not supported; name a SQLite file")
        if not url:
            raise errors.ConfigError("PERDURE_DATABASE_URL is empty; name a SQLite file")
        return Path(url)


def from_file(known: type[Settings]) -> dict[str, Any]:
    """What the settings file says. Raises `ConfigError` for a file that cannot be read or names an unknown setting."""
    named = os.environ.get("PERDURE_CONFIG")
    path = Path(named or "perdure.toml")
    if not named and not path.is_file():
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.ConfigError(f"{path}: {error}") from error
    if unknown := sorted(set(found) - set(known.model_fields)):
        raise errors.ConfigError(
            f"{path}: there is no setting {unknown[0]!r}; there are: {', '.join(known.model_fields)}"
        )
    return found


def from_environment(known: type[Settings]) -> dict[str, str]:
    """What the variables say."""
    named = {name: f"{PREFIX}{name.upper()}" for name in known.model_fields}
    return {name: os.environ[variable] for name, variable in named.items() if variable in os.environ}


def settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by what is given and not None. Raises `ConfigError`."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = "_".join(str(step) for step in problem["loc"]).upper()
        raise errors.ConfigError(f"{PREFIX}{name}: {problem['msg']}") from None


def provider_key(variable: str) -> str | None:
    """A model provider's own variable, such as OPENAI_API_KEY; empty counts as not set."""
    return os.environ.get(variable) or None
