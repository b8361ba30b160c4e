"""The door of the command line: `perdure COMMAND …`.

Lives here: the table of commands, each loaded when it is called and not before, and the promise that a person never
sees a traceback. Not here: any command. A command is a module with a function `command`, whose parameters are its
arguments.

Exit codes: 0 done · 1 it failed · 2 called or configured wrongly · 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from perdure import errors
from perdure.version import VERSION

# name, module, what it does
COMMANDS = (
    ("serve", "perdure.cli.serve", "Serve sessions over HTTP."),
    ("chat", "perdure.cli.chat", "Talk with an agent."),
    ("run", "perdure.cli.run", "Ask one prompt and print its answer: for scripts."),
    ("sessions", "perdure.cli.sessions", "List sessions."),
    ("show", "perdure.cli.show", "Show a session and what was said in it."),
    ("tail", "perdure.cli.tail", "Print what happens in a session as it comes."),
    ("prompt", "perdure.cli.prompt", "Admit a prompt and leave."),
    ("interrupt", "perdure.cli.interrupt", "Stop a session's turn for good."),
    ("approve", "perdure.cli.approve", "Let a call run that waits for a person."),
    ("deny", "perdure.cli.deny", "Refuse a call that waits for a person."),
    ("recoveries", "perdure.cli.recoveries", "List turns that lost their process, go on with one, or dismiss it."),
    ("completion", "perdure.cli.completion", "Print a script by which a shell completes all this."),
    ("demo", "perdure.cli.demo", "Watch a session be killed half-way and carry on."),
    ("export", "perdure.cli.export", "Write stored events as lines of JSON."),
    ("import", "perdure.cli.importing", "Replay exported events."),
    ("verify", "perdure.cli.verify", "Check every session against its log."),
    ("rebuild", "perdure.cli.rebuild", "Make rows again from the log."),
    ("backup", "perdure.cli.backup", "Copy a database that may be in use."),
    ("migrate", "perdure.cli.migrate", "Bring a database's schema up to date before anything serves it."),
    ("doctor", "perdure.cli.doctor", "Find what is wrong with a database; mend a copy."),
)
DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
OPTIONS = "Options"


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    first, *rest = arguments or ["--help"]
    if first in {"--version", "-V"}:
        print(f"perdure {VERSION}")
        return DONE
    if first in {"--help", "-h", "help"}:
        print(usage())
        return DONE
    modules = {name: module for name, module, _ in COMMANDS}
    if first not in modules:
        return complain(f"there is no command {first[:100]!r}", f"There are: {', '.join(modules)}.", MISUSED)
    if any(not _is_text(one) for one in rest):
        return complain("an argument is not valid text", "Give every argument in the terminal's own encoding.", MISUSED)
    try:
        return _guarded(modules[first], first, rest)
    except KeyboardInterrupt:
        return INTERRUPTED


def _is_text(argument: str) -> bool:
    """Whether the shell gave text: bytes that are none come as lone surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _guarded(module: str, name: str, arguments: Sequence[str]) -> int:
    try:
        return _call(module, name, arguments)
    except errors.PerdureError as error:
        return complain(str(error), _remedy(error, name), code_of(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        logging.getLogger("perdure.cli").debug("command failed", exc_info=error)
        return complain(f"{type(error).__name__}: {error}", errors.PerdureError.remedy, FAILED)


def _call(module: str, name: str, arguments: Sequence[str]) -> int:
    import cyclopts  # so that asking for the version does not pay for it

    command = importlib.import_module(module).command
    app = cyclopts.App(
        name=f"perdure {name}",
        version=VERSION,
        usage=f"Usage: {usage_of(name, command)}",
        help_format="plaintext",
        group_commands=OPTIONS,
        group_parameters=OPTIONS,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app.default(command)
    try:
        result = app(arguments, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        return complain(" ".join(str(error).split()), f"See 'perdure {name} --help'.", MISUSED)
    return result if isinstance(result, int) else DONE


def usage_of(name: str, command: Callable[..., object]) -> str:
    """How a command is called: its options, then its arguments in order, in brackets where they may be left out."""
    import inspect  # which costs as much as everything else that the version needs

    words = ["perdure", name, "[OPTIONS]"]
    for one in inspect.signature(command).parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            words.append(f"[{one.name.upper()}...]")
        elif one.kind is one.POSITIONAL_ONLY:
            words.append(one.name.upper() if one.default is one.empty else f"[{one.name.upper()}]")
    return " ".join(words)


def _remedy(error: errors.PerdureError, name: str) -> str:
    """What to do about an error, in a shell's words where the error's own are those of HTTP."""
    if type(error) is errors.InvalidInput:
        return f"See 'perdure {name} --help'."
    if isinstance(error, errors.Unauthorized):
        return "Give the server's token with --token or PERDURE_TOKEN."
    return error.remedy


def code_of(error: errors.PerdureError) -> int:
    """The exit code of an error."""
    return MISUSED if error.fault is errors.Fault.CALLER else FAILED


def complain(message: str, remedy: str, code: int) -> int:
    """Say in one line what is wrong and what to do; returns the code."""
    message = message.rstrip(".")
    end = "" if message.endswith(("?", "!")) else "."
    line = " ".join(f"perdure: {message}{end} {remedy}".split())
    print(line.encode(errors="replace").decode(), file=sys.stderr)
    return code


def usage() -> str:
    """What there is."""
    width = max(len(name) for name, _, _ in COMMANDS) + 2
    rows = [f"  {name:<{width}}{about}" for name, _, about in COMMANDS]
    return "\n".join(
        [
            "Usage: perdure COMMAND [ARGS]",
            "",
            "Durable sessions for LLM agents.",
            "",
            *rows,
            "",
            "'perdure COMMAND --help' explains a command; 'perdure --version' prints the version.",
        ]
    )
