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
    """The log of a file. Raises `StoreUnusable` where there is none, unless it may be created, and its kind."""
    if not create:
        _expect(path)
    store = await SqliteStore.open(path)
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
    if not path.exists():
        msg = f"Cannot open {path}: there is no such file"
        raise errors.StoreUnusable(msg)
