"""The door of the command line: what it says, how it exits, and that nobody meets a traceback."""

import pytest

from perdure import errors, version
from perdure.cli import main


class Loader:
    """Stands in for `importlib` in the door alone: what is imported meanwhile keeps the real one."""

    def __init__(self, import_module):
        self.import_module = import_module


def only_line(text):
    [line] = text.splitlines()
    assert line.startswith("perdure: ")
    return line


def test_the_version_is_one_line(capsys):
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"perdure {version.VERSION}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command_and_loads_none(arguments, capsys, monkeypatch):
    monkeypatch.setattr(main, "importlib", Loader(lambda name: pytest.fail(f"loaded {name}")))
    assert main.run(arguments) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name, _, _ in main.COMMANDS)


def test_an_unknown_command_is_named_in_one_line_with_those_there_are(capsys):
    assert main.run(["brew"]) == 2
    assert "'brew'" in only_line(capsys.readouterr().err)


def test_an_argument_that_is_no_text_is_refused_in_one_line_sec_2(capsys):
    assert main.run(["show", "\udcff"]) == 2
    assert "not valid text" in only_line(capsys.readouterr().err)


@pytest.fixture
def command(monkeypatch):
    """Put a command of the test into the table."""

    class Module:
        command = None

    monkeypatch.setattr(main, "COMMANDS", (("try", "a.module", "Try."),))
    monkeypatch.setattr(main, "importlib", Loader(lambda _: Module))

    def put(function):
        Module.command = staticmethod(function)

    return put


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("PERDURE_PORT: no number"), 2),
        (errors.UnknownModel("There is no model 'x'"), 2),
        (errors.StoreUnusable("Cannot open it"), 1),
        (errors.StoreFull(), 1),
        (errors.Defect("It broke\nin two lines"), 1),
        (errors.SessionConflict(), 1),
    ],
)
def test_an_error_is_one_line_with_its_remedy_and_an_exit_code_that_says_whose_fault(command, capsys, error, code):
    def failing():
        raise error

    command(failing)
    assert main.run(["try"]) == code
    line = only_line(capsys.readouterr().err)
    assert line == f"perdure: {' '.join(str(error).split()).rstrip('.')}. {error.remedy}"


def test_an_error_nobody_foresaw_is_one_line_too(command, capsys):
    def failing():
        raise ZeroDivisionError("by zero \ud800")

    command(failing)
    assert main.run(["try"]) == 1
    assert "ZeroDivisionError: by zero" in only_line(capsys.readouterr().err)


def test_ctrl_c_is_130_without_a_word(command, capsys):
    def stopped():
        raise KeyboardInterrupt

    command(stopped)
    assert main.run(["try"]) == 130
    assert capsys.readouterr().err == ""


def test_a_commands_number_is_its_exit_code_and_an_async_command_is_awaited(command):
    command(lambda: 7)
    assert main.run(["try"]) == 7

    async def waits():
        return 3

    command(waits)
    assert main.run(["try"]) == 3


@pytest.mark.parametrize("arguments", [["--nothing"], ["--count", "many"], ["too", "many", "words"]])
def test_wrong_arguments_are_one_line_that_points_to_the_help(command, capsys, arguments):
    def counted(*, count: int = 1):
        return count

    command(counted)
    assert main.run(["try", *arguments]) == 2
    assert "See 'perdure try --help'" in only_line(capsys.readouterr().err)


def test_every_command_in_the_table_has_a_module_with_a_command(monkeypatch):
    for _, module, about in main.COMMANDS:
        assert callable(main.importlib.import_module(module).command)
        assert about.endswith(".")
