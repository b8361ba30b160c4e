"""`perdure rebuild`: a session's rows made again from its log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure import errors
from perdure.cli import upkeep
from perdure.maintenance import opening, rebuild


def command(
    *sessions: str,
    all: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Make the rows of sessions again from their log; what no log knows is kept. Each session is one transaction.

    Exits 0 if every one was rebuilt, 1 if one was not: being executed now, or its log cannot be read.

    Parameters
    ----------
    sessions
        Their ids; or say --all.
    all
        Every session there is.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Answer with one line of JSON.

    """
    if bool(sessions) == all:
        raise errors.ConfigError("Name the sessions to rebuild, or say --all")
    return asyncio.run(_rebuild(upkeep.database(database), sessions, as_json=json))


async def _rebuild(path: Path, sessions: Sequence[str], *, as_json: bool) -> int:
    rebuilt: dict[str, int] = {}
    failed: dict[str, str] = {}
    with upkeep.progress("rebuild") as advance:
        async with opening.log(path) as log:
            await rebuild.clear_strays(log)
            wanted = sessions or await rebuild.sessions(log)
            for number, session_id in enumerate(wanted, start=1):
                try:
                    rebuilt[session_id] = await rebuild.rebuild(log, session_id)
                except (errors.SessionBusy, errors.SessionNotFound, errors.Undecodable, errors.Defect) as error:
                    failed[session_id] = str(error)
                advance(number, len(wanted))
    for why in () if as_json else failed.values():
        print(f"perdure: {why}".encode(errors="replace").decode(), file=sys.stderr)
    events = upkeep.counted(sum(rebuilt.values()), "event")
    sentence = f"{upkeep.counted(len(rebuilt), 'session')} rebuilt from {events}, {len(failed)} failed"
    upkeep.answer({"rebuilt": rebuilt, "failed": failed}, sentence, as_json=as_json)
    return upkeep.FAILED if failed else upkeep.DONE
