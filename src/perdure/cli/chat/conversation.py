"""A conversation in a terminal: what is typed goes in, what happens comes out, at the same time.

Lives here: the three loops (events, what was typed, drawing), what Ctrl-C means, the slash commands. Not here: what is
shown (`view.py`, `screen.py`). A prompt that is typed while a turn is open steers it. Ctrl-C interrupts the turn, and a
second one leaves; leaving ends nothing where a server runs the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing

from rich.console import Console

from perdure import errors
from perdure.cli import connect, outcomes, render, transcript
from perdure.cli.chat import paper, screen, terminal
from perdure.cli.chat.editor import Editor
from perdure.cli.chat.view import Said, View
from perdure.core import events, messages

TICK_S = 0.1
HISTORY = 20
"""Messages that /history shows at once."""
AGAIN = "Ctrl-C again leaves"
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Conversation:
    """One session, one person, one terminal."""

    def __init__(
        self, session: connect.Session, view: View, console: Console, fd: int, oldest: int, *, untitled: bool
    ) -> None:
        """Talk in `session`, as far as `view` has it, on the terminal at `fd`; `oldest` is the first seq that was shown."""
        self._oldest = oldest
        self._session, self._view, self._fd, self._untitled = session, view, fd, untitled
        self._editor = Editor()
        self._screen = screen.Screen(console, view, self._editor)
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pressed = self._dirty = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._verbs: dict[str, tuple[Callable[[str], Awaitable[object]], str]] = {
            "help": (self._help, "this"),
            "status": (self._status, "what the session is doing"),
            "session": (self._which, "its id"),
            "history": (self._history, "what was said before what is shown; again for what was said before that"),
            "queue": (self._queue, "TEXT  ask once this turn is over, instead of steering it"),
            "interrupt": (lambda _: self._session.interrupt("chat"), "stop the turn for good (Ctrl-C)"),
            "retry": (self._retry, "run the last prompt again that failed or was interrupted"),
            "resume": (lambda _: self._session.resume(), "run what waits"),
            "compact": (lambda _: self._session.compact(), "summarise the older part of the conversation now"),
            "quit": (self._quit, "leave (Ctrl-D)"),
        }

    def link(self, up: bool) -> None:  # noqa: FBT001, what the client calls
        """The server went away or is back."""
        self._screen.away, self._dirty = not up, True

    async def run(self, after: int) -> int:
        """Talk until the person leaves; the exit code. Raises what following the session raises."""
        loop = asyncio.get_running_loop()
        with terminal.keys(self._fd), self._screen, self._signals():
            loop.add_reader(self._fd, self._readable)
            for work in (self._follow(after), self._obey(), self._tick()):
                self._spawn(work)
            try:
                return await self._left
            finally:
                loop.remove_reader(self._fd)
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._left.done():
            self._left.set_exception(error)

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    # -- the loops -----------------------------------------------------------------------------------------------------------

    async def _follow(self, after: int) -> None:
        async with aclosing(self._session.events(after=after, signals=True)) as following:
            async for event in following:
                self._screen.say(self._view.take(event))
                self._dirty = True
        self._screen.say([Said("error", "this session was deleted")])
        self._leave(outcomes.FAILED)

    async def _tick(self) -> None:
        while True:
            if self._dirty or self._view.busy:
                self._dirty = False
                self._screen.refresh()
            await asyncio.sleep(TICK_S)

    async def _obey(self) -> None:
        while True:
            line = await self._typed.get()
            try:
                await self._do(line)
            except errors.PerdureError as error:
                self._screen.say([Said("error", complaint(error))])
            self._dirty = True

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            data = b""
        self._pressed, self._screen.hint = False, ""
        for line in self._editor.feed(data):
            self._typed.put_nowait(line)
        if self._editor.left or not data:
            self._leave(outcomes.SUCCEEDED)
        self._screen.refresh()

    # -- signals -------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._ctrl_c)
        for number in _ENDS:
            loop.add_signal_handler(number, self._leave, 128 + number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *_ENDS):
                loop.remove_signal_handler(number)

    def _ctrl_c(self) -> None:
        if self._pressed:
            self._leave(outcomes.CTRL_C)
            return
        self._pressed = True
        if self._view.busy:
            self._screen.hint = f"interrupting; {AGAIN}"
            self._spawn(self._stop())
        else:
            self._editor.clear()
            self._screen.hint = AGAIN
        self._screen.refresh()

    async def _stop(self) -> None:
        try:
            await self._session.interrupt("Ctrl-C")
        except errors.PerdureError as error:
            self._screen.say([Said("error", str(error))])

    # -- what was typed ------------------------------------------------------------------------------------------------------

    async def _do(self, line: str) -> None:
        if line.startswith("/") and not line.startswith("//"):
            name, _, rest = line[1:].partition(" ")
            if name not in self._verbs:
                raise errors.InvalidInput(f"There is no /{render.clip(name, 40)}; see /help")
            await self._verbs[name][0](rest.strip())
        elif self._view.asks:
            await self._decide(line)
        else:
            await self._ask(line, "steer")

    async def _ask(self, text: str, delivery: messages.Delivery) -> None:
        await self._session.prompt(text, delivery=delivery)
        if self._untitled:
            self._untitled = False
            with contextlib.suppress(errors.PerdureError):  # a title is a nicety
                await self._session.update(events.Changes(title=render.clip(text, 60)))

    async def _decide(self, line: str) -> None:
        word, _, note = line.partition(" ")
        decision = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}.get(word.lower())
        if decision is None:
            raise errors.InvalidInput("A call waits: answer y or n, with a reason behind it if you like")
        message_id, call_id = asked = next(iter(self._view.asks))
        wanted = "approve" if decision == "approve" else "deny"
        with contextlib.suppress(errors.AlreadyDecided):
            await self._session.decide(call_id, wanted, by="chat", note=note.strip() or None, message_id=message_id)
        self._view.asks.pop(asked, None)

    async def _help(self, _: str) -> None:
        lines = [f"/{name:<10}{about}" for name, (_, about) in self._verbs.items()]
        lines += ["Enter sends, also while it works; Alt-Enter begins a new line."]
        self._screen.say([Said("note", line) for line in lines])

    async def _status(self, _: str) -> None:
        status = await self._session.status()
        self._screen.say([Said("note", status.status + (f": {status.reason}" if status.reason else ""))])

    async def _history(self, _: str) -> None:
        found = await transcript.last(self._session, HISTORY, before=self._oldest)
        if not found:
            self._screen.say([Said("note", "this is the beginning of the session")])
            return
        self._oldest = found[0].seq
        said = [said for one in found for said in paper.of(one)]
        ending = "the conversation goes on; /history shows what was said before this"
        self._screen.say([Said("note", "before:"), *said, Said("note", ending)])

    async def _which(self, _: str) -> None:
        self._screen.say([Said("note", self._session.id)])

    async def _queue(self, text: str) -> None:
        if not text:
            raise errors.InvalidInput("/queue takes the text to ask")
        await self._ask(text, "queue")

    async def _retry(self, _: str) -> None:
        if self._view.retryable is None:
            raise errors.InvalidInput("No prompt failed or was interrupted here")
        await self._session.retry(self._view.retryable)

    async def _quit(self, _: str) -> None:
        self._leave(outcomes.SUCCEEDED)


def complaint(error: errors.PerdureError) -> str:
    """An error and what to do about it; where a line was typed wrongly, its own words say that."""
    remedy = "" if type(error) is errors.InvalidInput else f". {error.remedy}"
    return f"{str(error).rstrip('.')}{remedy}"
