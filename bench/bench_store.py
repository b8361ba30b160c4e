"""What the store adds to the statements it runs: units through the port against bare apsw in batches of the same size.

A unit checks a claim, takes a sequence number and appends an event. Bare apsw runs the same three statements, without
savepoints, threads or an event loop, as many in a transaction as there are writers on our side.
"""

import asyncio
import functools
import itertools
import os
import tempfile
import time
from pathlib import Path

import apsw

from bench.row import Row, interleave
from perdure import ids
from perdure.core import events
from perdure.store import group_commit, port, statements
from perdure.store.events import EventRow
from perdure.store.sqlite import SqliteStore
from perdure.testing.fault_vfs import FaultVFS

PLACE = Path(__file__).resolve().parent.parent / ".bench"
WRITERS = (1, 50, 500)
ROUNDS = 5
SECONDS = 0.4
DATA = '{"text":"' + "x" * 200 + '"}'
FRESH = itertools.count(1)


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        paths = {kind: Path(name) / f"{kind}.db" for kind in ("ours", "raw", "counted")}
        for path in paths.values():
            asyncio.run(prepare(path))
        variants = {}
        for writers in WRITERS:
            variants[f"bare apsw, {writers} a commit"] = functools.partial(raw, paths["raw"], writers)
            variants[f"store, {writers} writers"] = functools.partial(ours, paths["ours"], writers)
        rows = interleave(variants, rounds=ROUNDS, unit="units/s")
        shares = [
            Row(f"store to bare, {writers} writers", 100 * store.median / bare.median, "%")
            for writers, bare, store in zip(WRITERS, rows[::2], rows[1::2], strict=True)
        ]
        return rows + shares + [waits(paths["counted"], writers) for writers in WRITERS]


async def prepare(path: Path) -> None:
    def work(tx: port.Tx) -> None:
        for number in range(max(WRITERS)):
            session = f"ses_{number}"
            tx.events.put_sequence(session, 0, None)
            tx.sessions.insert(events.SessionCreated(session_id=session, agent="main"), 1)
            tx.claims.insert(f"exe_{number}", session, "own", purpose="turn", phase="safe", now=1, expires_at=9)

    store = await SqliteStore.open(path)
    await store.write(work)
    await store.close()


def unit(number: int) -> group_commit.Work:
    def work(tx: port.Tx) -> int:
        assert tx.claims.fence(f"exe_{number}", "own")
        seq = tx.events.next_seq(f"ses_{number}")
        event_id = ids.event_at(f"ses_{number}", seq)
        tx.events.append(EventRow(event_id, f"ses_{number}", seq, "t.1", 1, DATA), next(FRESH))
        return seq

    return work


def ours(path: Path, writers: int, vfs: str | None = None) -> float:
    """Units committed in a second by that many writers, each of which waits for its unit before the next."""

    async def measure() -> float:
        store = await SqliteStore.open(path, vfs=vfs)
        done, began = 0, time.perf_counter()

        async def writer(number: int) -> None:
            nonlocal done
            while time.perf_counter() - began < SECONDS:
                await store.write(unit(number))
                done += 1

        await asyncio.gather(*map(writer, range(writers)))
        took = time.perf_counter() - began
        await store.close()
        return done / took

    return asyncio.run(measure())


def raw(path: Path, batch: int) -> float:
    """The same statements by hand."""
    database = apsw.Connection(os.fspath(path), statementcachesize=256)
    for pragma, value in {"synchronous": "full", "foreign_keys": True, "recursive_triggers": True}.items():
        database.pragma(pragma, value)
    named = statements.load("sqlite")
    fence, move, append = named.claim_fence.sql, named.sequence_move.sql, named.event_append.sql
    new = {"seq": 0, "owner_id": None}
    taken = [
        [*database.execute(named.sequence_insert.sql, {**new, "aggregate_id": f"raw_{next(FRESH)}"}).fetchone(), 0]
        for number in range(batch)
    ]
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        database.execute("BEGIN IMMEDIATE")
        for number in range(batch):
            assert database.execute(fence, {"id": f"exe_{number}", "owner_id": "own"}).fetchone()
            aggregate, before = taken[number]
            taken[number][1] = seq = before + 1
            database.execute(move, {"aggregate": aggregate, "before": before, "seq": seq})
            row = {
                "id": None,
                "aggregate": aggregate,
                "seq": seq,
                "type": 1,
                "created": 1,
                "earlier": None,
                "data": DATA,
            }
            database.execute(append, {**row, "metadata": None, "proof": next(FRESH)}).fetchone()
        database.execute("COMMIT")
        done += batch
    database.close()
    return done / took


def waits(path: Path, writers: int) -> Row:
    """How often a unit waits for the disk: syncs of WAL and database, checkpoints included."""
    disk = FaultVFS("counted")
    before = next(FRESH)
    ours(path, writers, disk.name)
    return Row(f"syncs a unit, {writers} writers", disk.syncs() / (next(FRESH) - before - 1), "syncs")
