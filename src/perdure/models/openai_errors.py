"""What a chat-completions provider's refusal means.

Lives here: the one mapping from HTTP status, provider code and error body to a `ModelError`, and the reading of
Retry-After. Not here: whether to try again (`runner/retry.py`). Codes win over statuses, because providers agree on the
former more often. A provider's words count in two cases to which some give no code of their own: a request that does not fit
(vLLM and others), and an account that is used up (Anthropic says 400 for it, xAI 403).
"""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from perdure.errors import ModelError, ModelErrorKind

_BY_STATUS = {
    401: ModelErrorKind.AUTH,
    402: ModelErrorKind.QUOTA,
    403: ModelErrorKind.AUTH,
    408: ModelErrorKind.TIMEOUT,
    409: ModelErrorKind.SERVER,
    413: ModelErrorKind.CONTEXT_OVERFLOW,
    429: ModelErrorKind.RATE_LIMIT,
    503: ModelErrorKind.OVERLOADED,
    529: ModelErrorKind.OVERLOADED,
}
_BY_CODE = {
    "context_length_exceeded": ModelErrorKind.CONTEXT_OVERFLOW,
    "exceed_context_size_error": ModelErrorKind.CONTEXT_OVERFLOW,
    "model_max_prompt_tokens_exceeded": ModelErrorKind.CONTEXT_OVERFLOW,
    "content_filter": ModelErrorKind.CONTENT_FILTER,
    "content_policy_violation": ModelErrorKind.CONTENT_FILTER,
    "rate_limit_exceeded": ModelErrorKind.RATE_LIMIT,
    "rate_limit_error": ModelErrorKind.RATE_LIMIT,
    "overloaded": ModelErrorKind.OVERLOADED,
    "overloaded_error": ModelErrorKind.OVERLOADED,
    "server_error": ModelErrorKind.SERVER,
    "internal_server_error": ModelErrorKind.SERVER,
    "timeout": ModelErrorKind.TIMEOUT,
    "insufficient_quota": ModelErrorKind.QUOTA,  # OpenAI, as a 429
    "billing_hard_limit_reached": ModelErrorKind.QUOTA,
    "billing_not_active": ModelErrorKind.QUOTA,
    "billing_error": ModelErrorKind.QUOTA,  # Anthropic
    "exceeded_current_quota_error": ModelErrorKind.QUOTA,  # Moonshot
    "invalid_api_key": ModelErrorKind.AUTH,
    "authentication_error": ModelErrorKind.AUTH,
}
_OVERFLOW_WORDS = (
    "maximum context length",  # OpenAI, vLLM, OpenRouter, DeepSeek, Mistral
    "context length exceeded",
    "exceeds the context window",
    "context window exceeds",  # MiniMax
    "context window exceeded",
    "context length of",  # LM Studio
    "exceed context limit",  # Anthropic, input and max_tokens together
    "prompt is too long",  # Anthropic
    "input is too long",  # Bedrock
    "available context size",  # llama.cpp
    "maximum prompt length",  # xAI
    "exceeded model token limit",  # Moonshot
    "input token count",  # Google
    "range of input length",  # Qwen
    "reduce the length of the",  # Groq, Cerebras: "messages or completion"
)

# Not "exceeded your current quota": Google says that of a minute's limit too, and OpenAI has a code for it.
_QUOTA_WORDS = (
    "credit balance is too low",  # Anthropic
    "insufficient credits",  # OpenRouter
    "requires more credits",  # OpenRouter
    "key limit exceeded",  # OpenRouter
    "insufficient balance",  # DeepSeek
    "used all available credits",  # xAI
    "billing hard limit",  # OpenAI
)
_TOP_UP = (
    "The account's credit or limit is used up: top it up or raise the limit at the provider, then retry the prompt."
)


@dataclass(frozen=True, slots=True)
class _Said:
    """What an error body says, whichever of the usual shapes it has."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None


def from_response(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error of a response that is no stream; its detail may be long and is not yet cleared of secrets."""
    said = _said_by(body)
    if status == 200:
        detail = f"The provider answered without a stream: {said.message or body[:4000].decode(errors='replace')}"
        return told(_kind(said.status, said), detail, status=said.status)
    detail = f"The provider answered {status}" + (f": {said.message}" if said.message else "")
    return told(_kind(status, said), detail, status=status, retry_after_ms=retry_after_ms(headers))


def from_stream(error: Any) -> ModelError:
    """The error of an `{"error": …}` object in place of a chunk; without a hint in it, the server's fault."""
    said = _said_in(error)
    detail = f"The provider broke off its answer: {said.message or 'it gave no reason'}"
    return told(_kind(said.status, said), detail, status=said.status)


def told(
    kind: ModelErrorKind, detail: str, *, status: int | None = None, retry_after_ms: int | None = None
) -> ModelError:
    """The error, with what to do about one that only a person can mend."""
    if kind is ModelErrorKind.QUOTA and _TOP_UP not in detail:
        detail = f"{detail.rstrip('.')}. {_TOP_UP}"
    return ModelError(kind, detail, status=status, retry_after_ms=retry_after_ms)


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """How long the provider asks to be left alone: `retry-after-ms`, or Retry-After in seconds or as an HTTP date.

    A date is compared with the response's own Date: the two clocks need not agree, and none of ours is read.
    """
    millis, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    for text, factor in ((millis, 1), (seconds, 1000)):
        try:
            return max(0, round(float(text) * factor))
        except (ValueError, OverflowError):
            continue
    try:
        wait = _date(seconds) - _date(headers.get("date", ""))
    except ValueError:
        return None
    return max(0, round(wait * 1000))


def _date(text: str) -> float:
    date = email.utils.parsedate_to_datetime(text)
    return (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()


def _kind(status: int | None, said: _Said) -> ModelErrorKind:
    for code in said.codes:
        if kind := _BY_CODE.get(code):
            return kind
    refused = "invalid_request_error" in said.codes if status is None else 400 <= status < 500
    if refused and _says(said, _OVERFLOW_WORDS):
        return ModelErrorKind.CONTEXT_OVERFLOW
    if refused and _says(said, _QUOTA_WORDS):
        return ModelErrorKind.QUOTA
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    # A redirect is not followed: it would carry the prompt, and perhaps the key, to another host.
    return ModelErrorKind.INVALID_REQUEST if refused or (status or 500) < 400 else ModelErrorKind.SERVER


def _says(said: _Said, words: tuple[str, ...]) -> bool:
    message = said.message.lower()
    return any(one in message for one in words)


def _said_by(body: bytes) -> _Said:
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return _Said(body.decode(errors="replace").strip())
    if isinstance(decoded, dict) and "error" in decoded:
        return _said_in(cast("dict[str, Any]", decoded)["error"])
    return _said_in(decoded)


def _said_in(error: Any) -> _Said:
    if not isinstance(error, dict):
        return _Said(error if isinstance(error, str) else msgspec.json.encode(error).decode())
    fields = cast("dict[str, Any]", error)
    message: Any = next((fields[key] for key in ("message", "detail", "msg") if fields.get(key)), "")
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    codes = [value for key in ("code", "type") if isinstance(value := fields.get(key), str)]
    numbers = (fields.get(key) for key in ("status", "code"))
    status = next((number for number in numbers if isinstance(number, int) and 400 <= number <= 599), None)
    return _Said(message, tuple(codes), status)
