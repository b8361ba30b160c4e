"""What a session costs in memory: one that is idle, beyond the bounded cache of transcripts, and one that is in a turn.

A server in a process of its own; its resident memory, from /proc. Every idle session had a turn with an answer of 16 kB;
the cache is full long before the first measure. Every active one streams, and nobody reads.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx2

from bench import bench_load, load_client
from bench.row import Row

FIRST, IDLE, ACTIVE = 1_500, 2_000, 200
SIZE = 16 * 1024
LIMIT_S = 240


def run() -> list[Row]:
    bench_load.PLACE.mkdir(exist_ok=True)
    with bench_load.serving() as server:
        return asyncio.run(asyncio.wait_for(measure(server), LIMIT_S))


async def measure(server: bench_load.Server) -> list[Row]:
    base, headers = f"http://{server.host}:{server.port}", {"Authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60, trust_env=False) as http:

        async def post(path: str, **body: Any) -> Any:
            done = await http.post(f"/v1/sessions{path}", json=body)
            assert done.status_code < 300, done.text
            return done.json()

        async def idle(name: str) -> None:
            await post("", id=name)
            receipt = await post(f"/{name}/prompts", text=f"fill 1 {SIZE}")
            await post(f"/{name}/wait", message_id=receipt["id"], timeout=60)

        async def active(name: str) -> None:
            await post("", id=name)
            await post(f"/{name}/prompts", text=f"speak {LIMIT_S} 0")

        def memory() -> float:
            return bench_load.usage(server.process.pid)[0]

        bare = memory()
        await load_client.bounded(map(idle, names("first", FIRST)))
        before = memory()
        await load_client.bounded(map(idle, names("idle", IDLE)))
        after = memory()
        await load_client.bounded(map(active, names("active", ACTIVE)))
        await asyncio.sleep(5)
        busy = memory()
    return [
        Row(
            "an idle session", 1024 * (after - before) / IDLE, "KiB", f"{before:.0f} MiB, {IDLE} later {after:.0f} MiB"
        ),
        Row("an active session", 1024 * (busy - after) / ACTIVE, "KiB", f"{ACTIVE} that stream"),
        Row("the cache of transcripts, and everything else", before - bare, "MiB", f"{bare:.0f} MiB with no session"),
    ]


def names(kind: str, count: int) -> Iterable[str]:
    return (f"{kind}{number}" for number in range(count))
