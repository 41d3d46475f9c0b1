"""`gpusetup completion SHELL`: a completion script for five shells. The home of `shtab`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gpusetup.commands.common import no_document
from gpusetup.render.console import Console

SUMMARY = "Print a completion script; put it where your shell looks for one."
JSON = ""
EXAMPLES = (
    "gpusetup completion bash > ~/.local/share/bash-completion/completions/gpusetup",
    "gpusetup completion zsh > ~/.zfunc/_gpusetup",
    "gpusetup completion fish > ~/.config/fish/completions/gpusetup.fish",
    "gpusetup completion powershell | Out-String | Invoke-Expression",
)
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")
FILES = ("A", "B", "CONFIG", "CSV", "FILE", "MACHINE", "OUT", "PATH")
FOLDERS = ("DIR",)
"""What stands for a file or a folder in the help of an option."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")


def run(options: argparse.Namespace, out: Console) -> int:
    no_document(options)
    import shtab

    out.script(shtab.complete(completed(), options.shell, preamble=machines_by(options.shell)))
    return 0


def completed() -> argparse.ArgumentParser:
    """The parser of every command, with what each value may be."""
    import shtab

    from gpusetup.commands.documents import ANSWERS
    from gpusetup.commands.parser import COMMANDS, build_parser, child_of

    parser = build_parser()
    for action in every_action(parser):
        if action.metavar in (*FILES, *FOLDERS):
            kind = shtab.FILE if action.metavar in FILES else shtab.DIRECTORY
            if is_machine(action):
                named = dict.fromkeys(MACHINES_OR_FILES, MACHINES_FUNCTION)
                kind = {**kind, **named, "fish": machines_or(kind["fish"])}
            action.complete = kind  # type: ignore[attr-defined]
    for name, words in (("help", COMMANDS), ("schema", ANSWERS)):
        about = next(a for a in child_of(parser, name)._actions if a.dest == "about")
        about.choices = tuple(words)
    for name, option, ids in names_taken():
        child_of(parser, name)._option_string_actions[option].choices = ids
    return parser


def names_taken() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Command, option, and the names that it takes: findings of doctor, checks of verify."""
    from gpusetup.diagnosis.knowledge import records
    from gpusetup.verify.checks.table import every

    findings = tuple(row.id for row in records())
    checks = tuple(dict.fromkeys(check.name for check in every()))
    yield from (("doctor", option, findings) for option in ("--only", "--explain"))
    yield from (("verify", option, checks) for option in ("--only", "--skip"))


def is_machine(action: argparse.Action) -> bool:
    return action.metavar == "MACHINE"


MACHINES_FUNCTION = "_gpusetup_machines"
MACHINES_OR_FILES = {
    "bash": 'compgen -W \'{}\' -- "$1"; compgen -f -- "$1"',
    "zsh": "_alternative 'machines:example machine:({})' 'files:file:_files'",
}
"""How a shell's function offers the example machines beside files. In tcsh and PowerShell `--from`
takes files only."""


def machines_by(shell: str) -> str:
    """The function that offers machines, where the shell has one."""
    from gpusetup.probe.saved import example_machines

    body = MACHINES_OR_FILES.get(shell, "").format(" ".join(example_machines()))
    return f"{MACHINES_FUNCTION}() {{\n  {body}\n}}\n" if body else ""


def machines_or(files: str) -> str:
    """In fish the names of the example machines too."""
    from gpusetup.probe.saved import example_machines

    names = " ".join(example_machines())
    return f"(string split ' ' '{names}'; {files[1:-1]})"


def every_action(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options of a parser and of the commands below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from every_action(child)
