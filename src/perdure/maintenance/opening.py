"""Opening a database to look after it.

Lives here: a log on a file, for the length of a block, with nothing running on it. Not here: engines.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure import clock, errors
from perdure.core import codec
from perdure.log import projections
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore


@asynccontextmanager
async def log(path: Path, *, create: bool = False) -> AsyncGenerator[Log]:
    """The log of a file, to change it. Raises `StoreUnusable` where there is none, unless it may be created, and its kind."""
    if not create:
        _expect(path)
    async with _opened(await SqliteStore.open(path)) as opened:
        yield opened


@asynccontextmanager
async def look(path: Path) -> AsyncGenerator[Log]:
    """The log of a file, for reading only: nothing is created and nothing changed. Raises `StoreUnusable` and its kind."""
    async with _opened(await SqliteStore.look(path)) as opened:
        yield opened


@asynccontextmanager
async def _opened(store: SqliteStore) -> AsyncGenerator[Log]:
    try:
        opened = Log(
            store,
            clock=clock.SystemClock(),
            entropy=os.urandom,
            registry=codec.session_registry(),
            projectors=(projections.project,),
        )
        yield opened
        opened.close()
    finally:
        await store.close()


def _expect(path: Path) -> None:
    if path.is_file() and path.stat().st_size:
        return
    what = "it is empty, and no Perdure database" if path.is_file() else "there is no such file"
    if not path.is_dir():  # of which opening says so
        raise errors.StoreUnusable(f"Cannot open {path}: {what}")
