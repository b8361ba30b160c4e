"""`perdure sessions`: which there are, and what they are doing."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter, validators

from perdure.cli import connect, render

AT_ONCE = 100
COLUMNS = ("session", "status", "agent", "title", "updated", "tokens", "cost")


async def command(
    *,
    limit: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 20,
    json: connect.Json = False,
    where: Annotated[connect.Where, Parameter(name="*")] = connect.HERE,
) -> int:
    """List sessions, newest first. Those whose rows are damaged are named on standard error.

    Example: perdure sessions --limit 5

    Exit codes: 0 listed; 1 failed; 2 called wrongly.

    Parameters
    ----------
    limit
        How many at most.
    json
        Print one line of JSON: {"data": […], "damaged": [{"id", "why"}, …], "more": true or false}.
    where
        Where they are.

    """
    async with connect.connect(where, read_only=True) as app:
        found, damaged, more = await _listed(app, limit)
        told = [await _told(app, one) for one in found]
    if json:
        named = [{"id": one.id, "why": one.why} for one in damaged]
        render.say(render.as_json({"data": told, "damaged": named, "more": more}))
        return 0
    if told or not damaged:
        _table(told)
    for one in damaged:
        words = f"{one.why}; mend it: perdure rebuild {one.id}"
        render.console(stderr=True).print(words, soft_wrap=True)
    if more:
        render.console(stderr=True).print(f"There are more: --limit {limit * 2}", style="dim")
    return 0


async def _listed(app: connect.App, limit: int) -> tuple[list[connect.Info], list[connect.Damaged], bool]:
    found: list[connect.Info] = []
    damaged: list[connect.Damaged] = []
    before: Any = None
    while (left := limit - len(found) - len(damaged)) > 0:
        page = await app.sessions.list(limit=min(AT_ONCE, left), before=before)
        found += page.data
        damaged += page.damaged
        before = page.next
        if before is None:
            break
    return found, damaged, before is not None


async def _told(app: connect.App, one: connect.Info) -> dict[str, Any]:
    status = getattr(one, "status", None) or await (await app.sessions.get(one.id)).status()
    told = {
        "id": one.id,
        "agent": one.agent,
        "model": one.model,
        "title": one.title,
        "status": render.plain(status),
        "time": {"created": one.time_created, "updated": one.time_updated},
        "usage": render.plain(one.usage),
    }
    return {name: value for name, value in told.items() if value is not None}


def _table(told: list[dict[str, Any]]) -> None:
    console = render.console()
    if not told:
        console.print("There is no session yet: perdure chat")
        return
    rows = [_row(one) for one in told]
    render.table(console, ("session", "updated", "tokens", "cost"), COLUMNS, rows)


def _row(one: dict[str, Any]) -> list[str]:
    status, usage = one["status"], one["usage"]
    doing = status["status"] + (f": {status['reason']}" if "reason" in status else "")
    cost = render.money(usage["cost"]) if usage["cost"] else "" if usage["unknown_cost"] else "-"
    counted = sum(usage["tokens"][kind] for kind in ("input", "output", "cache_read", "cache_write"))
    updated = render.moment(one["time"]["updated"])
    return [one["id"], doing, one["agent"], one.get("title", ""), updated, str(counted), cost]
