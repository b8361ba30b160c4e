"""A program whose process is killed while its provider fails: one session on one SQLite file, life after life.

Lives here: two prompts whose answers come over real HTTP, a tool that leaves a trace, and a parent that forks one child per
life, so that a life costs no start-up. Not here: the provider, when to kill, what must hold (`test_provider_faults.py`). The
parent reads one JSON object a line and answers with the child's process id, then with how it ended.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from contextlib import aclosing
from dataclasses import dataclass

from perdure import Agent, Perdure, Policy, Retrying, ToolContext, tool
from perdure.core import events
from perdure.models.openai_compatible import OpenAICompatible

SESSION = "ses"
LIFE_S = 60


@dataclass(frozen=True)
class Life:
    """Where the child lives, whom it asks, and after how many steps it dies once it knows how the next one went (-1: it
    does not).
    """

    database: str
    ledger: str
    url: str
    told: int = -1


def agent(life: Life, model: OpenAICompatible) -> Agent:
    @tool(effect="write")
    async def pay(n: int, context: ToolContext) -> str:
        """Pay."""
        with open(life.ledger, "a", encoding="utf-8") as ledger:  # noqa: ASYNC230, PTH123, one line, and then perhaps the end
            ledger.write(f"{context.assistant_message_id} {context.call_id} {n}\n")
        return f"paid {n}"

    return Agent("main", model, tools=[pay])


async def die(life: Life, session) -> None:
    """At the first fact that says how a step went, those aside that went well before."""
    ended = 0
    async with aclosing(session.events()) as facts:
        async for one in facts:
            ended += isinstance(one.data, events.StepEnded)
            if isinstance(one.data, events.StepFailed | events.RetryScheduled) or ended > life.told:
                os.kill(os.getpid(), signal.SIGKILL)


async def live(life: Life) -> None:
    """Ask both prompts, again where that was done before, and wait until they are settled."""
    model = OpenAICompatible(name="fake", base_url=life.url, api_key="none")
    async with Perdure([agent(life, model)], database=life.database) as app, asyncio.timeout(LIFE_S):
        session = await app.sessions.create(id=SESSION, policy=Policy(retry=Retrying(base_ms=1)))
        dying = asyncio.create_task(die(life, session)) if life.told >= 0 else None
        for message_id in ("one", "two"):
            await session.prompt("Pay", id=message_id)
            await session.wait(message_id)
        if dying:
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
    await model.close()


def child(life: Life) -> None:
    """One life, and no way back into the parent's code."""
    code = 1
    try:
        asyncio.run(live(life))
        code = 0
    except BaseException:  # noqa: BLE001, said and ended
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """A life per line of input."""
    for line in sys.stdin:
        life = Life(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            child(life)
        say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        say({"code": os.waitstatus_to_exitcode(status)})


def say(answer: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
