"""What this machine's disk allows: durable commits of small rows by bare apsw, with nothing of ours in between.

Every other number is read against this one. The file lies beside the checkout and not in the temporary directory, which
may live in memory, where a sync costs nothing.
"""

import functools
import os
import tempfile
import time
from pathlib import Path

import apsw

from bench.row import Row, interleave

PLACE = Path(__file__).resolve().parent.parent / ".bench"
BATCHES = (1, 50, 500)
ROUNDS = 5
SECONDS = 0.25
PAYLOAD = '{"text":"' + "x" * 200 + '"}'


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        database = connect(Path(name) / "limits.db")
        variants = {f"rows, {batch} a commit": functools.partial(rate, database, batch) for batch in BATCHES}
        rows = interleave(variants, rounds=ROUNDS, unit="rows/s")
        database.close()
    return rows


def connect(path: Path) -> apsw.Connection:
    database = apsw.Connection(os.fspath(path))
    database.pragma("journal_mode", "wal")
    database.pragma("synchronous", "full")
    database.execute("CREATE TABLE fact (seq INTEGER PRIMARY KEY, data TEXT NOT NULL)")
    return database


def rate(database: apsw.Connection, batch: int) -> float:
    """Rows made durable in a second, `batch` of them in each transaction."""
    written, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        with database:
            database.executemany("INSERT INTO fact (data) VALUES (?)", [(PAYLOAD,)] * batch)
        written += batch
    return written / took
