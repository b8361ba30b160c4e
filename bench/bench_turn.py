"""The one-tool turn: 200 streamed tokens, one tool, 200 tokens, on a scripted model without latency.

Commits are counted by the writer's own probe, CPU is the process's, all threads. Bytes are what the database grew by: an empty
one has a page for each table and index, which are no turn's. Each turn waits for the one before it in its session; sessions run
side by side. The last row asks whether turn 500 of a session costs what turn 10 does.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import apsw

from bench import collector, words
from bench.row import Row
from perdure import Agent, Perdure, tool
from perdure.core import request
from perdure.engine.engine import World
from perdure.engine.perdure import Session
from perdure.models import scripted

PLACE = Path(__file__).resolve().parent.parent / ".bench"


@tool(effect="write")
async def refund(order: str, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


def answer(asked: request.Request) -> tuple[object, ...]:
    said = scripted.Text(words.WORDS, chunks=words.TOKENS)
    if isinstance(asked.messages[-1], request.ResultMessage):
        return (said,)
    return (said, scripted.Call("refund", words.CALL))


class Counter:
    """The writer's probe."""

    commits = 0

    def __call__(self, point: str) -> None:
        self.commits += point == "after_commit"


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    rows: list[Row] = []
    for sessions, turns in ((1, 150), (50, 8)):
        rows += asyncio.run(side_by_side(sessions, turns))
    return rows + asyncio.run(one_long_session())


async def turn(session: Session, number: int) -> None:
    receipt = await session.prompt(words.PROMPT, id=f"{session.id}.{number}")
    settled = await session.wait(receipt.id)
    assert settled
    assert settled.outcome == "succeeded"


def engine(folder: str, counter: Counter) -> Perdure:
    agent = Agent("support", model=scripted.ScriptedModel(answer), instructions=words.INSTRUCTIONS, tools=[refund])
    return Perdure(agents=[agent], database=f"{folder}/turns.db", world=World(probe=counter))


async def side_by_side(count: int, turns: int) -> list[Row]:
    counter = Counter()
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        async with engine(folder, counter) as app:
            await turn(await app.sessions.create(), 0)  # which prepares the statements
            collector.settle()
            sessions = [await app.sessions.create() for _ in range(count)]
            counter.commits, empty = 0, bytes_in(Path(folder))
            began, cpu = time.perf_counter(), time.process_time()

            async def all_of(session: Session) -> None:
                for number in range(turns):
                    await turn(session, number)

            await asyncio.gather(*map(all_of, sessions))
            took, used, total = time.perf_counter() - began, time.process_time() - cpu, count * turns
            stored = (bytes_in(Path(folder)) - empty) / total
    text = 2 * len(words.WORDS)
    return [
        Row(f"turns, {count} sessions", total / took, "turns/s"),
        Row(f"commits a turn, {count} sessions", counter.commits / total, "commits"),
        Row(f"CPU a turn, {count} sessions", 1000 * used / total, "ms"),
        Row(f"bytes a turn, {count} sessions", stored, "bytes", f"{stored / text:.1f} times the text"),
    ]


def bytes_in(folder: Path) -> int:
    """What the database takes, whether it stands in the file yet or still in the log beside it."""
    connection = apsw.Connection(f"{folder}/turns.db", flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.pragma("page_count") * connection.pragma("page_size")
    finally:
        connection.close()


async def one_long_session() -> list[Row]:
    """Turn about: the old session's turns around its 500th, and a young one's around its tenth."""
    took: dict[str, list[float]] = {"old": [], "young": []}
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        async with engine(folder, Counter()) as app:
            old, young = await app.sessions.create(), await app.sessions.create()
            collector.settle()
            for number in range(490):
                await turn(old, number)
            for number in range(5):
                await turn(young, number)
            for number in range(20):
                for name, session in (("old", old), ("young", young)):
                    began = time.process_time()
                    await turn(session, 490 + number)
                    took[name].append(1000 * (time.process_time() - began))
    late, early = statistics.median(took["old"]), statistics.median(took["young"])
    return [Row("CPU of turn 500 to turn 10", 100 * late / early, "%", f"{early:.2f} ms, then {late:.2f} ms")]
