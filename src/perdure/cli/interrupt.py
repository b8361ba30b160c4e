"""`perdure interrupt`: stop a session's open turn for good."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli import connect, render


async def command(
    session: str,
    /,
    *,
    reason: str = "interrupt",
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Stop the open turn of a session; once this says so, nothing continues it. Waiting prompts stay.

    Example: perdure interrupt ses_5k2…

    Exit codes: 0 interrupted, or there was nothing to stop; 1 failed; 2 called wrongly.

    Parameters
    ----------
    session
        Its id.
    reason
        Words for the log.
    json
        Print one line of JSON: {"interrupted": true or false}.
    where
        Where the session is.

    """
    async with connect.connect(where) as app:
        stopped = await (await app.sessions.get(session)).interrupt(reason)
    words = "interrupted" if stopped else "there was nothing to interrupt"
    render.say(render.as_json({"interrupted": stopped}) if json else words)
    return 0
