"""`perdure export`: stored events, and the bytes they refer to, as lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from perdure import errors
from perdure.cli import upkeep
from perdure.maintenance import opening, transfer


def command(
    session: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], show_default=False)] = None,
    database: upkeep.Database = None,
    json: upkeep.Json = False,
) -> int:
    """Write every stored event as a line of JSON, sessions one after another. May run beside a server.

    Images, files and long tool results that a session refers to stand before its events, in base64, once each.

    Parameters
    ----------
    session
        Only this one.
    output
        A file, which only its owner can read and which appears once it is complete; else standard output.
    database
        SQLite file (PERDURE_DATABASE_URL, ./perdure.db).
    json
        Say what was written with one line of JSON, on standard error if the events go to standard output.

    """
    return asyncio.run(_export(upkeep.database(database), session, output, as_json=json))


async def _export(path: Path, session: str | None, output: Path | None, *, as_json: bool) -> int:
    written = pieces = 0
    with upkeep.progress("export") as advance, _target(output) as file:
        async with opening.look(path) as log:
            _, total = await log.store.read(lambda tx: tx.upkeep.census())
            async for some in transfer.export(log, session):
                file.writelines(some.lines)
                written += some.events
                pieces += len(some.lines) - some.events
                advance(written, total)
        file.flush()
    if output or as_json:
        content = f" and {upkeep.counted(pieces, 'reference')} to content" if pieces else ""
        sentence = f"{upkeep.counted(written, 'event')}{content} written to {output}"
        values = {"events": written, "content": pieces, "file": output and str(output)}
        upkeep.answer(values, sentence, as_json=as_json, stream=sys.stdout if output else sys.stderr)
    return upkeep.DONE


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
