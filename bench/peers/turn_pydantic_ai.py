"""pydantic-ai, made durable by DBOS on SQLite: a workflow a turn, in which each model call and the tool are a step.

Neither keeps a conversation, so its messages lie in a table beside: the workflow reads those of earlier turns, which do
not change any more, and a last step adds the new ones.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench import words
from bench.peers import turns


async def model(asked: list[ModelMessage], _about: AgentInfo) -> ModelResponse:
    said = TextPart(await words.answer())
    if isinstance(asked[-1].parts[-1], ToolReturnPart):
        return ModelResponse([said])
    return ModelResponse([said, ToolCallPart("refund", words.CALL)])


@DBOS.step()
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


def messages_in(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE message (session TEXT, turn INTEGER, body BLOB, PRIMARY KEY (session, turn))")
    return connection


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[turns.Begin]:
    DBOS(config={"name": "turns", "system_database_url": f"sqlite:///{folder / 'dbos.db'}", "log_level": "WARNING"})
    agent = Agent(
        FunctionModel(model),
        name="support",
        instructions=words.INSTRUCTIONS,
        tools=[refund],
        capabilities=[DBOSDurability()],
    )
    with closing(messages_in(folder / "messages.db")) as kept:

        @DBOS.step()
        async def keep(session: str, number: int, body: str) -> None:
            kept.execute("INSERT INTO message VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (session, number, body))

        @DBOS.workflow()
        async def converse(session: str, number: int, prompt: str) -> str:
            earlier = kept.execute(
                "SELECT body FROM message WHERE session = ? AND turn < ? ORDER BY turn", (session, number)
            )
            history = [one for (body,) in earlier for one in ModelMessagesTypeAdapter.validate_json(body)]
            ended = await agent.run(prompt, message_history=history)
            await keep(session, number, ended.new_messages_json().decode())
            return ended.output

        async def begin(name: str) -> turns.Turn:
            async def turn(number: int) -> None:
                with SetWorkflowID(f"{name}.{number}"):
                    assert await converse(name, number, words.PROMPT) == words.WORDS

            return turn

        DBOS.launch()
        try:
            yield begin
        finally:
            DBOS.destroy()


if __name__ == "__main__":
    turns.main(sqlite=sqlite)
