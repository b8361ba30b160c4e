"""What a process of ours writes to stderr while it works.

Lives here: one line a record, `time level logger message key=value …` or an object of JSON, and the levels there are.
Not here: what is logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from perdure import errors, telemetry

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class Lines(logging.Formatter):
    """A record as a line; what was given as `extra` follows as key=value. A traceback takes lines of its own, at debug only."""

    def __init__(self, *, traces: bool) -> None:
        """With `traces` an error's traceback is written, else only what it says."""
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Write it."""
        head = f"{_stamp(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        extra = _extra(record)
        line = " ".join([head.replace("\n", " "), *(f"{name}={_word(value)}" for name, value in extra.items())])
        if self._traces and record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class Json(logging.Formatter):
    """A record as an object of JSON on one line: time, level, logger, message, what was given as `extra`, and where in a
    trace it was said.
    """

    def __init__(self, *, traces: bool) -> None:
        """With `traces` an error's traceback is written, else only what it says."""
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Write it."""
        told = _extra(record) | {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._traces and record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told | telemetry.ids(), default=str)


def _stamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, and what an error says."""
    found = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _word(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text)


def configure(level: str, form: str = "text") -> None:
    """Log to stderr from this level on. Raises `ConfigError` for another word."""
    if form not in FORMATS:
        raise errors.ConfigError(f"The log format is one of {', '.join(FORMATS)}, not {form!r}")
    if level not in LEVELS:
        raise errors.ConfigError(f"The log level is one of {', '.join(LEVELS)}, not {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    made = Json if form == "json" else Lines
    handler.setFormatter(made(traces=level == "debug"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("asyncio", "httpcore2", "httpx2", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
