"""The parser of the command line: every command with its options, and what it says of a wrong word.

Each command is a module of this folder with `SUMMARY`, `EXAMPLES`, `configure(parser)` and
`run(options, out) -> exit code`. Only the one asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Container, Iterator, Sequence
from types import ModuleType

from gpusetup import __version__
from gpusetup.errors import UsageError
from gpusetup.render.terminal import columns_of
from gpusetup.verify import streams

COMMANDS = {
    "doctor": "reads this machine, or somebody's report; names the root cause and the way out",
    "resolve": "says which PyTorch build fits this machine, and why not the others",
    "install": "installs the build that fits, proves it works, or puts back what was there",
    "guard": "keeps pip and uv from replacing torch and the packages that need it",
    "verify": "proves by computing that torch works on the GPUs of this interpreter",
    "plan": "says whether a training workload fits on these GPUs, and with which recipe",
    "tune": "fits a training config to this machine; measures the best batch size",
    "monitor": "watches utilisation, memory, temperature and power; ends with a verdict",
    "compare": "shows what differs between two machines, or two dates of one",
    "node-check": "says within seconds whether this node may take jobs",
    "slurm": "prints or installs what Slurm calls on a node: prolog, health program",
    "fleet": "judges many nodes, and says which one is not like the others",
    "mcp": "answers assistants over the Model Context Protocol",
    "agents": "prints what a coding agent should know, for AGENTS.md",
    "snapshot": "prints the redacted record of this machine",
    "schema": "prints the JSON schema of a command's answer",
    "completion": "prints a completion script for your shell",
    "help": "prints the help of a command",
}
"""Command -> what it does, in one line."""

ELSEWHERE = {"mcp": "gpusetup.assistants.command"}
"""A command whose module stands above this room, because it asks `gpusetup.api`."""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are `UsageError`s like any other."""

    takes_command = False
    """Whether what follows a first `--` is somebody's command; it becomes `after`."""

    words: Sequence[str] = ()
    """What it was given to parse."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words = list(args or ())
        self.words = words
        if not self.takes_command:
            return super().parse_known_args(words, namespace)
        place = words.index("--") if "--" in words else len(words)
        options, rest = super().parse_known_args(words[:place], namespace)
        options.after = words[place + 1 :]
        return options, rest

    def error(self, message: str) -> None:  # type: ignore[override]
        wrong = re.search(r"invalid choice: '([^']*)'", message)
        if wrong and message.startswith("argument COMMAND"):
            raise no_such_command(wrong[1])
        from gpusetup.commands.refused import said_plainly

        told, hint = said_plainly(message, self._option_string_actions)
        raise UsageError(told, hint=f"{f'{hint} ' if hint else ''}`{self.prog} --help` shows all")

    def _print_message(self, message, file=None):  # type: ignore[no-untyped-def]
        """The help or the version: argparse's own passes over a stream that takes nothing."""
        streams.put(message)

    def refuse(self, unknown: Sequence[str]) -> None:
        """Refuse what this command does not take, with its own options of that meaning."""
        from gpusetup.commands.refused import option_refused, word_refused

        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            said = " ".join(unknown)
            hint = word_refused(unknown[0], self, COMMANDS)
            raise UsageError(f"`{self.prog}` takes no {said!r}", hint=self._ended(hint))
        name, _, value = option.partition("=")
        after = self.words[self.words.index(option) + 1 :] if option in self.words else ()
        if not value and after and not after[0].startswith("-"):
            value = after[0]
        told = f"`{self.prog}` has no option `{name}`"
        hint = option_refused(name, value or None, self, options_of_each)
        raise UsageError(told, hint=self._ended(hint))

    @property
    def command(self) -> str:
        """The command that it is for; empty for gpusetup's own."""
        return self.prog.partition(" ")[2]

    def _ended(self, hint: str | None) -> str:
        end = f"`{self.prog} --help` shows all"
        return f"{hint}{chr(10) if hint and chr(10) in hint else ' '}{end}" if hint else end


def no_such_command(word: str) -> UsageError:
    """A word that is no command, with the command of that meaning."""
    from gpusetup.commands.refused import command_meant

    meant = command_meant(word)
    return UsageError(
        f"gpusetup has no command {word!r}",
        hint=f"{f'did you mean `gpusetup {meant}`? ' if meant else ''}`gpusetup --help` shows all",
    )


def child_of(parser: Parser, name: str) -> Parser:
    """A command's own parser, whose options a mistyped one is compared with."""
    kinds = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found: Parser = kinds.choices[name]
    return found


def options_of_each() -> Iterator[tuple[str, Container[str]]]:
    """Every command with the names of its options."""
    parser = build_parser()
    return ((name, child_of(parser, name)._option_string_actions) for name in COMMANDS)


def command(name: str) -> ModuleType:
    home = ELSEWHERE.get(name) or f"gpusetup.commands.{name.replace('-', '_')}"
    return importlib.import_module(home)


EXAMPLES = "examples:\n"
"""How the examples below a command's help begin."""


class Help(argparse.HelpFormatter):
    """Help whose prose fits the terminal; examples stay as they are, to be copied."""

    def __init__(self, prog: str) -> None:
        # argparse makes one for each option, and imports shutil to know the width: 2 ms.
        super().__init__(prog, width=columns_of(sys.stdout) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


def build_parser(only: str | None = None) -> Parser:
    """The parser of one command, or of all (for help and shell completion)."""
    parser = Parser(
        prog="gpusetup",
        description="From 'PyTorch does not see my GPU' to a stack that is installed and proven.",
        formatter_class=Help,
        epilog=_examples(("gpusetup doctor", "gpusetup install", "gpusetup verify")),
    )
    parser.add_argument("-V", "--version", action="version", version=f"gpusetup {__version__}")
    kinds = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name in COMMANDS if only is None else (only,):
        module = command(name)
        child = kinds.add_parser(
            name,
            help=COMMANDS[name],
            description=module.SUMMARY,
            epilog=_examples(module.EXAMPLES),
            formatter_class=Help,
            allow_abbrev=False,
        )
        module.configure(child)
        _common(child, json=getattr(module, "JSON", "print exactly one JSON document"))
    return parser


def read_words(words: Sequence[str]) -> tuple[Parser, argparse.Namespace]:
    """The parser, and the words as the options of their command, checked; `command` is None where
    none was named. Raises UsageError."""
    _refuse_pages(words)
    parser = build_parser(words[0] if words and words[0] in COMMANDS else None)
    options, unknown = parser.parse_known_args(words)  # type: ignore[no-untyped-call]
    asked = parser if options.command is None else child_of(parser, options.command)
    if unknown:
        asked.refuse(unknown)
    if options.command is not None:
        _refuse_misplaced(asked, options)
    return parser, options


ON_DISK = ("DIR", "FILE", "PATH", "MACHINE")
"""What stands for a place on this machine in an option's help."""
ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]+://"
MOST_OF_A_PATH = 4096
"""What is longer was pasted by mistake."""
LONG_OPTION = 40


def _refuse_misplaced(asked: Parser, options: argparse.Namespace) -> None:
    """An empty value is a variable that the caller's script forgot to set, never the default; an
    address where a file is meant would become a folder of that name."""
    for action in asked._actions:
        value = getattr(options, action.dest, None)
        if action.option_strings and (value == "" or (isinstance(value, list) and "" in value)):
            name = "/".join(action.option_strings)
            asked.error(f"argument {name}: the value is empty; is a variable unset?")
        if action.metavar in ON_DISK and isinstance(value, str) and _is_an_address(value):
            name = "/".join(action.option_strings)
            raise UsageError(
                f"argument {name}: {value} is an address, and a file or folder is meant",
                hint="nothing is fetched: save what is there, and name the file",
            )


def _is_an_address(value: str) -> bool:
    return "://" in value and re.match(ADDRESS, value) is not None


def _refuse_pages(words: Sequence[str]) -> None:
    """No word of ours is longer than a path, nor has it a NUL, which no path has; somebody's
    command after `--` may be."""
    ours = words[: words.index("--")] if "--" in words else words
    if any("\0" in word for word in ours):
        raise UsageError("a value has a NUL character in it")
    for before, word in zip(("", *ours), ours, strict=False):
        if len(word) > MOST_OF_A_PATH:
            option = word.partition("=")[0] if word.startswith("-") else before
            named = option.startswith("-") and len(option) <= LONG_OPTION
            where = f"argument {option}: a value" if named else "a word"
            raise UsageError(f"{where} has {len(word)} letters, and {MOST_OF_A_PATH} are the most")


def _common(parser: argparse.ArgumentParser, *, json: str) -> None:
    """The options of every command; one whose `JSON` is empty has no document to print."""
    group = parser.add_argument_group("common")
    group.add_argument("--json", action="store_true", help=json or argparse.SUPPRESS)
    group.add_argument("--output", metavar="FILE", help="write the answer there instead of stdout")
    group.add_argument("--no-color", action="store_true", help="no colour (so does NO_COLOR)")
    group.add_argument(
        "-v", "--verbose", action="store_true", help="show what was asked, and the answers"
    )


def _examples(lines: Sequence[str]) -> str:
    return EXAMPLES + "\n".join(f"  {line}" for line in lines)
