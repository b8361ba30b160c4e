"""Somebody who does what a page says, in an empty directory of their own: saves files, runs programs, types commands.

The reader has one shell for the whole page, this project's `perdure`, a model provider that echoes, and free ports in place
of 7433 and 7434. Installing, working as root and talking in a terminal are left out; what commands those are is still
checked.
"""

import contextlib
import importlib
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cyclopts
from page import Block, Command

from perdure.cli import main

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30
DONE = "---- done with"
LEFT_OUT = {"make", "git", "pip", "cd", "source", ".", "sudo", "systemctl", "journalctl", "mkdir"}
OURS = re.compile(r"perdure (?=[a-z])")
ENDS = {"|", "||", "&&", "&", ";", ">", "2>", "<"}
SHIM = """#!{python}
import sys
sys.path.insert(0, {source!r})
from perdure.cli.main import main
main()
"""


class Reader:
    """Reads one page in `directory`; models answer at `provider`."""

    def __init__(self, directory: Path, provider: str) -> None:
        self.directory = directory
        self.ports = dict(zip(("7433", "7434"), free_ports(2), strict=True))
        self.environment = self._environment(provider)
        self._saved = 0
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._shell.stdin
        assert self._shell.stdout
        self._types, self._sees = self._shell.stdin, self._shell.stdout.fileno()

    def _environment(self, provider: str) -> dict[str, str]:
        tools = self.directory.parent / f"{self.directory.name}-bin"
        tools.mkdir()
        (tools / "perdure").write_text(SHIM.format(python=sys.executable, source=str(ROOT / "src")))
        (tools / "perdure").chmod(0o755)
        (tools / "python").symlink_to(sys.executable)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "OPENAI_", "XDG_"))
        }
        return kept | {
            "HOME": str(self.directory),
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "OPENAI_BASE_URL": provider,
            "PERDURE_PORT": self.ports["7433"],
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def _here(self, text: str) -> str:
        """The same with our ports in it."""
        for said, ours in self.ports.items():
            text = text.replace(said, ours)
        return text

    def close(self) -> None:
        """End the shell and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    # -- what a page says to do ------------------------------------------------------------------------------------------

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.saved_as or block.kind == "python":
            self._saved += 1
            name = block.saved_as or f"program_{self._saved}.py"
            (self.directory / name).write_text(self._here(block.text))
            if name.endswith(".py"):
                self._run(name, block)
        if block.kind == "console":
            for command in block.commands():
                self.type(command)
        if block.kind == "ini":
            check(*re.findall(r"^ExecStart=(.*)$", block.text, re.MULTILINE))

    def _run(self, name: str, block: Block) -> None:
        done = subprocess.run(
            [sys.executable, name],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"the program at line {block.line} ends with {done.returncode}:\n{done.stderr}"

    def type(self, command: Command) -> None:
        """Type a command, and see what it is said to print."""
        check(command.text)
        first = command.text.split()[0]
        if first in LEFT_OUT or command.text.startswith(("export OPENAI_", "perdure chat")):
            return
        text = self._here(command.text)
        if "curl -N" in text:
            text = text.replace("curl -N", "curl -N --max-time 2") + "; [ $? -eq 28 ]"
        said, code = self._said(text)
        if "perdure serve" in text and "listens on" not in said:
            said += self._until(r"listens on .*\n")
        assert code == command.code, f"{command.text!r} ends with {code}, not {command.code}:\n{said}"
        expected = [pattern(self._here(line)) for line in command.prints]
        assert re.search(r"(?s:.*?)".join(expected), said), f"{command.text!r} prints:\n{said}"

    def _said(self, text: str) -> tuple[str, int]:
        """What a command prints, and how it ends."""
        self._types.write(f"{text}\nprintf '\\n{DONE} %s\\n' $?\n".encode())
        self._types.flush()
        said, _, code = self._until(rf"\n{DONE} \d+\n").partition(DONE)
        return said, int(code.split()[0])

    def _until(self, end: str) -> str:
        said, deadline = "", time.monotonic() + PATIENCE
        while not re.search(end, said):
            ready, _, _ = select.select([self._sees], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"nothing more for {PATIENCE} s after:\n{said}"
            more = os.read(self._sees, 65536)
            assert more, f"the shell is gone after:\n{said}"
            said += more.decode(errors="replace")
        return said


def pattern(line: str) -> str:
    """What matches a line of a page."""
    return r"\s+".join(re.escape(word).replace("…", r"[^\n]*") for word in line.split())


# -- commands that are only looked at ------------------------------------------------------------------------------------


def check(text: str) -> None:
    """Every command of ours in a line exists and takes these arguments; `make` has its verbs."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    if words[:1] == ["make"] and len(words) > 1:
        assert re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE), text
    for number, word in enumerate(words):
        if Path(word).name == "perdure" and len(words) > number + 1:
            rest = words[number + 1 :]
            end = next((at for at, one in enumerate(rest) if one in ENDS), len(rest))
            check_ours(rest[:end])


def check_ours(words: list[str]) -> None:
    """`perdure` takes these words."""
    modules = {name: module for name, module, _ in main.COMMANDS}
    name, *arguments = words
    if name.startswith("-"):
        assert name in {"--help", "--version"}
        return
    app = cyclopts.App(name=name, result_action="return_value")
    app.default(importlib.import_module(modules[name]).command)
    app.parse_args(arguments, exit_on_error=False, print_error=False)


def free_ports(count: int) -> Iterator[str]:
    """Ports that nobody has now."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(count):
            one = open_ones.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            yield str(one.getsockname()[1])
