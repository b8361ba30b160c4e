"""`perdure verify`: whether the log is whole and readable, and the rows are what it says."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli import upkeep
from perdure.maintenance import opening, verify


def command(
    session: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Check every session against its log. Changes nothing; may run beside a server.

    Exits 0 if all is sound, 1 if a problem was found.

    Parameters
    ----------
    session
        Only this one.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Answer with one line of JSON.

    """
    return asyncio.run(_verify(upkeep.database(database), session, as_json=json))


async def _verify(path: Path, session: str | None, *, as_json: bool) -> int:
    aggregates = events = 0
    problems: list[verify.Problem] = []
    started = time.monotonic()
    with upkeep.progress("verify") as advance:
        async with opening.look(path) as log:
            _, total = await log.store.read(lambda tx: tx.upkeep.census())
            async for checked in verify.verify(log, session):
                aggregates, events = aggregates + 1, events + checked.events
                problems += checked.problems
                advance(events, total)
    if not as_json:
        for one in problems:
            print(f"{one.aggregate_id}: {one.kind}: {one.detail}".encode(errors="replace").decode())
    seconds = round(time.monotonic() - started, 3)
    values = {"aggregates": aggregates, "events": events, "seconds": seconds}
    verdict = "sound" if not problems else upkeep.counted(len(problems), "problem")
    sentence = f"{upkeep.counted(aggregates, 'session')}, {upkeep.counted(events, 'event')}: {verdict}"
    upkeep.answer({**values, "problems": [dataclasses.asdict(one) for one in problems]}, sentence, as_json=as_json)
    return upkeep.FAILED if problems else upkeep.DONE
