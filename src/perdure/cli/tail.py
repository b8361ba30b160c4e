"""`perdure tail`: a session's facts as they come."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from perdure.cli import connect, render
from perdure.core import events


async def command(
    session: str,
    /,
    *,
    after: int = -1,
    follow: bool = True,
    live: connect.Flag = False,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Print what happens in a session, from the beginning, until Ctrl-C.

    It goes on when the server was away and is back, and leaves nothing out. Example:

      perdure tail ses_5k2… --json | jq -c 'select(.type == "session.tool.called").data'

    Exit codes: 0 the end was reached, or the session was deleted; 1 failed; 2 called wrongly; 130 Ctrl-C.

    Parameters
    ----------
    session
        Its id.
    after
        Begin after this seq; -1 is before the first.
    follow
        Go on with what comes; --no-follow leaves at the end there is.
    live
        Live text too, which has no seq and may repeat after a reconnect.
    json
        Print every event as a line of JSON, as the server sends it.
    where
        Where it is.

    """
    console = render.console()
    async with connect.connect(where, read_only=True, patience=None) as app:
        found = await app.sessions.get(session)
        async with aclosing(found.events(after=after, follow=follow, signals=live)) as following:
            async for event in following:
                if json:
                    render.say(render.event(event))
                else:
                    _line(console, event)
                await asyncio.sleep(0)
    return 0


def _line(console: Console, event: events.Event) -> None:
    seq = str(event.seq) if isinstance(event, events.Recorded) else "~"
    kind: str = event.data.event_type
    line = Text.assemble(
        (f"{seq:>5} ", "dim"),
        (f"{render.clock(event.created)} ", "dim"),
        (f"{kind.removeprefix('session.'):<28} ", "red" if "failed" in kind else "cyan"),
        render.described(event),
    )
    console.print(line, soft_wrap=True)
