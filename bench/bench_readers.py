"""How long a reader waits for what was committed.

A hundred sessions with a follower each, at a thousand events a second in total; then one session with a hundred
followers, at two hundred a second. Timed from the return of the publish call's commit to the follower's turn, in one
process.
"""

import asyncio
import os
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from bench.row import Row
from perdure.clock import SystemClock
from perdure.core import codec, events
from perdure.log import projections
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore

PLACE = Path(__file__).resolve().parent.parent / ".bench"
SECONDS = 4


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    return asyncio.run(fan_out(100, 1, 1000)) + asyncio.run(fan_out(1, 100, 200))


async def fan_out(sessions: int, followers: int, rate: int) -> list[Row]:
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        store = await SqliteStore.open(Path(folder) / "readers.db")
        log = Log(
            store,
            clock=SystemClock(),
            entropy=os.urandom,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )
        waits: list[float] = []
        committed: dict[tuple[str, int], float] = {}

        def note_wait(session: str, seq: int) -> None:
            waits.append(time.perf_counter() - committed[session, seq])

        async def follow(session: str) -> None:
            async with aclosing(log.follow(session, 0)) as following:
                async for event in following:
                    if isinstance(event, events.Recorded):
                        note_wait(session, event.seq)

        names = [f"ses_{number}" for number in range(sessions)]
        for name in names:
            await log.publish(events.SessionCreated(session_id=name, agent="main"))
        readers = [asyncio.create_task(follow(name)) for name in names for _ in range(followers)]
        await asyncio.sleep(0.2)
        await publish(log, names, rate, committed)
        await asyncio.sleep(0.2)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        log.close()
        await store.close()
    return rows_of(waits, f"{sessions} x {followers} followers, {rate} events/s")


async def publish(log: Log, names: list[str], rate: int, committed: dict[tuple[str, int], float]) -> None:
    """Publish at an even rate, whatever a single publish takes."""
    began = time.perf_counter()
    tasks: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        session = names[number % len(names)]
        fact = events.SyntheticAdded(session_id=session, message_id=f"msg_{number}", text="x" * 100)

        def note(recorded: object) -> None:
            (event,) = recorded  # type: ignore[misc]
            committed[session, event.seq] = time.perf_counter()

        await log.transact(lambda unit: unit.append(fact), committed=note)

    for number in range(rate * SECONDS):
        due = began + number / rate
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        task = asyncio.create_task(one(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


def rows_of(waits: list[float], name: str) -> list[Row]:
    waits.sort()
    p50, p99 = (1000 * waits[int(len(waits) * share)] for share in (0.5, 0.99))
    return [Row(f"commit to reader p50, {name}", p50, "ms"), Row(f"commit to reader p99, {name}", p99, "ms")]
