"""Doctor: everything that can be found wrong with a database, found without changing it; mending happens in a copy.

Lives here: SQLite's own checks of the file together with ours of the log and of the sessions, and the mended copy. Not
here: any of them (`store/checkup.py`, `verify.py`, `stuck.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perdure import clock, config, errors
from perdure.core import codec
from perdure.maintenance import opening, rebuild, stuck, verify
from perdure.store import checkup, port

Progress = Callable[[int, int], None]
"""`progress(events, of)`."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. `unread` says why the log could not be looked at, where it could not; sessions that are `stuck` are
    explained, and are nothing wrong with the database.
    """

    findings: checkup.Findings
    aggregates: int = 0
    events: int = 0
    problems: tuple[verify.Problem, ...] = ()
    unread: str | None = None
    stuck: tuple[stuck.Stuck, ...] = ()

    @property
    def well(self) -> bool:
        """Nothing is wrong."""
        return not (self.findings.complaints or self.problems or self.unread)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it, the best first."""
        if self.findings.schema > self.findings.program_schema:
            return (errors.SchemaTooNew.remedy,)
        if self.unread and not self.findings.complaints:
            return (OLDER,) if self.findings.schema < self.findings.program_schema else (RESTORE, SAVE)
        kinds = {one.kind for one in self.problems}
        lost = bool(self.findings.complaints or kinds - {"rows"})
        mended = (MEND,) if "rows" in kinds else ()
        return (RESTORE, SAVE, *mended) if lost else mended


RESTORE = (
    "restore the last backup: copy it to the file's place while nothing runs on it, without -wal and -shm beside it"
)
SAVE = (
    "save what can be read: 'perdure export --skip-damaged --output FILE' (where even that fails, 'perdure export SESSION' for "
    "each session), then 'perdure import' into a new file"
)
MEND = "make the rows again from the log: 'perdure doctor --mend COPY' in a copy, 'perdure rebuild SESSION' in place"
OLDER = "start a server on it: it brings the schema up to date"


def examine(path: Path, progress: Progress | None = None) -> Report:
    """Look at a file, whoever else works on it. Raises `StoreUnusable` and its kind for one that cannot be opened,
    `StoreCorrupt` for one too damaged for that.
    """
    with checkup.open_read_only(path) as patient:
        findings = patient.examine()
        if findings.schema != findings.program_schema:
            age = "newer than this Perdure knows" if findings.schema > findings.program_schema else "older"
            return Report(findings, unread=f"schema {findings.schema} is {age} ({findings.program_schema})")
        seen = _Seen()
        waiting: list[stuck.Stuck] = []
        try:
            _log(patient, seen, progress)
            now, budget = clock.SystemClock().now_ms(), config.settings().recovery_budget
            waiting = patient.run(lambda tx: stuck.explain(tx, now, budget=budget))
        except errors.PerdureError as error:
            return Report(findings, seen.aggregates, seen.events, tuple(seen.problems), str(error))
        return Report(findings, seen.aggregates, seen.events, tuple(seen.problems), stuck=tuple(waiting))


@dataclass(slots=True)
class _Seen:
    aggregates: int = 0
    events: int = 0
    problems: list[verify.Problem] = field(default_factory=list[verify.Problem])


def _log(patient: checkup.ReadOnly, seen: _Seen, progress: Progress | None) -> None:
    registry = codec.session_registry()
    _, total = patient.run(lambda tx: tx.upkeep.census())

    def look(aggregate_id: str, number: int | None) -> Callable[[port.Tx], verify.Checked]:
        return lambda tx: verify.check(tx, registry, aggregate_id, number)

    def take(aggregate_id: str, number: int | None = None) -> None:
        checked = patient.run(look(aggregate_id, number))
        seen.aggregates += 1
        seen.events += checked.events
        seen.problems += checked.problems
        if progress:
            progress(seen.events, total)

    for stray, number in patient.run(verify.strays).items():
        take(stray, number)
    after = ""
    while page := patient.run(lambda tx, after=after: tx.events.aggregates(after, verify.PAGE)):
        for aggregate_id, _ in page:
            take(aggregate_id)
        after = page[-1][0]


async def mend_copy(path: Path, copy: Path, progress: Progress | None = None) -> tuple[Report, list[str]]:
    """Copy a database and rebuild there each session whose rows are not what its log says; the copy's report, and whom.

    What the log itself lacks nobody can mend. Raises `StoreUnusable` where `copy` exists, `StoreCorrupt` for a file too
    damaged to be copied.
    """
    broken = {problem.aggregate_id for problem in examine(path, progress).problems if problem.kind == "rows"}
    checkup.backup(path, copy)
    mended: list[str] = []
    async with opening.log(copy) as log:
        await rebuild.clear_strays(log)
        for session_id in sorted(broken):
            try:
                await rebuild.rebuild(log, session_id, claimed=True)
            except (errors.Undecodable, errors.NotFound, errors.Defect):
                continue  # the copy's report names it again
            mended.append(session_id)
    return examine(copy), mended
