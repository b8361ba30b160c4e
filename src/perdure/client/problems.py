"""Problem documents back into the errors they were made of.

Lives here: `error_of`, by the document's `type` and nothing else, and the errors that only a client can have. Not
here: whether to try again (`transport.py`). What an error carries besides its words comes as members of the document
and is put back on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure import errors

_STANDARD = frozenset({"type", "title", "status", "detail", "remedy", "instance"})


class ServerUnreachable(errors.PerdureError):
    """The server cannot be reached."""

    type = "server-unreachable"
    fault = errors.Fault.ENVIRONMENT
    remedy = "Check the URL, and that 'perdure serve' runs there."


class HistoryReplaced(errors.PerdureError):
    """The server's log is another than the one read so far."""

    type = "history-replaced"
    fault = errors.Fault.ENVIRONMENT
    remedy = "The database was restored or replaced: read again from the beginning."


def _tree(root: type[errors.PerdureError]) -> Iterator[type[errors.PerdureError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _tree(kind)


_KINDS = {kind.type: kind for kind in _tree(errors.PerdureError)}


def error_of(status: int, body: bytes) -> errors.PerdureError:
    """The error that an answer tells of."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = {}
    if problem.get("type") == "stopping":
        return ServerUnreachable(str(problem.get("detail")))
    if not isinstance(problem.get("type"), str):
        return ServerUnreachable(f"What answers there is no Perdure server, or stands before one: HTTP {status}")
    return from_document(problem)


def from_document(problem: dict[str, Any]) -> errors.PerdureError:
    """The error of a problem document; of a type that this version does not know, the root with its words."""
    kind = _KINDS.get(problem["type"], errors.PerdureError)
    error = kind.__new__(kind)
    errors.PerdureError.__init__(error, str(problem.get("detail") or problem.get("title") or problem["type"]))
    for name, value in problem.items():
        if name not in _STANDARD and name.isidentifier():
            setattr(error, name, value)
    return error
