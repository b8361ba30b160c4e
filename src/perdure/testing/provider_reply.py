"""Playing a scripted reply as a chat-completions stream.

Lives here: what each item of a reply looks like on the wire. Not here: which reply (`provider_script.py`), routes and
records (`fake_provider.py`). Every chunk is one write to the socket, so that a `Cut` or `Hang` strikes exactly where it
stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from perdure.testing import provider_script as script
from perdure.testing import tiny_http

Ending = Literal["completed", "refused", "cut"]
CREATED = 1_700_000_000


class Reply:
    """The stream of one request."""

    def __init__(
        self,
        exchange: tiny_http.Exchange,
        number: int,
        body: dict[str, Any],
        asked: script.Asked,
        hang: Callable[[str | None], Awaitable[None]],
    ) -> None:
        """`hang` waits at a gate."""
        self._exchange, self._number, self._body, self._asked, self._hang = exchange, number, body, asked, hang
        self._calls = self._written = 0

    async def play(self, items: Sequence[script.Item]) -> Ending:
        """Play to the end, and say how it ended; a reply that does not end itself is finished."""
        for item in (*items, script.Finish()):
            if ending := await self._item(item):
                return ending
        raise AssertionError("a Finish ends every reply")

    async def _item(self, item: script.Item) -> Ending | None:
        match item:
            case script.HttpError():
                await self._refuse(item)
                return "refused"
            case script.StreamError():
                await self._data({"error": {"message": item.message, "type": item.type, "code": item.code}})
                await self._exchange.end()
                return "completed"
            case script.Cut():
                await self._cut(item)
                return "cut"
            case script.Finish():
                await self._finish(item)
                return "completed"
            case script.Hang():
                await self._hang(item.gate)
            case script.Open():
                await self._begin()
            case script.Raw():
                await self._begin()
                await self._exchange.write(item.text.encode())
            case script.Text():
                await self._pieces(item.text, item, lambda piece: {"content": piece})
            case script.Echo():
                await self._pieces(self._asked.prompt, item, lambda piece: {"content": piece})
            case script.Reasoning():
                field = item.field
                await self._pieces(item.text, item, lambda piece: {field: piece})
            case script.Call():
                await self._call(item)
        return None

    async def _begin(self) -> None:
        if not self._exchange.began:
            await self._exchange.begin()
            await self._delta({"role": "assistant", "content": ""})

    async def _pieces(
        self,
        text: str,
        item: script.Text | script.Echo | script.Reasoning | script.Call,
        delta: Callable[[str], dict[str, Any]],
    ) -> None:
        size = item.size or max(1, len(text))
        for at in range(0, len(text), size):
            if at and item.delay_ms:
                await asyncio.sleep(item.delay_ms / 1000)
            self._written += size
            await self._delta(delta(text[at : at + size]))

    async def _call(self, item: script.Call) -> None:
        index = self._calls
        self._calls += 1
        call_id = f"call_{self._number}_{index}" if item.id is None else item.id
        opening: dict[str, Any] = {"index": index, "type": "function", "function": {"arguments": ""}}
        if call_id:
            opening["id"] = call_id
        if not item.late_name:
            opening["function"]["name"] = item.name
        await self._delta({"tool_calls": [opening]})
        if item.late_name:
            await self._delta({"tool_calls": [{"index": index, "function": {"name": item.name}}]})
        raw = item.input if isinstance(item.input, str) else msgspec.json.encode(item.input).decode()
        await self._pieces(
            raw, item, lambda piece: {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        )

    async def _finish(self, item: script.Finish) -> None:
        await self._begin()
        reason = ("tool_calls" if self._calls else "stop") if item.reason is None else item.reason or None
        if reason:
            await self._chunk([{"index": 0, "delta": {}, "finish_reason": reason}])
        options: dict[str, Any] = self._body.get("stream_options") or {}
        if item.usage and options.get("include_usage"):
            usage = self._estimate() if isinstance(item.usage, bool) else item.usage
            await self._chunk([], usage=_counts(usage))
        if item.done:
            await self._exchange.write(b"data: [DONE]\n\n")
        await self._exchange.end()

    def _estimate(self) -> script.Usage:
        asked = len(msgspec.json.encode(self._body.get("messages")))
        return script.Usage(prompt=asked // 4, completion=self._written // 4)

    async def _refuse(self, item: script.HttpError) -> None:
        error = {"message": item.message, "type": item.type, "param": None, "code": item.code}
        body = msgspec.json.encode({"error": error}) if item.body is None else item.body.encode()
        await self._exchange.respond(item.status, body, item.headers)

    async def _cut(self, item: script.Cut) -> None:
        if item.how == "end" and self._exchange.began:
            await self._exchange.end()
        else:
            self._exchange.cut(reset=item.how == "reset")

    async def _delta(self, delta: dict[str, Any]) -> None:
        await self._begin()
        await self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    async def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> None:
        head = {"id": f"chatcmpl-{self._number}", "object": "chat.completion.chunk", "created": CREATED}
        await self._data({**head, "model": self._body.get("model"), "choices": choices, **more})

    async def _data(self, value: dict[str, Any]) -> None:
        await self._begin()
        await self._exchange.write(b"data: " + msgspec.json.encode(value) + b"\n\n")


def _counts(usage: script.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
