"""LangGraph: a graph of two nodes over its message state, kept by its SQLite saver.

The nodes make messages themselves, without a chat model's wrapper: what remains is LangGraph's own work. `async` is its
default durability, in which a checkpoint is written while the next node runs; `sync` writes it before.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench import words
from bench.peers import turns


async def model(state: MessagesState) -> dict[str, Any]:
    calls: list[dict[str, Any]] = []
    if not isinstance(state["messages"][-1], ToolMessage):
        calls.append({"name": "refund", "args": words.CALL, "id": f"call-{len(state['messages'])}"})
    return {"messages": [AIMessage(await words.answer(), tool_calls=calls)]}


async def refund(state: MessagesState) -> dict[str, Any]:
    (call,) = state["messages"][-1].tool_calls
    given = call["args"]
    return {"messages": [ToolMessage(f"refunded {given['cents']} of {given['order']}", tool_call_id=call["id"])]}


def after_model(state: MessagesState) -> Literal["refund", "__end__"]:
    return "refund" if state["messages"][-1].tool_calls else END


def graph() -> StateGraph:
    drawn = StateGraph(MessagesState)
    drawn.add_node("model", model)
    drawn.add_node("refund", refund)
    drawn.add_edge(START, "model")
    drawn.add_conditional_edges("model", after_model)
    drawn.add_edge("refund", "model")
    return drawn


@asynccontextmanager
async def sqlite(folder: Path, durability: Literal["async", "sync"]) -> AsyncIterator[turns.Begin]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "turns.db")) as saver:
        compiled = graph().compile(checkpointer=saver)

        async def begin(name: str) -> turns.Turn:
            async def turn(number: int) -> None:
                said = {"messages": [HumanMessage(words.PROMPT, id=f"{name}.{number}")]}
                thread = {"configurable": {"thread_id": name}}
                ended = await compiled.ainvoke(said, thread, durability=durability)
                assert ended["messages"][-1].content == words.WORDS
                assert len(ended["messages"]) == 4 * (number + 1)

            return turn

        yield begin


if __name__ == "__main__":
    turns.main(**{"async": partial(sqlite, durability="async"), "sync": partial(sqlite, durability="sync")})
