"""Where answers and talk leave the program: stdout for answers, stderr for talk.

Prints under any encoding: what a terminal cannot show is replaced by its nearest ASCII. Foreign
text (a path, a process name, a report's line) goes through `plain` on its way, and all text through
`harmless` at the end, so that no terminal and no CI runner obeys what somebody else wrote.
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
"""What stands for a character that the terminal's encoding lacks."""


def harmless(text: str) -> str:
    """Text in which no CI runner finds a command of its own.

    >>> harmless("b\\n::error::c ##[d]")
    'b\\n: :error::c ## [d]'
    """
    return re.sub(r"(?m)^([^\S\n]*):(?=:)", r"\1: ", text).replace("##[", "## [")


def harmless_json(text: str) -> str:
    """The same for a JSON document, whose values stay what they are.

    >>> harmless_json('"\\x9b2J ##[a]"')
    '"\\\\u009b2J #\\\\u0023[a]"'
    """
    text = text.replace("##[", "#\\u0023[")
    if text.isascii():  # JSON writes the other controls of ASCII by their numbers itself
        return text.replace("\x7f", "\\u007f")
    return re.sub(rf"[\x7f-\x9f{INVISIBLE}]", _by_number, text)


def _by_number(found: re.Match[str]) -> str:
    """A character as JSON writes it in ASCII: one beyond the first plane is two."""
    import json

    return json.dumps(found[0])[1:-1]


def told(problem: GpuSetupError) -> tuple[str, str | None]:
    """Message and hint of what ended a job; what was typed may hold a password."""
    from gpusetup.redaction.secrets import hide_logins, hide_secrets

    def shared(text: str) -> str:
        return hide_secrets(hide_logins(text))

    return shared(problem.message), shared(problem.hint) if problem.hint else problem.hint


Document = TypeVar("Document")


class Console:
    """The two streams of one run, and how answers are written."""

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
        """Give the answer: the JSON document under `--json`, else the text, which may be a function
        that makes it of the document; the exit code of `yes` or no."""
        if self.json or not text:
            from gpusetup.model.codec import to_json

            self.json_text(to_json(document) + "\n")
        else:
            self.text(text if isinstance(text, str) else text(document))
        return 0 if yes else Unsatisfiable.exit_code

    def text(self, text: str) -> None:
        """Write an answer's text to stdout or to `--output FILE`."""
        self.script(harmless(plain(text)) if self.output else self._dressed(text, sys.stdout))

    def _dressed(self, text: str, stream: TextIO) -> str:
        """The text as this stream shows it."""
        if isinstance(text, Screen):
            return harmless(text.on(stream, colour=self.color))
        return harmless(plain(text))

    def json_text(self, text: str) -> None:
        """Write a JSON document."""
        self.script(harmless_json(text))

    def script(self, text: str) -> None:
        """Write to the letter, as what is ours: a completion script."""
        CLOCK.end()
        if self.output:
            from pathlib import Path

            with blocked_by_files(f"Cannot write {self.output}", "name another `--output`"):
                Path(self.output).write_text(text, encoding="utf-8")
            return
        streams.put(text)

    def talk(self, text: str) -> None:
        """Say something to the person, on stderr."""
        self.tell(text if isinstance(text, Screen) else f"{text}\n")

    def tell(self, text: str) -> None:
        """The same, with no newline after it."""
        CLOCK.end()
        streams.say(self._dressed(text, sys.stderr))
        goes_on = text.endswith("...\n")
        CLOCK.begin(text.rpartition(": ")[2].rstrip(" .\n") if goes_on else "")

    def debug(self, text: str) -> None:
        """Say what was asked and answered, under `-v` only."""
        if self.verbose:
            self.talk(text)

    def fail(self, problem: GpuSetupError) -> int:
        """Report what ended the command; its exit code. What was typed may hold a password."""
        message, hint = told(problem)
        if self.json:
            from gpusetup.model.documents import ErrorAnswer

            self.output = None
            answer = ErrorAnswer(message=message, hint=hint, exit=problem.exit_code)
            self.answer(answer)
        else:
            rows = (remark("error", message), *(("", remark("hint", hint)) if hint else ()))
            self.tell(Screen(rows))
        if self.verbose and not isinstance(problem, UsageError):
            import traceback

            self.talk(traceback.format_exc())
        return problem.exit_code


def _nearest(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    lacking = problem.object[problem.start : problem.end]
    return "".join(ASCII.get(c, "?") for c in lacking), problem.end


codecs.register_error("nearest", _nearest)
