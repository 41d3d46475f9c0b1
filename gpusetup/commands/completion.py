"""`gpusetup completion SHELL`: a completion script for five shells. The home of `shtab`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from gpusetup.commands.parser import COMMANDS, build_parser, children_of
from gpusetup.render.console import Console

SUMMARY = "Prints a completion script for your shell."
EXAMPLES = (
    "gpusetup completion bash > ~/.local/share/bash-completion/completions/gpusetup",
    "gpusetup completion zsh > ~/.zfunc/_gpusetup",
    "gpusetup completion fish > ~/.config/fish/completions/gpusetup.fish",
    "gpusetup completion powershell | Out-String | Invoke-Expression",
)
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")
FILES = ("CONFIG", "CSV", "FILE", "MACHINE", "OUT", "PATH", "DIR")
"""What stands for a file or a folder in the help of an option."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")


def run(options: Namespace, out: Console) -> int:
    import shtab

    parser = build_parser(*COMMANDS)
    _complete_files(parser, shtab.FILE)
    out.script(shtab.complete(parser, options.shell))
    return 0


def _complete_files(parser: ArgumentParser, files: Any) -> None:
    """Tell the options of a parser, and of the commands below it, that files may follow."""
    for action in parser._actions:
        if action.metavar in FILES:
            action.complete = files  # type: ignore[attr-defined]
    for child in children_of(parser).values():
        _complete_files(child, files)
