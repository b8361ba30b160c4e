"""Export and import: sessions as lines of JSON, one stored event a line.

Lives here: the line, writing every event of a log, and replaying a file of them. Importing is replay (LOG-20 to LOG-28):
the same file twice changes nothing, each aggregate comes whole or not at all, and what differs from what is here is
refused with the number of its line. A session that grew is *held*: nothing runs it until a person says so. Not here: the
bytes of images and files that prompts refer to by hash; a backup has them.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

import msgspec

from perdure import errors
from perdure.log import replay
from perdure.log.log import Log
from perdure.log.unit import Unit
from perdure.store.events import EventRow

PAGE = 500
LARGEST = 2**63
_WHITE = str.maketrans("\n\r", "  ")


class _Line(msgspec.Struct):
    """A stored event as a line; `data` and `metadata` keep their text."""

    id: str
    aggregate_id: str
    seq: Annotated[int, msgspec.Meta(ge=0)]
    type: str
    created: int
    data: msgspec.Raw
    metadata: msgspec.Raw = msgspec.Raw(b"null")


_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


# -- export ------------------------------------------------------------------------------------------------------------------


async def export(log: Log, only: str | None = None) -> AsyncGenerator[list[bytes]]:
    """Every event of every aggregate, or of one, as lines, some at a time; each aggregate's stand together, in order.

    Raises `SessionNotFound` for one that is not there, `SessionGone` where one was deleted while it was written.
    """
    if only is not None:
        last = await log.last_seq(only)
        if last < 0:
            msg = f"Session {only} does not exist"
            raise errors.SessionNotFound(msg)
        async for lines in _aggregate(log, only, last):
            yield lines
        return
    after = ""
    while page := await log.store.read(lambda tx, after=after: tx.events.aggregates(after, PAGE)):
        for aggregate_id, last in page:
            after = aggregate_id
            async for lines in _aggregate(log, aggregate_id, last):
                yield lines


async def _aggregate(log: Log, aggregate_id: str, last: int) -> AsyncGenerator[list[bytes]]:
    after = -1
    while after < last:
        limit = min(PAGE, last - after)
        rows = await log.store.read(lambda tx, after=after, limit=limit: tx.events.page(aggregate_id, after, limit))
        if not rows:
            msg = f"Session {aggregate_id} was deleted while it was exported"
            raise errors.SessionGone(msg)
        yield [line_of(row) for row in rows]
        after = rows[-1].seq


def line_of(row: EventRow) -> bytes:
    """An event as a line. Raises `Undecodable` where what is stored is no JSON at all."""
    try:
        data, metadata = _raw(row.data), _raw(row.metadata or "null")
        line = _Line(row.id, row.aggregate_id, row.seq, row.type, row.created, data, metadata)
        return _encoder.encode(line) + b"\n"
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        msg = f"Event {row.id} at aggregate {row.aggregate_id} sequence {row.seq} holds no JSON: {error}"
        raise errors.Undecodable(msg) from error


def _raw(text: str) -> msgspec.Raw:
    """The text as it is; a line break in it can only be white space."""
    msgspec.json.decode(text)
    return msgspec.Raw(text.translate(_WHITE).encode())


# -- import ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """One aggregate's part of a file; `held` where it is a session that grew."""

    aggregate_id: str
    lines: int
    appended: int
    held: bool


@dataclass(slots=True)
class _Places:
    """Where in the file an aggregate's lines are."""

    numbers: array[int]
    offsets: array[int]


async def import_file(
    log: Log, file: BinaryIO, *, counted: Callable[[int], None] | None = None
) -> AsyncGenerator[Imported]:
    """Replay a seekable file of lines, aggregate by aggregate, in the order in which they first come.

    Every line is looked at before anything is written; `counted(lines)` then says how many there are. Raises
    `InvalidDurableEvent` with the line's number; aggregates given before it are imported, that one not at all.
    """
    places = _index(file)
    if counted:
        counted(sum(len(one.numbers) for one in places.values()))
    for aggregate_id, there in places.items():
        rows = list(_read(file, there))
        checked = [_checked(log, number, row) for number, row in rows]
        appended, held = await _replay(log, aggregate_id, [number for number, _ in rows], checked)
        yield Imported(aggregate_id, len(rows), appended, held)


def _index(file: BinaryIO) -> dict[str, _Places]:
    places: dict[str, _Places] = {}
    file.seek(0)
    offset = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            there = places.setdefault(_parse(number, line).aggregate_id, _Places(array("Q"), array("Q")))
            there.numbers.append(number)
            there.offsets.append(offset)
        offset += len(line)
    return places


def _read(file: BinaryIO, there: _Places) -> Iterator[tuple[int, EventRow]]:
    for number, offset in zip(there.numbers, there.offsets, strict=True):
        file.seek(offset)
        line = _parse(number, file.readline())
        try:
            data, metadata = bytes(line.data).decode(), bytes(line.metadata).decode()
        except UnicodeDecodeError as error:
            raise _refused(number, f"not UTF-8: {error}") from error
        kept = None if metadata == "null" else metadata
        yield number, EventRow(line.id, line.aggregate_id, line.seq, line.type, line.created, data, kept)


def _parse(number: int, text: bytes) -> _Line:
    try:
        line = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _refused(number, f"no stored event: {error}") from error
    if line.seq >= LARGEST or not -LARGEST <= line.created < LARGEST:
        raise _refused(number, "no stored event: a number is larger than a database holds")
    return line


def _checked(log: Log, number: int, row: EventRow) -> replay.Checked:
    try:
        return replay.check_one(log.registry, row)
    except errors.InvalidDurableEvent as error:
        raise _refused(number, str(error)) from error


async def _replay(log: Log, aggregate_id: str, numbers: list[int], checked: list[replay.Checked]) -> tuple[int, bool]:
    at = numbers[0]

    def work(unit: Unit) -> tuple[int, bool]:
        nonlocal at
        if unit.tx.sessions.tombstone(aggregate_id) is not None:
            msg = f"Session {aggregate_id} was deleted here; nothing of it comes back"
            raise errors.InvalidDurableEvent(msg)
        appended = 0
        for at, one in zip(numbers, checked, strict=True):  # noqa: B007 - the refusal names the line it came to
            appended += len(replay.append(unit, [one]))
        held = appended > 0 and unit.tx.sessions.get(aggregate_id) is not None
        if held:
            unit.tx.sessions.set_held(aggregate_id, held=True)
        return appended, held

    try:
        return await log.transact(work, notify=False)
    except (errors.InvalidDurableEvent, errors.Undecodable, errors.InvalidInput, errors.Defect) as error:
        # A defect here is a constraint of the database that the facts of this log break.
        raise _refused(at, str(error)) from error


def _refused(number: int, why: Any) -> errors.InvalidDurableEvent:
    return errors.InvalidDurableEvent(f"Line {number}: {why}")
