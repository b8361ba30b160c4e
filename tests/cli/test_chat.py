"""`perdure chat` as a person meets it, through a pseudo-terminal, against a real server and a provider that hangs on demand."""

import asyncio
import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from perdure import Client
from perdure.testing import provider_script as script

PATIENCE = 30
APP = """
from perdure import Agent, Perdure, tool
@tool(approval="always")
async def refund(order: int) -> str:
    "Refund an order."
    return f"refunded order {order}"
app = Perdure([Agent("default", "openai:fake", tools=[refund])])
"""
# A terminal's own program is a session leader that opens the terminal: then Ctrl-C is a signal.
PROGRAM = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR)); from perdure.cli.main import main; main()"
LINE = "▸  "
"""The empty line with its cursor: from here on every key counts."""

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def served(shell, provider):
    """A function that starts the server, always on one port, and gives it; all are ended."""
    shell.write("mine.py", APP)
    shell.environment |= {"OPENAI_BASE_URL": provider.fake.url, "OPENAI_API_KEY": "none", "PERDURE_TOKEN": "secret"}
    with contextlib.ExitStack() as stack:
        port = ["0"]

        def start():
            serving = stack.enter_context(Started(shell, port[0]))
            port[0] = serving.port
            shell.environment["PERDURE_URL"] = f"http://127.0.0.1:{serving.port}"
            return serving

        yield start


class Started:
    """`perdure serve mine:app`."""

    def __init__(self, shell, port):
        program = [sys.executable, "-c", "from perdure.cli.main import main; main()"]
        self.process = subprocess.Popen(
            [*program, "serve", "mine:app", "--port", port, "--json"],
            cwd=shell.directory,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self.process.stdout.readline()
        self.port = re.search(r":(\d+)\"", line)[1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdout.close()


class Terminal:
    """A terminal of 100 × 30 with a program in it."""

    def __init__(self, shell, *arguments, **variables):
        self._fd, inside = os.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = shell.environment | {"TERM": "xterm-256color", "COLUMNS": "100"} | variables
        self.before = termios.tcgetattr(inside)
        self._inside = inside
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=shell.directory,
            env=environment,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        self.raw, self.seen, self._from = b"", "", 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._fd)
        os.close(self._inside)

    def type(self, text):
        os.write(self._fd, text.encode())

    def until(self, pattern):
        """Read until it was shown, since the last time; what was shown up to then."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen[self._from :])):
            ready, _, _ = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} was never shown in:\n{self.seen[self._from :][-3000:]}"
            self.raw += os.read(self._fd, 65536)
            self.seen = ESCAPES.sub("", self.raw.decode(errors="replace"))
        shown = self.seen[self._from : self._from + found.end()]
        self._from += found.end()
        return shown

    def end(self):
        """The exit code, all that was shown, and the terminal as it was before."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it never ended:\n{self.seen[-3000:]}"
            if select.select([self._fd], [], [], 0.05)[0]:
                self.raw += os.read(self._fd, 65536)
        while select.select([self._fd], [], [], 0)[0]:
            self.raw += os.read(self._fd, 65536)
        self.seen = ESCAPES.sub("", self.raw.decode(errors="replace"))
        assert termios.tcgetattr(self._inside) == self.before
        assert "Traceback" not in self.seen
        return self.process.returncode


@pytest.mark.slow
def test_a_conversation_streams_is_steered_interrupted_left_and_gone_on_with(shell, provider, served):
    """CLI chat, EX-8, API-2: typing steers, Ctrl-C interrupts, a second one leaves, --session shows what was said."""
    served()
    provider.script(
        script.Rule(
            reply=(
                script.Reasoning("Let me see."),
                script.Text("**Well**, "),
                script.Hang("talk"),
                script.Text("done."),
            ),
            contains="hello",
            step=0,
        ),
        script.Rule(reply=(script.Text("Half of it"), script.Hang("never")), contains="for ever"),
    )
    with Terminal(shell, "chat", "--session", "talk", "--create") as terminal:
        terminal.until(LINE)
        terminal.type("hello\r")
        terminal.until("▸ hello")
        provider.arrived("talk")
        terminal.until("Let me see")
        terminal.until("Well")
        terminal.type("and shorter\r")
        terminal.until("next: and shorter")
        provider.release("talk")
        terminal.until("▸ and shorter")
        terminal.until("Echo: and shorter")
        terminal.type("for ever\r")
        terminal.until("Half of it")
        terminal.type("\x03")
        terminal.until("interrupting")
        terminal.until("· interrupted")
        terminal.type("/status\r")
        terminal.until("· idle")
        terminal.type("/nonsense\r")
        terminal.until("There is no /nonsense")
        terminal.type("\x03")
        terminal.until("Ctrl-C again leaves")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "perdure chat --session talk" in terminal.seen
    with Terminal(shell, "chat", "--session", "talk") as terminal:
        shown = terminal.until("Half of it")
        terminal.until(LINE)
        assert "hello" in shown
        assert "Well, done." in shown
        terminal.type("\x04")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_long_session_shows_its_last_messages_and_history_goes_back(shell, provider, served):
    """CLI chat: nothing but the end is loaded; /history shows twenty messages more at a time, up to the beginning."""
    served()

    async def ask_much():
        async with Client(shell.environment["PERDURE_URL"], token="secret") as app:
            session = await app.sessions.create(id="long")
            for number in range(16):
                await session.wait((await session.prompt(f"question {number}")).id)

    asyncio.run(ask_much())
    with Terminal(shell, "chat", "--session", "long") as terminal:
        shown = terminal.until(LINE)
        assert re.findall(r"question (\d+)", shown) == [str(number) for number in (12, 12, 13, 13, 14, 14, 15, 15)]
        assert "/history shows it" in shown
        terminal.type("/history\r")
        older = terminal.until("the conversation goes on")
        assert re.findall(r"▸ question (\d+)", older) == [str(number) for number in range(2, 12)]
        terminal.type("/history\r")
        oldest = terminal.until("the conversation goes on")
        assert re.findall(r"▸ question (\d+)", oldest) == ["0", "1"]
        terminal.type("/history\r")
        terminal.until("the beginning of the session")
        terminal.type("\x04")
        assert terminal.end() == 0


@pytest.mark.slow
def test_calls_that_wait_are_asked_about_in_line_and_run_or_are_refused_apr_1(shell, provider, served):
    served()
    call = script.Call("refund", {"order": 7})
    provider.script(
        script.Rule(reply=(call,), contains="refund", step=0),
        script.Rule(reply=(script.Text("As you say."),), contains="refund"),
    )
    with Terminal(shell, "chat", "--session", "shop", "--create") as terminal:
        terminal.until(LINE)
        terminal.type("refund one\r")
        terminal.until(r"allow refund\(order=7\)\? \[y/n\]")
        terminal.type("perhaps\r")
        terminal.until("answer y or n")
        terminal.type("y\r")
        terminal.until("approved by")
        terminal.until(r"✓ refund\(order=7\) → refunded order 7")
        terminal.until("As you say")
        terminal.type("refund another\r")
        terminal.until(r"allow refund\(order=7\)\? \[y/n\]")
        terminal.type("n not twice\r")
        terminal.until("denied by")
        terminal.until(r"✗ refund.* → This call was denied: not twice")
        terminal.until("As you say")
        terminal.type("/quit\r")
        assert terminal.end() == 0


@pytest.mark.crash
@pytest.mark.slow
def test_a_conversation_goes_on_when_its_server_is_killed_under_it_and_comes_back(shell, provider, served):
    """API-1, REC-2: nothing to do for the person; what was typed meanwhile is asked."""
    first = served()
    provider.script(
        script.Rule(reply=(script.Text("Before the kill."), script.Hang("never")), contains="story", times=1),
        script.Rule(reply=(script.Text("After the kill."),), contains="story"),
    )
    with Terminal(shell, "chat", "--session", "s", "--create") as terminal:
        terminal.until(LINE)
        terminal.type("tell a story\r")
        terminal.until("Before the kill")
        first.kill()
        terminal.until("the server is away")
        terminal.type("typed meanwhile\r")
        served()
        terminal.until("the process that ran this died; the turn goes on")
        terminal.until("▸ typed meanwhile")
        terminal.until("Echo: typed meanwhile")
        terminal.type("\x04")
        assert terminal.end() == 0
        assert terminal.seen.count("▸ tell a story") == 1


@pytest.mark.slow
def test_an_embedded_conversation_is_left_whole_by_a_polite_signal_and_gone_on_with_ex_9(shell, provider):
    shell.environment |= {"OPENAI_BASE_URL": provider.fake.url, "PERDURE_GRACE_SECONDS": "0"}
    provider.script(script.Rule(reply=(script.Text("Half"), script.Hang("never")), times=1))
    arguments = ("chat", "--model", "openai:fake", "--session", "s", "--create")
    with Terminal(shell, *arguments) as terminal:
        terminal.until(LINE)
        terminal.type("hi\r")
        terminal.until("Half")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
    with Terminal(shell, *arguments) as terminal:
        terminal.until("the turn goes on")
        terminal.type("/quit\r")
        terminal.end()


def test_without_a_terminal_every_line_is_a_prompt_and_nothing_is_coloured(here, monkeypatch, provider, shell):
    provider.script(script.Rule(reply=(script.HttpError(400, "No."),), contains="bad"))
    with open_lines(shell, "one\n\ntwo\nbad\n") as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        done = here("chat", "--model", "openai:fake", OPENAI_BASE_URL=provider.fake.url)
    assert done.returncode == 1, done
    assert done.stdout.splitlines()[:2] == ["Echo: one", "Echo: two"]
    assert "No." in done.stdout.splitlines()[2]
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_without_a_terminal_ctrl_c_interrupts_the_turn_and_asks_nothing_more_ex_8(shell, provider):
    provider.script(script.Rule(reply=(script.Text("Half"), script.Hang("never"))))
    shell.environment["OPENAI_BASE_URL"] = provider.fake.url
    shell.write("lines", "one\ntwo\n")
    command = [
        sys.executable,
        "-c",
        "from perdure.cli.main import main; main()",
        "chat",
        "--model",
        "openai:fake",
        "--session",
        "s",
        "--create",
    ]
    with (
        (shell.directory / "lines").open() as lines,
        subprocess.Popen(
            command, cwd=shell.directory, env=shell.environment, stdin=lines, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        provider.arrived("never")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "Half\n! the prompt was interrupted\n")
    assert len(provider.fake.requests) == 1


def test_without_a_terminal_the_next_line_decides_about_a_call_apr_1(here, monkeypatch, provider, shell):
    shell.write("shop.py", APP)
    provider.script(
        script.Rule(reply=(script.Call("refund", {"order": 7}),), contains="refund", step=0),
        script.Rule(reply=(script.Text("Done."),), contains="refund"),
    )
    with open_lines(shell, "refund\ny\nrefund again\n") as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        done = here("chat", "--app", "shop:app", OPENAI_BASE_URL=provider.fake.url)
    assert done.stdout.splitlines() == [
        "Allow refund(order=7)? [y/n]",
        "Done.",
        "Allow refund(order=7)? [y/n]",
        done.stdout.splitlines()[-1],
    ]
    assert done.stdout.splitlines()[-1].startswith("! waits for approval; decide with: perdure approve ses_")
    assert done.returncode == 4


def open_lines(shell, text):
    shell.write("lines", text)
    return (shell.directory / "lines").open()
