"""`perdure show`: one session and what was said in it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators
from rich.console import Console

from perdure.cli import connect, render, transcript
from perdure.cli.chat import paper
from perdure.core.attempts import Attempt


async def command(
    session: str,
    /,
    *,
    last: Annotated[int | None, Parameter(show_default=False, validator=validators.Number(gte=0))] = None,
    attempts: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Show a session: settings, what it is doing, and its transcript.

    Example: perdure show ses_5k2… --last 4

    Exit codes: 0 shown; 1 failed; 2 called wrongly, or there is no such session.

    Parameters
    ----------
    session
        Its id.
    last
        Only so many messages, from the end.
    attempts
        Also every request to a provider, and what it used.
    json
        Print one line of JSON: {"session": …, "status": …, "inbox": […], "messages": […]},
        and "attempts": […] where those are asked for.
    where
        Where it is.

    """
    async with connect.connect(where, read_only=True) as app:
        found = await app.sessions.get(session)
        info, status, inbox = await found.info(), await found.status(), await found.inbox()
        said = await (transcript.everything(found) if last is None else transcript.last(found, last))
        asked = await _attempts(found) if attempts else None
    if json:
        told = {
            "session": render.plain(info),
            "status": render.plain(status),
            "inbox": [render.plain(one) for one in inbox],
            "messages": [render.message(one) for one in said],
        }
        if asked is not None:
            told["attempts"] = [render.plain(one) for one in asked]
        render.say(render.as_json(told))
        return 0
    console = render.console()
    doing = status.status + (f": {status.reason}" if status.reason else "")
    console.print(f"{info.id}  agent {info.agent}  {render.clip(doing, 60)}", style="bold")
    _line(console, info.title)
    used = render.usage(info.usage)
    console.print(f"created {render.moment(info.time_created)}, {used}, {len(inbox)} waiting", style="dim")
    for one in said:
        paper.put(console, one)
    for one in asked or ():
        ended = one.outcome + (f": {one.error.type}" if one.error else "")
        line = (
            f"{one.kind} {one.message_id} attempt {one.number}  {one.model or ''}  {ended}  {render.usage(one.usage)}"
        )
        console.print(render.clip(line, 160), style="dim")
    return 0


async def _attempts(session: connect.Session) -> list[Attempt]:
    page = await session.attempts()
    found = [*page.data]
    while page.next is not None:
        page = await session.attempts(after=page.next)
        found += page.data
    return found


def _line(console: Console, text: str | None) -> None:
    if text:
        console.print(render.clip(text))
