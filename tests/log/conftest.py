"""What the tests of the log share: an aggregate of their own, a clock that is set by hand, and named places to stop at."""

import asyncio
import contextlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.core import codec, events
from perdure.log import projections
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore

SECONDS = 20  # the longest any test may wait for what must happen


@events.durable("test.noted", aggregate="thread")
class Noted:
    """Something was noted in a thread."""

    thread: str = "a"
    text: str = ""
    numbers: dict | None = None


@events.durable("test.counted", aggregate="thread")
class Counted:
    """Another fact of the same aggregate."""

    thread: str = "a"
    number: int = 0


@events.ephemeral("test.typing")
class Typing:
    """Nothing that lasts."""

    session_id: str = "a"
    text: str = ""


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = 1_000

    def now_ms(self):
        return self.now

    def suspend_ms(self):
        return self.now

    async def sleep_ms(self, ms):
        raise AssertionError("nothing here may sleep")


class Entropy:
    """Random bytes that are the same in every run."""

    def __init__(self):
        self.draw = random.Random(1).randbytes

    def __call__(self, size):
        return self.draw(size)


class Kit:
    """Builders by short names."""

    Noted, Counted, Typing, Clock, Entropy, SECONDS = Noted, Counted, Typing, Clock, Entropy, SECONDS

    @staticmethod
    def registry(*more):
        return codec.Registry([Noted, Counted, *codec.SESSION_FACTS, *more])

    @classmethod
    def log(cls, store, *, projectors=(projections.project,), registry=None):
        return Log(store, clock=Clock(), entropy=Entropy(), registry=registry or cls.registry(), projectors=projectors)

    @staticmethod
    async def stored(log, aggregate="a"):
        """The rows of an aggregate, without their place in the commit order."""
        rows = await log.store.read(lambda tx: tx.events.page(aggregate, -1, 100_000))
        return [(row.id, row.seq, row.type, row.created, row.data, row.metadata) for row in rows]

    @staticmethod
    async def rows(log, aggregate="a"):
        return await log.store.read(lambda tx: tx.events.page(aggregate, -1, 100_000))

    @staticmethod
    async def sequence(log, aggregate="a"):
        return await log.store.read(lambda tx: tx.events.sequence(aggregate))

    @staticmethod
    async def take(source, count):
        """The next `count` items."""
        async with asyncio.timeout(SECONDS):
            return [await anext(source) for _ in range(count)]


@pytest.fixture(scope="session")
def kit():
    return Kit


@pytest.fixture
def place(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture(params=["thread", "inline"])
async def store(request, place):
    store = await SqliteStore.open(place, seam=request.param)
    yield store
    await store.close()


@pytest.fixture
async def threaded(place):
    store = await SqliteStore.open(place)
    yield store
    await store.close()


@pytest.fixture
async def log(store):
    log = Kit.log(store)
    yield log
    log.close()


class Stops:
    """Named places at which whoever comes by waits until it is let go; only those that were asked for stop anybody."""

    def __init__(self):
        self.places = {}

    def at(self, name):
        """Have the next one stop there."""
        self.places[name] = (asyncio.Event(), asyncio.Event())

    async def reached(self, name):
        async with asyncio.timeout(SECONDS):
            await self.places[name][0].wait()

    def go(self, name):
        self.places.pop(name)[1].set()

    async def passing(self, name):
        if name in self.places:
            reached, go = self.places[name]
            reached.set()
            await go.wait()


class StoppingStore:
    """A store whose reads can be stopped before and after, counted from 1: "before read 1", "after read 1"."""

    def __init__(self, inner, stops):
        self.inner, self.stops, self.reads = inner, stops, 0

    async def read(self, work):
        self.reads += 1
        number = self.reads
        await self.stops.passing(f"before read {number}")
        result = await self.inner.read(work)
        await self.stops.passing(f"after read {number}")
        return result

    async def write(self, work, *, committed=None):
        return await self.inner.write(work, committed=committed)

    def on_foreign_commit(self, ring):
        return self.inner.on_foreign_commit(ring)


@pytest.fixture
def stops():
    return Stops()


@pytest.fixture
def stopping_log(store, stops):
    """A log whose reads can be stopped."""
    log = Kit.log(StoppingStore(store, stops))
    yield log
    log.close()


WRITER = """
import asyncio, sys
from perdure.core import codec, events
from perdure.log.log import Log
from perdure.store.sqlite import SqliteStore
from perdure import clock, ids
import os

@events.durable("test.noted", aggregate="thread")
class Noted:
    thread: str = "a"
    text: str = ""

async def main():
    store = await SqliteStore.open(sys.argv[1])
    log = Log(store, clock=clock.SystemClock(), entropy=os.urandom, registry=codec.Registry([Noted]))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, count = line.split()
        if verb == "remove":
            await log.transact(lambda unit: unit.remove("a"))
        for number in range(int(count)):
            await log.publish(Noted(text=f"foreign {number}"))
        print("done", flush=True)
    await store.close()

asyncio.run(main())
"""


class Writer:
    """Another process on the same file, which appends when told."""

    def __init__(self, path):
        source = str(Path(perdure.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": source},
        )

    async def do(self, verb, count=0):
        def tell():
            self.process.stdin.write(f"{verb} {count}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread(tell)


@pytest.fixture
def other_process(place):
    """Starts another process that writes to the file of `store`."""
    with contextlib.ExitStack() as stack:

        def start():
            writer = Writer(place)
            stack.callback(writer.process.communicate)
            stack.callback(writer.process.kill)
            return writer

        yield start
