"""`%load_ext gpusetup`, then `%gpusetup doctor`: a command's answer as its text.

The environment that is read is this kernel's, unless the line names another. A line that fails
shows its error as an answer, without a traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from html import escape
from typing import Any

from gpusetup.commands.parser import COMMANDS, command, no_such_command, read_words
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model import shell
from gpusetup.model.documents import ErrorAnswer, VerifyAnswer
from gpusetup.notebooks.notes import notes, where
from gpusetup.render.console import Console, told
from gpusetup.render.language import plain

LIVE = ("doctor", "verify", "install")
ELSEWHERE = ("--from", "--report", "--project")
"""Options about another machine than this one, or about a file."""
TARGETS = ("--python", "--venv", *ELSEWHERE)
"""Options that say what is read; without one it is this kernel's environment."""
LEFT_TO_TERMINALS = ("mcp", "completion", "fleet")
KINDS = ("--dry-run", "--yes", "-y", "--undo")
WORTH_TELLING = ("install", "verify", "tune")
"""What takes long enough that its progress is shown."""


class Answer:
    """What a line answered: its document, and the text that a cell shows."""

    def __init__(self, document: object, text: str, notes: Sequence[str] = ()) -> None:
        self.document = document
        self.text = text
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        return "\n\n".join((self.text.rstrip(), *(plain(note) for note in self.notes)))

    def _repr_html_(self) -> str:
        """The text in lines as wide as the cell; what strangers wrote is no markup."""
        return f'<pre style="white-space:pre-wrap">{escape(plain(repr(self)))}</pre>'


class Screen(Console):
    """Keeps an answer's document and text; progress of long work goes to the cell."""

    def __init__(self, *, talks: bool) -> None:
        self.json, self.color, self.verbose = False, False, False
        self.output: str | None = None
        self.document: object = None
        self.said: list[str] = []
        self._talks = talks

    def answer(self, document: object, text: Any = None) -> None:
        self.document = document
        super().answer(document, text)

    def talk(self, text: str) -> None:
        if self._talks:
            sys.stderr.write(f"{plain(text)}\n")

    def _write(self, text: str) -> None:
        if self.output:
            super()._write(text)
        else:
            self.said.append(text)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gpusetup` calls."""

    def gpusetup(line: str) -> Answer | None:
        """A command of gpusetup: `%gpusetup doctor`, `%gpusetup resolve`, `%gpusetup help`."""
        return asked(line, shell.user_ns)

    shell.register_magic_function(gpusetup, "line", "gpusetup")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext gpusetup` calls."""
    shell.magics_manager.magics["line"].pop("gpusetup", None)


def asked(line: str, names: dict[str, Any]) -> Answer | None:
    """The answer to a line; an error is one too. None where the line asked for what is printed."""
    try:
        words = words_of(line)
        out = Screen(talks=words[0] in WORTH_TELLING)
        run(words, out)
    except GpuSetupError as problem:
        return _failed(problem)
    except SystemExit:  # --help, --version and `--from list` print and end
        return None
    except Exception as problem:
        fault = f"gpusetup itself failed: {type(problem).__name__}: {problem}"
        return _failed(GpuSetupError(fault, hint="please report it"))
    here = where(os.environ, names, os.path.exists)
    is_live = not any(word.partition("=")[0] in ELSEWHERE for word in words)
    found = notes(out.document, here, loaded(), is_live=is_live)
    text = f"The answer is in {plain(out.output)}\n" if out.output else "".join(out.said)
    return Answer(out.document, text, tuple(found))


def words_of(line: str) -> list[str]:
    """The line's words, with this kernel's Python as the target, and an installation that only
    shows its plan unless it says `--yes`. Raises UsageError."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if shell.OWN_SYSTEM == "windows":
        lexer.escape = ""  # a backslash is a path's
    try:
        words = list(lexer) or ["doctor"]
    except ValueError as problem:
        raise UsageError(
            f"The line cannot be read: {problem}", hint="is a quote missing?"
        ) from None
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        raise no_such_command(words[0])
    if words[0] in LEFT_TO_TERMINALS:
        raise UsageError(f"`gpusetup {words[0]}` is for a terminal", hint=f"`!gpusetup {line}`")
    if any(word == "-" or word.endswith("=-") for word in words):
        raise UsageError(
            "A cell has no standard input, which `-` stands for",
            hint="save the text by `%%writefile report.txt` in a cell, and name that file",
        )
    said = {word.partition("=")[0] for word in words}
    if words[0] in LIVE and not said & set(TARGETS):
        words.append(f"--python={sys.executable}")
    if words[0] == "install" and not said & set(KINDS):
        words.append("--dry-run")
    return words


def run(words: list[str], out: Screen) -> None:
    """Run the command; its answer is in `out`."""
    parser, options = read_words(words)
    if options.command is None:
        out.text(parser.format_help())
        return
    out.configure(json=False, output=options.output, verbose=False)
    module = command(options.command)
    getattr(module, "caught", module.run)(options, out)
    if isinstance(out.document, VerifyAnswer):
        out.said = []
        out.text(verify_text(out.document) + "\n")


def verify_text(answer: VerifyAnswer) -> str:
    """The checks, one a line."""
    rows = (f"{c.status:8} {c.name} on {c.device}: {c.detail}".rstrip(": ") for c in answer.checks)
    return plain("\n".join((f"{answer.verdict}: torch {answer.torch}, CUDA {answer.cuda}", *rows)))


def loaded() -> dict[str, str]:
    """The packages of torch's family that this kernel has imported -> their versions."""
    modules = {name: sys.modules.get(name) for name in ("torch", "torchvision", "torchaudio")}
    found = {name: getattr(module, "__version__", None) for name, module in modules.items()}
    return {name: str(version) for name, version in found.items() if version}


def _failed(problem: GpuSetupError) -> Answer:
    message, hint = told(problem)
    text = plain(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""))
    return Answer(ErrorAnswer(message=message, hint=hint, exit=problem.exit_code), text)
