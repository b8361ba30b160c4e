"""A session in fifteen lines, with a scripted model, so that it runs without a key.

python examples/01_first_session.py
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, Perdure, tool
from perdure.models import scripted


@tool(effect="read")
def stock(item: str) -> str:
    """How many of an item are in stock."""
    return f"7 of {item}"


MODEL = scripted.ScriptedModel(
    [(scripted.Call("stock", {"item": "lamp"}),), (scripted.Text("There are 7 lamps left."),)]
)


async def main(database: Path) -> None:
    agent = Agent("shop", model=MODEL, instructions="You answer questions about the shop.", tools=[stock])
    async with Perdure(agents=[agent], database=str(database)) as app:
        session = await app.sessions.create(agent="shop")
        receipt = await session.prompt("How many lamps are left?", id="question-1")
        settled = await session.wait(receipt.id)
        print("outcome:", settled.outcome if settled else None)
        async for event in session.events(follow=False):
            print(type(event.data).__name__)
        for message in await session.messages():
            print(message)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "shop.db"))
