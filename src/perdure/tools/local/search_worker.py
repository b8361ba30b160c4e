"""The search as a program: `python -m perdure.tools.local.search_worker '[root, steps, pattern, files, ignore_case]'`.

Lives here: walking, matching, printing. Not here: the tool and its limits of time (`search.py`). Links are not followed,
binary and huge files and the stores of version control are passed over.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator

from perdure.agent import ToolError
from perdure.tools.local import rooted, texts

MAX_MATCHES = 200
MAX_LINE = 300
PASSED_OVER = {".git", ".hg", ".svn"}


def paths(root: rooted.Root, start: tuple[str, ...]) -> Iterator[str]:
    """Every regular file below, in order."""
    waiting = [start]
    while waiting:
        here = waiting.pop()
        below: list[tuple[str, ...]] = []
        with root.directory(here) as directory, os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir(follow_symlinks=False) and entry.name not in PASSED_OVER:
                    below.append((*here, entry.name))
                elif entry.is_file(follow_symlinks=False):
                    yield "/".join((*here, entry.name))
        waiting += reversed(below)


def matches(root: rooted.Root, start: tuple[str, ...], pattern: re.Pattern[str], files: str) -> Iterator[str]:
    """Every line that matches, with its place."""
    for path in paths(root, start):
        if not (fnmatch.fnmatch(path, files) or fnmatch.fnmatch(path.rpartition("/")[2], files)):
            continue
        try:
            lines = texts.decode(path, root.read(path)).text.splitlines()
        except ToolError:
            continue
        for number, line in enumerate(lines, 1):
            if found := pattern.search(line):
                begin = max(0, found.start() - MAX_LINE // 2)
                yield f"{path}:{number}: {line[begin : begin + MAX_LINE]}"


def main() -> int:
    """Print what matches; 2 with a sentence where nothing can."""
    root, start, pattern, files, ignore_case = json.loads(sys.argv[1])
    out = sys.stdout.buffer
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        for number, line in enumerate(matches(rooted.Root(root), tuple(start), compiled, files)):
            if number == MAX_MATCHES:
                out.write(f"[more than {MAX_MATCHES} lines match: search for less]\n".encode())
                break
            out.write(f"{line}\n".encode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        out.write(f"The pattern is no regular expression: {error}\n".encode())
        return 2
    except ToolError as error:
        out.write(f"{error}\n".encode("utf-8", "replace"))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
