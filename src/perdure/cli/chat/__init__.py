"""`perdure chat`: a conversation in the terminal that outlives the process at either end.

Lives here: the command: which session, what of its history is shown, and which of the two conversations it is
(`conversation.py` in a terminal, `plain.py` elsewhere). Not here: either of them.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from perdure.cli import connect, logs, render, transcript
from perdure.cli.chat import paper, plain
from perdure.cli.chat.conversation import Conversation
from perdure.cli.chat.view import View
from perdure.core import codec, messages

TAIL = 8
RUNS = {"running", "retrying", "recovering", "blocked"}


async def command(
    *,
    session: connect.Word = None,
    create: connect.Flag = False,
    runner: Annotated[connect.Runner, Parameter(name="*")] = connect.RUNNING_HERE,
) -> int:
    """Talk with an agent. What you type while it works steers it.

    /help tells the rest. Ctrl-C interrupts the turn, a second one leaves. With a
    server, leaving ends nothing: come back with --session. The conversation goes
    on by itself when the server was killed and is back. For example:

      perdure chat --model openai:gpt-5 --workspace .

      perdure chat --url http://127.0.0.1:7433 --session ses_5k2…

    Exit codes: 0 you left; 1 failed; 2 called wrongly; 130 left by Ctrl-C.
    Without a terminal each line of stdin is a prompt, and the exit code is that
    of the last one, as with 'perdure run'.

    Parameters
    ----------
    session
        Session to go on with, which must be there; without it a new one.
    create
        Make the session of that id if there is none.
    runner
        Where, and who answers.

    """
    logs.configure("error")
    wish = connect.Wish(session, create)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        async with connect.connect(runner, existing=wish.existing) as app:
            return await plain.talk(await connect.find(app, runner, wish), runner)
    logging.getLogger().setLevel(logging.CRITICAL + 1)  # a log line would tear the screen; the events say what happened
    console, link = render.console(), _Link()
    async with connect.connect(runner, existing=wish.existing, patience=None, link=link) as app:
        found = await connect.find(app, runner, wish)
        code = await _talk(found, console, link, fresh=session is None)
    console.print(f"To go on: perdure chat --session {found.id}{connect.again_running(runner)}", style="dim")
    return code


class _Link:
    """Passes on that the server went or is back, once somebody can show it."""

    def __init__(self) -> None:
        self.conversation: Conversation | None = None

    def __call__(self, up: bool) -> None:  # noqa: FBT001, what the client calls
        if self.conversation:
            self.conversation.link(up)


async def _talk(session: connect.Session, console: Console, link: _Link, *, fresh: bool) -> int:
    said = [] if fresh else await transcript.last(session, TAIL + 2)
    status = await session.status()
    opened = said[-1] if said and _is_open(said[-1]) else None
    shown = said[:-1] if opened else said
    console.print(f"session {session.id}  /help tells what there is", style="dim")
    if len(shown) > TAIL:
        console.print("… there is more before this: /history shows it", style="dim")
    shown = shown[-TAIL:]
    for message in shown:
        paper.put(console, message)
    busy = status.status in RUNS or status.cause == "approval"
    view = View(frozenset(one.id for one in shown if isinstance(one, messages.Assistant)), busy=busy)
    for waiting in await session.inbox():
        if waiting.kind == "user":
            view.pending[waiting.id] = _text(waiting.prompt), waiting.delivery
    after = opened.seq - 1 if opened else said[-1].seq if said else -1
    oldest = min((one.seq for one in (*shown, *said[-1:])), default=0)
    link.conversation = Conversation(session, view, console, sys.stdin.fileno(), oldest, untitled=fresh)
    return await link.conversation.run(after)


def _is_open(message: messages.Message) -> bool:
    """Whether its events are still to be shown as they come, and those it had again."""
    return isinstance(message, messages.Assistant) and message.time.completed is None


def _text(prompt: str) -> str:
    return transcript.prompt_text(codec.load(prompt, messages.Prompt)) if prompt != "null" else ""
