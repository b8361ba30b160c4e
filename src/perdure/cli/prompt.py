"""`perdure prompt`: admit a prompt and leave."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli import connect, render
from perdure.core import answers, messages


async def command(
    session: str,
    text: str,
    /,
    *,
    id: connect.Word = None,
    delivery: messages.Delivery = "steer",
    resume: bool = True,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """Admit a prompt to a session and print its receipt; whoever serves that database answers it.

    Example: perdure prompt ses_5k2… "And in French?" --delivery queue

    Exit codes: 0 admitted, it is durable; 1 failed; 2 called wrongly.

    Parameters
    ----------
    session
        Its id.
    text
        The prompt.
    id
        Id of the prompt, by which the same call may be made again.
    delivery
        steer joins the open turn at its next step, queue waits for a turn of its own.
    resume
        Run it; --no-resume only admits it.
    json
        Print the receipt as a line of JSON.
    where
        Where the session is.

    """
    async with connect.connect(where) as app:
        found = await app.sessions.get(session)
        receipt = await found.prompt(text, id=id, delivery=delivery, resume=resume)
    render.say(render.as_json(render.plain(receipt)) if json else sentence(receipt))
    return 0


def sentence(receipt: answers.Receipt) -> str:
    """A receipt as a person reads it."""
    state = receipt.state if receipt.outcome is None else f"{receipt.state}: {receipt.outcome}"
    return f"{receipt.id}  {state}  ({receipt.delivery}, seq {receipt.admitted_seq})"
