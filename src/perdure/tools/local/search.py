"""Searching files for a pattern, as a tool.

Lives here: the tool; the search itself is a process of its own (`search_worker.py`), since a pattern that backtracks
for ever would otherwise hold the interpreter, and with it every session of this process.
"""

from __future__ import annotations

import json
import sys

from perdure.agent import ToolContext, ToolError
from perdure.tools import processes
from perdure.tools.local import rooted, shell

TIMEOUT_S = 30.0


class Search:
    """The search tool of one root."""

    def __init__(self, root: rooted.Root) -> None:
        """Search below `root`."""
        self._root = root

    def search_files(
        self, pattern: str, context: ToolContext, path: str = ".", files: str = "*", *, ignore_case: bool = False
    ) -> str:
        """Find lines that match a regular expression in text files below the working directory.

        Args:
            pattern: a Python regular expression, matched against each line
            path: the directory to search, relative to the working directory
            files: only files of this name or path, such as *.py or src/*.md
            ignore_case: letters match in either case
        """
        asked = json.dumps([str(self._root.path), list(rooted.steps(path)), pattern, files, ignore_case])
        found = bytearray()
        ended = processes.run(
            [sys.executable, "-P", "-m", "perdure.tools.local.search_worker", asked],
            cwd=self._root.path,
            env=shell.environment(),
            owner_id=context.owner_id,
            cancelled=context.cancelled,
            timeout_s=TIMEOUT_S,
            output=found.extend,
        )
        words = found.decode("utf-8", "replace").rstrip("\n")
        if ended.how == "timeout":
            raise ToolError(f"The search took longer than {TIMEOUT_S:g} s; make the pattern simpler or search less")
        if ended.code != 0:
            raise ToolError(words or "The search was stopped")
        return words or "[no line matches]"
