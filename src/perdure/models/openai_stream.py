"""The chunks of a chat-completions stream, decoded and put together as events of the model port.

Lives here: the small structs a chunk is decoded into and the `Assembler`, a plain state machine without I/O. Not here:
bytes and HTTP (`sse.py`, `openai_compatible.py`) and tool calls in the making (`openai_calls.py`). Providers agree on
this format only roughly: what they disagree on is told at the line that copes with it. Token counts follow
`core.messages.Tokens`: `input` is what was not in the cache, `output` excludes reasoning.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from perdure.core import messages
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import openai_calls, openai_errors, port

_DONE = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[openai_calls.CallDelta] | None = None
    function_call: openai_calls.FunctionDelta | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int | None = 0


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_REASONS: dict[str, port.FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class Assembler:
    """Feed it the data of each event, then ask it to finish. One per request."""

    def __init__(self) -> None:
        self.done = False
        self._open: str | None = None
        self._reasoning = False
        self._field = ""
        self._parts = 0
        self._calls = openai_calls.Calls()
        self._reason: str | None = None
        self._usage: _Usage | None = None

    @property
    def complete(self) -> bool:
        """Whether the provider said that its answer is whole: by `[DONE]`, or by a finish reason (not all send
        `[DONE]`).
        """
        return self.done or self._reason is not None

    def feed(self, data: bytes) -> list[port.ModelEvent]:
        """Events of one chunk; raises `ModelError`."""
        if data == _DONE or not data:
            self.done = self.done or bool(data)
            return []
        chunk = _decoded(data)
        if chunk.error or chunk.object == "error":
            raise openai_errors.from_stream(chunk.error or json.loads(data))
        if chunk.usage:
            self._usage = chunk.usage
        events: list[port.ModelEvent] = []
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if choice.delta:
                self._delta(choice.delta, events)
            if choice.finish_reason:
                self._reason = choice.finish_reason
        return events

    def finish(self) -> list[port.ModelEvent]:
        """Close what is open and end; raises `ModelError` where the provider did not end its answer."""
        if not self.complete:
            raise ModelError(ModelErrorKind.INCOMPLETE, "The provider's stream ended before its answer did")
        events: list[port.ModelEvent] = []
        self._close_part(events)
        reason = self._finish_reason()
        self._calls.finish(events, cut_short=reason in {"length", "content_filter"})
        tokens, cost = _tokens(self._usage)
        events.append(port.Finish(reason, tokens, cost))
        return events

    def _finish_reason(self) -> port.FinishReason:
        # Gemini and Ollama say "stop" over tool calls, others say nothing at all before [DONE].
        reason = _REASONS.get(self._reason, "other") if self._reason else "stop"
        if reason in {"stop", "tool_calls"}:
            return "tool_calls" if self._calls else "stop"
        return reason

    def _delta(self, delta: _Delta, events: list[port.ModelEvent]) -> None:
        # Some send the same reasoning under both names.
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._field = "reasoning_content" if delta.reasoning_content else "reasoning"
            self._fragment(reasoning, events, reasoning=True)
        if content := delta.content or delta.refusal:
            if isinstance(content, str):
                self._fragment(content, events, reasoning=False)
            else:
                self._typed_fragments(content, events)
        if delta.tool_calls or delta.function_call:
            self._close_part(events)
            for call in delta.tool_calls or ():
                self._calls.feed(call, events)
            if delta.function_call:
                self._calls.feed(openai_calls.CallDelta(index=0, function=delta.function_call), events)

    def _fragment(self, text: str, events: list[port.ModelEvent], *, reasoning: bool) -> None:
        if self._open is None or self._reasoning is not reasoning:
            self._close_part(events)
            self._open = f"{'reasoning' if reasoning else 'text'}_{self._parts}"
            self._parts += 1
            self._reasoning = reasoning
            events.append(port.ReasoningStart(self._open) if reasoning else port.TextStart(self._open))
        events.append(port.ReasoningDelta(self._open, text) if reasoning else port.TextDelta(self._open, text))

    def _typed_fragments(self, parts: list[dict[str, Any]], events: list[port.ModelEvent]) -> None:
        """Mistral's reasoning models: `{type: text, text}` and `{type: thinking, thinking: [{type: text, text}]}`."""
        for part in parts:
            if part.get("type") == "thinking":
                self._field = ""
                for thought in part.get("thinking") or ():
                    if text := thought.get("text"):
                        self._fragment(text, events, reasoning=True)
            elif text := part.get("text"):
                self._fragment(text, events, reasoning=False)

    def _close_part(self, events: list[port.ModelEvent]) -> None:
        if self._open is None:
            return
        if self._reasoning:
            events.append(port.ReasoningEnd(self._open, {"field": self._field} if self._field else None))
        else:
            events.append(port.TextEnd(self._open))
        self._open = None


def _decoded(data: bytes) -> _Chunk:
    try:
        return _decode(data)
    except msgspec.DecodeError as strict:
        try:
            return msgspec.convert(_mended(json.loads(data)), _Chunk)
        except ValueError:
            shown = data[:120].decode(errors="replace")
            detail = f"The provider sent a chunk that is not a chat completion ({strict}): {shown}"
            raise ModelError(ModelErrorKind.INCOMPLETE, detail) from None


def _mended(value: Any) -> Any:
    """Replace lone surrogates, which msgspec refuses: a server that cuts text by UTF-16 units halves an emoji."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {key: _mended(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [_mended(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _tokens(usage: _Usage | None) -> tuple[messages.Tokens | None, int | None]:
    """Our count of theirs, and the cost in micro-dollars where the provider (OpenRouter) tells it in dollars."""
    if usage is None:
        return None, None
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
    cached = min(cached or usage.prompt_cache_hit_tokens or 0, prompt)
    reasoning = (usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens) or 0
    # xAI's and Gemini's completion tokens come without reasoning; then only the total adds up with it.
    apart = reasoning > completion or usage.total_tokens == prompt + completion + reasoning
    output = completion if apart else completion - reasoning
    cost = None if usage.cost is None else round(usage.cost * 1_000_000)
    return messages.Tokens(input=prompt - cached, output=output, reasoning=reasoning, cache_read=cached), cost
