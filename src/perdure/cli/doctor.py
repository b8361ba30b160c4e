"""`perdure doctor`: everything that can be found wrong with a database, and a mended copy where it can be mended."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli import upkeep
from perdure.maintenance import doctor
from perdure.version import VERSION


def command(
    *,
    mend: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Examine the file, its schema, the log and the rows. Opens it for reading only; may run beside a server.

    Exits 0 if all is well, 1 if something is wrong; with --mend, if something is still wrong in the copy.

    Parameters
    ----------
    mend
        Copy the database to this new file and rebuild there what is not as its log says. Only the copy is changed.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Answer with one line of JSON.

    """
    path = upkeep.database(database)
    mended: list[str] = []
    with upkeep.progress("examine") as advance:
        if mend is None:
            report = doctor.examine(path, advance)
        else:
            report, mended = asyncio.run(doctor.mend_copy(path, mend, advance))
    values: dict[str, Any] = {
        "well": report.well,
        "perdure": VERSION,
        "file": str(mend or path),
        **dataclasses.asdict(report.findings),
        "aggregates": report.aggregates,
        "events": report.events,
        "problems": [dataclasses.asdict(one) for one in report.problems],
        "unread": report.unread,
        "stuck": [dataclasses.asdict(one) for one in report.stuck],
        "mended": mended,
        "advice": report.advice,
    }
    upkeep.answer(values, "\n".join(_lines(report, mend or path, mended)), as_json=json)
    return upkeep.DONE if report.well else upkeep.FAILED


def _lines(report: doctor.Report, path: Path, mended: list[str]) -> list[str]:
    found = report.findings
    size = f"{found.size / 2**20:.1f} MiB and {found.wal_size / 2**20:.1f} MiB of WAL"
    log = f"{upkeep.counted(report.events, 'event')} in {upkeep.counted(report.aggregates, 'session')}"
    return [
        f"perdure  {VERSION}",
        f"sqlite   {found.sqlite}",
        f"file     {path}, {size}, journal {found.journal_mode}",
        f"schema   {found.schema} (this program: {found.program_schema})",
        f"log      {log}" if report.unread is None else f"log      not read: {report.unread}",
        *(f"mended   {one}" for one in mended),
        *(f"wrong    {one}" for one in found.complaints),
        *(f"wrong    {one.aggregate_id}: {one.kind}: {one.detail}" for one in report.problems),
        *(f"waits    {one.session_id}: {one.why}; {one.remedy}" for one in report.stuck),
        *(f"advice   {one}" for one in report.advice),
        "verdict  well" if report.well else "verdict  not well",
    ]
