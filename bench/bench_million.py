"""A file of a million events: what it costs to open it, to read a page of it, to verify it and to rebuild its rows.

A thousand sessions of some 800 events and one of 200,000, of turns as an agent has them: a prompt, a step that thinks,
speaks and calls a tool, a step that answers. Events are appended in bulk through the store's own verbs, rows are written as a
rebuild writes them. Verify and rebuild are counted in CPU of this process, all threads, since they wait for nobody; of the
small sessions a part is looked at, the big one whole.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterable, Iterator
from pathlib import Path
from typing import Any

from bench.row import Row
from perdure import ids
from perdure.clock import SystemClock
from perdure.core import codec, events, messages, projection
from perdure.log import projections
from perdure.log.log import Log
from perdure.maintenance import rebuild, verify
from perdure.store import port
from perdure.store.events import EventRow
from perdure.store.sqlite import SqliteStore

PLACE = Path(__file__).resolve().parent.parent / ".bench"
SMALL, TURNS = 1_000, 45
BIG = "big"
BIG_TURNS = 11_111
FACTS = 18
BEGAN = 1_700_000_000_000
SAMPLE = 60
OPENINGS = 9
PAGE = 100
WORDS = "A sentence of the kind that models write, of some length and no news. "


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        path = Path(folder) / "million.db"
        return asyncio.run(measure(path))


async def measure(path: Path) -> list[Row]:
    began = time.process_time()
    count = await fill(path)
    size = await asyncio.to_thread(os.path.getsize, path)
    note = f"{count:,} events, {size / 2**20:,.0f} MiB"
    rows = [Row("build", count / (time.process_time() - began), "events/s", note), await opening(path)]
    store = await SqliteStore.open(path)
    log = log_of(store)
    rows += [await page(log, where, after) for where, after in pages()]
    some = [f"small{number}" for number in range(SAMPLE)]
    rows.append(await rate("verify, small sessions", check(log, some)))
    rows.append(await rate("verify, the big session", check(log, [BIG])))
    rows.append(await rate("rebuild, small sessions", again(log, some)))
    rows.append(await rate("rebuild, the big session", again(log, [BIG])))
    log.close()
    await store.close()
    return rows


def log_of(store: SqliteStore) -> Log:
    return Log(
        store,
        clock=SystemClock(),
        entropy=os.urandom,
        registry=codec.session_registry(),
        projectors=(projections.project,),
    )


# -- the file ----------------------------------------------------------------------------------------------------------


async def fill(path: Path) -> int:
    """All sessions, 20 small ones a transaction; how many events they have."""
    store = await SqliteStore.open(path)
    wanted = [(f"small{number}", TURNS) for number in range(SMALL)]
    units = [wanted[at : at + 20] for at in range(0, SMALL, 20)] + [[(BIG, BIG_TURNS)]]
    count = 0
    for unit in units:
        count += await store.write(lambda tx, unit=unit: sum(append(tx, *one) for one in unit))
    await store.close()
    return count


def append(tx: port.Tx, session: str, turns: int) -> int:
    """One session: its events as publishing stores them, then its rows."""
    registry, builder, seq = codec.session_registry(), projection.Builder(), -1
    for fact in story(session, turns):
        seq = tx.events.next_seq(session)
        event = events.Recorded(ids.event_at(session, seq), session, seq, BEGAN + seq, fact)
        builder.apply(event)
        stored = EventRow(event.id, session, seq, registry.stored_type(fact), event.created, codec.dump(fact))
        tx.events.append(stored)
    tx.upkeep.put(session, builder.freeze())
    return seq + 1


def story(session: str, turns: int) -> Iterator[Any]:
    yield events.SessionCreated(session_id=session, agent="main", model="scripted:m")
    for number in range(turns):
        yield from turn(session, f"{session}.{number}", BEGAN + 1 + FACTS * number)


def turn(session: str, name: str, time: int) -> Iterator[Any]:
    """One turn, asked for at that time; a fact a millisecond."""
    own = {"session_id": session}
    asked = {**own, "message_id": f"{name}.in", "kind": "user", "prompt": messages.text_prompt(3 * WORDS)}
    yield events.PromptAdmitted(**asked, delivery="steer", request_execution=True)
    execution = {**own, "execution_id": f"{name}.exe"}
    yield events.ExecutionStarted(**execution, owner_id="own", purpose="turn", attempt=1)
    yield events.PromptPromoted(**asked, delivery="steer", time_created=time)
    step = {**own, "assistant_message_id": f"{name}.a"}
    used = messages.Tokens(900, 150, 40, 4_000)
    yield events.StepStarted(**step, agent="main", model="scripted:m")
    yield events.ReasoningStarted(**step, reasoning_id="r")
    yield events.ReasoningEnded(**step, reasoning_id="r", text=2 * WORDS, provider_metadata={"signature": "s" * 64})
    yield events.TextStarted(**step, text_id="t")
    yield events.TextEnded(**step, text_id="t", text=WORDS)
    call = {**step, "call_id": f"call_{name}"}
    given = {"order": name, "cents": 500, "reason": "broken"}
    yield events.ToolInputStarted(**call, name="refund")
    yield events.ToolInputEnded(**call, text=codec.dump(given))
    yield events.ToolCalled(**call, name="refund", input=given)
    yield events.ToolSucceeded(**call, structured={"refunded": 500}, content=({"type": "text", "text": 4 * WORDS},))
    yield events.StepEnded(**step, finish="tool_calls", tokens=used, cost=1_200)
    last = {**own, "assistant_message_id": f"{name}.b"}
    yield events.StepStarted(**last, agent="main", model="scripted:m")
    yield events.TextStarted(**last, text_id="t")
    yield events.TextEnded(**last, text_id="t", text=6 * WORDS)
    yield events.StepEnded(**last, finish="stop", tokens=used, cost=1_100)
    yield events.ExecutionEnded(**execution, outcome="succeeded", message_ids=(f"{name}.in",))


# -- what is measured --------------------------------------------------------------------------------------------------


async def opening(path: Path) -> Row:
    """From nothing to the first answer."""
    took: list[float] = []
    for _ in range(OPENINGS):
        began = time.perf_counter()
        store = await SqliteStore.open(path)
        assert await store.read(lambda tx: tx.sessions.get(BIG))
        took.append(1000 * (time.perf_counter() - began))
        await store.close()
    return Row("open", statistics.median(took), "ms", f"{OPENINGS} times, {min(took):.1f} to {max(took):.1f}")


def pages() -> Iterator[tuple[str, int]]:
    whole = 1 + FACTS * BIG_TURNS
    yield from (("start", -1), ("middle", whole // 2), ("end", whole - FACTS * PAGE // 3 - 1))


async def page(log: Log, where: str, after: int) -> Row:
    """A page of the big session's transcript, as a client asks for it."""
    took: list[float] = []
    for _ in range(OPENINGS):
        began = time.perf_counter()
        found = await log.store.read(lambda tx: tx.messages.page(BIG, after, PAGE))
        took.append(1000 * (time.perf_counter() - began))
        assert found
    return Row(f"page of {PAGE} messages, {where} of the big session", statistics.median(took), "ms")


async def check(log: Log, sessions: list[str]) -> AsyncIterable[int]:
    for session in sessions:
        async for checked in verify.verify(log, session):
            assert not checked.problems
            yield checked.events


async def again(log: Log, sessions: list[str]) -> AsyncIterable[int]:
    for session in sessions:
        yield await rebuild.rebuild(log, session)


async def rate(name: str, work: AsyncIterable[int]) -> Row:
    began, count = time.process_time(), 0
    async for one in work:
        count += one
    each = (time.process_time() - began) / count
    return Row(name, 1 / each, "events/s", f"{1e6 * each:.1f} µs of CPU an event")
