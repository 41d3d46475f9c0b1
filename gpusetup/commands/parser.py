"""The command-line parser: every command with its options, and helpful errors for mistyped words.

Each command is a module in this folder. It contains `SUMMARY`, `EXAMPLES`, `Question` (the record
of its options), and `run(question, out) -> Reply`. If a command has several actions, `ACTIONS`
lists their modules. Only the requested command is imported. `documents.py` contains the types of
the commands' JSON documents.
"""

from __future__ import annotations

import argparse
import importlib
import re
import textwrap
from collections.abc import Sequence
from functools import cache
from shutil import get_terminal_size
from types import ModuleType
from typing import Any, NoReturn

from gpusetup import __version__
from gpusetup.commands.question import AFTER_DASHES, add_options, positional_words
from gpusetup.errors import UsageError
from gpusetup.verify import streams

SUMMARY = """Finds out why PyTorch does not see your GPU, installs the build that fits, and tests
it."""
COMMANDS = {
    "doctor": "finds what is wrong with this machine, or with a pasted report, and how to fix it",
    "resolve": "tells you which PyTorch build fits this machine, and why the others do not",
    "install": "installs the build that fits and tests it; restores the previous one if it fails",
    "verify": "tests that torch works on the GPUs, by computing with it",
    "plan": "tells you whether a training run fits on these GPUs, and with which settings",
    "tune": "adapts a training config to this machine, and can measure which batch size is best",
    "monitor": "watches the GPUs or a training run, and tells you at the end what slowed it down",
    "fleet": "checks one or many nodes, and shows which ones differ from the others",
    "snapshot": "prints a snapshot of this machine without private data",
    "mcp": "lets AI assistants use gpusetup over the Model Context Protocol",
    "completion": "prints a completion script for your shell",
}
"""Maps each command to one line about what it does."""

ELSEWHERE = {"mcp": "gpusetup.assistants.command"}
"""Commands whose modules are in other folders, because they import `gpusetup.api`, which itself
imports this folder."""
WITHOUT_DOCUMENT = ("mcp", "completion", "fleet slurm")
"""Commands that only print text, without `--json` and `--schema`."""
SCREEN_WORDS = ("--no-color", "-v", "--verbose")
"""Options that may also follow the command. They take no values, because a value could be mistaken
for that of another option."""


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that reports errors as `UsageError`."""

    children: dict[str, CommandParser]
    """The parsers of the commands or actions below this one, by name."""
    takes_command = False
    """Whether the words after the first `--` are the user's own command. These words become the
    option `after`."""

    def __init__(self, **details: Any) -> None:
        super().__init__(**details)
        self.children = {}

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Parse the words up to `--`; the rest is the user's own command, if there may be one."""
        words = list(args or ())
        if not self.takes_command or "--" not in words:
            return super().parse_known_args(words, namespace)
        dashes = words.index("--")
        options, rest = super().parse_known_args(words[:dashes], namespace)
        if words[dashes + 1 :]:
            options.after = words[dashes + 1 :]
        return options, rest

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with argparse's message. If a command or option is unknown, the hint
        names the known one that is most similar to it."""
        from difflib import get_close_matches

        # argparse's "invalid choice: 'docter' (choose from ..." or "unrecognized arguments: --jsn".
        mistyped = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^'\s=]+)", message)
        word = mistyped[1] if mistyped else ""
        known = (*self.children, *self._option_string_actions)
        # The word is right but at a wrong place, as in `gpusetup --json doctor`.
        if word in known:
            hint = "options come after the command: `gpusetup doctor --json`"
            raise UsageError(message, hint=hint)
        # Below a similarity of 0.7, difflib finds words with another meaning.
        nearest = get_close_matches(word, known, 1, 0.7)
        did_you_mean = f"did you mean `{nearest[0]}`? " if nearest else ""
        raise UsageError(message, hint=f"{did_you_mean}`{self.prog} --help` shows the usage")

    def format_help(self) -> str:
        """The help text, with the summary wrapped to the terminal's width."""
        # RawDescriptionHelpFormatter, which leaves the examples as they are, does not wrap it.
        # argparse keeps two columns free in the rest of the help, too.
        width = get_terminal_size().columns - 2
        self.description = textwrap.fill(" ".join((self.description or "").split()), width)
        return super().format_help()

    def _print_message(self, message, file=None):  # type: ignore[no-untyped-def]
        """Print the help or the version. Unlike argparse's method, this one reports a stream that
        cannot be written."""
        streams.write_stdout(message)


def parser_of(command: str) -> CommandParser:
    """The parser of a command (`doctor`) or action (`fleet show`); for "", that of all commands."""
    parser = build_parser(command.partition(" ")[0])
    for word in command.split():
        parser = parser.children[word]
    return parser


def command(name: str) -> ModuleType:
    """The module of a command (`doctor`) or action (`fleet show`)."""
    home = f"gpusetup.commands.{name.replace(' ', '_')}"
    return importlib.import_module(ELSEWHERE.get(name, home))


@cache
def build_parser(*with_options: str) -> CommandParser:
    """The parser of all commands. It only contains the options of the named commands, because the
    others need not be imported."""
    parser = CommandParser(
        prog="gpusetup",
        description=SUMMARY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_examples(("gpusetup doctor", "gpusetup install", "gpusetup verify")),
    )
    no_color = "print without colour (like setting the variable NO_COLOR)"
    parser.add_argument("--no-color", action="store_true", help=no_color)
    verbose = "show where in the code an error occurred"
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)
    parser.add_argument("-V", "--version", action="version", version=f"gpusetup {__version__}")
    level = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for name, help in COMMANDS.items():
        if name in with_options:
            parser.children[name] = _add(level, name, help)
        else:
            parser.children[name] = level.add_parser(name, help=help)
    return parser


def _add(level: Any, name: str, help: str) -> CommandParser:
    """Add a command (`fleet`) or action (`fleet show`) to argparse's parsers of its level, with its
    options or its actions."""
    module = command(name)
    child: CommandParser = level.add_parser(
        name.rpartition(" ")[2],
        help=help,
        description=module.SUMMARY,
        epilog=_examples(module.EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a later version may add an option that begins the same
    )
    if actions := getattr(module, "ACTIONS", None):
        below = child.add_subparsers(
            dest="action", metavar="ACTION", required=True, parser_class=CommandParser
        )
        for action, action_help in actions.items():
            child.children[action] = _add(below, f"{name} {action}", action_help)
        return child
    add_options(child, module.Question)
    actions_of_options = [spec.keywords.get("action") for spec in module.Question.OPTIONS.values()]
    child.takes_command = AFTER_DASHES in actions_of_options
    # argparse's own usage would list every option, which takes ten lines.
    usage = f"gpusetup {name} [options] {positional_words(module.Question)}".rstrip()
    child.usage = getattr(module, "USAGE", usage)
    child.set_defaults(command=name, json=False, output=None)
    if name not in WITHOUT_DOCUMENT:
        add = child.add_argument_group("common").add_argument
        json_help = getattr(module, "JSON", "print exactly one JSON document")
        add("--json", action="store_true", help=json_help)
        add("--schema", action=_Schema, nargs=0, help="print the JSON schema of that document")
        add("--output", metavar="FILE", help="write the output to this file")
    return child


class _Schema(argparse.Action):
    """The `--schema` option, which prints the JSON schema of a command's documents and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import json

        from gpusetup.commands.documents import schema_of

        command_words = parser.prog.partition(" ")[2]  # of `gpusetup fleet show`
        streams.write_stdout(json.dumps(schema_of(command_words), indent=1) + "\n")
        parser.exit(0)


def _examples(lines: Sequence[str]) -> str:
    return "examples:\n" + textwrap.indent("\n".join(lines), "  ")


# --- parsing the command line ---------------------------------------------------------------------


def read_words(words: Sequence[str]) -> tuple[CommandParser, argparse.Namespace]:
    """Returns the parser and the parsed command line, in which `command` is None if no command was
    given. `help COMMAND` means `COMMAND --help`. Raises UsageError."""
    end = words.index("--") if "--" in words else len(words)
    refuse_values(words[:end])
    is_verbose = not {"-v", "--verbose"}.isdisjoint(words[:end])
    # `main` reads `--no-color` from the words itself.
    rest = (*(word for word in words[:end] if word not in SCREEN_WORDS), *words[end:])
    if "help" in rest[:1]:
        rest = (*rest[1:], "--help")
    commands = [word for word in rest if word in COMMANDS]
    parser = build_parser(*commands[:1])
    options, unknown = parser.parse_known_args(rest)  # type: ignore[no-untyped-call]
    if unknown:
        message = f"unrecognized arguments: {' '.join(unknown)}"
        parser_of(options.command or "").error(message)
    options.verbose = is_verbose
    return parser, options


def refuse_values(words: Sequence[str]) -> None:
    """Raise UsageError for a value that is empty, or that contains a NUL or a lone surrogate.

    No path contains a NUL or half a character. An empty value comes from a variable that the
    caller's script forgot to set, so it must not count as the default.
    """
    previous_word = ""
    for word in words:
        # U+DC80 to U+DCFF are allowed: Python uses them for bytes in a path that are not valid
        # text.
        if re.search("[\0\ud800-\udc7f\udd00-\udfff]", word):
            raise UsageError("a value contains a NUL or a lone surrogate")
        if not word or re.fullmatch("--[a-z-]+=", word):
            option = (word or previous_word).rstrip("=")
            raise UsageError(f"argument {option}: the value is empty; is a variable unset?")
        previous_word = word
