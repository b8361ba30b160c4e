"""The readers of the load benchmark, in a process of their own: `python -m bench.load_client`, asked by one line of JSON.

A thousand readers have to cost less than the server that feeds them: a reader is a protocol on a bare socket that takes
the chunks apart and decodes what it checks and nothing else. Checked is that no fact is missing or comes twice, that live
text is contiguous and that what it adds up to is what the server stored. Each phase answers with one line of JSON; times are
of the machine's own clocks, which server and client share.
"""

import asyncio
import gc
import itertools
import json
import re
import socket
import sys
import time
from typing import Any

import httpx2
import msgspec

from perdure.core import sse

DUE = re.compile(r"@(\d{16})")
PATIENCE_S = 60
AT_ONCE = 50
FAT, LONG = 64, 64 * 1024
"""How many texts of which length in the history that stalled readers ask for."""


class Delta(msgspec.Struct):
    delta: str
    offset: int


class Live(msgspec.Struct):
    """A delta in its envelope."""

    created: int
    data: Delta


class Ended(msgspec.Struct):
    text: str


class Fact(msgspec.Struct):
    data: Ended


LIVE, FACT = msgspec.json.Decoder(Live), msgspec.json.Decoder(Fact)


class Phase:
    """What the readers of one phase saw."""

    def __init__(self, readers: int) -> None:
        self.open, self.over = readers, asyncio.Event()
        self.delays: list[float] = []
        self.late: list[float] = []
        self.wrong: list[str] = []

    def ended(self) -> None:
        self.open -= 1
        if self.open <= 0:
            self.over.set()


class Reader(asyncio.Protocol):
    """One reader of one session."""

    def __init__(self, request: bytes) -> None:
        self._request, self._rest, self._parser = request, b"", sse.Parser()
        self._started, self.synced = False, asyncio.Event()
        self.seq: int | None = None
        self.phase = Phase(0)
        self.said: list[str] = []
        self.length = 0
        self.text = ""

    def begin(self, phase: Phase) -> None:
        self.phase, self.said, self.length, self.text = phase, [], 0, ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase.wrong.append(f"a reader lost its connection: {exc}")
        self.phase.over.set()

    def data_received(self, data: bytes) -> None:
        now, data, at = time.time(), self._rest + data, 0
        if not self._started:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._rest = data
                return
            self._started = True
        while (end := data.find(b"\r\n", at)) >= 0:
            stop = end + 2 + int(data[at:end], 16)
            if len(data) < stop + 2:
                break
            for frame in self._parser.feed(data[end + 2 : stop]):
                self._take(frame, now)
            at = stop + 2
        self._rest = data[at:]

    def _take(self, frame: sse.Frame, now: float) -> None:
        if frame.id:
            seq = int(frame.id)
            if self.seq is not None and seq != self.seq + 1:
                self.phase.wrong.append(f"seq {seq} after {self.seq}")
            self.seq = seq
        if frame.name == b"session.text.delta":
            self._live(LIVE.decode(frame.data), now)
        elif frame.name == b"session.text.ended":
            self.text = FACT.decode(frame.data).data.text
            if self.text != "".join(self.said):
                self.phase.wrong.append(f"{self.length} characters came of {len(self.text)}")
        elif frame.name == b"session.execution.ended":
            self.phase.ended()
        elif frame.name == b"synced":
            self.synced.set()

    def _live(self, live: Live, now: float) -> None:
        if live.data.offset != self.length:
            self.phase.wrong.append(f"a delta at {live.data.offset} after {self.length}")
        self.said.append(live.data.delta)
        self.length += len(live.data.delta)
        self.phase.delays.append(1000 * now - live.created)
        steady = time.time() - time.monotonic()
        self.phase.late += [1000 * (now - steady) - int(due) / 1000 for due in DUE.findall(live.data.delta)]


class Load:
    """The sessions, their readers, and the server they are at."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.host, self.port, self.token = asked["host"], asked["port"], asked["token"]
        self.seconds, self.readers = asked["seconds"], asked["readers"]
        self.names = [f"load{number}" for number in range(asked["sessions"])]
        headers = {"Authorization": f"Bearer {self.token}"}
        base = f"http://{self.host}:{self.port}"
        self.http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE_S, trust_env=False)
        self.reading: list[tuple[str, Reader]] = []

    async def post(self, path: str, **body: Any) -> Any:
        done = await self.http.post(f"/v1/sessions{path}", json=body)
        assert done.status_code < 300, done.text
        return done.json()

    async def prepare(self) -> None:
        """Sessions with a history, the first one with a long history; then their readers."""
        await bounded(self.create(name, FAT if name == self.names[0] else 0) for name in self.names)
        await bounded(self.connect(name) for name in self.names for _ in range(self.readers))

    async def create(self, name: str, parts: int) -> None:
        await self.post("", id=name)
        receipt = await self.post(f"/{name}/prompts", text=f"fill {parts} {LONG}")
        await self.post(f"/{name}/wait", message_id=receipt["id"], timeout=PATIENCE_S)

    async def connect(self, name: str) -> None:
        page = (await self.http.get(f"/v1/sessions/{name}/events", params={"limit": 1})).json()
        reader = Reader(self.request(name, page["last_seq"]))
        await asyncio.get_running_loop().create_connection(lambda: reader, self.host, self.port)
        self.reading.append((name, reader))
        async with asyncio.timeout(PATIENCE_S):
            await reader.synced.wait()

    def request(self, name: str, after: int) -> bytes:
        return (
            f"GET /v1/sessions/{name}/events?after={after} HTTP/1.1\r\nHost: {self.host}\r\n"
            f"Authorization: Bearer {self.token}\r\nAccept: text/event-stream\r\n\r\n"
        ).encode()

    async def speak(self, what: str) -> None:
        """A turn in every session, all of it read by every reader, and compared with what is stored."""
        phase = Phase(len(self.reading))
        for _, reader in self.reading:
            reader.begin(phase)
        began, cpu = time.monotonic(), time.process_time()
        phases = itertools.cycle(range(20))
        await bounded(
            self.post(f"/{name}/prompts", text=f"speak {self.seconds} {next(phases) / 200}") for name in self.names
        )
        async with asyncio.timeout(self.seconds + PATIENCE_S):
            await phase.over.wait()
        ended, used = time.monotonic(), time.process_time() - cpu
        stored = dict(await bounded(self.stored(name) for name in self.names))
        phase.wrong += [f"{name}: another text is stored" for name, one in self.reading if one.text != stored[name]]
        tell(
            what,
            began=began,
            ended=ended,
            deltas=len(phase.delays),
            wrong=phase.wrong[:5],
            delays=shares(phase.delays),
            late=shares(phase.late),
            cpu=used / (ended - began),
        )

    async def stored(self, name: str) -> tuple[str, str]:
        page = (await self.http.get(f"/v1/sessions/{name}/messages", params={"limit": 1000})).json()
        last = page["data"][-1]
        return name, "".join(part["text"] for part in last["parts"] if part["type"] == "text")

    async def stall(self, count: int) -> list[socket.socket]:
        """Readers that ask for the long history and never read."""
        loop, found = asyncio.get_running_loop(), []
        for _ in range(count):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            await loop.sock_connect(one, (self.host, self.port))
            await loop.sock_sendall(one, self.request(self.names[0], -1))
            found.append(one)
        return found

    async def dropped(self, stalled: list[socket.socket], since: float) -> None:
        """Wait until the server has reset each of them."""
        left = list(stalled)
        while left and time.monotonic() < since + 2 * PATIENCE_S:
            left = [one for one in left if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]
            await asyncio.sleep(0.1)
        tell("dropped", after=time.monotonic() - since, left=len(left))
        for one in stalled:
            one.close()


async def bounded(works: Any) -> list[Any]:
    """Run them all, some at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(work: Any) -> Any:
        async with slots:
            return await work

    return await asyncio.gather(*map(one, works))


def shares(measured: list[float]) -> list[float]:
    """p50, p99 and the worst."""
    measured.sort()
    return [measured[min(int(len(measured) * share), len(measured) - 1)] for share in (0.5, 0.99, 1)]


def tell(what: str, **found: Any) -> None:
    print(json.dumps({"what": what, **found}), flush=True)


async def main() -> None:
    asked = json.loads(sys.stdin.readline())
    load = Load(asked)
    await load.prepare()
    gc.collect()
    gc.freeze()
    await load.speak("alone")
    if asked["stalled"]:
        since = time.monotonic()
        stalled = await load.stall(asked["stalled"])
        waiting = asyncio.create_task(load.dropped(stalled, since))
        await load.speak("beside")
        await waiting
    await load.http.aclose()


if __name__ == "__main__":
    asyncio.run(main())
