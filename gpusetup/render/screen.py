"""The layout of every screen: headings, marks, labels, commands and notes, in the terminal's 16
colours.

A `Screen` is a string with its plain text, which is what a pipe, a file or a test gets. It also
knows how to appear on a terminal: each `ScreenLine` contains the roles of its parts, the column
where it continues if it is too long, and whether it may be broken at all (a command must not be
broken). Roles are the terminal's own colours and weights, so that they are readable on both dark
and light backgrounds.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from shutil import which
from textwrap import TextWrapper
from typing import TextIO

from gpusetup.configs.settings import FALSE, TRUE
from gpusetup.model.finding import Severity
from gpusetup.model.hidden_marks import without_hidden_marks
from gpusetup.model.shell import own_line

# Roles are the terminal codes (SGR) for a colour or weight.
HEADING = "1"
DIM = "2"
RED = "31"
YELLOW = "33"
COMMAND = "36"
ERROR = "1;31"
GOOD = "1;32"
WARNING = "1;33"
HINT = "1;36"

OK = ("✓", GOOD)
NO = ("✗", ERROR)
BUT = ("!", WARNING)
MARKS: Mapping[Severity, tuple[str, str]] = {
    Severity.ERROR: NO,
    Severity.WARNING: BUT,
    Severity.NOTE: ("·", DIM),
}
"""The sign before a finding, and the role of that sign."""

WIDEST = 120
"""The maximum width of prose in columns: longer lines are hard to read."""

Part = tuple[str, str]
"""A text and its role."""


def one_line(text: str) -> str:
    """The text on a single line, in which `?` replaces terminal control characters.

    >>> one_line("RTX 3050\\n  ok: all is well")
    'RTX 3050 ok: all is well'
    """
    without_codes = without_hidden_marks(text)
    # Also remove the spaces around a line break.
    return re.sub(r"[ \t]*\n\s*", " ", without_codes)


class ScreenLine(str):
    """One line of a screen: its text, the roles (colours) of its parts, and how it continues if it
    is too long.

    `hang` is the column at which the line's next row begins, by default the column of its first
    letter. A `whole` line is never broken. A `multiline` one keeps the line breaks of its text,
    such as those in a tool's message.
    """

    parts: tuple[Part, ...]
    hang: int
    whole: bool

    def __new__(
        cls,
        *parts: str | Part,
        hang: int | None = None,
        whole: bool = False,
        multiline: bool = False,
    ) -> ScreenLine:
        # A snapshot may come from a stranger, and a name in it must not begin a new line. Only a
        # command (`whole`), whose words are quoted, and a remark (`multiline`) keep line breaks.
        keeps_line_breaks = whole or multiline
        cleaned = without_hidden_marks if keeps_line_breaks else one_line

        line_parts: list[Part] = []
        for part in parts:
            text, role = part if isinstance(part, tuple) else (part, "")
            line_parts.append((cleaned(text), role))

        whole_text = "".join(text for text, _ in line_parts)
        line = super().__new__(cls, whole_text.rstrip(" "))
        indent = len(line) - len(line.lstrip(" "))
        line.parts = tuple(line_parts)
        line.hang = indent if hang is None else hang
        line.whole = whole
        return line


class Screen(str):
    """A result as plain text that also knows how to show itself on a terminal."""

    lines: tuple[ScreenLine, ...]

    def __new__(cls, lines: Iterable[str]) -> Screen:
        screen_lines = tuple(
            line if isinstance(line, ScreenLine) else ScreenLine(line) for line in lines
        )
        screen = super().__new__(cls, "".join(f"{line}\n" for line in screen_lines))
        screen.lines = screen_lines
        return screen

    def for_terminal(self, *, width: int | None, colour: bool) -> str:
        """The text for a terminal with `width` columns; None means that no line is broken."""
        if width is None and not colour:
            return str(self)
        # A width of 0 or None means that there is no terminal, so do not break lines.
        columns = min(width, WIDEST) if width else sys.maxsize

        rows = (row for line in self.lines for row in _broken(line, columns, colour=colour))
        return "".join(f"{row}\n" for row in rows)


# --- the parts of a screen ----------------------------------------------------------------------


def heading(text: str) -> ScreenLine:
    """A line with a title."""
    return ScreenLine((text, HEADING))


def section(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields an empty line, the heading and the lines; nothing if there are no lines.

    >>> [*section("Steps", ())], [*section("Steps", ["  one"])]
    ([], ['', 'Steps', '  one'])
    """
    body = tuple(lines)
    if body:
        yield from ("", heading(title), *body)


def marked(mark: Part, head: str, rest: str | Part = "", *, indent: int = 0) -> ScreenLine:
    """A line with a coloured mark and head, such as a verdict, and the rest of its sentence.

    >>> marked(OK, "ok", ": all alike"), marked(NO, "does not fit", indent=2)
    ('✓ ok: all alike', '  ✗ does not fit')
    """
    sign, role = mark
    # Further rows of a broken line begin below the head, behind the sign and a space.
    return ScreenLine(" " * indent, (f"{sign} {head}", role), rest, hang=indent + 2)


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str | Part]], *, left: Container[int] = (0,)
) -> list[ScreenLine]:
    """The lines of a table with dim titles; the row of titles is left out if all are empty. Cells
    are right-aligned, except in the columns of `left`.

    If the last column has no title or is left-aligned, it holds sentences: it is not padded, and a
    sentence that is too long for the terminal continues below its beginning.

    >>> table(("", "batch", ""), (("base", "8", "kept"), ("all", "16", "")))
    ['        batch', '  base      8  kept', '  all      16']
    """
    grid: list[list[Part]] = [[(title, DIM) for title in titles]] if any(titles) else []
    for row in rows:
        grid.append([cell if isinstance(cell, tuple) else (cell, "") for cell in row])

    last_column = len(titles) - 1
    ends_with_sentence = not titles[-1] or last_column in left
    padded_columns = last_column if ends_with_sentence else len(titles)
    widths = []
    for column in range(padded_columns):
        widths.append(max((len(cells[column][0]) for cells in grid), default=0))

    lines = []
    for cells in grid:
        parts: list[str | Part] = []
        for column, width in enumerate(widths):
            cell = cells[column]
            padding = " " * (width - len(cell[0]))
            parts += ["  ", cell, padding] if column in left else ["  ", padding, cell]
        sentence = cells[-1] if ends_with_sentence else ("", "")
        # Two spaces precede each column, and also the sentence. A row without a sentence has
        # nothing to continue on the next line, so it stays whole.
        begins_at = sum(widths) + 2 * len(cells)
        lines.append(ScreenLine(*parts, "  ", sentence, hang=begins_at, whole=not sentence[0]))
    return lines


def facts(values: Mapping[str, str | None]) -> list[ScreenLine]:
    """Lines with a label and its value, where the values are aligned in a column; labels without a
    value are left out.

    >>> facts({"Python": "3.12", "driver": None, "torch": "2.9.1"})
    ['  Python  3.12', '  torch   2.9.1']
    """
    present = {label: value for label, value in values.items() if value}
    # Two spaces precede a label and separate it from its value.
    width = max(map(len, present), default=0) + 2
    return [
        ScreenLine((f"  {label:{width}}", DIM), value, hang=2 + width)
        for label, value in present.items()
    ]


def yaml_value(value: object) -> str:
    """A value in YAML notation; JSON is also YAML.

    >>> yaml_value("fsdp"), yaml_value({"offload": True}), yaml_value("no")
    ('fsdp', '{"offload": true}', '"no"')
    """
    if isinstance(value, str) and value not in TRUE + FALSE:
        return value
    return json.dumps(value, default=str)


def plural(count: int, word: str) -> str:
    """A count with its noun, which gets an s unless the count is 1.

    >>> plural(1, "node"), plural(2000, "node")
    ('1 node', '2,000 nodes')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def command(text: str, indent: int = 2) -> ScreenLine:
    """A line with a command, which is never broken, so that it can be copied. If the user's shell
    does not find its program by name, the line has the words that start it (`set_program`)."""
    program, space, arguments = text.partition(" ")
    typed = TYPED.get(program, program) + space + arguments
    return ScreenLine(" " * indent, (typed, COMMAND), whole=True)


def remark(word: str, text: str) -> ScreenLine:
    """A line such as `error: …`, `hint: …` or `note: …`. Line breaks in the text are kept."""
    role = {"error": ERROR, "note": HEADING}.get(word, HINT)
    return ScreenLine((word, role), f": {text}", hang=2, multiline=True)


def notes(texts: Iterable[str]) -> list[str]:
    """An empty line, followed by one remark per text; empty if there are no texts."""
    remarks = [remark("note", text) for text in texts]
    return ["", *remarks] if remarks else []


# --- how a terminal shows a line ----------------------------------------------------------------


def _broken(line: ScreenLine, columns: int, *, colour: bool) -> Iterator[str]:
    """Yields the rows of a line on a terminal with this many columns. The line is broken between
    words, but not inside a command in backticks, and continues at its `hang` column. A `whole` line
    is broken only at the line breaks that it contains."""
    # On a narrow terminal, a large indent would leave no room for words, so it is at most a third.
    # An empty line has no column at which it could continue.
    hang = 0 if line.whole else min(line.hang, columns // 3, len(line))
    # TextWrapper breaks lines at spaces, so replace them inside commands with another character of
    # the same width. Positions in `guarded` are then positions in the line.
    guarded = re.sub("`[^`\n]+`", lambda command: command[0].replace(" ", "_"), line)
    rows = guarded[hang:].split("\n")
    if not line.whole:
        wrapper = TextWrapper(
            columns - hang,
            expand_tabs=False,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        # An empty paragraph becomes an empty row.
        rows = [row for paragraph in rows for row in wrapper.wrap(paragraph) or [""]]

    end = hang
    for number, row in enumerate(rows):
        row_begins = guarded.index(row, end)
        end = row_begins + len(row)
        # The first row also includes the indentation and signs before the line's first word.
        start, margin = (row_begins, " " * hang) if number else (0, "")
        yield margin + (painted(line, start, end) if colour else line[start:end])


def painted(line: ScreenLine, first: int, last: int) -> str:
    r"""The characters of a line from `first` up to `last`, with the terminal codes for their
    colours.

    >>> painted(ScreenLine(("ok", GOOD), ": all"), 0, 5)
    '\x1b[1;32mok\x1b[0m: a'
    """
    part_start = 0
    pieces = []
    for text, role in line.parts:
        piece_start = max(first - part_start, 0)
        piece_end = max(last - part_start, 0)
        piece = text[piece_start:piece_end]
        is_painted = bool(piece and role)
        pieces.append(f"\x1b[{role}m{piece}\x1b[0m" if is_painted else piece)
        part_start += len(text)
    return "".join(pieces)


# --- the terminal, and how gpusetup is started in it ----------------------------------------------


def can_be_drawn_on(stream: TextIO) -> bool:
    """Whether a stream is a terminal that supports colours and redrawing a line. Log files and
    terminals inside editors (TERM=dumb) do not."""
    is_dumb = os.environ.get("TERM") in ("dumb", "unknown")
    if is_dumb or not stream.isatty():
        return False
    if sys.platform == "win32":
        # A Windows console interprets terminal codes only after cmd has enabled them.
        os.system("")
    return True


OF_ANOTHER_MACHINE = ("--from", "--report", "--os")
"""Options for another machine, where programs can only be called by their names."""
TYPED: dict[str, str] = {}
"""Maps a program's name to the words that start it on this machine; empty if the result is for
another machine."""


def set_program(words: Sequence[str]) -> None:
    """Remember how to start gpusetup and uv if the user's shell cannot find them by name. `words`
    are the words of the command line, which may be about another machine."""
    if any(word.startswith(OF_ANOTHER_MACHINE) for word in words):
        return
    for name in ("gpusetup", "uv"):
        is_on_path = which(name) is not None
        if not is_on_path:
            TYPED[name] = own_line(sys.executable, "-m", name)
