"""A real `perdure serve` in a process of its own, started, killed and started again on the same file.

Lives here: the child's environment, its first line of output, SIGKILL by the pid that was started. Not here: what is
asked of it (`client.py`). The child has a process group of its own, so that Ctrl-C in a terminal reaches the demo
alone, which then ends the child.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from pathlib import Path

import msgspec

from perdure import errors
from perdure.cli.demo import shop

APP = "perdure.cli.demo.app:app"
PROGRAM = "from perdure.cli.main import main; main()"
START_S = 30.0
# Proxies are for the world outside, and settings of the person's own server are none of the demo's business.
FOREIGN = ("PERDURE_", "OPENAI_")
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}


class _FirstLine(msgspec.Struct):
    url: str


class ServerProcess:
    """The server, whichever process it is right now."""

    def __init__(self, folder: Path, provider_url: str) -> None:
        """Nothing runs before `start`."""
        self.database, self.url, self.token = folder / "perdure.db", "", secrets.token_urlsafe(16)
        self._log = folder / "server.log"
        self._environment = {name: value for name, value in os.environ.items() if _passes(name)} | {
            "PERDURE_DATABASE_URL": str(self.database),
            "PERDURE_TOKEN": self.token,
            "OPENAI_BASE_URL": provider_url,
            shop.FOLDER: str(folder),
        }
        if paths := self._environment.get("PYTHONPATH"):  # the child works in another folder
            self._environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths.split(os.pathsep)))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start a process and wait until it serves. Raises `ConfigError` with its last words where it does not."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, "serve", APP, "--port", "0", "--json"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.database.parent,
                start_new_session=True,
            )
        assert self._process.stdout is not None  # noqa: S101, it was asked for
        async with asyncio.timeout(START_S):
            line = await self._process.stdout.readline()
        if not line:
            words = self._log.read_text(errors="replace").strip().splitlines()
            raise errors.ConfigError(f"The server did not start: {words[-1] if words else 'it said nothing'}")
        self.url = msgspec.json.decode(line, type=_FirstLine).url

    async def kill(self) -> None:
        """SIGKILL, and wait until nothing is left of the process."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._process = None


def _passes(name: str) -> bool:
    return not name.startswith(FOREIGN) and name.lower() not in PROXIES
