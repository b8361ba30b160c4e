"""A program with one engine that prompts a session others prompt too, for tests of several processes on one file.

It prints `ready`, takes a line, sends its prompts all at once, waits for them and prints their outcomes and owner ids.
"""

import asyncio
import logging
import sys

from perdure import Agent, Perdure, config
from perdure.models.scripted import ScriptedModel, Text


async def main(database: str, name: str, count: str) -> None:
    """Send `count` prompts, every other one queued."""
    settings = config.Settings(database_url=database)
    model = ScriptedModel(lambda asked: [Text(f"Answered by {name}")])
    async with Perdure([Agent("main", model=model)], settings=settings) as app:
        session = await app.sessions.create("main", id="ses")
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        ids = [f"{name}-{number}" for number in range(int(count))]
        ways = ("steer", "queue")
        await asyncio.gather(*(session.prompt("Hi", id=one, delivery=ways[i % 2]) for i, one in enumerate(ids)))
        receipts = [await session.wait(one, timeout=50) for one in ids]
        say(" ".join(sorted({receipt.outcome or "open" for receipt in receipts})))
        await asyncio.to_thread(sys.stdin.readline)


def say(words: str) -> None:
    """Tell the test."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main(*sys.argv[1:]))
