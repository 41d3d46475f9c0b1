"""The two output streams: stdout for answers, stderr for messages.

It prints under any encoding: a character that a terminal cannot show is replaced by its nearest
ASCII. Foreign text (a path, a process name, a report's line) goes through `plain` on its way, and
all text through `harmless` at the end, so that no terminal and no CI runner obeys what somebody
else wrote.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from typing import TextIO, TypeVar

from gpusetup.errors import GpuSetupError, Unsatisfiable, UsageError
from gpusetup.model.hidden_marks import INVISIBLE
from gpusetup.render.clock import CLOCK
from gpusetup.render.screen import Screen, plain, remark
from gpusetup.system.refusals import blocked_by_files
from gpusetup.verify import streams

ASCII = {
    "✓": "+",
    "✗": "x",
    "→": "->",
    "…": "...",
    "×": "x",
    "·": "-",
    "≥": ">=",
    "≤": "<=",
    "°": " ",
}
"""A character -> what replaces it if the terminal's encoding lacks it."""


def harmless(text: str) -> str:
    """The text, changed so that a CI runner finds no workflow commands in it.

    >>> harmless("b\\n::error::c ##[d]")
    'b\\n: :error::c ## [d]'
    """
    # GitHub obeys `::error::` at the beginning of a line, Azure `##[error]` anywhere.
    without_github = re.sub(r"(?m)^([^\S\n]*):(?=:)", r"\1: ", text)
    return without_github.replace("##[", "## [")


def harmless_json(text: str) -> str:
    """A JSON document in which a CI runner finds no workflow commands and a terminal no control
    characters, with unchanged values.

    >>> harmless_json('"\\x9b2J ##[a]"')
    '"\\\\u009b2J #\\\\u0023[a]"'
    """
    text = text.replace("##[", "#\\u0023[")
    # JSON itself writes the controls of ASCII by their numbers, all but DEL.
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return re.sub(rf"[\x7f-\x9f{INVISIBLE}]", _by_number, text)


def _by_number(control: re.Match[str]) -> str:
    """A character as a JSON escape; a character above U+FFFF becomes two escapes."""
    import json

    in_quotes = json.dumps(control[0])
    return in_quotes[1:-1]


def shareable(problem: GpuSetupError) -> tuple[str, str | None]:
    """The message and the hint of an error, with passwords and tokens hidden."""
    # Imported late: most commands end without an error.
    from gpusetup.redaction.secrets import hide_logins, hide_secrets

    def without_secrets(text: str) -> str:
        return hide_secrets(hide_logins(text))

    message = without_secrets(problem.message)
    hint = without_secrets(problem.hint) if problem.hint else problem.hint
    return message, hint


Document = TypeVar("Document")


class Console:
    """The output streams of one run: answers go to stdout, messages and errors to stderr."""

    def __init__(self, *, json: bool = False, color: bool = True, verbose: bool = False) -> None:
        self.json = json
        self.color = color
        self.verbose = verbose
        self.output: str | None = None
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="nearest")

    def answer(
        self, document: Document, text: str | Callable[[Document], str] = "", *, yes: object = True
    ) -> int:
        """Write an answer to stdout and return the exit code: 0 if `yes` is true, otherwise 1.

        Under `--json`, or without a text, the JSON document is written, otherwise the text. The
        text may be a function of the document, which then runs only if it is needed.
        """
        if self.json or not text:
            from gpusetup.model.codec import to_json

            self.json_text(to_json(document) + "\n")
        elif isinstance(text, str):
            self.text(text)
        else:
            self.text(text(document))
        return 0 if yes else Unsatisfiable.exit_code

    def text(self, text: str) -> None:
        """Write an answer as text to stdout or to the file of `--output`."""
        if self.output:
            self.script(harmless(plain(text)))
        else:
            self.script(self._for_stream(text, sys.stdout))

    def _for_stream(self, text: str, stream: TextIO) -> str:
        """The text for this stream, with colours only if it is a terminal and without harmful
        characters."""
        if isinstance(text, Screen):
            return harmless(text.on(stream, colour=self.color))
        return harmless(plain(text))

    def json_text(self, text: str) -> None:
        """Write a JSON document to stdout or to the file of `--output`."""
        self.script(harmless_json(text))

    def script(self, text: str) -> None:
        """Write a text unchanged, such as a completion script, to stdout or to the file of
        `--output`."""
        CLOCK.end()
        if not self.output:
            streams.put(text)
            return
        from pathlib import Path

        with blocked_by_files(f"Cannot write {self.output}", "name another `--output`"):
            Path(self.output).write_text(text, encoding="utf-8")

    def require_output(self) -> None:
        """Raise `Blocked` if `--output FILE` cannot be written, before something takes long or
        changes a machine."""
        if not self.output:
            return
        from pathlib import Path

        path = Path(self.output)
        with blocked_by_files(f"Cannot write {self.output}", "name another `--output`"):
            is_new = not path.exists()
            # A pipe or a device is only opened for the answer.
            if is_new or path.is_file() or path.is_dir():
                path.open("ab").close()
            if is_new:
                path.unlink()

    def talk(self, text: str) -> None:
        """Write a message or a screen to stderr, ending with a newline."""
        # A screen ends with a newline of its own.
        if not isinstance(text, Screen):
            text = f"{text}\n"
        self.tell(text)

    def tell(self, text: str) -> None:
        """Write a message to stderr, without adding a newline.

        A text that ends with `...` begins a step: the clock shows how long that takes.
        """
        CLOCK.end()
        streams.say(self._for_stream(text, sys.stderr))
        step = ""
        if text.endswith("...\n"):
            # `hint: Fetching torch ...` is the step `Fetching torch`.
            step = text.rpartition(": ")[2].rstrip(" .\n")
        CLOCK.begin(step)

    def debug(self, text: str) -> None:
        """Write a message to stderr, but only with `-v`."""
        if self.verbose:
            self.talk(text)

    def fail(self, problem: GpuSetupError) -> int:
        """Report the error that ended the command, and return its exit code."""
        message, hint = shareable(problem)
        if self.json:
            from gpusetup.model.documents import ErrorAnswer

            # `--output` was meant for the answer; whoever reads stdout must see that there is none.
            self.output = None
            answer = ErrorAnswer(message=message, hint=hint, exit=problem.exit_code)
            self.answer(answer)
        else:
            lines: list[str] = [remark("error", message)]
            if hint:
                lines += ["", remark("hint", hint)]
            self.tell(Screen(lines))
        # A wrong question is no place in our code.
        if self.verbose and not isinstance(problem, UsageError):
            import traceback

            self.talk(traceback.format_exc())
        return problem.exit_code


def _nearest(problem: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that the stream's encoding lacks, and the position after them
    (an error handler for `codecs`)."""
    assert isinstance(problem, UnicodeEncodeError)
    lacking = problem.object[problem.start : problem.end]
    nearest = ""
    for char in lacking:
        nearest += ASCII.get(char, "?")
    return nearest, problem.end


codecs.register_error("nearest", _nearest)
