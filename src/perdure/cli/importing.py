"""`perdure import`: stored events, and the bytes they refer to, from lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from perdure import errors
from perdure.cli import upkeep
from perdure.maintenance import opening, transfer


def command(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Replay exported events. The same file twice changes nothing.

    Images, files and long tool results come with the sessions that refer to
    them, held against their hashes. Each session comes whole or not at all; the
    first line that does not fit ends the import, and the sessions before it stay.
    A session that grew is held: nothing runs it until it is resumed or gets a
    prompt.

    Exits 0 if the whole file is in, 1 if a line was refused.

    Parameters
    ----------
    file
        A file that `perdure export` wrote, or - for standard input.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db), made where there is none.
    json
        Answer with one line of JSON.

    """
    return asyncio.run(_import(upkeep.database(database), file, as_json=json))


async def _import(path: Path, file: Path, *, as_json: bool) -> int:
    done: list[transfer.Imported] = []
    refusal: str | None = None
    total = 0

    def found(lines: int) -> None:
        nonlocal total
        total = lines

    with upkeep.progress("import") as advance, _source(file) as lines:
        async with opening.log(path, create=True) as log:
            try:
                async for one in transfer.import_file(log, lines, counted=found):
                    done.append(one)
                    advance(sum(each.lines for each in done), total)
            except errors.InvalidDurableEvent as error:
                refusal = str(error)
    appended, held = sum(one.appended for one in done), [one.aggregate_id for one in done if one.held]
    known = sum(one.lines for one in done) - appended
    counts = f"{upkeep.counted(appended, 'event')} imported, {known} known already"
    sentence = f"{counts}, {upkeep.counted(len(held), 'session')} held"
    told = {"imported": appended, "known": known, "content": sum(one.pieces for one in done), "held": held}
    upkeep.answer({**told, "refused": refusal}, sentence, as_json=as_json)
    if refusal:
        print(f"perdure: {refusal}".encode(errors="replace").decode(), file=sys.stderr)
    return upkeep.FAILED if refusal else upkeep.DONE


@contextlib.contextmanager
def _source(file: Path) -> Generator[BinaryIO]:
    """The lines, in a file that can be read twice. Raises `ConfigError` for one that cannot be read."""
    if str(file) == "-":
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            yield spooled
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise errors.ConfigError(f"Cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    with opened:
        if not opened.seekable():
            raise errors.ConfigError(f"Cannot read {file}: it cannot be read twice; pass it as standard input")
        yield opened
