"""`perdure recoveries`: turns that lost their owner and wait; going on with one, or dismissing it."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure import errors
from perdure.cli import connect, render
from perdure.core import answers


async def command(
    action: Literal["list", "retry", "dismiss"] = "list",
    execution: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """List the turns whose process died and that wait, or decide about one.

    For example:

      perdure recoveries

      perdure recoveries retry exe_5k2…

    Exit codes: 0 done; 1 failed, or it waits no more; 2 called wrongly, or there is no such recovery.

    Parameters
    ----------
    action
        list them, retry one (go on with that turn), or dismiss one (end it; its session takes new prompts).
    execution
        Id of the execution, as listed.
    json
        Print one line of JSON.
    where
        Where they are.

    """
    if (action == "list") != (execution is None):
        raise errors.InvalidInput(f"'perdure recoveries {action}' takes {'no' if execution else 'the'} execution id")
    async with connect.connect(where, read_only=action == "list") as app:
        if execution is None:
            _listed(await app.recoveries.list(), as_json=json)
            return 0
        await (app.recoveries.retry if action == "retry" else app.recoveries.dismiss)(execution)
    done = {"execution_id": execution, "action": action}
    render.say(render.as_json(done) if json else f"{action}: {execution}")
    return 0


def _listed(found: list[answers.Recovery], *, as_json: bool) -> None:
    if as_json:
        render.say(render.as_json({"data": [render.plain(one) for one in found]}))
        return
    console = render.console()
    if not found:
        console.print("No turn waits for recovery.")
        return
    columns = ("execution", "session", "phase", "waits for", "tried", "since")
    render.table(console, ("execution", "session", "phase", "since"), columns, map(_row, found))


def _row(one: answers.Recovery) -> list[str]:
    reason = f"failing: {one.error}" if one.error else "itself" if one.armed else "a decision"
    if one.not_before and not one.error:
        reason += f", until {render.clock(one.not_before)}"
    since = render.moment(one.time_created)
    return [one.execution_id, one.session_id, one.phase, reason, str(one.attempts), since]
