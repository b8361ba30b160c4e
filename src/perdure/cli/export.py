"""`perdure export`: stored events, and the bytes they refer to, as lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from cyclopts import Parameter

from perdure import errors
from perdure.cli import upkeep
from perdure.maintenance import opening, transfer


def command(
    session: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    skip_damaged: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Write every stored event as a line of JSON, sessions one after another. May run beside a server.

    Images, files and long tool results that a session refers to stand before its events, in base64, once each.

    Exit codes: 0 all is written; 1 failed, or sessions were left out; 2 called wrongly.

    Parameters
    ----------
    session
        Only this one.
    output
        A file, which only its owner can read and which appears once it is complete; else standard output.
    skip_damaged
        Leave out sessions that cannot be read, name them on standard error, and exit with 1.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Say what was written with one line of JSON, on standard error if the events go to standard output.

    """
    if skip_damaged and session is not None:
        raise errors.ConfigError("--skip-damaged is for the export of all sessions")
    return asyncio.run(_export(upkeep.database(database), session, output, skipping=skip_damaged, as_json=json))


async def _export(path: Path, session: str | None, output: Path | None, *, skipping: bool, as_json: bool) -> int:
    written = pieces = 0
    skipped: dict[str, str] = {}
    with upkeep.progress("export") as advance, _target(output) as file:
        async with opening.look(path) as log:
            _, total = await log.store.read(lambda tx: tx.upkeep.census())
            async for some in transfer.export(log, session, skip=skipped.__setitem__ if skipping else None):
                file.writelines(some.lines)
                written += some.events
                pieces += len(some.lines) - some.events
                advance(written, total)
        file.flush()
    for name, why in skipped.items():
        print(f"perdure: left out {name}: {why}".encode(errors="replace").decode(), file=sys.stderr)
    if output or as_json:
        content = f" and {upkeep.counted(pieces, 'reference')} to content" if pieces else ""
        sentence = f"{upkeep.counted(written, 'event')}{content} written to {output}"
        values: dict[str, Any] = {"events": written, "content": pieces, "file": output and str(output)}
        if skipping:
            values["skipped"] = skipped
        upkeep.answer(values, sentence, as_json=as_json, stream=sys.stdout if output else sys.stderr)
    return upkeep.FAILED if skipped else upkeep.DONE


@contextlib.contextmanager
def _target(output: Path | None) -> Generator[BinaryIO]:
    """Where the lines go. Raises `ConfigError` for a file that cannot be written."""
    if output is None:
        yield sys.stdout.buffer
        return
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with open(partial, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    except OSError as error:
        raise errors.ConfigError(f"Cannot write {output}: {(error.strerror or str(error)).lower()}") from error
    finally:
        partial.unlink(missing_ok=True)
