"""Our side: the engine and the turn of `bench_turn`, on SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench import bench_turn
from bench.peers import turns


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[turns.Begin]:
    async with bench_turn.engine(str(folder), bench_turn.Counter()) as app:

        async def begin(_name: str) -> turns.Turn:
            session = await app.sessions.create()
            return lambda number: bench_turn.turn(session, number)

        yield begin


if __name__ == "__main__":
    turns.main(sqlite=sqlite)
