"""Opening a database to look after it.

Lives here: a log on a file, for the length of a block, with nothing running on it, and which schema the file has. Not here:
engines, how a schema grows (`store/migrate.py`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure import clock, config, errors
from perdure.core import codec
from perdure.log import projections
from perdure.log.log import Log
from perdure.store import checkup, schema
from perdure.store.sqlite import SqliteStore


@asynccontextmanager
async def log(path: Path, *, create: bool = False) -> AsyncGenerator[Log]:
    """The log of a file, to change it. Raises `StoreUnusable` where there is none, unless it may be created, and its kind."""
    if not create:
        _expect(path)
    async with _opened(await _store(path)) as opened:
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


def schema_of(path: Path) -> int:
    """Which schema a file has, 0 where there is none yet. Raises `StoreUnusable` and its kind, `SchemaTooNew` among them."""
    if not _there(path) and not path.is_dir():
        return 0
    with checkup.open_read_only(path) as file:
        found = file.schema()
    schema.refuse_newer(found)
    return found


async def migrate(path: Path) -> None:
    """Make the file or bring its schema up to date, and let go of it. Raises as `log`."""
    await (await _store(path)).close()


async def _store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, shared=config.settings().allow_network_files)


def _there(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _expect(path: Path) -> None:
    if _there(path):
        return
    what = "it is empty, and no Perdure database" if path.is_file() else "there is no such file"
    if not path.is_dir():  # of which opening says so
        raise errors.StoreUnusable(f"Cannot open {path}: {what}")
