"""Reading, listing, writing and editing files, as tools.

Lives here: what the model may ask of files and the words it is answered in. Not here: where they may lie (`rooted.py`),
encodings (`texts.py`). One change at a time: calls of one step run side by side, and two edits of one file must both
stand.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Annotated

import pydantic

from perdure.agent import ToolError
from perdure.tools.local import rooted, texts

MAX_SHOWN = 40_000
MAX_LINE = 2_000
MAX_ENTRIES = 1_000

Positive = Annotated[int, pydantic.Field(ge=1)]


class Files:
    """The file tools of one root."""

    def __init__(self, root: rooted.Root) -> None:
        """Work below `root`."""
        self._root = root
        self._changing = threading.Lock()

    def read_file(self, path: str, first_line: Positive = 1, lines: Positive = 2_000) -> str:
        """Read a text file below the working directory; each line is shown with its number.

        Args:
            path: relative to the working directory
            first_line: where to begin, counted from 1
            lines: how many lines at most
        """
        decoded = texts.decode(path, self._root.read(path))
        found = decoded.text.splitlines()
        if first_line > max(len(found), 1):
            raise ToolError(f"{path} has {len(found)} lines")
        shown: list[str] = []
        room = MAX_SHOWN
        for number, line in enumerate(found[first_line - 1 : first_line - 1 + lines], first_line):
            cut = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} [… {len(line) - MAX_LINE} more characters]"
            room -= len(cut) + 8
            if room < 0:
                break
            shown.append(f"{number:>6}\t{cut}")
        notes = [f"[{path} is in {decoded.encoding}]"] if decoded.encoding != "utf-8" else []
        following = first_line + len(shown)
        if following <= len(found):
            notes.append(f"[{len(found)} lines in all; go on with first_line={following}]")
        return "\n".join([*shown, *notes]) or "[the file is empty]"

    def list_files(self, path: str = ".", *, recursive: bool = False) -> str:
        """List a directory below the working directory: directories end with /, files are shown with their size.

        Args:
            path: relative to the working directory
            recursive: also list what is in directories below it
        """
        shown: list[str] = []
        waiting = [rooted.steps(path)]
        while waiting and len(shown) <= MAX_ENTRIES:
            here = waiting.pop()
            below: list[tuple[str, ...]] = []
            with self._root.directory(here) as directory, os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    shown.append(_entry("/".join((*here, entry.name)), entry))
                    if recursive and entry.is_dir(follow_symlinks=False):
                        below.append((*here, entry.name))
            waiting += reversed(below)
        if len(shown) > MAX_ENTRIES or waiting:
            shown = [*shown[:MAX_ENTRIES], f"[more than {MAX_ENTRIES} entries: list a directory further down]"]
        return "\n".join(shown) or "[the directory is empty]"

    def write_file(self, path: str, content: str) -> str:
        """Write a whole text file below the working directory in UTF-8, replacing one that is there.

        Args:
            path: relative to the working directory; missing directories are made
            content: the file's whole text
        """
        data = content.encode("utf-8", "replace")
        with self._changing:
            new = self._root.write(path, data)
        return f"{'Created' if new else 'Replaced'} {path}, {len(data)} bytes"

    def edit_file(self, path: str, old: str, new: str, *, everywhere: bool = False) -> str:
        """Replace text in a file below the working directory. Encoding and line ends stay as they are.

        Args:
            path: relative to the working directory
            old: the exact text to replace, without line numbers; it must occur once unless `everywhere`
            new: what to put in its place
            everywhere: replace every occurrence
        """
        if not old or old == new:
            raise ToolError("`old` must be some text, and `new` another")
        with self._changing:
            decoded = texts.decode(path, self._root.read(path))
            if decoded.crlf and "\r" not in old:
                old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
            times = decoded.text.count(old)
            if times == 0:
                raise ToolError(f"{path} does not contain that text; read it again, nothing was changed")
            if times > 1 and not everywhere:
                raise ToolError(f"{path} contains that text {times} times; give more of it, or say everywhere")
            self._root.write(path, decoded.encode(decoded.text.replace(old, new)))
        return f"Replaced {times} occurrence{'s' if times > 1 else ''} in {path}"


def _entry(path: str, entry: os.DirEntry[str]) -> str:
    about = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(about.st_mode):
        return f"{path}/"
    if stat.S_ISREG(about.st_mode):
        return f"{path}\t{about.st_size}"
    return f"{path}\t[{'symbolic link' if stat.S_ISLNK(about.st_mode) else 'special file'}, not followed]"
