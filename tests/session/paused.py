"""A program with one engine, two sessions and a tool that leaves a trace, for tests that stop and kill it.

It prints a line for each thing that happened and takes a line for each thing it may do next.
"""

import asyncio
import logging
import sys

from perdure import Agent, Perdure, config, tool
from perdure.models import scripted


async def main(database: str, ledger: str, lease: str) -> None:
    """Run prompt `hello`, whose model answers with a call once a line comes in; then prompt another session."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))

    class Line:
        def arrived(self) -> None:
            say("waiting")

        async def wait(self) -> None:
            self.arrived()
            await lines.get()

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        with open(ledger, "a") as file:  # noqa: ASYNC230, PTH123, one word
            file.write("paid\n")
        return "paid"

    def reply(asked):
        if len(model.requests) == 1:
            return [scripted.Hang(Line()), scripted.Call("pay", {}, "c1")]
        return [scripted.Text("Hi")]

    model = scripted.ScriptedModel(reply)
    settings = config.Settings(database_url=database, lease_seconds=float(lease))
    async with Perdure([Agent("main", model=model, tools=[pay])], settings=settings) as app:
        session = await app.sessions.create("main", id="ses")
        await session.prompt("Hello", id="hello")
        await lines.get()
        while running := app.engine.coordinator.running():
            await asyncio.wait(running)
        say("over")
        elsewhere = await app.sessions.create("main", id="elsewhere")
        await elsewhere.prompt("Hello", id="healthy")
        receipt = await elsewhere.wait("healthy", timeout=20)
        say(f"elsewhere {receipt.outcome}")
        await lines.get()


def say(words: str) -> None:
    """Tell the test."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main(*sys.argv[1:]))
