"""The one visual language of every answer: headings, marks, labels, commands, notes, in 16 colours.

A `Screen` is its plain text, which is what a pipe, a file and a test get. Beside it stands how a
terminal shows it: each `Row` knows what is said in which role, at which column it goes on where
it is too long, and whether it is never broken, as a command is. Roles are the terminal's own
colours and weights, so that dark and light grounds both keep their contrast.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from gpusetup.model.finding import Severity
from gpusetup.model.shell import told_for_cmd
from gpusetup.render.program import as_typed

HEADING = "bold"
COMMAND = "cyan"
DIM = "dim"
GOOD = "bold green"
WARNING = "bold yellow"
ERROR = "bold red"
HINT = "bold cyan"

OK = ("✓", GOOD)
NO = ("✗", ERROR)
BUT = ("!", WARNING)
MARKS: Mapping[Severity, tuple[str, str]] = {
    Severity.ERROR: NO,
    Severity.WARNING: BUT,
    Severity.NOTE: ("·", DIM),
}
"""What stands before a finding, and its role."""

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35",
         "cyan": "36"}  # fmt: skip
"""A word of a style -> its SGR parameter: none beyond the 16 colours."""

WIDEST = 120
"""Columns of prose on a terminal that has more: longer lines are hard to follow."""
NARROWEST = 24

Part = tuple[str, str]
"""Text and its role."""

_WORD = re.compile(r"(?:`[^`\n]+`|\S)+")
_KEPT = "\0"
"""Stands for a space where a line must not be broken; `plain` leaves none in a text."""
_SPACELESS = re.compile(rf"[^\s{_KEPT}]+")
_QUOTED = re.compile(r"(`[^`\n]+`)")


def plain(text: str) -> str:
    """Foreign text without terminal control codes; newline and tab stay.

    >>> plain("a\\x1b[31mb\\x07")
    'a?[31mb?'
    """
    return "".join(
        c if c in "\n\t" or (c.isprintable() and not "\u202a" <= c <= "\u2069") else "?"
        for c in text
    )


class Row(str):
    """One line: its text, the roles of its parts, and how it is continued.

    `hang` is the column at which its next row begins; `whole`: it is never broken. `source` says
    who said it, dim at its end.
    """

    parts: tuple[Part, ...]
    hang: int
    whole: bool
    source: str

    def __new__(
        cls, *parts: str | Part, hang: int | None = None, whole: bool = False, source: str = ""
    ) -> Row:
        if source:
            parts = (*parts, (f"  ({source})", DIM))
        said = tuple((plain(p), "") if isinstance(p, str) else (plain(p[0]), p[1]) for p in parts)
        line = super().__new__(cls, "".join(text for text, _ in said))
        line.parts = said
        line.hang = len(line) - len(line.lstrip(" ")) if hang is None else hang
        line.whole = whole
        line.source = plain(source)
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
        rows = (row for line in self.lines for row in _rows(line, width))
        return "".join(f"{_painted(row, colour=colour)}\n" for row in rows)

    def __add__(self, other: str) -> Screen:
        more = other.lines if isinstance(other, Screen) else map(Row, other.splitlines())
        return Screen((*self.lines, *more))


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


def point(said: str, indent: int = 2) -> Row:
    """One of several remarks.

    >>> point("a word")
    '  · a word'
    """
    return Row(" " * indent, ("·", DIM), f" {said}", hang=indent + 2)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str | Part]], *, left: Container[int] = (0,)
) -> list[Row]:
    """Rows below a dim head, figures to the right, the columns of `left` to the left. A last column
    of words (without a title, or to the left) goes on in itself.

    >>> table(("", "batch", ""), (("base", "8", "kept"), ("all", "16", "")))
    ['        batch', '  base      8  kept', '  all      16']
    """
    told = [
        [(plain(cell), "") if isinstance(cell, str) else (plain(cell[0]), cell[1]) for cell in one]
        for one in rows
    ]
    last = len(head) - 1
    count = last if not head[-1] or last in left else last + 1
    wide = [max(cells(head[i]), *(cells(one[i][0]) for one in told)) for i in range(count)]

    def lined(one: Sequence[Part]) -> list[Part]:
        found = []
        for i, (text, style) in enumerate(one[:count]):
            room = " " * (wide[i] - cells(text))
            found += [("  " + room * (i not in left), ""), (text, style), (room * (i in left), "")]
        return [*found, *([("  ", ""), *one[count:]] if any(t for t, _ in one[count:]) else [])]

    column = sum(wide) + 2 * count + 2
    titles = _ended(lined([(title, DIM) for title in head]), column, whole=True)
    found = [titles]
    for one in told:
        whole = not any(text for text, _ in one[count:])
        found.append(_ended(lined(one), column, whole=whole))
    return found


def _ended(parts: list[Part], hang: int, *, whole: bool) -> Row:
    """A row without spaces at its end."""
    while parts and not parts[-1][0].strip(" "):
        parts.pop()
    if parts:
        parts[-1] = (parts[-1][0].rstrip(" "), parts[-1][1])
    return Row(*parts, hang=hang, whole=whole)


def labelled(label: str, value: str, column: int, *, indent: int = 2, style: str = "") -> Row:
    """A label, dim, and its value, which goes on in its own column.

    >>> labelled("Python", "3.12", 8), labelled("Python", "3.12", 8).hang
    ('  Python  3.12', 10)
    """
    head = f"{' ' * indent}{label:{column}}"
    return Row((head, DIM), (value, style), hang=len(head))


def command(text: str, indent: int = 2) -> Row:
    """A command on a line of its own, as long as it is, to be copied as it stands."""
    typed = as_typed(text)
    remark = told_for_cmd(typed)
    return Row(
        " " * indent, (typed, COMMAND), (f"  # in cmd: {remark}" if remark else "", DIM), whole=True
    )


def row(*parts: str | Part) -> Row:
    """A row of a table, which stays one row."""
    return Row(*parts, whole=True)


DIFF = {"+": "green", "-": "red", "@": "cyan"}


def diff_lines(diff: str) -> list[Row]:
    """A diff, each line without its CR, what goes in red and what comes in green."""
    rows = (line.removesuffix("\r") for line in diff.removesuffix("\n").split("\n"))
    return [Row((line, DIFF.get(line[:1], "")), whole=True) for line in rows]


WORDS = {"error": ERROR, "warning": WARNING, "hint": HINT, "advice": HINT, "note": HEADING}


def remark(word: str, text: str) -> Row:
    """`error: …`, `warning: …`, `hint: …`, `note: …`; a text of several lines keeps them."""
    return Row((word, WORDS[word]), f": {text}", hang=2)


# --- how a terminal shows it --------------------------------------------------------------------


def _rows(line: Row, width: int | None) -> Iterator[list[Part]]:
    room = max(min(width or WIDEST, WIDEST), NARROWEST)
    hang = min(line.hang, room // 3)
    for place, piece in enumerate(_by_newlines(_with_commands(line.parts))):
        if line.whole or width is None:
            yield piece
            continue
        text = "".join(t.replace(" ", _KEPT) if style == COMMAND else t for t, style in piece)
        for start, end in broken(text, room, hang):
            row = _cut(piece, start, end)
            yield [(" " * hang, ""), *row] if start or (place and text[:1] != " ") else row


def _by_newlines(parts: Iterable[Part]) -> Iterator[list[Part]]:
    current: list[Part] = []
    for text, style in parts:
        first, *more = text.split("\n")
        current.append((first, style))
        for rest in more:
            yield current
            current = [(rest, style)]
    yield current


def _with_commands(parts: Iterable[Part]) -> Iterator[Part]:
    """What stands between backticks in plain words is shown as a command."""
    for text, style in parts:
        for place, piece in enumerate(_QUOTED.split(text)):
            if piece:
                yield piece, style or (COMMAND if place % 2 else "")


def broken(text: str, width: int, hang: int) -> Iterator[tuple[int, int]]:
    """From where to where each row of a text goes: it is broken between words, never inside of
    one, and inside of backticks only where these are wider than any row: a quoted line of a log.

    >>> text = "say `one two` to it"
    >>> [text[start:end] for start, end in broken(text, 10, 0)]
    ['say', '`one two`', 'to it']
    >>> [end for _, end in broken(f"`{'a log ' * 20}`", 100, 0)]
    [98, 122]
    """
    start, end, room = 0, 0, width
    for first, last in _unbroken(text):
        if end and cells(text[start:last]) > room:
            yield start, end
            start, room = first, width - hang
        end = last
    yield start, end


def _unbroken(text: str) -> Iterator[tuple[int, int]]:
    """Words, and what stands in backticks as one."""
    for match in _WORD.finditer(text):
        if cells(match[0]) <= WIDEST:
            yield match.span()
        else:
            yield from (one.span() for one in _SPACELESS.finditer(text, *match.span()))


def cells(text: str) -> int:
    """Columns that a text takes.

    >>> cells("a字"), cells("e\u0301")
    (3, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _cut(parts: Sequence[Part], start: int, end: int) -> list[Part]:
    found, place = [], 0
    for text, style in parts:
        piece = text[max(start - place, 0) : max(end - place, 0)]
        place += len(text)
        if piece:
            found.append((piece, style))
    return found


def _painted(parts: Iterable[Part], *, colour: bool) -> str:
    return "".join(painted(text, style if colour else "") for text, style in parts).rstrip(" ")


def painted(text: str, style: str) -> str:
    """Text in a role, by the terminal's own colours.

    >>> painted("ok", GOOD)
    '\\x1b[1;32mok\\x1b[0m'
    """
    if not style or not text.strip():
        return text
    return f"\x1b[{';'.join(CODES[word] for word in style.split())}m{text}\x1b[0m"
