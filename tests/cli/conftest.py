"""The command line as a person meets it: a process of its own in an empty directory."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import main
from perdure.testing import fake_provider

SOURCE = Path(__file__).resolve().parents[2] / "src"
START = [sys.executable, "-c", "from perdure.cli.main import main; main()"]
PATIENCE = 30


class Shell:
    """Starts `perdure` in a directory, with nothing of the tester's own settings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "OPENAI_"))}
        state = {"XDG_STATE_HOME": str(directory / "state"), "HOME": str(directory)}
        self.environment = {**kept, **state, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "COLUMNS": "200"}

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*START, *arguments],
            cwd=self.directory,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def line(self, *arguments: str) -> str:
        """The first line it says; then it is killed."""
        with self._start(*arguments) as process:
            assert process.stdout
            return process.stdout.readline()

    @contextlib.contextmanager
    def serve(self, *arguments: str, **variables: str) -> Iterator["Serving"]:
        """A server on a free port, killed at the end if it still lives."""
        with self._start("serve", *arguments, "--port", "0", "--json", **variables) as process:
            assert process.stdout
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            yield Serving(process, json.loads(line))

    @contextlib.contextmanager
    def _start(self, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [*START, *arguments],
            cwd=self.directory,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)


class Serving:
    """A server that says where it is."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, Any]) -> None:
        self.process, self.said, self.url = process, said, said["url"]

    def end(self, signal: int) -> tuple[int, str]:
        """Send the signal; the exit code, and all it wrote to stderr."""
        self.process.send_signal(signal)
        _, wrote = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, wrote


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """The same in this process: for what is refused before anything starts."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for name in [name for name in os.environ if name.startswith(("PERDURE_", "OPENAI_"))]:
            monkeypatch.delenv(name)
        for name, value in (shell.environment | variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(shell.directory)
        monkeypatch.setattr(sys, "path", sys.path[:])
        for written in shell.directory.glob("*.py"):  # a process of its own would know no other module of that name
            monkeypatch.delitem(sys.modules, written.stem, raising=False)
        code = main.run(arguments)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    yield run
    root.handlers[:], root.level = handlers, level
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(shell.directory)):
            del sys.modules[name]


class Provider:
    """A fake provider in a thread, for tests that are not async."""

    def __init__(self):
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))

    async def _serve(self):
        self._stop = asyncio.Event()
        async with fake_provider.serve() as self.fake:
            self.ready.set()
            await self._stop.wait()

    def __enter__(self):
        self._thread.start()
        self.ready.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.loop.close()

    def script(self, *rules):
        self.loop.call_soon_threadsafe(self.fake.script, rules)

    def release(self, gate):
        self.loop.call_soon_threadsafe(self.fake.release, gate)

    def arrived(self, gate):
        asyncio.run_coroutine_threadsafe(self.fake.arrived(gate), self.loop).result(PATIENCE)


@pytest.fixture
def provider():
    with Provider() as made:
        yield made
