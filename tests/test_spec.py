"""What docs/spec.md names is there, and what is there it names: commands, routes, settings."""

import re
from pathlib import Path

from perdure import Perdure, config
from perdure.cli import main
from perdure.server import app as server

SPEC = (Path(__file__).resolve().parent.parent / "docs" / "spec.md").read_text()


def test_the_spec_names_every_command_and_no_other():
    listed = SPEC[SPEC.index("CLI `perdure`:") :].split(". Without an app", 1)[0]
    outside = re.sub(r"\([^()]*\)", "", listed)  # of a command's own explanation, options are no commands
    named = [one.split()[0] for one in re.findall(r"`([^`]*)`", outside)[1:]]
    assert sorted(named) == sorted(name for name, _, _ in main.COMMANDS)


def shape(path):
    """A path with its parameters nameless."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_the_spec_names_every_route_and_no_other(tmp_path):
    settings = config.settings(database_url=str(tmp_path / "perdure.db"))
    app = server.create_app(Perdure([], settings=settings), settings, token="t")
    there = {(method, shape(path)) for path, methods in app.openapi()["paths"].items() for method in methods}
    table = SPEC[SPEC.index("| call | does |") :].split("\n\n", 1)[0]
    calls = [
        call for row in table.splitlines() for call in re.findall(r"`([A-Z/]+) (/[^`?]*)[^`]*`", row.split(" | ")[0])
    ]
    named = {(method.lower(), shape(path)) for methods, path in calls for method in methods.split("/")}
    assert named - {("get", "/openapi.json")} == there


def test_every_setting_the_spec_names_is_one():
    named = re.search(r"`PERDURE_\*` \(([^)]*)\)", SPEC)
    known = {name.upper() for name in config.Settings.model_fields}
    assert named
    assert set(re.findall(r"`([A-Z_]+)`", named[1])) <= known
    others = set(re.findall(r"`PERDURE_([A-Z]\w*)`", SPEC))
    assert others <= known
