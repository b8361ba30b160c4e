"""A program whose process dies when it is told to: one scripted conversation on one SQLite file, life after life.

Lives here: the conversation, the moments of death, and a parent that forks one child per life, so that a life costs no
start-up. Not here: what must hold afterwards (`test_every_commit.py`). The parent reads one JSON object a line, gives it to a
child, and answers what the child said and how it ended. A child kills itself with SIGKILL: nothing of it runs after that.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from perdure import Agent, Perdure, ToolContext, tool
from perdure.core import request
from perdure.engine.engine import World
from perdure.models import openai_request, scripted
from perdure.testing import pairing

SESSION = "customer-7"
PROMPTS = (("refund", "Refund order 7", "steer"), ("bye", "Say goodbye", "queue"))
LIFE_S = 20


@dataclass(frozen=True)
class Life:
    """Where the child lives, what its client knows already, and when it dies."""

    database: str
    ledger: str
    accepted: list[str] = field(default_factory=list)
    commit: int = 0  # dies at the so-manieth edge of a commit; 0: at none
    place: str = ""  # dies in the "tool", after its side effect, or in the "model", once its request has left

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def probe(life: Life) -> Callable[[str], None]:
    """Count the edges of the writer's commits, and die at the one that was named."""
    seen = 0

    def watch(where: str) -> None:
        nonlocal seen
        if where in {"before_commit", "after_commit"}:
            seen += 1
            if seen == life.commit:
                life.die()

    return watch


def agent(life: Life, say: Callable[[str], None]) -> Agent:
    """The one who answers; every request is put to the strictest provider's check."""

    @tool(effect="write")
    async def refund(order: str, context: ToolContext) -> str:
        """Refund an order."""
        with open(life.ledger, "a", encoding="utf-8") as ledger:  # noqa: ASYNC230, PTH123, one line, and then perhaps the end
            ledger.write(f"{context.call_id} {order}\n")
        if life.place == "tool":
            life.die()
        return f"refunded order {order}"

    @tool(effect="read")
    async def look(order: str) -> str:
        """Look an order up."""
        await asyncio.sleep(0.05)  # so that the refund beside it settles first, in a commit of its own
        return f"order {order} was paid"

    def reply(asked: request.Request) -> scripted.Reply:
        for problem in pairing.problems(openai_request.body(asked)["messages"]):
            say(f"violation {problem}")
        if life.place == "model":
            life.die()
        said = [part.text for one in asked.messages if isinstance(one, request.UserMessage) for part in one.content]
        if "Say goodbye" in said:
            return [scripted.Text("Goodbye.")]
        if any(isinstance(one, request.ResultMessage) for one in asked.messages):
            return [scripted.Text("It is refunded, as far as I can see.")]
        pause = scripted.Delay(0.25)  # long enough for a draft
        calls = [scripted.Call("refund", {"order": "7"}), scripted.Call("look", {"order": "7"})]
        return [scripted.Text("Let me"), pause, scripted.Text(" see."), *calls]

    return Agent("support", model=scripted.ScriptedModel(reply), tools=[refund, look])


async def live(life: Life, say: Callable[[str], None]) -> None:
    """Ask what was not accepted yet, and wait until all of it is settled."""
    app = Perdure([agent(life, say)], database=life.database, world=World(probe=probe(life)))
    async with app, asyncio.timeout(LIFE_S):
        session = await app.sessions.create("support", id=SESSION)
        for message_id, text, delivery in PROMPTS:
            if message_id not in life.accepted:
                await session.prompt(text, id=message_id, delivery=delivery)
                say(f"accepted {message_id}")
        for message_id, _, _ in PROMPTS:
            await session.wait(message_id)


def child(life: Life, pipe: int) -> None:
    """One life, and no way back into the parent's code."""
    code = 1
    try:
        asyncio.run(live(life, lambda words: os.write(pipe, f"{words}\n".encode())))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """A life per line of input."""
    for line in sys.stdin:
        life = Life(**json.loads(line))
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            child(life, writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            said = pipe.read().splitlines()
        _, status = os.waitpid(pid, 0)
        answer = {"said": said, "code": os.waitstatus_to_exitcode(status)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
