"""Files below a directory, and commands that start there, as tools.

Lives here: the list of them, with their effects. Not here: anything about other machines, or about who may do what: the
file tools cannot leave the directory, the shell can.
"""

from __future__ import annotations

import inspect
import os

from perdure.agent import Effect, Function, Tool
from perdure.tools.local.files import Files
from perdure.tools.local.rooted import Root
from perdure.tools.local.search import Search
from perdure.tools.local.shell import Shell


def local_toolset(root: str | os.PathLike[str], *, shell: bool = True) -> list[Tool]:
    """Tools to read, list, search, write and edit files below `root` and, unless `shell` is False, to run commands.

    Raises `ConfigError` where there is no such directory.
    """
    below = Root(root)
    files = Files(below)
    tools = [
        _tool(files.read_file, "read"),
        _tool(files.list_files, "read"),
        _tool(Search(below).search_files, "read"),
        _tool(files.write_file, "write"),
        _tool(files.edit_file, "write"),
    ]
    return [*tools, _tool(Shell(below.path).shell, "write")] if shell else tools


def _tool(function: Function, effect: Effect) -> Tool:
    return Tool(function, function.__name__, inspect.getdoc(function) or "", effect)
