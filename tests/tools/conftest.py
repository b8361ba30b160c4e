"""Real processes and how a test waits for them: by events, never by the clock.

A command under test writes process ids into a FIFO; the test reads them there, and waits for their end by their pidfds.
"""

import os
import select
from pathlib import Path

import pytest

WAIT_S = 15


class Pids:
    """A FIFO that commands write process ids into."""

    def __init__(self, path: Path):
        self.path = path
        os.mkfifo(path)
        self._fifo = os.open(path, os.O_RDWR)  # never at its end, whoever comes and goes

    def read(self, count: int) -> list[int]:
        """The next process ids that are written."""
        found: list[int] = []
        rest = b""
        while len(found) < count:
            readable, _, _ = select.select([self._fifo], [], [], WAIT_S)
            assert readable, f"{count} process ids awaited, only {found} came"
            *lines, rest = (rest + os.read(self._fifo, 4096)).split(b"\n")
            found += [int(line) for line in lines]
        return found

    @staticmethod
    def runs(pid: int) -> bool:
        """Whether a process runs; one that only waits to be reaped does not."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def gone(self, *pids: int) -> bool:
        """Wait until all of them have ended."""
        for pid in pids:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                if self.runs(pid) and not select.select([pidfd], [], [], WAIT_S)[0]:
                    return False
            finally:
                os.close(pidfd)
        return True

    def close(self):
        os.close(self._fifo)


@pytest.fixture
def pids(tmp_path_factory):
    """See `Pids`."""
    made = Pids(tmp_path_factory.mktemp("pids") / "fifo")
    yield made
    made.close()
