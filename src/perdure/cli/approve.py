"""`perdure approve`: let a call run that waits for a person. `perdure deny` is its twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from perdure import errors
from perdure.cli import connect, render
from perdure.core import messages

Call = Annotated[str | None, Parameter(show_default=False)]


async def command(
    session: str,
    call: Call = None,
    /,
    *,
    note: connect.Word = None,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Approve a call that waits; exactly that call then runs, once.

    Example: perdure approve ses_5k2… call_1

    Exit codes: 0 approved; 1 it was decided otherwise; 2 called wrongly, or nothing waits.

    Parameters
    ----------
    session
        Its id.
    call
        Id of the call; may be left out where only one waits.
    note
        Words for the log.
    json
        Print the decision as a line of JSON.
    where
        Where the session is.

    """
    return await decide(where, session, call, "approve", note, as_json=json)


async def decide(
    where: connect.Where,
    session_id: str,
    call_id: str | None,
    decision: messages.Decision,
    note: str | None,
    *,
    as_json: bool,
) -> int:
    """Decide about one call."""
    async with connect.connect(where) as app:
        session = await app.sessions.get(session_id)
        waiting = [one for one in await session.approvals() if one.decision is None]
        if call_id is None:
            call_id = _only([one.call_id for one in waiting], session_id)
        message_id = next((one.message_id for one in waiting if one.call_id == call_id), None)
        decided = await session.decide(call_id, decision, note=note, message_id=message_id)
    words = f"{decision}: {call_id}"
    render.say(render.as_json(render.plain(decided)) if as_json else words)
    return 0


def _only(waiting: Sequence[str], session_id: str) -> str:
    """The one call that waits. Raises `ApprovalNotFound`, `InvalidInput` where there are several."""
    if not waiting:
        raise errors.ApprovalNotFound(f"No call of session {session_id} waits for approval")
    if len(waiting) > 1:
        raise errors.InvalidInput(f"Several calls wait; name one of {', '.join(waiting)}")
    return waiting[0]
