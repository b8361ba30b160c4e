"""Playing a scripted reply as a stream of the Anthropic Messages wire shape.

Lives here: the items only that shape has (thinking with a signature, server tools, stop reasons) and what each item,
theirs or of `provider_script.py`, looks like on the wire. Not here: which reply, routes and records
(`anthropic_provider.py`). Every event is one write to the socket, so that a `Cut` or `Hang` strikes where it stands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from perdure.testing import provider_script as script
from perdure.testing import tiny_http

Ending = Literal["completed", "refused", "cut"]


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thinking block in chunks of `size` code points, its signature in a delta of its own, as the API sends it."""

    text: str
    signature: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Redacted:
    """Thinking that nobody may read, only send back."""

    data: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call; a `str` as input is sent as it is. Without `id` it is `toolu_{request}_{n}`."""

    name: str
    input: dict[str, Any] | str
    id: str | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool the provider runs itself: its call, and the block with its result unless that is None."""

    name: str
    input: dict[str, Any]
    result: Any = None
    block: str = "web_search_tool_result"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The end of the answer; a reply that does not end itself gets `tool_use` or `end_turn`. None sends no reason."""

    stop_reason: str | None = ""
    usage: dict[str, Any] = field(default_factory=lambda: {"output_tokens": 7})
    stop: bool = True


Shared = script.Text | script.Raw | script.HttpError | script.StreamError | script.Cut | script.Hang
Item = Shared | Thinking | Redacted | ToolUse | ServerTool | End


class Reply:
    """The stream of one request; `usage` is what `message_start` counts, `hang` waits at a gate."""

    def __init__(
        self,
        exchange: tiny_http.Exchange,
        number: int,
        body: dict[str, Any],
        usage: dict[str, Any],
        hang: Callable[[str | None], Awaitable[None]],
    ) -> None:
        self._exchange, self._number, self._body, self._usage, self._hang = exchange, number, body, usage, hang
        self._blocks = self._calls = 0

    async def play(self, items: Sequence[Item]) -> Ending:
        """Play to the end, and say how it ended."""
        for item in (*items, End()):
            if ending := await self._item(item):
                return ending
        raise AssertionError("an End ends every reply")

    async def _item(self, item: Item) -> Ending | None:
        match item:
            case script.HttpError():
                await self._refuse(item)
                return "refused"
            case script.StreamError():
                await self._event("error", error={"type": item.type or "api_error", "message": item.message})
                await self._exchange.end()
                return "completed"
            case script.Cut():
                await self._cut(item)
                return "cut"
            case End():
                await self._end(item)
                return "completed"
            case script.Hang():
                await self._hang(item.gate)
            case script.Raw():
                await self._begin()
                await self._exchange.write(item.text.encode())
            case _:
                await self._block(item)
        return None

    async def _block(self, item: script.Text | Thinking | Redacted | ToolUse | ServerTool) -> None:
        match item:
            case script.Text():
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(item.text, item.size)]
                await self._whole({"type": "text", "text": ""}, deltas)
            case Thinking():
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(item.text, item.size)]
                deltas.append({"type": "signature_delta", "signature": item.signature})
                await self._whole({"type": "thinking", "thinking": "", "signature": ""}, deltas)
            case Redacted():
                await self._whole({"type": "redacted_thinking", "data": item.data}, [])
            case ToolUse():
                self._calls += 1
                await self._call("tool_use", self._id("toolu", item.id), item.name, item.input, item.size)
            case ServerTool():
                call_id = self._id("srvtoolu", item.id)
                await self._call("server_tool_use", call_id, item.name, item.input, 0)
                if item.result is not None:
                    await self._whole({"type": item.block, "tool_use_id": call_id, "content": item.result}, [])

    def _id(self, prefix: str, given: str | None) -> str:
        return f"{prefix}_{self._number}_{self._blocks}" if given is None else given

    async def _call(self, kind: str, call_id: str, name: str, given: dict[str, Any] | str, size: int) -> None:
        raw = given if isinstance(given, str) else msgspec.json.encode(given).decode() if given else ""
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(raw, size)]]
        await self._whole({"type": kind, "id": call_id, "name": name, "input": {}}, deltas)

    async def _whole(self, block: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> None:
        index = self._blocks
        self._blocks += 1
        await self._event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            await self._event("content_block_delta", index=index, delta=delta)
        await self._event("content_block_stop", index=index)

    async def _end(self, item: End) -> None:
        reason = ("tool_use" if self._calls else "end_turn") if item.stop_reason == "" else item.stop_reason
        await self._event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=item.usage)
        if item.stop:
            await self._event("message_stop")
        await self._exchange.end()

    async def _refuse(self, item: script.HttpError) -> None:
        error = {"type": "error", "error": {"type": item.type or "api_error", "message": item.message}}
        body = msgspec.json.encode(error) if item.body is None else item.body.encode()
        await self._exchange.respond(item.status, body, item.headers)

    async def _cut(self, item: script.Cut) -> None:
        if item.how == "end" and self._exchange.began:
            await self._exchange.end()
        else:
            self._exchange.cut(reset=item.how == "reset")

    async def _begin(self) -> None:
        if self._exchange.began:
            return
        await self._exchange.begin()
        message: dict[str, Any] = {"id": f"msg_{self._number}", "type": "message", "role": "assistant"}
        message |= {
            "content": [],
            "model": self._body.get("model"),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage,
        }
        await self._write("message_start", {"message": message})
        await self._write("ping", {})

    async def _event(self, name: str, **data: Any) -> None:
        await self._begin()
        await self._write(name, data)

    async def _write(self, name: str, data: dict[str, Any]) -> None:
        await self._exchange.write(
            b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"type": name} | data))
        )


def _pieces(text: str, size: int) -> list[str]:
    step = size or max(1, len(text))
    return [text[at : at + step] for at in range(0, len(text), step)]
