"""A conversation without a terminal: each line of stdin is asked in turn, and its answer is printed.

Lives here: that loop. Where a call waits for a person, the next line decides: y or n.
"""

from __future__ import annotations

import asyncio
import sys

from perdure.cli import connect, outcomes, render, transcript
from perdure.cli.run import Asked, Follower, on_ctrl_c
from perdure.core import answers, messages


async def talk(session: connect.Session, runner: connect.Runner) -> int:
    """Until stdin ends, or Ctrl-C interrupts a turn; the exit code is that of the last prompt."""
    code = outcomes.SUCCEEDED
    while (line := await _line()) is not None:
        if line == "/quit":
            break
        if line:
            code = await _ask(session, line, runner)
        if code == outcomes.CTRL_C:
            break
    return code


async def _line() -> str | None:
    """The next line, None at the end."""
    data = await asyncio.to_thread(sys.stdin.buffer.readline)
    return data.decode("utf-8", "replace").strip() if data else None


async def _ask(session: connect.Session, text: str, runner: connect.Runner) -> int:
    receipt = await session.prompt(text)
    asked = Asked(text, session.id, receipt.id, None, yes=False, quiet=True, json=False, runner=runner)
    while True:
        with on_ctrl_c(session) as pressed:
            waits = await Follower(session, receipt, asked).until_settled()
        if waits is None:
            break
        if not await _decide(session):
            render.say(f"! {waits}")
            return outcomes.WAITING
        receipt = await session.receipt(receipt.id)
    receipt = await session.receipt(receipt.id)
    await _tell(session, receipt)
    return outcomes.CTRL_C if pressed else outcomes.code_of(receipt)


async def _decide(session: connect.Session) -> bool:
    """Ask about the calls that wait; False where nobody answers."""
    for one in await session.approvals():
        if one.decision is None:
            render.say(f"Allow {await _described(session, one)}? [y/n]")
            word = await _line()
            if word is None:
                return False
            decision = "approve" if word.lower() in {"y", "yes"} else "deny"
            await session.decide(one.call_id, decision, by="chat", message_id=one.message_id)
    return True


async def _described(session: connect.Session, waiting: connect.Approval) -> str:
    for message in await transcript.everything(session):
        if isinstance(message, messages.Assistant) and message.id == waiting.message_id:
            for part in message.parts:
                if isinstance(part, messages.ToolPart) and part.call_id == waiting.call_id:
                    return render.call(part.name, part.approval.input if part.approval else {})
    return waiting.call_id


async def _tell(session: connect.Session, receipt: answers.Receipt) -> None:
    if said := await transcript.answer(session, receipt):
        render.say(render.clean(said).rstrip("\n"))
    if receipt.outcome != "succeeded":
        render.say(f"! {render.clip(outcomes.failure(receipt), 500)}")
