"""The command line: finds the command, runs it, and turns errors into a line and an exit code.

Each command is a module of `commands/` with `SUMMARY`, `EXAMPLES`, `configure(parser)` and
`run(options, out) -> exit code`: it gathers, decides, renders. Only the one asked for is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType

from gpusetup import __version__
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.render.console import Console

COMMANDS = {
    "doctor": "reads this machine, or somebody's report; names the root cause and the way out",
    "resolve": "says which PyTorch build fits this machine, and why not the others",
    "install": "installs the build that fits, proves it works, or puts back what was there",
    "verify": "proves by computing that torch works on the GPUs of this interpreter",
    "plan": "says whether a training workload fits on these GPUs, and with which recipe",
    "tune": "fits a training config to this machine; measures the best batch size",
    "monitor": "watches utilisation, memory, temperature and power; ends with a verdict",
    "snapshot": "prints the redacted record of this machine",
    "schema": "prints the JSON schema of a command's answer",
    "completion": "prints a completion script for your shell",
    "help": "prints the help of a command",
}
"""Command -> what it does, in one line."""

INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are `UsageError`s like any other."""

    takes_command = False
    """Whether what follows a first `--` is somebody's command; it becomes `after`."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words = list(args or ())
        if not self.takes_command:
            return super().parse_known_args(words, namespace)
        place = words.index("--") if "--" in words else len(words)
        options, rest = super().parse_known_args(words[:place], namespace)
        options.after = words[place + 1 :]
        return options, rest

    def error(self, message: str) -> None:  # type: ignore[override]
        known = [name.strip(" ')") for name in message.partition("(choose from")[2].split(",")]
        wrong = re.search(r"invalid choice: '([^']*)'", message)
        if wrong and message.startswith("argument COMMAND"):
            raise no_such_command(wrong[1])
        meant = _nearest(wrong[1], known) if wrong else None
        raise UsageError(message, hint=_hint(f"`{meant}`" if meant else None, self.prog))

    def refuse(self, unknown: Sequence[str]) -> None:
        """Refuse what this command does not take, with its own options of that meaning."""
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            words = " ".join(unknown)
            raise UsageError(f"`{self.prog}` takes no {words!r}", hint=self._meant_word(unknown[0]))
        name = option.partition("=")[0]
        raise UsageError(f"`{self.prog}` has no option `{name}`", hint=self._meant_option(name))

    def _meant_option(self, name: str) -> str:
        from gpusetup.commands.meant import option_line, options_meant

        if name in self._option_string_actions:
            return f"options stand after the command: `{self.prog} {name}`"
        lines = {option_line(action): action.help for action in options_meant(name, self._actions)}
        own = "`gpusetup --version` is about gpusetup itself; " if name == "--version" else ""
        if not lines:
            known = ", ".join(n for n in self._option_string_actions if n.startswith("--"))
            return f"it takes {known}; `{self.prog} --help` explains them"
        if len(lines) < 2:
            return own + _hint(f"`{next(iter(lines))}`", self.prog)
        width = max(map(len, lines))
        listed = "".join(
            f"\n  {line:{width}}  {text or ''}".rstrip() for line, text in lines.items()
        )
        return f"{own}did you mean one of these?{listed}\n`{self.prog} --help` shows all"

    def _meant_word(self, word: str) -> str:
        """A requirement, a version, a file or a GPU where only options are taken."""
        from gpusetup.commands.meant import word_meant

        named = word_meant(word, self._option_string_actions)
        return _hint(f"`{named[0]} {shlex.quote(named[1])}`" if named else None, self.prog)


def _hint(meant: str | None, prog: str) -> str:
    return f"{f'did you mean {meant}? ' if meant else ''}`{prog} --help` shows all"


def _nearest(word: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, 1)), None)


def no_such_command(word: str) -> UsageError:
    """A word that is no command, with the command of that meaning."""
    from gpusetup.commands.meant import command_meant

    meant = command_meant(word)
    return UsageError(
        f"gpusetup has no command {word!r}",
        hint=_hint(f"`gpusetup {meant}`" if meant else None, "gpusetup"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the contract's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    out = Console(json="--json" in words, color=not _no_color(words), verbose="-v" in words)
    try:
        with _sigterm_as_interrupt():
            return _run(words, out)
    except KeyboardInterrupt:
        out.talk("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except GpuSetupError as problem:
        return out.fail(problem)
    except Exception as problem:
        return out.bug(problem)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """What a Ctrl-C ends cleanly, with every child, a SIGTERM ends alike."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _run(words: list[str], out: Console) -> int:
    parser = build_parser(words[0] if words and words[0] in COMMANDS else None)
    options, unknown = parser.parse_known_args(words)  # type: ignore[no-untyped-call]
    if unknown:
        asked = parser if options.command is None else child_of(parser, options.command)
        asked.refuse(unknown)
    if options.command is None:
        out.text(parser.format_help())
        return 0
    _refuse_misplaced(child_of(parser, options.command), options)
    out.configure(json=options.json, output=options.output, verbose=options.verbose)
    module = command(options.command)
    code: int = module.run(options, out)
    return code


def child_of(parser: Parser, name: str) -> Parser:
    """A command's own parser, whose options a mistyped one is compared with."""
    kinds = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found: Parser = kinds.choices[name]
    return found


ON_DISK = ("DIR", "FILE", "PATH", "MACHINE")
"""What stands for a place on this machine in an option's help."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def _refuse_misplaced(asked: Parser, options: argparse.Namespace) -> None:
    """An empty value is a variable that the caller's script forgot to set, never the default; an
    address where a file is meant would become a folder of that name."""
    for action in asked._actions:
        value = getattr(options, action.dest, None)
        if action.option_strings and (value == "" or (isinstance(value, list) and "" in value)):
            name = "/".join(action.option_strings)
            asked.error(f"argument {name}: the value is empty; is a variable unset?")
        if action.metavar in ON_DISK and isinstance(value, str) and ADDRESS.match(value):
            name = "/".join(action.option_strings)
            asked.error(f"argument {name}: {value} is an address, and a file or folder is meant")


def command(name: str) -> ModuleType:
    return importlib.import_module(f"gpusetup.commands.{name}")


def build_parser(only: str | None = None) -> Parser:
    """The parser of one command, or of all (for help and shell completion)."""
    parser = Parser(
        prog="gpusetup",
        description="From 'PyTorch does not see my GPU' to a stack that is installed and proven.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(child)
        _common(child, json=getattr(module, "JSON", "print exactly one JSON document"))
    return parser


def _common(parser: argparse.ArgumentParser, *, json: str) -> None:
    group = parser.add_argument_group("common")
    group.add_argument("--json", action="store_true", help=json)
    group.add_argument("--output", metavar="FILE", help="write the answer there instead of stdout")
    group.add_argument("--no-color", action="store_true", help="no colour (so does NO_COLOR)")
    group.add_argument(
        "-v", "--verbose", action="store_true", help="show what was asked, and the answers"
    )


def _examples(lines: Sequence[str]) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def _no_color(words: Sequence[str]) -> bool:
    return "--no-color" in words or bool(os.environ.get("NO_COLOR"))
