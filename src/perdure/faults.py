"""Words about errors: whose fault one is, and what went wrong at a provider.

Lives here: two closed sets of words. Not here: the errors that carry them (`errors.py`), what is done about each kind
(`runner/retry.py`).
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Whose fault an error is, so that a reader knows whom to wake."""

    CALLER = "caller"
    CONFLICT = "conflict"
    CLAIM = "claim"
    MODEL = "model"
    LOG = "log"
    ENVIRONMENT = "environment"
    BUG = "bug"


class ModelErrorKind(StrEnum):
    """What went wrong at the provider; `runner/retry.py` decides which kinds are tried again."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server"
    TRANSPORT = "transport"
    INCOMPLETE = "incomplete_stream"
    TIMEOUT = "timeout"
    AUTH = "auth"
    QUOTA = "quota"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTER = "content_filter"
    UNKNOWN = "unknown"
