"""`perdure deny`: refuse a call that waits for a person."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli import approve, connect


async def command(
    session: str,
    call: approve.Call = None,
    /,
    *,
    note: connect.Word = None,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Deny a call that waits; it never runs, and the model is told.

    Example: perdure deny ses_5k2… call_1 --note "Too much; ask me first above 100"

    Exit codes: 0 denied; 1 it was decided otherwise; 2 called wrongly, or nothing waits.

    Parameters
    ----------
    session
        Its id.
    call
        Id of the call; may be left out where only one waits.
    note
        Why, in words the model sees.
    json
        Print the decision as a line of JSON.
    where
        Where the session is.

    """
    return await approve.decide(where, session, call, "deny", note, as_json=json)
