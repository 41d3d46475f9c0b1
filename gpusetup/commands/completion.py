"""`gpusetup completion SHELL`: a completion script for five shells. The home of `shtab`."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator

from gpusetup.render.console import Console

SUMMARY = "Print a completion script; put it where your shell looks for one."
EXAMPLES = (
    "gpusetup completion bash > ~/.local/share/bash-completion/completions/gpusetup",
    "gpusetup completion zsh > ~/.zfunc/_gpusetup",
    "gpusetup completion fish > ~/.config/fish/completions/gpusetup.fish",
    "gpusetup completion powershell | Out-String | Invoke-Expression",
)
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")
FILES = ("CONFIG", "CSV", "FILE", "MACHINE", "OUT", "PATH")
FOLDERS = ("DIR",)
"""What stands for a file or a folder in the help of an option."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")


def run(options: Namespace, out: Console) -> int:
    import shtab

    out.script(shtab.complete(completed(), options.shell))
    return 0


def completed() -> ArgumentParser:
    """The parser of every command, with what each value may be."""
    import shtab

    from gpusetup.commands.parser import build_parser

    parser = build_parser()
    for action in every_action(parser):
        if action.metavar in (*FILES, *FOLDERS):
            kind = shtab.FILE if action.metavar in FILES else shtab.DIRECTORY
            action.complete = kind  # type: ignore[attr-defined]
    return parser


def every_action(parser: ArgumentParser) -> Iterator[Action]:
    """The options of a parser and of the commands below it."""
    from gpusetup.commands.parser import children_of

    yield from parser._actions
    for child in children_of(parser).values():
        yield from every_action(child)
