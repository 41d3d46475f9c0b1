"""The two output streams: stdout for results, stderr for messages.

Printing works with any encoding: a character that the terminal cannot show is replaced by a similar
ASCII character. Text from other sources (a path, a process name, a line of a report) passes through
`without_hidden_marks`, and all text finally passes through `harmless`, so that neither a terminal
nor a CI runner interprets commands in it.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Callable
from shutil import get_terminal_size
from typing import Any, TextIO

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.hidden_marks import INVISIBLE, without_hidden_marks
from gpusetup.render.screen import Screen, can_be_drawn_on, remark
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
"""Maps each character to its replacement if the terminal's encoding lacks it."""


def harmless(text: str) -> str:
    """The text, changed so that a CI runner finds no workflow commands in it.

    >>> harmless("b\\n::error::c ##[d]")
    'b\\n: :error::c ## [d]'
    """
    # GitHub executes `::error::` at the beginning of a line, Azure `##[error]` anywhere.
    without_github = re.sub(r"(?m)^([^\S\n]*):(?=:)", r"\1: ", text)
    return without_github.replace("##[", "## [")


def harmless_json(text: str) -> str:
    """A JSON document in which a CI runner finds no workflow commands and a terminal no control
    characters. Its values stay the same.

    >>> harmless_json('"\\x9b2J ##[a]"')
    '"\\\\u009b2J #\\\\u0023[a]"'
    """
    # JSON already escapes ASCII control characters, except for DEL.
    text = text.replace("##[", "#\\u0023[").replace("\x7f", "\\u007f")
    # Write the other control characters as JSON escapes, without the quotes that `dumps` adds.
    return re.sub(rf"[\x80-\x9f{INVISIBLE}]", lambda mark: json.dumps(mark[0])[1:-1], text)


def shareable(problem: GpuSetupError) -> tuple[str, str | None]:
    """The message and the hint of an error, with passwords and tokens hidden."""
    # Imported late, because most commands end without an error.
    from gpusetup.redaction.secrets import hide_secrets

    hint = problem.hint and hide_secrets(problem.hint)
    return hide_secrets(problem.message), hint


class Console:
    """The output streams of one run: results go to stdout, messages and errors to stderr."""

    def __init__(self, *, json: bool = False, color: bool = True) -> None:
        self.json = json
        self.color = color
        self.verbose = False
        self.output: str | None = None

    def answer(self, document: Any, text: str | Callable[[Any], str] = "") -> None:
        """Write a result to stdout: with `--json`, or without a text, the JSON document, otherwise
        the text. The text may also be a function of the document, which is only called if needed.
        """
        if self.json or not text:
            from gpusetup.model.codec import to_json

            self.json_text(to_json(document) + "\n")
        elif isinstance(text, str):
            self.text(text)
        else:
            self.text(text(document))

    def text(self, text: str) -> None:
        """Write a result as text to stdout or to the file of `--output`."""
        self.script(self._for_stream(text, None if self.output else sys.stdout))

    def _for_stream(self, text: str, stream: TextIO | None) -> str:
        """The text for this stream (None for a file), without harmful characters, and with colours
        and broken lines only if the stream is a terminal."""
        if stream is not None and isinstance(text, Screen):
            width = get_terminal_size().columns if stream.isatty() else None
            return harmless(
                text.for_terminal(width=width, colour=self.color and can_be_drawn_on(stream))
            )
        return harmless(without_hidden_marks(text))

    def json_text(self, text: str) -> None:
        """Write a JSON document to stdout or to the file of `--output`."""
        self.script(harmless_json(text))

    def script(self, text: str) -> None:
        """Write a text unchanged, such as a completion script, to stdout or to the file of
        `--output`. Raises Blocked if the file cannot be written."""
        if not self.output:
            streams.write_stdout(text)
            return
        from pathlib import Path

        with blocked_by_files(f"Cannot write {self.output}", "choose another `--output`"):
            Path(self.output).write_text(text, encoding="utf-8")

    def talk(self, text: str) -> None:
        """Write a message or a screen to stderr, ending with a newline."""
        ending = "" if isinstance(text, Screen) else "\n"
        streams.write_stderr(self._for_stream(text, sys.stderr) + ending)

    def fail(self, problem: GpuSetupError) -> int:
        """Report the error that ended the command, and return its exit code."""
        message, hint = shareable(problem)
        if self.json:
            from gpusetup.model.documents import ErrorAnswer

            # `--output` was meant for the result. Write the error to stdout instead, so that a
            # program which reads stdout notices it.
            self.output = None
            answer = ErrorAnswer(message=message, hint=hint, exit=problem.exit_code)
            self.answer(answer)
        else:
            lines: list[str] = [remark("error", message)]
            if hint:
                lines += ["", remark("hint", hint)]
            self.talk(Screen(lines))
        # A usage error is not caused by our code, so print no traceback.
        if self.verbose and not isinstance(problem, UsageError):
            import traceback

            self.talk(traceback.format_exc())
        return problem.exit_code


def _nearest(problem: UnicodeError) -> tuple[str, int]:
    """An error handler for `codecs`: returns the replacement for characters that the stream's
    encoding lacks, and the position after these characters."""
    assert isinstance(problem, UnicodeEncodeError)
    lacking = problem.object[problem.start : problem.end]
    return "".join(ASCII.get(char, "?") for char in lacking), problem.end


def print_in_any_encoding() -> None:
    """Make the standard streams replace characters that their encoding lacks."""
    codecs.register_error("nearest", _nearest)
    for stream in (sys.stdout, sys.stderr):
        # A stream that a caller put in place of Python's own may be of another class.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="nearest")
