"""The server that the load benchmark measures: `perdure serve` in a process of its own, on a model that speaks by the clock.

`python -m bench.load_server …` takes what `perdure serve` takes; with BENCH_PROFILE it writes there where its CPU went.
What the model is to do stands in the prompt: `speak SECONDS PHASE` is a burst of words every tenth of a second, each burst
with the time at which it was due in front; `fill PARTS SIZE` is as many texts of that length at once; `tools` calls two that
never end.
"""

import asyncio
import cProfile
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from perdure import Agent, Perdure, tool
from perdure.cli import main as cli
from perdure.core import request
from perdure.models import port

BURST_S = 0.1
WORDS = ("and ", "then ", "some ", "words ")


@tool(effect="write")
async def stubborn() -> str:
    """Never end, whatever is asked."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@tool(effect="write")
def deaf() -> str:
    """Never end, in a thread that nobody can stop."""
    threading.Event().wait()
    return ""


class Speaker:
    """A model that does what the prompt says."""

    provider = name = "speaker"

    async def stream(self, asked: request.Request) -> AsyncIterator[port.ModelEvent]:
        """Speak, fill or call."""
        verb, *how = words_of(asked).split()
        if verb == "speak":
            async for event in speech(float(how[0]), float(how[1])):
                yield event
        elif verb == "fill":
            for number in range(int(how[0])):
                yield port.TextStart(f"t{number}")
                yield port.TextDelta(f"t{number}", "x" * int(how[1]))
                yield port.TextEnd(f"t{number}")
        else:
            for name in ("stubborn", "deaf"):
                yield port.ToolInputStart(name, name)
                yield port.ToolInputDelta(name, "{}")
                yield port.ToolInputEnd(name)
                yield port.ToolCall(name, name)
        yield port.Finish("tool_calls" if verb == "tools" else "stop")

    async def close(self) -> None:
        """Nothing is held."""


async def speech(seconds: float, phase: float) -> AsyncIterator[port.ModelEvent]:
    """Bursts at even times; one that comes late does not delay those after it."""
    began = time.monotonic() + phase
    yield port.TextStart("t")
    for number in range(round(seconds / BURST_S)):
        due = began + number * BURST_S
        await asyncio.sleep(max(due - time.monotonic(), 0))
        yield port.TextDelta("t", f"@{round(due * 1e6):016d} ")
        for word in WORDS:
            yield port.TextDelta("t", word)
    yield port.TextEnd("t")


def words_of(asked: request.Request) -> str:
    """The last prompt's text."""
    last = [message for message in asked.messages if isinstance(message, request.UserMessage)][-1]
    return "".join(part.text for part in last.content if isinstance(part, request.TextContent))


app = Perdure([Agent("speaker", model=Speaker(), tools=[stubborn, deaf])])


def main() -> None:
    """Serve, and where that is asked for note where the CPU goes."""
    wanted = os.environ.get("BENCH_PROFILE")
    if not wanted:
        cli.main()
        return
    profile = cProfile.Profile()
    try:
        profile.runcall(cli.main)
    finally:
        profile.dump_stats(Path(wanted))


if __name__ == "__main__":
    main()
