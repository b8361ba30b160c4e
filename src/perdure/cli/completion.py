"""`perdure completion`: a script by which a shell completes commands and options."""

from __future__ import annotations

import importlib
from typing import Literal

import cyclopts

from perdure.cli import main, render


def command(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion script of a shell.

    For example:

      perdure completion bash > ~/.local/share/bash-completion/completions/perdure

      perdure completion zsh > ~/.zfunc/_perdure

      perdure completion fish > ~/.config/fish/completions/perdure.fish

    Exit codes: 0 printed; 2 called wrongly.

    Parameters
    ----------
    shell
        Which one.

    """
    app = cyclopts.App(name="perdure", help_format="plaintext")
    for name, module, about in main.COMMANDS:
        app.command(importlib.import_module(module).command, name=name, help=about)
    render.say(app.generate_completion(prog_name="perdure", shell=shell))
    return 0
