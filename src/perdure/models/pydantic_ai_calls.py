"""Tool calls of a pydantic-ai stream: the model's, put together from fragments, and those the provider runs itself.

Lives here: which fragment belongs to which call, the ids calls get, when a call is whole, and the results that come
with the stream. Not here: what arguments mean; they stay raw text. As in `openai_calls.py` a call starts with the first
of its arguments, and ends when the next part begins if they are a whole JSON object by then; pydantic-ai announces that
a part ended as soon as another begins, which for parallel calls may be too early to believe.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from pydantic_ai import messages as theirs

from perdure.core import request as requests
from perdure.errors import ModelError, ModelErrorKind
from perdure.models import port
from perdure.models import pydantic_ai_keepsake as keepsake

Events = list[port.ModelEvent]


class _Call:
    def __init__(self, index: int, part: theirs.ToolCallPart) -> None:
        self.index, self.part = index, part
        self.call_id, self.name, self.their_id = "", part.tool_name, part.tool_call_id
        self.text = ""
        self.object: dict[str, Any] = {}
        self.ended = False

    def arguments(self) -> str:
        """Google gives an object, whole; nearly all others text."""
        return msgspec.json.encode(self.object).decode() if self.object else self.text

    def whole(self) -> bool:
        try:
            return bool(self.object) or isinstance(msgspec.json.decode(self.text), dict)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return False


class Calls:
    """The calls of one message, in the order they began."""

    def __init__(self, speaker: requests.Speaker, next_id: keepsake.NextId) -> None:
        """`next_id` names the empty reasoning parts that carry what a provider wants back."""
        self._speaker, self._next_id = speaker, next_id
        self._calls: list[_Call] = []
        self._native: dict[int, theirs.NativeToolCallPart] = {}
        self._running: dict[str, tuple[str, theirs.NativeToolCallPart]] = {}
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there was any call for us to run."""
        return bool(self._calls)

    def begin(self, index: int, part: theirs.ToolCallPart | theirs.NativeToolCallPart, events: Events) -> None:
        """A call appeared, perhaps with all of its arguments."""
        if isinstance(part, theirs.NativeToolCallPart):
            return
        call = _Call(index, part)
        self._calls.append(call)
        self._more(call, part.args, events)

    def delta(self, index: int, delta: theirs.ToolCallPartDelta, events: Events) -> None:
        """More of a call; of one that the provider runs, only the whole counts."""
        call = next((call for call in reversed(self._calls) if call.index == index), None)
        if call is None:
            return
        if not call.call_id:
            call.name += delta.tool_name_delta or ""
            call.their_id = delta.tool_call_id or call.their_id
        self._more(call, delta.args_delta, events)

    def end(self, index: int, part: theirs.ToolCallPart | theirs.NativeToolCallPart, events: Events) -> None:
        """Another part began, so this one seems to be whole."""
        if isinstance(part, theirs.NativeToolCallPart):
            # A search of tools is told twice, the second time in other words.
            if index not in self._native:
                self._native[index] = part
                self._run(part, events)
            return
        for call in self._calls:
            if call.index == index:
                call.part = part
                if not call.ended and call.whole():
                    self._end(call, events)

    def result(self, part: theirs.NativeToolReturnPart, events: Events) -> None:
        """The provider ran a call and tells what came of it, the call itself not always."""
        if part.tool_call_id not in self._running:
            call = theirs.NativeToolCallPart(part.tool_name, {}, part.tool_call_id, provider_name=part.provider_name)
            self._run(call, events)
        call_id, call = self._running.pop(part.tool_call_id)
        content: Any = keepsake.plain(part.content)
        structured = cast("dict[str, Any]", content) if isinstance(content, dict) else {"content": content}
        text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
        failed = part.outcome != "success" or str(structured.get("type", "")).endswith("error")
        events.append(port.ToolResult(call_id, text, None if isinstance(content, str) else structured, failed))
        kept = keepsake.of_native(call, part)
        self._keep(keepsake.pack(self._speaker, "native", kept, call_id), events)

    def finish(self, events: Events, *, cut_short: bool) -> None:
        """End what is open. Where the answer was cut short, a call whose arguments never began was not made."""
        if cut_short and self._calls and not self._calls[-1].arguments():
            self._calls.pop()
        for call in self._calls:
            if not call.ended:
                self._end(call, events)
        for call_id, _ in self._running.values():
            events.append(port.ToolResult(call_id, "The provider gave no result for this call.", is_error=True))
        self._running.clear()

    def _more(self, call: _Call, arguments: str | dict[str, Any] | None, events: Events) -> None:
        if not arguments:
            return
        if call.ended:
            if isinstance(arguments, str) and not arguments.strip():
                return
            raise ModelError(ModelErrorKind.INCOMPLETE, f"The provider went on with call {call.call_id} after its end")
        if isinstance(arguments, dict):
            call.object |= arguments
            return
        call.text += arguments
        if call.call_id:
            events.append(port.ToolInputDelta(call.call_id, arguments))
        elif call.name:
            self._start(call, events)

    def _start(self, call: _Call, events: Events) -> None:
        call.call_id = self._fresh_id(call.their_id)
        events.append(port.ToolInputStart(call.call_id, call.name))
        if text := call.arguments():
            events.append(port.ToolInputDelta(call.call_id, text))

    def _end(self, call: _Call, events: Events) -> None:
        if not call.name:
            raise ModelError(ModelErrorKind.INCOMPLETE, "The provider made a tool call without a name")
        if not call.call_id:
            self._start(call, events)
        call.ended = True
        events += (port.ToolInputEnd(call.call_id), port.ToolCall(call.call_id, call.name))
        if kept := keepsake.of_part(call.part):
            self._keep(keepsake.pack(self._speaker, "call", kept, call.call_id), events)

    def _run(self, part: theirs.NativeToolCallPart, events: Events) -> None:
        call_id = self._fresh_id(part.tool_call_id)
        self._running[part.tool_call_id] = (call_id, part)
        events += (
            port.ToolInputStart(call_id, part.tool_name),
            port.ToolInputDelta(call_id, part.args_as_json_str()),
            port.ToolInputEnd(call_id),
            port.ToolCall(call_id, part.tool_name, provider_executed=True),
        )

    def _keep(self, packed: dict[str, Any], events: Events) -> None:
        part_id = self._next_id("reasoning")
        events += (port.ReasoningStart(part_id), port.ReasoningEnd(part_id, packed))

    def _fresh_id(self, wanted: str) -> str:
        """The provider's id; where it gave none, or one this message already has, the first free `call_{n}` (PUB-2)."""
        call_id, n = wanted, len(self._ids)
        while not call_id or call_id in self._ids:
            call_id, n = f"call_{n}", n + 1
        self._ids.add(call_id)
        return call_id
