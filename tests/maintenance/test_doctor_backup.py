"""Doctor looks and never touches; a backup is one moment of a database in use, checked, or nothing."""

import asyncio
import hashlib
import stat
import threading

import apsw
import pytest

from perdure import errors
from perdure.core import events
from perdure.maintenance import doctor, opening, verify
from perdure.store import checkup, schema


def fingerprint(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_sound_database_is_well_and_untouched(database, kit):
    before, names = fingerprint(database), sorted(database.parent.iterdir())
    report = doctor.examine(database)
    assert report.well
    assert (report.aggregates, report.events) == (2, 2 * len(list(kit.story("s"))))
    assert (report.findings.schema, report.findings.journal_mode) == (schema.CURRENT, "wal")
    assert report.findings.sqlite == apsw.sqlite_lib_version()
    assert fingerprint(database) == before
    assert sorted(path for path in database.parent.iterdir() if path.suffix == ".db") == names


async def test_a_database_in_use_can_be_looked_at(database, store, log):
    await log.publish(events.SyntheticAdded(session_id="s1", message_id="new", text="x"))
    assert (await asyncio.to_thread(doctor.examine, database)).well


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM event WHERE aggregate = 1 AND seq = 3", "expected 3"),
        ("UPDATE event SET data = '{' WHERE aggregate = 2 AND seq = 3", "sequence 3"),
        ("UPDATE session SET title = 'x' WHERE id = 's1'", "title is 'x'"),
        ("INSERT INTO session_draft VALUES ('nobody', 'm', 'p', 'text', 'x')", "foreign_key_check"),
        ("DROP TRIGGER IF EXISTS event_is_append_only_update", "trigger event_is_append_only_update is missing"),
        ("PRAGMA user_version = 99", "newer than this Perdure knows"),
    ],
)
def test_what_is_wrong_is_named_log_9(database, kit, statement, words):
    kit.damage(database, *kit.ALLOW, statement)
    report = doctor.examine(database)
    assert not report.well
    named = [*report.findings.complaints, *(one.detail for one in report.problems), report.unread or ""]
    assert any(words in one for one in named), named


def test_a_damaged_file_is_told_from_a_sound_one(database):
    blob = bytearray(database.read_bytes())
    for page in range(3, len(blob) // 4096):
        blob[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    database.write_bytes(blob)
    report = doctor.examine(database)
    assert not report.well
    assert any("integrity_check" in one for one in report.findings.complaints)


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough" * 30])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(errors.StoreError):
        doctor.examine(path)
    with pytest.raises(errors.StoreError):
        checkup.backup(path, tmp_path / "copy.db")
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["x.db"]


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.db", tmp_path):
        with pytest.raises(errors.StoreUnusable):
            doctor.examine(path)
    assert list(tmp_path.iterdir()) == []


async def test_mending_happens_in_a_copy_alone_and_keeps_what_no_log_knows(database, store, kit):
    await kit.operate(store, "s1", expires_at=2**62)
    await store.close()
    kit.damage(database, "UPDATE session SET title = 'x' WHERE id = 's1'", "DELETE FROM session_message WHERE seq > 12")
    before, copy = fingerprint(database), database.with_name("mended.db")
    report, mended = await doctor.mend_copy(database, copy)
    assert report.well
    assert mended == ["s1", "s2"]
    assert fingerprint(database) == before
    assert not doctor.examine(database).well
    async with opening.log(copy) as log:
        kept = await log.store.read(lambda tx: tx.upkeep.keep("s1"))
        assert [one.problems async for one in verify.verify(log)] == [(), ()]
    assert (kept.session.held, kept.session.wake_attempts, kept.claim.owner_id) == (True, 2, "own@elsewhere/1/2")
    with pytest.raises(errors.StoreUnusable):
        await doctor.mend_copy(database, copy)


async def test_what_the_log_lacks_is_named_again_after_mending(database, kit):
    kit.damage(database, *kit.ALLOW, "UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 4")
    kit.damage(database, "UPDATE session SET title = 'x'")
    report, mended = await doctor.mend_copy(database, database.with_name("mended.db"))
    assert mended == ["s2"]
    assert {(one.aggregate_id, one.kind) for one in report.problems} == {("s1", "undecodable")}


# -- backup --------------------------------------------------------------------------------------------------------------


def test_a_backup_is_equal_private_and_whole(database, kit):
    copy = database.with_name("copy.db")
    seen = []
    assert checkup.backup(database, copy, lambda done, total: seen.append((done, total))) == copy.stat().st_size
    assert seen[-1][0] == seen[-1][1] > 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(path.name for path in database.parent.iterdir() if "copy" in path.name) == ["copy.db"]
    assert kit.dump(copy) == kit.dump(database)
    assert doctor.examine(copy).well


def test_a_backup_never_overwrites(database):
    copy = database.with_name("copy.db")
    copy.write_text("mine")
    with pytest.raises(errors.StoreUnusable, match="exists already"):
        checkup.backup(database, copy)
    assert copy.read_text() == "mine"
    with pytest.raises(errors.StoreUnusable):
        checkup.backup(database, database.parent / "nowhere" / "copy.db")


def test_a_backup_that_fails_leaves_nothing(database, monkeypatch):
    def fails(done, total):
        raise ZeroDivisionError

    before = sorted(path.name for path in database.parent.iterdir())
    with pytest.raises(ZeroDivisionError):
        checkup.backup(database, database.with_name("copy.db"), fails)
    assert (
        sorted(path.name for path in database.parent.iterdir() if path.suffix not in {".db-shm", ".db-wal"}) == before
    )


async def test_a_backup_of_a_database_in_use_is_one_moment_of_it(database, store, log, monkeypatch):
    """Commits fall between any two steps of the copy; it holds those from before it began and verifies."""
    monkeypatch.setattr(checkup, "PAGES", 1)
    loop, copy, steps = asyncio.get_running_loop(), database.with_name("copy.db"), []
    go = threading.Semaphore(0)

    def between(done, total):
        steps.append(done)
        if len(steps) <= 20:
            asyncio.run_coroutine_threadsafe(publish(), loop)
            assert go.acquire(timeout=20)

    async def publish():
        number = len(steps)
        await log.publish(events.SyntheticAdded(session_id="s1", message_id=f"new_{number}", text="x" * 10_000))
        go.release()

    await log.publish(events.SyntheticAdded(session_id="s1", message_id="before", text="x"))
    last = await log.last_seq("s1")
    await asyncio.to_thread(checkup.backup, database, copy, between)
    assert await log.last_seq("s1") == last + 20
    assert len(steps) > 20
    async with opening.log(copy) as copied:
        assert await copied.last_seq("s1") == last
        assert [one.problems async for one in verify.verify(copied)] == [(), ()]
