"""The server under load: 200 sessions that speak, a thousand readers, fifty more that never read, and a signal at the end.

Server and readers are processes of their own (`load_server.py`, `load_client.py`) on one machine, over real sockets. A
session announces ten deltas a second. Delay is measured from the stamp that a delta was announced with to the reader's
socket; beside it, from the time its words were due, which holds coalescing and whatever the server's loop was late. With
BENCH_PROFILE the server writes there where its CPU went; BENCH_SECONDS makes the phases shorter.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2

from bench.row import Row

PLACE = Path(__file__).resolve().parent.parent / ".bench"
SESSIONS, READERS, STALLED = 200, 5, 50
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
WARM_S = 3
LIMIT_S = 240
GRACE_S = 2


def run() -> list[Row]:
    PLACE.mkdir(exist_ok=True)
    return under_load() + at_the_signal()


# -- the server --------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    host: str
    port: int
    token: str


@contextmanager
def serving(**settings: str) -> Iterator[Server]:
    """A server of its own, ended whatever happens."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        own = {f"PERDURE_{name.upper()}": value for name, value in settings.items()}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")},
            **own,
            "PERDURE_DATABASE_URL": f"{folder}/load.db",
            "PERDURE_TOKEN": token,
            "PERDURE_LOG_LEVEL": "error",
        }
        words = (sys.executable, "-m", "bench.load_server", "serve", "bench.load_server:app", "--port", "0", "--json")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, cwd=PLACE.parent)  # noqa: S603
        try:
            assert process.stdout
            host, _, port = json.loads(process.stdout.readline())["url"].removeprefix("http://").rpartition(":")
            yield Server(process, host, int(port), token)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


class Watch:
    """A process's memory and CPU, twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self.samples: list[tuple[float, float, float]] = []
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.samples.append((time.monotonic(), *usage(self._pid)))

    def between(self, began: float, ended: float) -> tuple[float, float, float]:
        """Memory (MiB) at the start and at the end, and the share of a core."""
        some = [one for one in self.samples if began <= one[0] <= ended]
        (first, before, cpu), (last, after, more) = some[0], some[-1]
        return before, after, (more - cpu) / (last - first)


def usage(pid: int) -> tuple[float, float]:
    """Resident MiB and CPU seconds of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return resident, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- load --------------------------------------------------------------------------------------------------------------


def under_load() -> list[Row]:
    with serving() as server, Watch(server.process.pid) as watch:
        place = {"host": server.host, "port": server.port, "token": server.token}
        asked = {**place, "sessions": SESSIONS, "readers": READERS, "stalled": STALLED, "seconds": SECONDS}
        words = (sys.executable, "-m", "bench.load_client")
        done = subprocess.run(  # noqa: S603
            words, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
        )
        found = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
        time.sleep(1)
    rows: list[Row] = []
    for phase, beside in (("alone", ""), ("beside", f", {STALLED} that never read")):
        rows += rows_of(found[phase], watch, f"{SESSIONS * READERS} readers{beside}")
    alone, beside = (found[phase]["delays"][1] for phase in ("alone", "beside"))
    rows.append(Row("p99 with readers that never read, to p99 without", 100 * beside / alone, "%"))
    dropped = found["dropped"]
    assert not dropped["left"], dropped
    rows.append(Row("readers that never read are dropped after", dropped["after"], "s", "PERDURE_STALL_SECONDS is 30"))
    before = watch.between(found["alone"]["began"], found["alone"]["ended"])[1]
    rows.append(
        Row("memory after they were dropped", watch.samples[-1][1], "MiB", f"{before:.0f} MiB before they came")
    )
    return rows


def rows_of(found: dict[str, Any], watch: Watch, name: str) -> list[Row]:
    assert not found["wrong"], found["wrong"]
    before, after, cpu = watch.between(found["began"] + WARM_S, found["ended"])
    (p50, p99, worst), (due50, due99, _) = found["delays"], found["late"]
    rate = found["deltas"] / (found["ended"] - found["began"])
    return [
        Row(f"announced to reader p50, {name}", p50, "ms", f"{rate:,.0f} deltas/s arrived, none lost or repeated"),
        Row(f"announced to reader p99, {name}", p99, "ms", f"worst {worst:.0f} ms"),
        Row(f"due to reader p99, {name}", due99, "ms", f"p50 {due50:.0f} ms; up to 50 ms are coalescing"),
        Row(f"server CPU, {name}", 100 * cpu, "%", f"of one core; the readers' own process {100 * found['cpu']:.0f} %"),
        Row(f"server memory, {name}", after, "MiB", f"{before:.1f} MiB {SECONDS - WARM_S:.0f} s before"),
    ]


# -- the signal --------------------------------------------------------------------------------------------------------


def at_the_signal() -> list[Row]:
    """SIGTERM while a turn speaks, two tools refuse to end, and readers read or do not."""
    with serving(grace_seconds=str(GRACE_S)) as server:
        headers = {"Authorization": f"Bearer {server.token}", "Accept": "text/event-stream"}
        url = f"http://{server.host}:{server.port}"
        with httpx2.Client(base_url=url, headers=headers, timeout=10, trust_env=False) as http, ExitStack() as open_now:
            asked = {"speaks": f"speak {LIMIT_S} 0", "calls": "tools", "long": "fill 64 65536"}
            for name, text in asked.items():
                http.post("/v1/sessions", json={"id": name}).raise_for_status()
                http.post(f"/v1/sessions/{name}/prompts", json={"text": text}).raise_for_status()
            wanted = {"speaks": "session.text.delta", "calls": "session.tool.called", "long": "session.execution.ended"}
            for name, event in [*wanted.items()] * 10:
                stream = open_now.enter_context(http.stream("GET", f"/v1/sessions/{name}/events"))
                if name != "long":  # whose readers never read
                    assert any(event in line for line in stream.iter_lines())
            server.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            code = server.process.wait(10 * GRACE_S)
            took = time.monotonic() - began
    assert code == 0, code
    note = f"grace {GRACE_S} s; 30 streams, a turn that speaks, two tools that never end"
    return [Row("SIGTERM to exit, past the grace period", took - GRACE_S, "s", note)]
