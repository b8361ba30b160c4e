"""Tool calls in the making: fragments by index, put together as events of the model port.

Lives here: which fragment belongs to which call, the ids calls get, and when a call is whole. Not here: what the
arguments mean; they stay raw text, valid JSON or not. A call starts with the first of its arguments, so that its name
is whole by then. It ends when the next call begins if its arguments are a whole JSON object by then, which nothing can
extend: its tool need not wait for the rest of the stream. Otherwise it ends with the stream, for fragments of parallel
calls may come interleaved.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import ModelError, ModelErrorKind
from perdure.models import port


class FunctionDelta(msgspec.Struct):
    """A fragment of a call's name or arguments (Ollama once sent an object, whole)."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(msgspec.Struct):
    """A fragment of a call; Gemini leaves the index out, most send the id only once."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class _Call:
    def __init__(self, index: int | None) -> None:
        self.index = index
        self.their_id = self.call_id = self.name = ""
        self.arguments: list[str] = []
        self.ended = False

    def whole(self) -> bool:
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return False


class Calls:
    """The calls of one message, in the order they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there was any call."""
        return bool(self._calls)

    def feed(self, delta: CallDelta, events: list[port.ModelEvent]) -> None:
        """Take one fragment; raises `ModelError` where it extends a call that was whole."""
        function = delta.function or FunctionDelta()
        call = self._find(delta, function) or self._begin(delta, events)
        call.their_id = call.their_id or delta.id or ""
        # Before the start a name may come late or in pieces; some repeat it whole in every chunk.
        if function.name and function.name != call.name and not call.call_id:
            call.name += function.name
        text = function.arguments or ""
        if isinstance(text, dict):
            text = msgspec.json.encode(text).decode()
        if call.ended:
            if text.strip():
                raise ModelError(
                    ModelErrorKind.INCOMPLETE, f"The provider went on with call {call.call_id} after its end"
                )
        elif text:
            call.arguments.append(text)
            if call.call_id:
                events.append(port.ToolInputDelta(call.call_id, text))
            elif call.name:
                self._start(call, events)

    def finish(self, events: list[port.ModelEvent], *, cut_short: bool) -> None:
        """End what is open. Where the answer was cut short, a call whose arguments never began was not made."""
        if cut_short and self._calls and not self._calls[-1].arguments:
            self._calls.pop()
        for call in self._calls:
            if not call.ended:
                self._end(call, events)

    def _find(self, delta: CallDelta, function: FunctionDelta) -> _Call | None:
        if delta.index is None:
            last = self._calls[-1] if self._calls else None
            goes_on = last and (delta.id == last.their_id if delta.id else not function.name)
            return last if goes_on else None
        call = next((call for call in reversed(self._calls) if call.index == delta.index), None)
        # Some number every parallel call 0; a new id with a name is a new call all the same.
        renewed = call and delta.id and call.their_id and delta.id != call.their_id and function.name
        return None if renewed else call

    def _begin(self, delta: CallDelta, events: list[port.ModelEvent]) -> _Call:
        for before in self._calls:
            if not before.ended and before.call_id and before.whole():
                self._end(before, events)
        call = _Call(delta.index)
        self._calls.append(call)
        return call

    def _start(self, call: _Call, events: list[port.ModelEvent]) -> None:
        call.call_id = self._fresh_id(call.their_id)
        events.append(port.ToolInputStart(call.call_id, call.name))
        if call.arguments:
            events.append(port.ToolInputDelta(call.call_id, "".join(call.arguments)))

    def _end(self, call: _Call, events: list[port.ModelEvent]) -> None:
        if not call.name:
            raise ModelError(ModelErrorKind.INCOMPLETE, "The provider made a tool call without a name")
        if not call.call_id:
            self._start(call, events)
        call.ended = True
        events += (port.ToolInputEnd(call.call_id), port.ToolCall(call.call_id, call.name))

    def _fresh_id(self, wanted: str) -> str:
        """The provider's id; where it gave none, or one this message already has, the first free `call_{n}` (PUB-2)."""
        call_id, n = wanted, len(self._ids)
        while not call_id or call_id in self._ids:
            call_id, n = f"call_{n}", n + 1
        self._ids.add(call_id)
        return call_id
