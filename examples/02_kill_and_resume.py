"""A process is killed inside a tool, after its side effect; another one takes over.

The first process refunds an order and dies by SIGKILL before the tool returns. The second opens the same file: the prompt is
answered, the refund is not made a second time, and the transcript says that its outcome is unknown.

    python examples/02_kill_and_resume.py
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from perdure import Agent, Perdure, Tool, tool
from perdure.core import request
from perdure.models import scripted


def answer(asked: request.Request) -> tuple[object, ...]:
    """Call the tool once; once its outcome is unknown, look instead of calling again."""
    known = [message for message in asked.messages if isinstance(message, request.ResultMessage)]
    if not known:
        return (scripted.Call("refund", {"order": "7", "cents": 500}),)
    return (scripted.Text(f"I have checked the ledger. The call ended with: {known[-1].text}"),)


def refund_into(ledger: Path, *, deadly: bool) -> Tool:
    """A tool that writes to a ledger, and in the first process does not live to say so."""

    @tool(effect="write")
    def refund(order: str, cents: int) -> str:
        """Refund an order."""
        with ledger.open("a") as file:
            file.write(f"refunded {cents} cents of order {order}\n")
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return "refunded"

    return refund


async def serve(folder: Path, *, deadly: bool) -> None:
    tools = [refund_into(folder / "ledger.txt", deadly=deadly)]
    agent = Agent("support", model=scripted.ScriptedModel(answer), instructions="You help customers.", tools=tools)
    async with Perdure(agents=[agent], database=str(folder / "support.db")) as app:
        session = await app.sessions.create(id="customer-7", agent="support")
        await session.prompt("Refund 500 cents of order 7", id="order-7")
        settled = await session.wait("order-7")
        print("outcome:", settled.outcome if settled else None)
        for message in await session.messages():
            print("-", message)


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(serve(Path(sys.argv[1]), deadly=True))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = subprocess.run([sys.executable, __file__, name], check=False)  # noqa: S603, it runs itself
        print("the first process ended by signal", -first.returncode)
        asyncio.run(serve(folder, deadly=False))
        print("the ledger:", (folder / "ledger.txt").read_text().strip())


if __name__ == "__main__":
    main()
