"""What pydantic-ai's exceptions mean.

Lives here: the one mapping from its categories, statuses and causes to a `ModelError`. Not here: whether to try again
(`runner/retry.py`) and the clearing of secrets (`pydantic_ai.py`). Its categories know each provider's habits (Google
says 400 for a bad key, Anthropic for a long prompt), so they win; statuses, words and Retry-After are read as
`openai_errors.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from pydantic_ai import exceptions as theirs

from perdure.errors import ModelError, ModelErrorKind
from perdure.models import openai_errors

# In this order: some are subclasses of others.
_BY_CATEGORY: tuple[tuple[type[theirs.ModelAPIError], ModelErrorKind], ...] = (
    (theirs.ModelContextWindowExceededError, ModelErrorKind.CONTEXT_OVERFLOW),
    (theirs.ModelAuthenticationError, ModelErrorKind.AUTH),
    (theirs.ModelRateLimitError, ModelErrorKind.RATE_LIMIT),
    (theirs.ModelQuotaExceededError, ModelErrorKind.QUOTA),
    (theirs.ModelUnavailableError, ModelErrorKind.OVERLOADED),
)


def named(failure: Exception, *, answered: bool, idle_s: float) -> ModelError:
    """The error of whatever was raised; `answered` once the stream had begun."""
    match failure:
        case ModelError():
            return failure
        case theirs.ModelHTTPError():
            return _refusal(failure)
        case theirs.ModelTimeoutError() | theirs.ModelRequestTimeout():
            late = getattr(failure, "phase", None) in {"pool", "connect"}
            said = "could not be reached in time" if late else f"was silent for {idle_s:g} s"
            return ModelError(ModelErrorKind.TIMEOUT, f"The provider {said}")
        case theirs.ModelConnectionError() if answered and "RemoteProtocolError" in _causes(failure):
            return ModelError(ModelErrorKind.INCOMPLETE, f"The provider broke off its answer: {failure}")
        case theirs.ModelConnectionError():
            return ModelError(ModelErrorKind.TRANSPORT, f"The connection to the provider failed: {failure}")
        case theirs.ModelAPIError():
            return _without_status(failure)
        case theirs.ContentFilterError():
            return ModelError(ModelErrorKind.CONTENT_FILTER, str(failure))
        case theirs.UnexpectedModelBehavior() | AssertionError():
            return ModelError(ModelErrorKind.INCOMPLETE, f"The provider sent no whole answer: {failure}")
        case theirs.UserError() | NotImplementedError() | TypeError() | ValueError() if not answered:
            return ModelError(ModelErrorKind.INVALID_REQUEST, f"The request cannot be made: {failure}")
        case _:
            return ModelError(
                ModelErrorKind.UNKNOWN, f"The provider's library failed: {type(failure).__name__}: {failure}"
            )


def _refusal(failure: theirs.ModelHTTPError) -> ModelError:
    if failure.in_stream:
        return _without_status(failure)
    body = b"" if failure.body is None else _json(failure.body)
    told = openai_errors.from_response(failure.status_code, failure.headers or {}, body)
    wait = told.retry_after_ms
    if wait is None and failure.retry_after is not None:
        wait = max(0, round(failure.retry_after * 1000))
    kind = _kind(failure, told.kind)
    return openai_errors.told(kind, str(told), status=told.status, retry_after_ms=wait)


def _without_status(failure: theirs.ModelAPIError) -> ModelError:
    """An error in place of an event, or an answer that cannot be read."""
    if not failure.in_stream:
        return ModelError(_kind(failure, ModelErrorKind.INCOMPLETE), f"The answer cannot be read: {failure}")
    body: Any = failure.body
    nested = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else (body or str(failure))
    told = openai_errors.from_stream(nested)
    return openai_errors.told(_kind(failure, told.kind), str(told), status=told.status)


def _kind(failure: theirs.ModelAPIError, otherwise: ModelErrorKind) -> ModelErrorKind:
    if otherwise is ModelErrorKind.QUOTA:  # by words that no category knows
        return otherwise
    return next((kind for category, kind in _BY_CATEGORY if isinstance(failure, category)), otherwise)


def _json(body: object) -> bytes:
    try:
        return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    except (TypeError, ValueError):
        return str(body).encode(errors="replace")


def _causes(failure: BaseException) -> Iterator[str]:
    """The class names of the failure and what it came from; the libraries that raise them need not be imported."""
    at: BaseException | None = failure
    for _ in range(10):
        if at is None:
            return
        yield type(at).__name__
        at = at.__cause__ or at.__context__
