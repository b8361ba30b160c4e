"""A call that waits for a person, without a process waiting with it.

python examples/03_approval.py
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, Perdure, tool
from perdure.core import events, request
from perdure.models import scripted


@tool(effect="write", approval=lambda arguments: arguments["cents"] > 1000)
def refund(order: str, cents: int) -> str:
    """Refund an order; more than ten dollars need a person's word."""
    return f"refunded {cents} cents of order {order}"


def answer(asked: request.Request) -> tuple[object, ...]:
    results = [message for message in asked.messages if isinstance(message, request.ResultMessage)]
    return (scripted.Text(results[-1].text),) if results else (scripted.Call("refund", {"order": "7", "cents": 5000}),)


async def main(database: Path) -> None:
    agent = Agent("support", model=scripted.ScriptedModel(answer), tools=[refund])
    async with Perdure(agents=[agent], database=str(database)) as app:
        session = await app.sessions.create(agent="support")
        receipt = await session.prompt("Refund order 7, all of it")
        async for event in session.events():
            if isinstance(event.data, events.ExecutionParked):
                break
        print("waiting:", (await session.status()).reason, [call.call_id for call in await session.approvals()])

    # The process may end here. Whoever opens the file later finds the question, and the turn goes on from the answer.
    async with Perdure(agents=[agent], database=str(database)) as app:
        session = await app.sessions.get(session.id)
        (call,) = await session.approvals()
        await session.decide(call.call_id, "approve", by="the shift lead")
        settled = await session.wait(receipt.id)
        print("outcome:", settled.outcome if settled else None)
        print(await session.messages())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "support.db"))
