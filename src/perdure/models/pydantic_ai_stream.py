"""The events of a pydantic-ai stream, put together as events of the model port.

Lives here: the `Assembler`, a plain state machine without I/O, and what the end of a stream says. Not here: tool calls
(`pydantic_ai_calls.py`) and HTTP. One mapping serves all of pydantic-ai's providers; kinds of events and parts it does
not know are passed over, for its library grows faster than this file. Token counts follow `core.messages.Tokens`: the
kinds do not overlap, while pydantic-ai's `input_tokens` includes the cache and `output_tokens` the reasoning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai import messages as theirs
from pydantic_ai import models, usage

from perdure.core import messages
from perdure.core import request as requests
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import port, pydantic_ai_calls
from perdure.models import pydantic_ai_keepsake as keepsake

_REASONS: dict[str, port.FinishReason] = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
# It maps the provider's reason without keeping it; of all others a reason without the provider's word is made up.
_KEEPS_NO_WORD = {"xai"}


@dataclass(slots=True)
class _Open:
    """A text or reasoning part; it starts with its first character, for some are empty but for a signature."""

    index: int
    kind: Literal["text", "reasoning"]
    id: str = ""


class Assembler:
    """Feed it every event, then ask it to finish. One per request."""

    def __init__(self, speaker: requests.Speaker) -> None:
        self._speaker = speaker
        self._parts = 0
        self._open: _Open | None = None
        self._calls = pydantic_ai_calls.Calls(speaker, self._next_id)

    def feed(self, event: object) -> list[port.ModelEvent]:
        """Events of one event; raises `ModelError`."""
        events: list[port.ModelEvent] = []
        match event:
            case theirs.PartDeltaEvent():
                self._delta(event.index, event.delta, events)
            case theirs.PartStartEvent():
                self._start(event.index, event.part, events)
            case theirs.PartEndEvent():
                self._end(event.index, event.part, events)
            case _:
                pass
        return events

    def finish(self, stream: models.StreamedResponse) -> list[port.ModelEvent]:
        """Close what is open and end; raises `ModelError` where the provider did not end its answer."""
        details: dict[str, Any] = stream.provider_details or {}
        said = details.get("finish_reason")
        ended = said or stream.finish_reason not in {None, "stop"} or stream.provider_name in _KEEPS_NO_WORD
        if not ended or stream.state == "incomplete":
            raise ModelError(ModelErrorKind.INCOMPLETE, "The provider's stream ended before its answer did")
        events: list[port.ModelEvent] = []
        self._close(events)
        reason = _REASONS.get(stream.finish_reason or "", "other")
        self._calls.finish(events, cut_short=reason in {"length", "content_filter"})
        if reason in {"stop", "tool_calls"}:
            # Gemini says "stop" over tool calls.
            reason = "tool_calls" if self._calls else "stop"
        cost = details.get("cost")
        micros = round(cost * 1_000_000) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
        events.append(port.Finish(reason, tokens(stream.usage), micros))
        return events

    def _start(self, index: int, part: theirs.ModelResponsePart, events: list[port.ModelEvent]) -> None:
        self._close(events)
        match part:
            case theirs.TextPart():
                self._open = _Open(index, "text")
                self._fragment(part.content, events)
            case theirs.ThinkingPart():
                self._open = _Open(index, "reasoning")
                self._fragment(part.content, events)
            case theirs.ToolCallPart() | theirs.NativeToolCallPart():
                self._calls.begin(index, part, events)
            case theirs.NativeToolReturnPart():
                self._calls.result(part, events)
            case theirs.FilePart():
                self._open = _Open(index, "text")
                self._fragment(f"[The model made a file of type {part.content.media_type}, which is not kept.]", events)
            case _:
                pass

    def _delta(self, index: int, delta: theirs.ModelResponsePartDelta, events: list[port.ModelEvent]) -> None:
        match delta:
            case theirs.TextPartDelta():
                self._resume(index, "text", delta.content_delta, events)
            case theirs.ThinkingPartDelta():
                self._resume(index, "reasoning", delta.content_delta, events)
            case theirs.ToolCallPartDelta():
                self._calls.delta(index, delta, events)
            case _:
                pass

    def _resume(
        self, index: int, kind: Literal["text", "reasoning"], text: str | None, events: list[port.ModelEvent]
    ) -> None:
        """Go on with a part; one that seemed to have ended goes on as a new one."""
        if not text:
            return
        if self._open is None or self._open.index != index:
            self._close(events)
            self._open = _Open(index, kind)
        self._fragment(text, events)

    def _fragment(self, text: str, events: list[port.ModelEvent]) -> None:
        part = self._open
        if part is None or not text:
            return
        is_text = part.kind == "text"
        if not part.id:
            part.id = self._next_id(part.kind)
            events.append(port.TextStart(part.id) if is_text else port.ReasoningStart(part.id))
        events.append(port.TextDelta(part.id, text) if is_text else port.ReasoningDelta(part.id, text))

    def _end(self, index: int, part: theirs.ModelResponsePart, events: list[port.ModelEvent]) -> None:
        match part:
            case theirs.TextPart():
                self._close(events)
                if kept := keepsake.of_part(part):
                    self._keep(keepsake.pack(self._speaker, "text", kept), events)
            case theirs.ThinkingPart():
                kept = keepsake.of_part(part)
                packed = keepsake.pack(self._speaker, "thinking", kept) if kept else None
                if self._open is not None and self._open.id:
                    events.append(port.ReasoningEnd(self._open.id, packed))
                elif packed:
                    self._keep(packed, events)
                self._open = None
            case theirs.ToolCallPart() | theirs.NativeToolCallPart():
                self._calls.end(index, part, events)
            case _:
                pass

    def _keep(self, packed: dict[str, Any], events: list[port.ModelEvent]) -> None:
        part_id = self._next_id("reasoning")
        events += (port.ReasoningStart(part_id), port.ReasoningEnd(part_id, packed))

    def _close(self, events: list[port.ModelEvent]) -> None:
        part, self._open = self._open, None
        if part is not None and part.id:
            events.append(port.TextEnd(part.id) if part.kind == "text" else port.ReasoningEnd(part.id))

    def _next_id(self, kind: str) -> str:
        self._parts += 1
        return f"{kind}_{self._parts - 1}"


def tokens(counted: usage.RequestUsage) -> messages.Tokens | None:
    """Our count of theirs, None where the provider gave none."""
    if counted.unmeasured_requests or not counted.has_values():
        return None
    cached, written = counted.cache_read_tokens, counted.cache_write_tokens
    reasoning = counted.output_reasoning_tokens or counted.details.get("reasoning_tokens", 0)
    reasoning = min(reasoning, counted.output_tokens)
    return messages.Tokens(
        input=max(0, counted.input_tokens - cached - written),
        output=counted.output_tokens - reasoning,
        reasoning=reasoning,
        cache_read=cached,
        cache_write=written,
    )
