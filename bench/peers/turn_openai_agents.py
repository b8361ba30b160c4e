"""The OpenAI Agents SDK with its `SQLiteSession` in a file. Tracing, which would go to a server, is off."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench import words
from bench.peers import turns


@function_tool
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


class Scripted(Model):
    def __init__(self) -> None:
        self._numbers = itertools.count()

    async def get_response(self, system_instructions: str | None, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        number = next(self._numbers)
        text = ResponseOutputText(text=await words.answer(), type="output_text", annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(
                id=f"message-{number}", content=[text], role="assistant", status="completed", type="message"
            )
        ]
        if input[-1].get("type") != "function_call_output":
            output.append(
                ResponseFunctionToolCall(
                    arguments=json.dumps(words.CALL), call_id=f"call-{number}", name="refund", type="function_call"
                )
            )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[turns.Begin]:
    set_tracing_disabled(True)
    agent = Agent(name="support", instructions=words.INSTRUCTIONS, model=Scripted(), tools=[refund])
    opened: list[SQLiteSession] = []

    async def begin(name: str) -> turns.Turn:
        session = SQLiteSession(name, folder / "turns.db")
        opened.append(session)

        async def turn(_number: int) -> None:
            ended = await Runner.run(agent, words.PROMPT, session=session)
            assert ended.final_output == words.WORDS

        return turn

    try:
        yield begin
    finally:
        for session in opened:
            await asyncio.to_thread(session.close)


if __name__ == "__main__":
    turns.main(sqlite=sqlite)
