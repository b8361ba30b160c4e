"""The commands that look after a database, as a person calls them: what they say, how they exit, what they leave."""

import asyncio
import json
import os
import stat
import subprocess
import sys

import apsw
import pytest

from perdure.core import events
from perdure.maintenance import opening
from perdure.store import migrate, schema

START = "from perdure.cli.main import main; main()"


@pytest.fixture
def database(shell):
    """Two small sessions in ./perdure.db."""

    async def fill():
        async with opening.log(shell.directory / "perdure.db", create=True) as log:
            for session in ("s1", "s2"):
                await log.publish(events.SessionCreated(session_id=session, agent="main", title="\U0001f600"))
                await log.publish(events.SyntheticAdded(session_id=session, message_id=f"{session}_m", text="hé"))

    asyncio.run(fill())
    return shell.directory / "perdure.db"


def sql(path, *statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_export_import_and_verify_in_processes_of_their_own_log_28(shell, database):
    exported = shell.run("export", "--output", "all.jsonl", "--json")
    assert (exported.returncode, exported.stderr) == (0, "")
    assert json.loads(exported.stdout) == {"events": 4, "content": 0, "file": "all.jsonl"}
    file = shell.directory / "all.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert shell.run("export").stdout == file.read_text("utf-8")
    imported = shell.run("import", "all.jsonl", "--database", "other.db", "--json")
    assert (imported.returncode, imported.stderr) == (0, "")
    assert json.loads(imported.stdout) == {
        "imported": 4,
        "known": 0,
        "content": 0,
        "held": ["s1", "s2"],
        "refused": None,
    }
    again = shell.run("import", "all.jsonl", "--database", "other.db")
    assert (again.returncode, again.stdout) == (0, "0 events imported, 4 known already, 0 sessions held\n")
    assert shell.run("export", "--database", "other.db").stdout == file.read_text("utf-8")
    verified = shell.run("verify", PERDURE_DATABASE_URL="other.db")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "2 sessions, 4 events: sound\n", "")


def test_export_one_session(here, database):
    assert here("export", "s2").stdout.count("\n") == 2
    unknown = here("export", "nobody", "--output", "x.jsonl")
    assert unknown.returncode == 2
    assert "nobody does not exist" in unknown.stderr
    assert not (database.parent / "x.jsonl").exists()


def test_a_refused_line_is_named_and_exits_1_log_24(here, database):
    lines = here("export").stdout.splitlines(keepends=True)
    (database.parent / "bad.jsonl").write_text("".join([*lines[:2], lines[3]]))
    refused = here("import", "bad.jsonl", "--database", "other.db")
    assert refused.returncode == 1
    assert refused.stdout == "2 events imported, 0 known already, 1 session held\n"
    assert refused.stderr == "perdure: Line 3: Sequence mismatch for aggregate s2: expected 0, got 1\n"
    as_json = json.loads(here("import", "bad.jsonl", "--database", "other.db", "--json").stdout)
    assert as_json["refused"].startswith("Line 3: ")


def test_import_from_standard_input(shell, database):
    with database.with_name("all.jsonl").open("wb") as file:
        file.write(shell.run("export").stdout.encode())
    with database.with_name("all.jsonl").open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", START, "import", "-", "--database", "piped.db", "--json"],
            stdin=file,
            cwd=shell.directory,
            env=shell.environment,
            capture_output=True,
            timeout=60,
            check=True,
        )
    assert json.loads(done.stdout)["imported"] == 4


def test_verify_names_each_problem_and_exits_1(here, database):
    sql(database, "UPDATE session SET title = 'x' WHERE id = 's1'")
    found = here("verify")
    assert found.returncode == 1
    assert "s1: rows: session: title is 'x'" in found.stdout
    assert found.stdout.endswith("2 sessions, 4 events: 1 problem\n")
    assert json.loads(here("verify", "s1", "--json").stdout)["problems"][0]["aggregate_id"] == "s1"
    assert here("verify", "s2").returncode == 0
    assert here("verify", "nobody").returncode == 2


def test_rebuild_some_or_all(here, database):
    sql(database, "UPDATE session SET title = 'x'")
    assert here("rebuild").returncode == 2
    assert here("rebuild", "s1", "--all").returncode == 2
    one = here("rebuild", "s1", "--json")
    assert (one.returncode, json.loads(one.stdout)) == (0, {"rebuilt": {"s1": 2}, "failed": {}})
    assert here("verify", "s1").returncode == 0
    assert here("rebuild", "--all").stdout == "2 sessions rebuilt from 4 events, 0 failed\n"
    assert here("verify").returncode == 0
    missing = here("rebuild", "nobody", "s1")
    assert missing.returncode == 1
    assert "nobody does not exist" in missing.stderr
    assert missing.stdout == "1 session rebuilt from 2 events, 1 failed\n"


def test_backup_makes_a_new_file_and_never_overwrites(here, database):
    done = here("backup", "copy.db", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["bytes"] == (database.parent / "copy.db").stat().st_size
    assert here("verify", "--database", "copy.db").returncode == 0
    again = here("backup", "copy.db")
    assert again.returncode == 1
    assert "exists already" in again.stderr


# -- what only reads -----------------------------------------------------------------------------------------------------

LOOKING = [
    ["sessions"],
    ["show", "s1"],
    ["tail", "s1", "--no-follow"],
    ["recoveries"],
    ["verify"],
    ["export"],
    ["doctor"],
    ["backup", "copy.db"],
]


@pytest.mark.parametrize("arguments", LOOKING, ids=lambda one: one[0])
def test_a_command_that_only_reads_leaves_no_trace_db_1(here, shell, database, arguments):
    before, place = database.read_bytes(), database.parent / "alone"
    place.mkdir()
    alone = database.rename(place / "alone.db")
    done = here(*arguments, "--database", str(alone))
    assert done.returncode == 0, done.stderr
    assert [one.name for one in place.iterdir()] == ["alone.db"]
    assert alone.read_bytes() == before


@pytest.mark.parametrize("arguments", LOOKING, ids=lambda one: one[0])
@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no "), (b"", "it is empty, and no Perdure database"), (b"x" * 40, "database"), (b"x" * 9999, "database")],
    ids=["missing", "empty", "short", "other"],
)
def test_what_is_no_database_is_refused_in_one_line_and_left_alone(here, shell, arguments, content, words):
    place = shell.directory / "place"
    place.mkdir()
    path = place / "x.db"
    if content is not None:
        path.write_bytes(content)
    done = here(*arguments, "--database", str(path))
    assert done.returncode in {1, 2}
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: ")
    assert words in line
    assert str(path) in line
    assert [one.read_bytes() for one in place.iterdir()] == ([] if content is None else [content])
    assert not (shell.directory / "copy.db").exists()


def test_rebuild_makes_no_database_of_an_empty_file(here, shell):
    (shell.directory / "x.db").touch()
    done = here("rebuild", "--all", "--database", "x.db")
    assert (done.returncode, "it is empty" in done.stderr) == (1, True)
    assert (shell.directory / "x.db").read_bytes() == b""


@pytest.mark.parametrize("lost", [4096, 4097, 30 * 4096])
def test_doctor_says_of_a_file_cut_off_what_is_wrong_and_what_to_do(here, database, lost):
    whole = database.read_bytes()
    database.write_bytes(whole[:-lost])
    done = here("doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"is cut off: {len(whole) - lost} of its {len(whole)} bytes are there" in done.stderr
    assert "Restore the last backup" in done.stderr
    assert "perdure doctor" not in done.stderr


def test_what_doctor_advises_for_a_damaged_file_works(here, database):
    blob = bytearray(database.read_bytes())
    blob[-4096:] = b"\xff" * 4096
    database.write_bytes(blob)
    done = here("doctor")
    assert done.returncode == 1
    assert "wrong    integrity_check" in done.stdout
    assert "advice   restore the last backup" in done.stdout
    assert "advice   save what can be read: 'perdure export --skip-damaged --output FILE'" in done.stdout
    assert "run 'perdure doctor'" not in (done.stdout + done.stderr).lower()
    assert json.loads(here("doctor", "--json").stdout)["advice"]
    saved = here("export", "s1", "--output", "s1.jsonl")
    assert saved.returncode == 0, saved.stderr
    assert here("import", "s1.jsonl", "--database", "new.db").returncode == 0
    assert here("doctor", "--database", "new.db").returncode == 0


def test_doctor_says_what_it_looked_at_and_mends_a_copy(here, database):
    well = here("doctor")
    assert well.returncode == 0
    assert well.stdout.splitlines()[-1] == "verdict  well"
    assert f"sqlite   {apsw.sqlite_lib_version()}" in well.stdout
    sql(database, "UPDATE session SET title = 'x' WHERE id = 's1'")
    ill = here("doctor", "--json")
    assert (ill.returncode, json.loads(ill.stdout)["well"]) == (1, False)
    mended = here("doctor", "--mend", "mended.db")
    assert mended.returncode == 0
    assert "mended   s1" in mended.stdout
    assert here("doctor").returncode == 1
    assert here("verify", "--database", "mended.db").returncode == 0


@pytest.mark.parametrize("command", ["verify", "rebuild --all", "export", "backup x.db", "doctor", "import none.jsonl"])
def test_what_is_not_there_is_said_in_a_line_and_nothing_is_made(here, shell, command):
    done = here(*command.split())
    assert done.returncode in {1, 2}
    assert done.stderr.startswith("perdure: Cannot ")
    assert done.stderr.count("\n") == 1
    assert list(shell.directory.glob("*.db*")) == []


def test_long_work_shows_a_bar_on_a_terminal_alone(shell, database):
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "verify"],
        cwd=shell.directory,
        env={**shell.environment, "TERM": "xterm-256color"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    assert process.communicate(timeout=60)[0] == b"2 sessions, 4 events: sound\n"
    assert b"verify" in os.read(ours, 65536)
    os.close(ours)


def test_migrate_makes_a_database_looks_at_one_and_refuses_a_newer_db_1(here, shell):
    path = shell.directory / "perdure.db"
    looked = here("migrate", "--check")
    assert (looked.returncode, looked.stdout) == (1, "perdure.db: there is no database yet\n")
    assert not path.exists()
    made = here("migrate", "--json")
    assert json.loads(made.stdout) == {"file": "perdure.db", "schema": 1, "program_schema": 1, "changed": True}
    before = path.read_bytes()
    for again in (here("migrate"), here("migrate", "--check")):
        assert (again.returncode, again.stdout) == (0, "perdure.db: schema 1, up to date\n")
    assert path.read_bytes() == before
    sql(path, "PRAGMA user_version = 9")
    newer = here("migrate")
    assert newer.returncode == 1
    assert "schema 9" in newer.stderr
    sql(path, "PRAGMA user_version = 1", "PRAGMA application_id = 5")
    assert "another program" in here("migrate").stderr
    assert here("migrate", "--database", ".").returncode == 1


def test_migrate_brings_an_older_schema_up_to_date_db_1(here, database, monkeypatch):
    steps = [*migrate.available(), migrate.Migration(2, "colour", "ALTER TABLE session ADD COLUMN colour TEXT;")]
    monkeypatch.setattr(migrate, "available", lambda: steps)
    monkeypatch.setattr(schema, "CURRENT", 2)
    monkeypatch.setattr(schema.refuse_newer, "__defaults__", (2,))
    due = here("migrate", "--check")
    assert (due.returncode, due.stdout) == (1, "perdure.db: schema 1, older than 2\n")
    done = here("migrate")
    assert (done.returncode, done.stdout) == (0, "perdure.db: schema 2, was 1\n")
    assert here("migrate", "--check").returncode == 0


def test_what_can_be_read_is_exported_without_what_cannot_log_29(here, database):
    sql(
        database,
        "DROP TRIGGER event_is_append_only_update",
        "UPDATE event SET data = '{' WHERE aggregate = 1 AND seq = 1",
    )
    whole = here("export", "--output", "all.jsonl")
    assert (whole.returncode, (database.parent / "all.jsonl").exists()) == (1, False)
    saved = here("export", "--skip-damaged", "--output", "some.jsonl", "--json")
    assert saved.returncode == 1
    assert json.loads(saved.stdout)["events"] == 2
    assert list(json.loads(saved.stdout)["skipped"]) == ["s1"]
    assert saved.stderr.startswith("perdure: left out s1: ")
    assert here("import", "some.jsonl", "--database", "new.db").returncode == 0
    sound = here("verify", "--database", "new.db")
    assert sound.stdout == "1 session, 2 events: sound\n"
    assert here("export", "s1", "--skip-damaged").returncode == 2
