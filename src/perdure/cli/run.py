"""`perdure run`: one prompt, its answer on stdout, and an exit code that says how it went.

Lives here: the command: reading the prompt, waiting for its outcome, saying it. Not here: conversations (`chat/`). The
answer is printed once it is whole, so that a script never reads half of one.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Self

from cyclopts import Parameter, validators

from perdure import errors
from perdure.cli import connect, logs, outcomes, render, transcript
from perdure.core import answers, events


@dataclass(slots=True)
class Asked:
    """What was said on the command line."""

    text: str
    session: str | None
    id: str | None
    timeout: float | None
    yes: bool
    quiet: bool
    json: bool
    runner: connect.Runner = connect.RUNNING_HERE


async def command(
    prompt: Annotated[str | None, Parameter(show_default=False, allow_leading_hyphen=True)] = None,
    /,
    *,
    session: connect.Word = None,
    create: connect.Flag = False,
    id: connect.Word = None,
    timeout: Annotated[float | None, Parameter(show_default=False, validator=validators.Number(gte=0))] = None,
    yes: connect.Flag = False,
    quiet: connect.Flag = False,
    json: connect.Json = False,
    runner: Annotated[connect.Runner, Parameter(name="*")] = connect.RUNNING_HERE,
) -> int:
    """Ask one prompt and print its answer.

    The answer goes to stdout, progress to stderr. Examples:

      perdure run "What is a lease?" --model openai:gpt-5

      git diff | perdure run - --session review-7 --create --id first

    With --session and --id a second call asks nothing twice: it prints the
    answer there is, or waits for it.

    Exit codes: 0 succeeded; 1 failed; 2 called wrongly; 3 interrupted;
    4 waits for a person (an approval, or a decision about a recovery);
    5 cancelled or superseded; 6 not done in time; 130 Ctrl-C, which interrupts.

    Parameters
    ----------
    prompt
        The prompt; '-', or nothing at all, reads it from stdin.
    session
        Session to ask in, which must be there; without it a new one.
    create
        Make the session of that id if there is none; where there is one, ask in it.
    id
        Id of the prompt, by which the same call may be made again.
    timeout
        Seconds to wait, then exit with 6. The prompt stays: the same call with --session and --id waits for it again.
    yes
        Approve every call that waits for a person.
    quiet
        No progress on stderr.
    json
        Print every event as a line of JSON as it comes, and the receipt as the last line; no answer.
    runner
        Where, and who answers.

    """
    logs.configure("error")
    wish = connect.Wish(session, create)
    asked = Asked(_text(prompt), session, id, timeout, yes, quiet, json, runner)
    async with connect.connect(runner, existing=wish.existing) as app:
        found = await connect.find(app, runner, wish, title=render.clip(asked.text, 60))
        return await _ask(found, asked)


def _text(prompt: str | None) -> str:
    """The prompt. Raises `InvalidInput` where there is none, or where it is an option misspelt."""
    if prompt is not None and prompt != "-":
        if re.fullmatch(r"--?[a-z][\w-]*(=\S*)?", prompt):
            raise errors.InvalidInput(f"There is no option {prompt}")
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise errors.InvalidInput("There is no prompt: give one, or '-' to type it on stdin")
    text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not text:
        raise errors.InvalidInput("The prompt on stdin is empty")
    return text


async def _ask(session: connect.Session, asked: Asked) -> int:
    receipt = await session.prompt(asked.text, id=asked.id)
    if not asked.quiet:
        print(f"session {session.id}  prompt {receipt.id}", file=sys.stderr)
    with on_ctrl_c(session) as pressed:
        try:
            async with asyncio.timeout(asked.timeout):
                waits = await Follower(session, receipt, asked).until_settled()
        except TimeoutError:
            waits = None
    receipt = await session.receipt(receipt.id)
    if asked.json:
        render.say(render.as_json({"type": "receipt", "receipt": render.plain(receipt)}))
    code = await _told(session, receipt, waits, asked)
    return outcomes.CTRL_C if pressed else code


async def _told(session: connect.Session, receipt: answers.Receipt, waits: str | None, asked: Asked) -> int:
    """Say how it ended."""
    if receipt.state == "settled":
        if not asked.json and (said := await transcript.answer(session, receipt)):
            render.say((render.clean(said) if sys.stdout.isatty() else said).rstrip("\n"))
        if receipt.outcome != "succeeded":
            _complain(outcomes.failure(receipt))
        return outcomes.code_of(receipt)
    if waits is not None:
        _complain(waits)
        return outcomes.WAITING
    _complain(_late(session.id, receipt.id, asked))
    return outcomes.TIMED_OUT


def _late(session_id: str, prompt_id: str, asked: Asked) -> str:
    """What became of a prompt that took longer than there was time for, and how to come back to it."""
    goes_on = (
        "its turn goes on there" if asked.runner.url else "its turn goes on once a server or this command runs again"
    )
    options = f"--session {session_id} --id {prompt_id}{connect.again_running(asked.runner)}"
    again = f"the same prompt with {options} waits for its answer and asks nothing twice"
    look = f"perdure show {session_id}{connect.again(asked.runner)}"
    return f"not done in {asked.timeout:g} s; the prompt is stored, and {goes_on}: {again}; {look} shows it"


def _complain(words: str) -> None:
    print(f"perdure: {render.clip(words, 500)}", file=sys.stderr)


class on_ctrl_c:  # noqa: N801, it reads as words where it is used
    """While the block lasts, Ctrl-C interrupts the turn; a second one ends the command. True once it was pressed."""

    def __init__(self, session: connect.Session) -> None:
        self._session, self._task = session, asyncio.current_task()
        self._interrupting: asyncio.Task[bool] | None = None

    def __enter__(self) -> Self:
        with suppress(NotImplementedError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(NotImplementedError, ValueError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def __bool__(self) -> bool:
        return self._interrupting is not None

    def _press(self) -> None:
        if self._interrupting is None:
            print("perdure: interrupting the turn; Ctrl-C again leaves it running", file=sys.stderr)
            self._interrupting = asyncio.ensure_future(self._session.interrupt("Ctrl-C"))
        elif self._task:
            self._task.cancel()


class Follower:
    """Follows a session until a prompt of it is settled, and says on stderr what happens."""

    def __init__(self, session: connect.Session, receipt: answers.Receipt, asked: Asked) -> None:
        """Of this prompt."""
        self._session, self._receipt, self._asked = session, receipt, asked
        self._calls: dict[tuple[str, str], str] = {}

    async def until_settled(self) -> str | None:
        """None once it is settled; words where a person must do something first."""
        if self._receipt.state == "settled":
            return None
        if waits := await self._waits():
            return waits
        async with aclosing(self._session.events(after=self._receipt.admitted_seq)) as following:
            async for event in following:
                if self._asked.json:
                    render.say(render.event(event))
                elif not self._asked.quiet:
                    self._progress(event.data)
                if self._settles(event.data) and (await self._session.receipt(self._receipt.id)).state == "settled":
                    return None
                if isinstance(event.data, events.ExecutionParked | events.StepRecovered) and (
                    waits := await self._waits()
                ):
                    return waits
        return None

    def _settles(self, fact: Any) -> bool:
        if isinstance(fact, events.ExecutionEnded):
            return self._receipt.id in fact.message_ids
        return isinstance(fact, events.PromptWithdrawn) and fact.message_id == self._receipt.id

    async def _waits(self) -> str | None:
        """What a person must do first, if anything."""
        status = await self._session.status()
        if status.status != "waiting":
            return None
        waiting = [one for one in await self._session.approvals() if one.decision is None]
        if waiting and self._asked.yes:
            for one in waiting:
                with suppress(errors.AlreadyDecided):
                    await self._session.decide(one.call_id, "approve", by="run --yes", message_id=one.message_id)
            return None
        if waiting:
            named = f"{self._session.id} {waiting[0].call_id}{connect.again(self._asked.runner)}"
            return f"waits for approval; decide with: perdure approve {named}"
        if status.cause == "approval":  # decided, and its turn is about to be taken up
            return None
        look = f"; see: perdure recoveries{connect.again(self._asked.runner)}" if status.cause == "decision" else ""
        return f"waits for a person: {status.reason}{look}"

    def _progress(self, fact: Any) -> None:
        """A line for what a person would like to know meanwhile."""
        kind: type[Any] = fact.__class__
        if told := _PROGRESS.get(kind):
            print(told(self._calls, fact), file=sys.stderr)


Calls = dict[tuple[str, str], str]


def _called(calls: Calls, fact: events.ToolCalled) -> str:
    calls[fact.assistant_message_id, fact.call_id] = render.call(fact.name, fact.input)
    return f"  … {calls[fact.assistant_message_id, fact.call_id]}"


def _done(calls: Calls, fact: events.ToolSucceeded) -> str:
    named = calls.get((fact.assistant_message_id, fact.call_id), fact.call_id)
    return f"  ✓ {named} → {render.result(fact.content, fact.structured)}"


def _failed(calls: Calls, fact: events.ToolFailed) -> str:
    named = calls.get((fact.assistant_message_id, fact.call_id), fact.call_id)
    return f"  ✗ {named} → {render.clip(fact.error.message)}"


_PROGRESS: dict[type[Any], Callable[[Calls, Any], str]] = {
    events.ToolCalled: _called,
    events.ToolSucceeded: _done,
    events.ToolFailed: _failed,
    events.RetryScheduled: lambda _, fact: f"  … again at {render.clock(fact.at)}: {render.clip(fact.error.message)}",
    events.StepRecovered: lambda _, __: "  … the process that ran this turn died; it goes on",
    events.CompactionStarted: lambda _, __: "  … summarising the older part of the conversation",
}
