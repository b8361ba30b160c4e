"""Writes docs/reference/settings.md from `config.Settings`; `--check` only says whether it is current.

Names, defaults and limits come from the class; what a setting means is said here, and one without words stops the program.
"""

import sys
from typing import Any

import pages
from pydantic.fields import FieldInfo

from perdure import config

HEAD = """# Settings

Names, defaults and limits are written from `src/perdure/config.py` by `make docs`.

A setting comes from the environment; a flag of the command line wins over that, and so does `Perdure(database=…)` or
`Perdure(settings=…)` in Python. Anything wrong is refused at the start, in one line that names the setting."""

MEANING = {
    "database_url": "The database: a path, `sqlite:PATH` or `sqlite:///PATH`. Put it on a local disk.",
    "allow_network_files": "Use a database on a network file system (NFS, SMB, 9p, …) all the same. Then only one machine may "
    "have it open.",
    "host": "Address the server binds. A wider one than loopback needs `PERDURE_TOKEN`.",
    "port": "Port the server binds; 0 takes a free one.",
    "token": "Bearer token of the server, and the one that commands send. Not set, a server on loopback makes one of its own.",
    "model": "Model of the agent `default`, as `PROVIDER:NAME`, where no app is named.",
    "lease_seconds": "How long a claim holds without being renewed. What a process of another machine left is taken up "
    "after that; what a process of this machine left, at once.",
    "grace_seconds": "How long running steps may go on after SIGTERM, and how long deleting a session waits for its turn.",
    "recovery_budget": "How often a turn whose process died is tried again, where the session's policy does not say.",
    "parallel": "How many sessions run at once in one process.",
    "log_level": "`debug`, `info`, `warning` or `error`; `debug` adds tracebacks.",
    "log_format": "`text`, or `json` for one object a line, with the ids of its trace where one is recorded.",
    "allowed_hosts": "More names, with commas, under which the server may be called; `*` is any.",
    "max_body_mib": "Size of a request's body, at most.",
    "heartbeat_seconds": "After so long without an event a stream carries a sign of life.",
    "stall_seconds": "A reader of a stream that takes nothing for so long is dropped; it may come back with its last seq.",
}

VARIABLES = {
    "`PERDURE_CONFIG`": "A TOML file with settings by the names above, in small letters without the prefix; "
    "else `./perdure.toml` is read if there is one. The environment wins over it.",
    "`PERDURE_URL`": "Server that commands such as `perdure chat` ask; without it they open the database.",
    "`OPENAI_BASE_URL`": "Address for `openai:NAME`: any server that speaks chat completions; usually "
    "`https://api.openai.com/v1`.",
    "`OPENAI_API_KEY`": "Its key. A server that asks for none needs none.",
    "`ANTHROPIC_API_KEY`, `GROQ_API_KEY`, …": "The key of another provider, `NAME_API_KEY`; its address is `NAME_BASE_URL`. "
    "These need the extra `perdure[pydantic-ai]`.",
    "`XDG_STATE_HOME`": "The made token is kept in `$XDG_STATE_HOME/perdure/token`, else in `~/.local/state/perdure/token`.",
}
LIMITS = (("ge", "from "), ("gt", "above "), ("le", "to "))


def row(name: str, field: FieldInfo) -> list[str]:
    limits = [word + f"{getattr(one, key):g}" for key, word in LIMITS for one in field.metadata if hasattr(one, key)]
    bounds = f" ({' '.join(limits)})" if limits else ""
    return [f"`PERDURE_{name.upper()}`", _default(field.default), MEANING[name] + bounds]


def _default(value: Any) -> str:
    return "not set" if value is None or value == "" else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def page() -> str:
    fields = config.Settings.model_fields
    if odd := set(fields) ^ set(MEANING):
        raise SystemExit(f"scripts/docs_settings.py and config.Settings do not agree about {', '.join(sorted(odd))}")
    table = pages.table(["variable", "default", "meaning"], [row(name, field) for name, field in fields.items()])
    others = pages.table(["variable", "meaning"], ([name, meaning] for name, meaning in VARIABLES.items()))
    return pages.joined(HEAD, table, "## Other variables", others)


if __name__ == "__main__":
    sys.exit(pages.main("reference/settings.md", page()))
