"""`gpusetup completion SHELL`: prints a completion script. Only this module imports `shtab`."""

from __future__ import annotations

import shtab

from gpusetup.commands.parser import COMMANDS, CommandParser, build_parser
from gpusetup.commands.question import NEEDED, CommandQuestion, argument
from gpusetup.commands.reply import Reply
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
"""The words that stand for a file or a folder in an option's help."""


class Question(CommandQuestion):
    shell: str = argument(
        "generate the completion script for this shell", default=NEEDED, choices=SHELLS
    )


def run(question: Question, out: Console) -> Reply:
    parser = build_parser(*COMMANDS)
    _complete_files(parser)
    out.script(shtab.complete(parser, question.shell))
    return Reply()


def _complete_files(parser: CommandParser) -> None:
    """Make options that accept a file or folder complete file names, in a parser and in the parsers
    of its commands."""
    for action in parser._actions:
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    for child in parser.children.values():
        _complete_files(child)
