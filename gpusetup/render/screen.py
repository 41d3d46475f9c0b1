"""How every answer looks: headings, marks, labels, commands, notes, in the terminal's 16 colours.

A `Screen` is its plain text, which is what a pipe, a file and a test get. Beside it stands how a
terminal shows it: each `Row` knows what is said in which role, at which column it goes on where
it is too long, and whether it is never broken, as a command is. Roles are the terminal's own
colours and weights, so that dark and light grounds both keep their contrast.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from shutil import get_terminal_size, which
from textwrap import TextWrapper
from typing import TextIO

from gpusetup.model.finding import Severity

HEADING = "1"
DIM = "2"
RED = "31"
GREEN = "32"
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
"""What stands before a finding, and its role."""

WIDEST = 120
"""Columns of prose on a terminal that has more: longer lines are hard to follow."""
NARROWEST = 24

Part = tuple[str, str]
"""Text and its role: the number of a colour or weight in a terminal's code (SGR)."""


def plain(text: str) -> str:
    """Foreign text without terminal control codes; newline and tab stay.

    >>> plain("a\\x1b[31mb\\x07")
    'a?[31mb?'
    """
    return "".join(
        c if c in "\n\t" or (c.isprintable() and not "\u202a" <= c <= "\u2069") else "?"
        for c in text
    )


def one_line(text: str) -> str:
    """Foreign text on one line, without terminal control codes.

    >>> one_line("RTX 3050\\n  ok: all is well")
    'RTX 3050 ok: all is well'
    """
    return re.sub(r"[ \t]*\n\s*", " ", plain(text))


class Row(str):
    """One line: its text, the roles of its parts, and how it is continued.

    `hang` is the column at which its next row begins; `whole`: it is never broken; `many`: a text
    of several lines keeps them, as a tool's message does.
    """

    parts: tuple[Part, ...]
    hang: int
    whole: bool

    def __new__(
        cls, *parts: str | Part, hang: int | None = None, whole: bool = False, many: bool = False
    ) -> Row:
        pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
        # A snapshot is a stranger's: a name in it may not begin a line of its own. Only a command,
        # which is quoted and never broken, keeps the line breaks inside of its quotes.
        shown = plain if whole or many else one_line
        line_parts = tuple((shown(text), style) for text, style in pairs)
        line = super().__new__(cls, "".join(text for text, _ in line_parts).rstrip(" "))
        line.parts = line_parts
        line.hang = len(line) - len(line.lstrip(" ")) if hang is None else hang
        line.whole = whole
        return line


class Screen(str):
    """An answer as text, a line after the other, which knows how a terminal shows it."""

    lines: tuple[Row, ...]

    def __new__(cls, lines: Iterable[str]) -> Screen:
        kept = tuple(line if isinstance(line, Row) else Row(line) for line in lines)
        screen = super().__new__(cls, "".join(f"{line}\n" for line in kept))
        screen.lines = kept
        return screen

    def shown(self, *, width: int | None, colour: bool) -> str:
        """The text for a terminal of `width` columns; None: no line is broken."""
        if width is None and not colour:
            return str(self)
        room = max(min(width, WIDEST), NARROWEST) if width else 10**6
        rows = (row for line in self.lines for row in _rows(line, room, colour=colour))
        return "".join(f"{row}\n" for row in rows)

    def on(self, stream: TextIO, *, colour: bool = True) -> str:
        """The text for this stream: colours and broken lines on a terminal only."""
        width = get_terminal_size().columns if stream.isatty() else None
        return self.shown(width=width, colour=colour and can_be_drawn_on(stream))


# --- what is said -------------------------------------------------------------------------------


def heading(text: str) -> Row:
    """The title of what stands below it."""
    return Row((text, HEADING))


def section(title: str, rows: Iterable[str]) -> Iterator[str]:
    """A heading with what stands below it, after an empty line; nothing where there is nothing.

    >>> [*section("Steps", ())], [*section("Steps", ["  one"])]
    ([], ['', 'Steps', '  one'])
    """
    below = tuple(rows)
    if below:
        yield from ("", heading(title), *below)


def marked(mark: Part, name: str, *said: str | Part, indent: int = 0) -> Row:
    """A mark with what it is about in its colour, then what is said of it.

    >>> marked(OK, "ok", "all alike")
    '✓ ok: all alike'
    """
    sign, style = mark
    colon = (": ",) if said else ()
    head = f"{sign} {name}" if name else sign
    return Row(" " * indent, (head, style), *colon, *said, hang=indent + 2)


def verdict(mark: Part, said: str, rest: str = "") -> Row:
    """The answer itself, as the first line of a screen.

    >>> verdict(NO, "does not fit"), verdict(OK, "fits", ": LoRA")
    ('✗ does not fit', '✓ fits: LoRA')
    """
    sign, style = mark
    return Row((f"{sign} {said}", style), rest, hang=2)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str | Part]], *, left: Container[int] = (0,)
) -> list[Row]:
    """Rows below a dim head, figures to the right, the columns of `left` to the left. A last column
    of words (without a title, or to the left) goes on in itself.

    >>> table(("", "batch", ""), (("base", "8", "kept"), ("all", "16", "")))
    ['        batch', '  base      8  kept', '  all      16']
    """
    grid = [[one if isinstance(one, tuple) else (one, "") for one in row] for row in rows]
    grid.insert(0, [(title, DIM) for title in head])
    last = len(head) - 1
    words = last if not head[-1] or last in left else len(head)
    wide = [max(_columns(plain(row[place][0])) for row in grid) for place in range(words)]
    found = []
    for row in grid:
        parts: list[str | Part] = []
        for place, (text, style) in enumerate(row):
            room = " " * (wide[place] - _columns(plain(text))) if place < words else ""
            parts += ["  ", (text, style), room] if place in left else [f"  {room}", (text, style)]
        more = any(text for text, _ in row[words:])
        found.append(Row(*parts, hang=sum(wide) + 2 * words + 2, whole=not more))
    return found


def _columns(text: str) -> int:
    """Columns that a text takes.

    >>> _columns("a字"), _columns("e\u0301")
    (3, 1)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def facts(told: Mapping[str, str | None], indent: int = 2) -> list[Row]:
    """Labels in one column with what is known of each; what is not known is left out.

    >>> facts({"Python": "3.12", "driver": None, "torch": "2.9.1"})
    ['  Python  3.12', '  torch   2.9.1']
    """
    known = {label: said for label, said in told.items() if said}
    width = max(map(len, known), default=0) + 2
    heads = {label: f"{' ' * indent}{label:{width}}" for label in known}
    return [Row((heads[one], DIM), said, hang=len(heads[one])) for one, said in known.items()]


def plural(count: int, word: str) -> str:
    """
    >>> plural(1, "node"), plural(2000, "node")
    ('1 node', '2,000 nodes')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def command(text: str, indent: int = 2) -> Row:
    """A command on a line of its own, as long as it is, to be copied as it stands."""
    typed = as_typed(text)
    remark = '  # in cmd: without "& "' if typed.startswith('& "') else ""
    return Row(" " * indent, (typed, COMMAND), (remark, DIM), whole=True)


DIFF = {"+": GREEN, "-": RED, "@": COMMAND}


def diff_lines(diff: str) -> list[Row]:
    """A diff, each line without its CR, what goes in red and what comes in green."""
    rows = (line.removesuffix("\r") for line in diff.removesuffix("\n").split("\n"))
    return [Row((line, DIFF.get(line[:1], "")), whole=True) for line in rows]


WORDS = {"error": ERROR, "warning": WARNING, "hint": HINT, "advice": HINT, "note": HEADING}


def remark(word: str, text: str) -> Row:
    """`error: …`, `warning: …`, `hint: …`, `note: …`; a text of several lines keeps them."""
    return Row((word, WORDS[word]), f": {text}", hang=2, many=True)


def notes(lines: Iterable[str], word: str = "note") -> list[str]:
    """Remarks below what was said; nothing where there is none."""
    rows = [remark(word, line) for line in lines]
    return ["", *rows] if rows else []


# --- how a terminal shows it --------------------------------------------------------------------


def _rows(line: Row, room: int, *, colour: bool) -> Iterator[str]:
    """The rows of a line: it is broken between words but not within a command, and goes on at
    its own column."""
    hang = 0 if line.whole else min(line.hang, room // 3, len(line))
    broken = TextWrapper(
        room - hang,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    kept = re.sub("`[^`\n]+`", lambda command: command[0].replace(" ", "_"), line)
    pieces = kept[hang:].split("\n")
    rows = pieces if line.whole else [row for one in pieces for row in broken.wrap(one) or [""]]
    last = hang
    for number, row in enumerate(rows):
        place = kept.index(row, last)
        first, last = place if number else 0, place + len(row)
        shown = painted(line, first, last) if colour else line[first:last]
        yield " " * (hang if number else 0) + shown


def painted(line: Row, first: int, last: int) -> str:
    r"""A piece of a line in the terminal's own colours.

    >>> painted(Row(("ok", GOOD), ": all"), 0, 5)
    '\x1b[1;32mok\x1b[0m: a'
    """
    place, pieces = 0, []
    for text, style in line.parts:
        piece = text[max(first - place, 0) : max(last - place, 0)]
        place += len(text)
        pieces.append(f"\x1b[{style}m{piece}\x1b[0m" if piece and style else piece)
    return "".join(pieces)


# --- the terminal, and how gpusetup is started in it ----------------------------------------------


def can_be_drawn_on(stream: TextIO) -> bool:
    """Whether it takes colours, and a screen may be drawn there again; an editor's terminal and a
    log do not."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    if not stream.isatty() or dumb:
        return False
    if sys.platform == "win32":
        os.system("")  # a console of Windows obeys codes only after cmd asked it to
    return True


OF_ANOTHER_MACHINE = ("--from", "--report", "--os")
"""Options whose answer is for another machine, where the name is all we know."""
TYPED: dict[str, str] = {}
"""A program of an answer -> what starts it here; empty where the answer is for elsewhere."""


def set_program(words: Sequence[str]) -> None:
    """Remember what a person's shell does not find."""
    from gpusetup.model.shell import own_line

    if not any(one.startswith(OF_ANOTHER_MACHINE) for one in words):
        lacking = (name for name in ("gpusetup", "uv") if not which(name))
        TYPED.update({name: own_line(sys.executable, "-m", name) for name in lacking})


def as_typed(line: str) -> str:
    """A line of an answer, with gpusetup and uv as this person starts them."""
    first, space, rest = line.partition(" ")
    return f"{TYPED.get(first, first)}{space}{rest}"
