"""What a delta costs in the adapter for OpenAI-compatible providers: an answer of 4,000 over real HTTP, from another process.

Beside it the same answer read with the same HTTP client and thrown away: the difference is what taking the stream apart and
making events of it costs. CPU of this process, all threads; how many deltas one read brings is up to the socket.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Generator
from pathlib import Path

import httpx2

from bench import words
from bench.row import Row
from perdure.core import request
from perdure.models import openai_compatible, port
from perdure.testing import provider_script as script

PLACE = Path(__file__).resolve().parent.parent / ".bench"
DELTAS = 4_000
ROUNDS = 7


def run() -> list[Row]:
    with provider() as url:
        return asyncio.run(rounds(url))


@contextlib.contextmanager
def provider() -> Generator[str]:
    """The fake provider in a process of its own, answering everything with the same words."""
    text = words.WORDS * (DELTAS // words.TOKENS)
    PLACE.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=PLACE, suffix=".json") as file:
        file.write(script.to_json([script.Rule((script.Text(text, size=5),))]))
        file.flush()
        command = [sys.executable, "-m", "perdure.testing.fake_provider", "--script", file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own program
            assert process.stdout
            try:
                yield json.loads(process.stdout.readline())["url"]
            finally:
                process.terminate()


async def rounds(url: str) -> list[Row]:
    model = openai_compatible.OpenAICompatible(name="fake", base_url=url, api_key="none")
    taken: list[float] = []
    bare: list[float] = []
    async with httpx2.AsyncClient() as client:
        for _ in range(ROUNDS):
            bare.append(await measured(read(client, url)))
            taken.append(await measured(take(model)))
    await model.close()
    pairs = [after - before for before, after in zip(bare, taken, strict=True)]
    return [
        Row("read and thrown away, a delta", statistics.median(bare), "µs"),
        Row("taken by the adapter, a delta", statistics.median(taken), "µs"),
        Row("the adapter's own share, a delta", statistics.median(pairs), "µs", "bar: 20"),
    ]


async def measured(work: Awaitable[int]) -> float:
    """CPU a delta of an answer, in µs."""
    began = time.process_time()
    deltas = await work
    assert deltas >= DELTAS
    return 1e6 * (time.process_time() - began) / deltas


async def read(client: httpx2.AsyncClient, url: str) -> int:
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": words.PROMPT}]}
    async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
        found = 0
        async for chunk in response.aiter_bytes():
            found += chunk.count(b"data: ")
    return found


async def take(model: openai_compatible.OpenAICompatible) -> int:
    said = request.UserMessage((request.TextContent(words.PROMPT),))
    asked = request.Request("s", "fake", words.INSTRUCTIONS, (said,))
    found = 0
    async for event in model.stream(asked):
        found += isinstance(event, port.TextDelta)
    return found
