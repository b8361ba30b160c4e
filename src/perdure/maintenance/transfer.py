"""Export and import: sessions as lines of JSON, one stored event a line, and before them the bytes they refer to.

Lives here: the lines, writing every event of a log with the content its session uses, and replaying a file of them.
Importing is replay (LOG-20 to LOG-29): the same file twice changes nothing, each aggregate comes whole or not at all, and
what differs from what is here is refused with the number of its line. A session that grew is *held*: nothing runs it until
a person says so. Bytes stand once in a file and one piece is in memory at a time. Not here: files, and how far it is (`cli/`).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
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


class _Piece(msgspec.Struct, omit_defaults=True):
    """Content that a session uses, in base64 the first time in a file, and by its hash alone after that."""

    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    aggregate_id: str
    data: bytes | None = None


class _Kind(msgspec.Struct):
    """What tells a line of content from that of an event."""

    hash: Any = None


_decoder, _pieces, _kinds = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_Piece), msgspec.json.Decoder(_Kind)
_encoder = msgspec.json.Encoder()


# -- export ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """Some lines; how many are events, the others being content."""

    lines: list[bytes]
    events: int


async def export(
    log: Log, only: str | None = None, *, skip: Callable[[str, str], None] | None = None
) -> AsyncGenerator[Exported]:
    """Every event of every aggregate, or of one, as lines, some at a time; each aggregate's stand together, in order, and
    what it refers to before them.

    With `skip` each one is read to its end before any of it is written, and of all of them one that cannot be read is left out
    whole: `skip(aggregate_id, why)` is told.

    Raises `SessionNotFound` for one that is not there, `SessionGone` where one was deleted while it was written,
    `StoreCorrupt` for bytes that are not those of their hash.
    """
    written: set[str] = set()
    if only is not None:
        last = await log.last_seq(only)
        if last < 0:
            msg = f"Session {only} does not exist"
            raise errors.SessionNotFound(msg)
        async for lines in _aggregate(log, only, last, written):
            yield lines
        return
    after = ""
    while page := await log.store.read(lambda tx, after=after: tx.events.aggregates(after, PAGE)):
        for aggregate_id, last in page:
            after = aggregate_id
            if skip and (why := await _unreadable(log, aggregate_id, last, written)):
                skip(aggregate_id, why)
                continue
            async for lines in _aggregate(log, aggregate_id, last, written):
                yield lines


async def _unreadable(log: Log, aggregate_id: str, last: int, written: set[str]) -> str | None:
    """Why an aggregate cannot be written, None where it can."""
    try:
        async for _ in _aggregate(log, aggregate_id, last, {*written}):
            pass
    except (errors.Undecodable, errors.StoreCorrupt, errors.SessionGone) as error:
        return str(error)
    return None


async def _aggregate(log: Log, aggregate_id: str, last: int, written: set[str]) -> AsyncGenerator[Exported]:
    # Read after the end was: whatever an event up to there refers to is used by then, and stays used.
    for digest in await log.store.read(lambda tx: tx.content.uses(aggregate_id)):
        data = None if digest in written else await _content(log, aggregate_id, digest)
        written.add(digest)
        yield Exported([_encoder.encode(_Piece(digest, aggregate_id, data)) + b"\n"], 0)
    after = -1
    while after < last:
        limit = min(PAGE, last - after)
        rows = await log.store.read(lambda tx, after=after, limit=limit: tx.events.page(aggregate_id, after, limit))
        if not rows:
            raise _gone(aggregate_id)
        yield Exported([line_of(row) for row in rows], len(rows))
        after = rows[-1].seq


async def _content(log: Log, aggregate_id: str, digest: str) -> bytes:
    data = await log.store.read(lambda tx: tx.content.get(digest))
    if data is None:
        raise _gone(aggregate_id)
    if hashlib.sha256(data).hexdigest() != digest:
        msg = f"The bytes of content {digest}, which session {aggregate_id} refers to, are not those of that hash"
        raise errors.StoreCorrupt(msg)
    return data


def _gone(aggregate_id: str) -> errors.SessionGone:
    return errors.SessionGone(f"Session {aggregate_id} was deleted while it was exported")


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
    """One aggregate's part of a file: its events, and the content it refers to; `held` where it is a session that grew."""

    aggregate_id: str
    lines: int
    appended: int
    held: bool
    pieces: int = 0


@dataclass(slots=True)
class _Places:
    """Where in the file an aggregate's lines are, and what it refers to."""

    numbers: array[int]
    offsets: array[int]
    pieces: list[tuple[int, str]]


@dataclass(slots=True)
class _File:
    """What is where in a file."""

    file: BinaryIO
    places: dict[str, _Places] = field(default_factory=dict[str, _Places])
    bytes_of: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """By hash, the number and the offset of the line that has the bytes."""

    def content(self, digest: str) -> bytes | None:
        """Bytes of a hash, if the file has them."""
        if digest not in self.bytes_of:
            return None
        number, offset = self.bytes_of[digest]
        self.file.seek(offset)
        found = _parse(number, self.file.readline())
        return found.data if isinstance(found, _Piece) else None


async def import_file(
    log: Log, file: BinaryIO, *, counted: Callable[[int], None] | None = None
) -> AsyncGenerator[Imported]:
    """Replay a seekable file of lines, aggregate by aggregate, in the order in which they first come.

    Every line is looked at before anything is written; `counted(lines)` then says how many events there are. Raises
    `InvalidDurableEvent` with the line's number; aggregates given before it are imported, that one not at all.
    """
    whole = _index(file)
    if counted:
        counted(sum(len(one.numbers) for one in whole.places.values()))
    for aggregate_id, there in whole.places.items():
        checked = [_checked(log, number, row) for number, row in _read(file, there)]
        appended, held = await _replay(log, aggregate_id, checked, there, whole)
        yield Imported(aggregate_id, len(checked), appended, held, len(there.pieces))


def _index(file: BinaryIO) -> _File:
    whole = _File(file)
    file.seek(0)
    offset = 0
    for number, text in enumerate(file, start=1):
        if text.strip():
            line = _parse(number, text)
            there = whole.places.setdefault(line.aggregate_id, _Places(array("Q"), array("Q"), []))
            if isinstance(line, _Line):
                there.numbers.append(number)
                there.offsets.append(offset)
            else:
                there.pieces.append((number, line.hash))
                if line.data is not None:
                    whole.bytes_of[line.hash] = number, offset
        offset += len(text)
    return whole


def _read(file: BinaryIO, there: _Places) -> Iterator[tuple[int, EventRow]]:
    for number, offset in zip(there.numbers, there.offsets, strict=True):
        file.seek(offset)
        line = _parse(number, file.readline())
        if isinstance(line, _Piece):  # the file was changed since
            raise _refused(number, "no stored event")
        try:
            data, metadata = bytes(line.data).decode(), bytes(line.metadata).decode()
        except UnicodeDecodeError as error:
            raise _refused(number, f"not UTF-8: {error}") from error
        kept = None if metadata == "null" else metadata
        yield number, EventRow(line.id, line.aggregate_id, line.seq, line.type, line.created, data, kept)


def _parse(number: int, text: bytes) -> _Line | _Piece:
    try:
        line = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if piece := _piece(number, text):
            return piece
        raise _refused(number, f"no stored event: {error}") from error
    if line.seq >= LARGEST or not -LARGEST <= line.created < LARGEST:
        raise _refused(number, "no stored event: a number is larger than a database holds")
    return line


def _piece(number: int, text: bytes) -> _Piece | None:
    """A line of content, its bytes held against their hash; None for a line that is none."""
    try:
        if _kinds.decode(text).hash is None:
            return None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    try:
        piece = _pieces.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _refused(number, f"no content: {error}") from error
    if piece.data is not None and hashlib.sha256(piece.data).hexdigest() != piece.hash:
        raise _refused(number, f"the bytes of content {piece.hash} are not those of that hash")
    return piece


def _checked(log: Log, number: int, row: EventRow) -> replay.Checked:
    try:
        return replay.check_one(log.registry, row)
    except errors.InvalidDurableEvent as error:
        raise _refused(number, str(error)) from error


async def _replay(
    log: Log, aggregate_id: str, checked: list[replay.Checked], there: _Places, whole: _File
) -> tuple[int, bool]:
    at = there.numbers[0] if there.numbers else there.pieces[0][0]

    def work(unit: Unit) -> tuple[int, bool]:
        nonlocal at
        if unit.tx.sessions.tombstone(aggregate_id) is not None:
            msg = f"Session {aggregate_id} was deleted here; nothing of it comes back"
            raise errors.InvalidDurableEvent(msg)
        appended = 0
        for at, one in zip(there.numbers, checked, strict=True):  # noqa: B007 - the refusal names the line it came to
            appended += len(replay.append(unit, [one]))
        known = unit.tx.sessions.get(aggregate_id) is not None
        for at, digest in there.pieces:  # noqa: B007
            if not known:
                msg = f"session {aggregate_id}, which this content is for, is neither in this file nor here"
                raise errors.InvalidDurableEvent(msg)
            _keep(unit, aggregate_id, digest, whole)
        if held := appended > 0 and known:
            unit.tx.sessions.set_held(aggregate_id, held=True)
        return appended, held

    try:
        return await log.transact(work, notify=False)
    except (errors.InvalidDurableEvent, errors.Undecodable, errors.InvalidInput, errors.Defect) as error:
        # A defect here is a constraint of the database that the facts of this log break.
        raise _refused(at, str(error)) from error


def _keep(unit: Unit, session_id: str, digest: str, whole: _File) -> None:
    """Have the session use what the file says it does: bytes of the file, else of the database."""
    data = whole.content(digest)
    if data is not None:
        digest = unit.tx.content.put(data)
    elif unit.tx.content.get(digest) is None:
        msg = f"the bytes of content {digest} are neither in this file nor here"
        raise errors.InvalidDurableEvent(msg)
    unit.tx.content.use(session_id, digest)


def _refused(number: int, why: Any) -> errors.InvalidDurableEvent:
    return errors.InvalidDurableEvent(f"Line {number}: {why}")
