"""How a schema grows: in order, whole steps, one migrator at a time, child rows and triggers kept (DB-1)."""

import asyncio
import signal
import subprocess
import sys

import apsw
import pytest

from perdure import errors
from perdure.store import migrate, schema
from perdure.store.sqlite import SqliteStore

COLUMN = "ALTER TABLE session ADD COLUMN colour TEXT;\nUPDATE session SET colour = 'red';"
REBUILD = """-- foreign keys: off
CREATE TABLE session_new (number INTEGER PRIMARY KEY, id TEXT UNIQUE, agent TEXT NOT NULL, policy TEXT NOT NULL, colour TEXT);
INSERT INTO session_new SELECT number, id, agent, policy, 'red' FROM session;
DROP TABLE session;
ALTER TABLE session_new RENAME TO session;
"""


def connect(path):
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", True)
    return connection


def steps(text, version=2):
    return [*migrate.available(), migrate.Migration(version, "second", text)]


@pytest.fixture
def first(tmp_path, build):
    """A file of the first schema with a session, its children and an event."""

    def rows(tx):
        build.session(tx)
        build.input(tx)
        tx.messages.insert("ses_1", build.assistant())
        build.claim(tx)
        build.append("evt_1")(tx)

    async def make():
        store = await SqliteStore.open(tmp_path / "log.db")
        await store.write(rows)
        await store.close()

    asyncio.run(make())
    connection = connect(tmp_path / "log.db")
    yield connection
    connection.close()


def children(connection):
    tables = ("session", "session_input", "session_message", "session_execution", "event")
    return [connection.execute(f"SELECT count(*) FROM {table}").get for table in tables]


def shape(connection):
    return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").get, connection.pragma(
        "user_version"
    )


def test_the_number_in_the_program_is_the_number_of_its_files():
    assert [step.version for step in migrate.available()] == list(range(1, schema.CURRENT + 1))


async def test_an_empty_file_gets_every_step_and_says_so(tmp_path):
    store = await SqliteStore.open(tmp_path / "log.db")
    await store.close()
    connection = connect(tmp_path / "log.db")
    assert connection.pragma("user_version") == schema.CURRENT
    assert connection.pragma("application_id") == schema.APPLICATION_ID
    recorded = connection.execute("SELECT version, name, time > 1700000000000 FROM schema_migration").fetchall()
    assert recorded == [(step.version, step.name, 1) for step in migrate.available()]
    connection.close()


async def test_a_file_that_is_up_to_date_is_not_touched(tmp_path, monkeypatch):
    await (await SqliteStore.open(tmp_path / "log.db")).close()
    before = (tmp_path / "log.db").read_bytes()
    monkeypatch.setattr(migrate, "migrate", None)
    await (await SqliteStore.open(tmp_path / "log.db")).close()
    assert (tmp_path / "log.db").read_bytes() == before


def test_steps_are_read_in_order_from_numbered_files(tmp_path):
    for name in ("0002_b.sql", "0001_a.sql", "notes.txt"):
        (tmp_path / name).write_text(f"-- {name}")
    assert [(step.version, step.name) for step in migrate.available(tmp_path)] == [(1, "a"), (2, "b")]
    (tmp_path / "0004_d.sql").write_text("")
    with pytest.raises(errors.Defect, match="gaps"):
        migrate.available(tmp_path)


@pytest.mark.parametrize("text", [COLUMN, REBUILD], ids=["add and fill", "rebuild"])
def test_a_step_keeps_child_rows_and_triggers_db_1(first, text):
    before = children(first)
    migrate.migrate(first, steps(text))
    assert first.pragma("user_version") == 2
    assert children(first) == before
    assert first.execute("SELECT colour FROM session").get == "red"
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        first.execute("UPDATE event SET data = ''")
    with pytest.raises(apsw.ConstraintError):
        first.execute("UPDATE session_input SET session = 99")
    first.execute("DELETE FROM session")
    assert children(first) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (COLUMN + "INSERT INTO no_such_table VALUES (1);", apsw.SQLError),
        ("-- foreign keys: off\nDELETE FROM session;", errors.Defect),
        (COLUMN + "INSERT INTO event_sequence VALUES (NULL, 'b', -1, NULL);", apsw.ConstraintError),
    ],
)
def test_a_step_that_fails_half_way_leaves_the_old_schema_db_1(first, text, error):
    before, rows = shape(first), children(first)
    with pytest.raises(error):
        migrate.migrate(first, steps(text))
    assert shape(first) == before
    assert children(first) == rows
    assert first.pragma("foreign_keys") == 1
    migrate.migrate(first, steps(COLUMN))
    assert first.pragma("user_version") == 2


@pytest.mark.crash
def test_a_migrator_killed_half_way_leaves_the_old_schema_db_1(first, processes):
    before, rows = shape(first), children(first)
    victim = processes.start(
        "import apsw\n"
        "from perdure.store import migrate\n"
        "connection = apsw.Connection(path)\n"
        "connection.create_scalar_function('die', lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "migrate.migrate(connection, [*migrate.available(), migrate.Migration(2, 'second', args[0])])\n",
        COLUMN + "SELECT die();",
    )
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert shape(first) == before
    assert children(first) == rows
    migrate.migrate(first, steps(COLUMN))
    assert first.execute("SELECT colour FROM session").get == "red"


async def test_a_newer_schema_is_refused_with_nothing_changed_db_1(first, tmp_path):
    first.pragma("user_version", schema.CURRENT + 1)
    first.close()
    before = (tmp_path / "log.db").read_bytes()
    with pytest.raises(errors.SchemaTooNew, match=f"schema {schema.CURRENT + 1}"):
        await SqliteStore.open(tmp_path / "log.db")
    assert (tmp_path / "log.db").read_bytes() == before
    assert (tmp_path / "log.db-wal").stat().st_size == 0


def test_a_migrator_that_knows_less_refuses_db_1(first):
    migrate.migrate(first, steps(COLUMN))
    with pytest.raises(errors.SchemaTooNew):
        migrate.migrate(first)


def test_of_two_migrators_the_second_finds_the_work_done_db_1(first, tmp_path):
    """The second looks at the version, then the first migrates, then the second gets the lock and looks again."""
    second = connect(tmp_path / "log.db")
    begun = []

    def begin(cursor, statement, bindings):
        if statement.startswith("BEGIN") and not begun:
            begun.append(statement)
            migrate.migrate(first, steps(COLUMN))
        return True

    second.exec_trace = begin
    migrate.migrate(second, steps(COLUMN))
    assert begun
    assert second.execute("SELECT count(*) FROM schema_migration").get == 2
    second.close()


CROWD = 8


@pytest.mark.crash
async def test_processes_that_open_a_new_file_at_once_all_succeed_db_1(tmp_path, processes, build):
    code = (
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "async def main():\n"
        "    store = await sqlite.SqliteStore.open(path)\n"
        "    await store.write(build.append(args[0], args[0]))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    crowd = [processes.start(code, f"evt_{number}") for number in range(CROWD)]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crowd:
        one.communicate()
    assert [one.returncode for one in crowd] == [0] * CROWD
    store = await SqliteStore.open(tmp_path / "log.db")
    assert sorted(await store.read(build.ids)) == sorted(f"evt_{number}" for number in range(CROWD))
    await store.close()


def test_an_up_to_date_file_is_opened_without_loading_the_migrator_db_1(tmp_path):
    path = tmp_path / "a.db"
    open_and_list = (
        "import asyncio, sys\n"
        "from perdure.store.sqlite import SqliteStore\n"
        "async def main():\n"
        "    store = await SqliteStore.open(sys.argv[1])\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "print('perdure.store.migrate' in sys.modules)\n"
    )
    command = [sys.executable, "-c", open_and_list, str(path)]
    loaded = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert loaded == ["True", "False"]
