"""The layout of docs/how-it-works.md, held: arrows go down, the core is quiet, SQL stays in the store.

Everything is read from the sources with `ast`, function bodies included, and nothing is imported, apart from the last
tests, which start a fresh interpreter to see what an import drags in.
"""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
HOUSE = SRC / "perdure"
SQL = HOUSE / "store" / "sql"

# Which rooms a room may import; its own modules always. What is not listed is not allowed, however deep it lies.
STONES = {"faults", "errors", "ids"}
ROOMS: dict[str, set[str]] = {
    "faults": set(),
    "errors": {"faults"},
    "ids": {"errors"},
    "clock": set(),
    "version": set(),
    "config": {"errors"},
    "pricing": {"errors", "core"},
    "telemetry": {"errors", "core"},
    "core": STONES,
    "store": {"core", *STONES},
    "log": {"store", "core", "clock", *STONES},
    "session": {"log", "store", "core", "clock", *STONES},
    "models": {"core", "errors"},
    "agent": {"core", "models", "errors"},
    "tools": {"core", "agent", "errors"},
    "runner": {"telemetry", "session", "log", "store", "models", "agent", "tools", "core", "clock", *STONES},
    "maintenance": {"session", "log", "store", "core", "clock", "config", *STONES},
    "client": {"core", *STONES},
    "testing": {"engine", "maintenance", "session", "log", "store", "core", "models", "agent", "config", *STONES},
    "server": {"engine", "session", "log", "core", "models", "agent", "clock", "config", "version", *STONES},
}
ROOMS["engine"] = set(ROOMS) - {"server", "client", "testing"}
ROOMS["cli"] = set(ROOMS)

# Two doors may put off an import of ours for the sake of start-up, and the first may reach every room.
FRONT_DOOR = "perdure"
DOORS = {FRONT_DOOR, "perdure.cli.main"}

# What the core may import besides itself and the stones: what neither waits, nor looks around, nor changes by itself.
QUIET = {"__future__", "abc", "base64", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum"}
QUIET |= {
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
}
QUIET |= {"types", "typing", "unicodedata"}
LOUD_WORDS = {"now", "utcnow", "today"}

HEAVY = {"aiosql", "apsw", "fastapi", "httpx2", "mcp", "psycopg", "pydantic", "pydantic_ai", "rich", "uvicorn"}
VAGUE = {"utils", "util", "helpers", "helper", "base", "manager", "misc", "common"}

SQL_STRING = re.compile(
    r"\s*(?:SELECT\s|INSERT\s+(?:INTO|OR)\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s|BEGIN(?:\s+(?:IMMEDIATE|EXCLUSIVE|DEFERRED|TRANSACTION))?\s*;?\s*$"
    r"|PRAGMA\s|SAVEPOINT\s|VACUUM\b|(?:CREATE|DROP|ALTER)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|TRIGGER|VIEW|FUNCTION)\s)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    inside_function: bool
    for_types_only: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.split(".")[1] if "." in self.name else FRONT_DOOR

    @functools.cached_property
    def imports(self) -> list[Import]:
        return list(found_imports(self.tree, self, inside_function=False, for_types_only=False))

    @property
    def own_imports(self) -> list[Import]:
        return [one for one in self.imports if one.target.split(".")[0] == "perdure"]

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


@functools.cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(HOUSE.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(), str(path)))
    return found


def found_imports(node: ast.AST, module: Module, *, inside_function: bool, for_types_only: bool) -> Iterator[Import]:
    """Every import below the node, with where it stands."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for target in targets(child, module):
                yield Import(target, child.lineno, inside_function, for_types_only)
            continue
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from found_imports(
            child, module, inside_function=inside_function or function, for_types_only=for_types_only or types_only
        )


def targets(node: ast.Import | ast.ImportFrom, module: Module) -> Iterator[str]:
    """The modules that the statement names: `from a import b` names a.b where that is a module of ours, else a."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    origin = node.module or ""
    if node.level:
        package = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
        origin = ".".join([*package[: len(package) - node.level + 1], *filter(None, [origin])])
    for alias in node.names:
        whole = f"{origin}.{alias.name}"
        yield whole if whole in ours() else origin


@functools.cache
def ours() -> set[str]:
    return {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in HOUSE.rglob("*.py")
    }


def functions() -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Every function with the length of its body: its lines less its docstring's."""
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if ast.get_docstring(node, clean=False) is not None:
                    head = node.body[0]
                    length -= (head.end_lineno or head.lineno) - head.lineno + 1
                yield module, node, length


def docstrings(tree: ast.Module) -> set[int]:
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


# --- arrows ----------------------------------------------------------------------------------------------------------


def test_every_room_is_in_the_picture():
    assert {module.room for module in modules().values()} - set(ROOMS) - {FRONT_DOOR, "__main__"} == set()


def test_arrows_go_down_only():
    upward = [
        f"{module.at(one.line)}: {module.room} imports {one.target}"
        for module in modules().values()
        if module.room in ROOMS
        for one in module.own_imports
        if (one.target.split(".")[1:] or [FRONT_DOOR])[0] not in ROOMS[module.room] | {module.room}
    ]
    assert upward == []


def test_the_picture_itself_has_no_way_back_up():
    tuple(graphlib.TopologicalSorter(ROOMS).static_order())


def test_no_import_goes_in_a_circle():
    graph = {
        module.name: {one.target for one in module.own_imports if not (one.inside_function or one.for_types_only)}
        for module in modules().values()
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_no_import_of_ours_hides_in_a_function_but_at_the_two_doors():
    hidden = [
        f"{module.at(one.line)}: {one.target}"
        for module in modules().values()
        if module.name not in DOORS
        for one in module.own_imports
        if one.inside_function
    ]
    assert hidden == []


def test_the_coordinator_knows_nothing_of_ours():
    coordinator = modules().get("perdure.runner.coordinator")
    assert coordinator is None or coordinator.own_imports == []


# --- the quiet core --------------------------------------------------------------------------------------------------


def core() -> list[Module]:
    return [module for module in modules().values() if module.room == "core"]


def test_the_core_imports_only_what_is_quiet():
    loud = [
        f"{module.at(one.line)}: {one.target}"
        for module in core()
        for one in module.imports
        if (top := one.target.split(".")[0]) not in QUIET | {"perdure"}
        and not (top == "msgspec" and module.name in {"perdure.core.codec", "perdure.core.value"})
    ]
    assert loud == []


def test_the_core_never_waits():
    waiting = [
        module.at(node.lineno)
        for module in core()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert waiting == []


def test_the_core_never_asks_what_time_it_is():
    asking = [
        module.at(node.lineno)
        for module in core()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in LOUD_WORDS
    ]
    assert asking == []


# --- sizes and heads -------------------------------------------------------------------------------------------------


def test_no_function_body_is_longer_than_80_lines_and_one_in_a_hundred_than_55():
    lengths = sorted((length, f"{module.at(node.lineno)} {node.name}") for module, node, length in functions())
    assert [one for one in lengths if one[0] > 80] == []
    longer = [one for one in lengths if one[0] > 55]
    assert len(longer) <= len(lengths) // 100, longer


def test_the_order_of_a_turn_fits_on_one_screen():
    [drain] = [module for module in modules().values() if module.path.parts[-2:] == ("runner", "drain.py")]
    assert len(drain.path.read_text().splitlines()) <= 80


def test_no_file_is_longer_than_400_lines():
    lengths = {module.at(1): len(module.path.read_text().splitlines()) for module in modules().values()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_every_module_says_at_its_head_what_lives_there():
    assert [module.at(1) for module in modules().values() if not ast.get_docstring(module.tree)] == []


def test_no_module_has_a_name_that_says_nothing():
    assert [module.at(1) for module in modules().values() if module.name.split(".")[-1] in VAGUE] == []


# --- SQL -------------------------------------------------------------------------------------------------------------


def test_no_sql_is_written_outside_the_store():
    spelled = [
        f"{module.at(node.lineno)}: {node.value.strip()[:40]}"
        for module in modules().values()
        if module.room != "store"
        for prose in [docstrings(module.tree)]
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        if SQL_STRING.match(node.value)
    ]
    assert spelled == []


@pytest.mark.parametrize(
    ("text", "is_sql"),
    [
        ("SELECT 1", True),
        ("insert into event (id) values (?)", True),
        ("UPDATE session SET held = 1", True),
        ("BEGIN IMMEDIATE", True),
        ("PRAGMA journal_mode", True),
        ("DELETE", False),
        ("Update the title", False),
        ("Create a session", False),
        ("Begin again", False),
    ],
)
def test_sql_is_told_from_english(text, is_sql):
    assert bool(SQL_STRING.match(text)) == is_sql


def statements(dialect: str) -> list[str]:
    path = SQL / f"{dialect}.sql"
    return re.findall(r"^--\s*name:\s*(\w+)", path.read_text(), re.MULTILINE) if path.exists() else []


@pytest.mark.parametrize("dialect", ["common", "sqlite", "postgres"])
def test_a_statement_is_named_once_in_its_file(dialect):
    names = statements(dialect)
    assert sorted(names) == sorted(set(names))


def test_a_statement_is_common_or_in_both_dialects_and_never_both():
    common, sqlite, postgres = map(set, map(statements, ("common", "sqlite", "postgres")))
    assert common & (sqlite | postgres) == set()
    if (SQL / "postgres.sql").exists():
        assert sqlite == postgres


# --- what a start drags in -------------------------------------------------------------------------------------------

PROBE = """
import json, sys
{code}
print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})), file=sys.stderr)
"""


def loaded_by(code: str, printed: str = "") -> set[str]:
    """The top-level modules that a fresh interpreter holds after running the code, which prints this last."""
    done = subprocess.run([sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(printed), done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_perdure_loads_nothing_heavy():
    assert loaded_by("import perdure") & HEAVY == set()


@pytest.mark.skipif(not (HOUSE / "cli" / "main.py").exists(), reason="there is no command line yet")
def test_asking_for_the_version_loads_nothing_heavy():
    code = (
        "sys.argv = ['perdure', '--version']\nfrom perdure.cli.main import main\ntry: main()\nexcept SystemExit: pass"
    )
    assert loaded_by(code) & (HEAVY | {"cyclopts"}) == set()


@pytest.mark.parametrize("command", ["show", "run", "sessions", "tail"])
def test_asking_what_a_command_takes_loads_neither_engine_nor_client(command):
    code = (
        f"sys.argv = ['perdure', '{command}', '--help']\nfrom perdure.cli.main import main\ntry: main()\n"
        "except SystemExit: pass\n"
        "print([one for one in ('perdure.engine', 'perdure.client', 'perdure.models') if one in sys.modules])"
    )
    assert loaded_by(code, printed="[]") & {"apsw", "httpx2", "fastapi", "uvicorn"} == set()


# --- what must not be written down -----------------------------------------------------------------------------------

# Spelled in pieces, since this file is one of those it reads.
HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("deb", "debian", "org")]
PLACES = [("", "work", ""), ("", "root", ""), ("", "tmp", "w", ""), ("", "opt", "pypi")]


def test_no_tracked_file_names_a_registry_or_a_place_on_a_machine():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    words = [*(".".join(host) for host in HOSTS), *("/".join(place) for place in PLACES)]
    spelled = re.compile(
        "|".join(rf"(?<![\w.]){re.escape(word)}" if word[0] == "/" else re.escape(word) for word in words)
    )
    tracked = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked
        if path.is_file()
        for match in spelled.finditer(path.read_bytes().decode(errors="replace"))
    ]
    assert found == []
