"""What a publish costs on the real path: claim check, projection, event, sequence, announcement.

Beside it the same driver does the same rows in batches of the same size, with no code of ours: the statements themselves, by
hand. A publish here adds one synthetic message to a session, so that it has exactly one projected row.
"""

import asyncio
import functools
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw

from bench.row import Row, interleave
from perdure.clock import SystemClock
from perdure.core import codec, columns, events, messages
from perdure.log import projections
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.store import port, statements
from perdure.store.sqlite import SqliteStore

PLACE = Path(__file__).resolve().parent.parent / ".bench"
PUBLISHERS = (1, 50, 500)
ROUNDS = 5
SECONDS = 0.5
TEXT = "x" * 200
FRESH = itertools.count()
FOR_EVER = 2**52


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        paths = {kind: Path(name) / f"{kind}.db" for kind in ("ours", "raw")}
        for path in paths.values():
            asyncio.run(prepare(path))
        variants = {}
        for publishers in PUBLISHERS:
            variants[f"bare apsw, {publishers} a commit"] = functools.partial(raw, paths["raw"], publishers)
            variants[f"publish, {publishers} publishers"] = functools.partial(ours, paths["ours"], publishers)
        rows = interleave(variants, rounds=ROUNDS, unit="events/s")
        shares = [
            Row(f"publish to bare, {publishers} publishers", 100 * mine.median / bare.median, "%")
            for publishers, bare, mine in zip(PUBLISHERS, rows[::2], rows[1::2], strict=True)
        ]
        return rows + shares


async def prepare(path: Path) -> None:
    def work(tx: port.Tx) -> None:
        for number in range(max(PUBLISHERS)):
            session, claim = f"ses_{number}", f"exe_{number}"
            tx.events.put_sequence(session, 0, None)
            tx.sessions.insert(events.SessionCreated(session_id=session, agent="main"), 1)
            tx.claims.insert(claim, session, "own", purpose="turn", phase="safe", now=1, expires_at=FOR_EVER)

    store = await SqliteStore.open(path)
    await store.write(work)
    await store.close()


def ours(path: Path, publishers: int) -> float:
    """Events published in a second by that many publishers, each of which waits for its event before the next."""

    async def measure() -> float:
        store = await SqliteStore.open(path)
        log = Log(
            store,
            clock=SystemClock(),
            entropy=os.urandom,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )
        done, began = 0, time.perf_counter()

        async def publisher(number: int) -> None:
            nonlocal done
            session, claim = f"ses_{number}", f"exe_{number}"
            while time.perf_counter() - began < SECONDS:
                fact = events.SyntheticAdded(session_id=session, message_id=f"msg_{next(FRESH)}", text=TEXT)

                def work(unit: Unit, fact: events.SyntheticAdded = fact) -> None:
                    assert unit.tx.claims.fence(claim, "own")
                    unit.append(fact)

                await log.transact(work)
                done += 1

        await asyncio.gather(*map(publisher, range(publishers)))
        took = time.perf_counter() - began
        log.close()
        await store.close()
        return done / took

    return asyncio.run(measure())


def raw(path: Path, batch: int) -> float:
    """The same rows by hand."""
    database = apsw.Connection(os.fspath(path), statementcachesize=256)
    for pragma, value in {"synchronous": "full", "foreign_keys": True, "recursive_triggers": True}.items():
        database.pragma(pragma, value)
    named = statements.load("sqlite")
    fence, move = named.claim_fence.sql, named.sequence_move.sql
    append, insert = named.event_append.sql, named.message_insert.sql
    taken = [_sequence(database, f"ses_{number}") for number in range(batch)]
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        database.execute("BEGIN IMMEDIATE")
        for number in range(batch):
            session, message = f"ses_{number}", f"msg_{next(FRESH)}"
            assert database.execute(fence, {"id": f"exe_{number}", "owner_id": "own"}).fetchone()
            aggregate, before = taken[number]
            seq = before + 1
            taken[number] = aggregate, seq
            database.execute(move, {"aggregate": aggregate, "before": before, "seq": seq})
            data = columns.dump_message(messages.Synthetic(message, seq, messages.MessageTime(1), TEXT))
            row = {"id": message, "session_id": session, "type": "synthetic", "seq": seq, "time_created": 1}
            database.execute(insert, {**row, "data": data}).fetchone()
            fact = events.SyntheticAdded(session_id=session, message_id=message, text=TEXT)
            stored = columns.without_session(codec.dump(fact), session)
            event = {"id": None, "aggregate": aggregate, "seq": seq, "type": 1, "created": 1, "earlier": None}
            database.execute(append, {**event, "data": stored, "metadata": None, "proof": next(FRESH)}).fetchone()
        database.execute("COMMIT")
        done += batch
    database.close()
    return done / took


def _sequence(database: Any, session: str) -> tuple[int, int]:
    """The number that a session's events name it by, and the last number taken."""
    named = statements.load("sqlite")
    row = database.execute(named.sequence_lock.sql, {"aggregate_id": session}).fetchone()
    if row:
        return row
    new = {"aggregate_id": session, "seq": 0, "owner_id": None}
    (aggregate,) = database.execute(named.sequence_insert.sql, new).fetchone()
    return aggregate, 0
