"""Whether the hundred-thousandth event of a session costs what the hundredth did.

Two logs grow: one of synthetic messages, and one in which a single assistant message makes two thousand tool calls.
What is timed is the CPU of this process for a run of publishes early and late, alternating between a short and a long
log in one run.
"""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.row import Row
from perdure.clock import SystemClock
from perdure.core import codec, events
from perdure.log import projections
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore

PLACE = Path(__file__).resolve().parent.parent / ".bench"
LONG = 100_000
CALLS = 2_000
SAMPLE = 200
ROUNDS = 7


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        return asyncio.run(measure(Path(folder)))


async def measure(folder: Path) -> list[Row]:
    store = await SqliteStore.open(folder / "growth.db")
    log = Log(
        store,
        clock=SystemClock(),
        entropy=os.urandom,
        registry=codec.session_registry(),
        projectors=(projections.project,),
    )
    await fill(log, "short", 100)
    await fill(log, "long", LONG)
    rows = [await compare(log, "event 100,000 to event 100", "short", "long", note)]
    for session, calls in (("few", 20), ("many", CALLS)):
        await start_calls(log, session, calls)
    rows.append(await compare(log, f"event with {CALLS:,} calls in its message to 20", "few", "many", progress))
    log.close()
    await store.close()
    return rows


async def fill(log: Log, session: str, upto: int) -> None:
    await log.publish(events.SessionCreated(session_id=session, agent="main"))
    for first in range(1, upto, 1000):
        await log.publish_many([note(session, number) for number in range(first, min(first + 1000, upto))])


def note(session: str, number: int) -> Any:
    return events.SyntheticAdded(session_id=session, message_id=f"{session}.{number}", text="x" * 200)


async def start_calls(log: Log, session: str, calls: int) -> None:
    await log.publish(events.SessionCreated(session_id=session, agent="main"))
    step = {"session_id": session, "assistant_message_id": f"{session}.a"}
    await log.publish(events.StepStarted(**step, agent="main", model="m"))
    for number in range(calls):
        call = {**step, "call_id": f"call_{number}", "name": "look"}
        await log.publish_many([events.ToolInputStarted(**call), events.ToolCalled(**call, input={"n": number})])


def progress(session: str, number: int) -> Any:
    return events.ToolProgress(
        session_id=session,
        assistant_message_id=f"{session}.a",
        call_id="call_7",
        content=({"type": "text", "text": f"{number}"},),
    )


async def compare(log: Log, name: str, short: str, long: str, make: Any) -> Row:
    """CPU of a publish on the long log, as a share of one on the short log; the median of alternating rounds."""
    costs: dict[str, list[float]] = {short: [], long: []}
    number = 10_000_000
    for _ in range(ROUNDS):
        for session in (short, long):
            began = time.process_time()
            for _ in range(SAMPLE):
                number += 1
                await log.publish(make(session, number))
            costs[session].append(1e6 * (time.process_time() - began) / SAMPLE)
    early, late = statistics.median(costs[short]), statistics.median(costs[long])
    return Row(name, 100 * late / early, "%", f"{early:.0f} µs, then {late:.0f} µs of CPU")
