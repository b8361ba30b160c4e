"""One suite, every store: another database adds a name to the lists and an opener, and no test."""

import pytest

from perdure.store.sqlite import SqliteStore


async def open_sqlite(place):
    return await SqliteStore.open(place / "log.db")


async def open_sqlite_inline(place):
    return await SqliteStore.open(place / "log.db", seam="inline")


OPENERS = {"sqlite": open_sqlite, "sqlite-inline": open_sqlite_inline}


@pytest.fixture(params=["sqlite", "sqlite-inline"])
async def store(request, tmp_path):
    """Every store on every seam."""
    store = await OPENERS[request.param](tmp_path)
    yield store
    await store.close()


@pytest.fixture(params=["sqlite"])
async def threaded(request, tmp_path):
    """Stores whose units run beside the event loop."""
    store = await OPENERS[request.param](tmp_path)
    yield store
    await store.close()


@pytest.fixture
async def again(request, tmp_path):
    """Opens the same database once more, as another process does."""
    opened = []

    async def open_again():
        opened.append(await OPENERS[request.node.callspec.params["store"]](tmp_path))
        return opened[-1]

    yield open_again
    for one in opened:
        await one.close()
