"""A cleaned text in the two forms that readers use: its lines, and all of it on one line.

On one line, with single spaces, a message reads the same however it was wrapped. Readers ask for
the neighbourhood of a few letters (`near`), so that no pattern ever sees more than a window.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from gpusetup.report.clean import cleaned
from gpusetup.report.helps import without_help
from gpusetup.report.mentions import blanked, mentions
from gpusetup.value import Value

BEFORE, AFTER = 600, 1200
WHOLE = 2 * (BEFORE + AFTER)
"""A text of this length is a window of its own."""
WORD = 200
ATTEMPTS = 60
"""How often a needle is looked at: a log repeats itself."""
SHOWN = 300
SPACES = re.compile(r"\s+")


class Text(Value):
    """A report, cleaned."""

    lines: tuple[str, ...]
    flat: str
    low: str
    """`flat` in lower case, of the same length."""
    starts: tuple[int, ...]
    """Where each line begins in `flat`."""
    inside: tuple[tuple[int, str], ...] = ()
    """From which line on the text comes from a `container` or the `host`."""

    def line_at(self, place: int) -> int:
        """The number of the line (from 0) that holds a place of `flat`."""
        return max(bisect_right(self.starts, place) - 1, 0)

    def shown(self, first: int, last: int) -> str:
        """The lines that a piece of `flat` lies in, as evidence."""
        lines = self.lines[self.line_at(first) : self.line_at(max(last - 1, first)) + 1]
        whole = SPACES.sub(" ", " ".join(lines)).strip()
        return whole if len(whole) <= SHOWN else self.flat[first:last].strip()[:SHOWN]

    def source(self, place: int) -> str:
        return f"report, line {self.line_at(place) + 1}"

    def where(self, place: int) -> str | None:
        """`container` or `host`, where the text shows both."""
        at = bisect_right(self.inside, (self.line_at(place), "~")) - 1
        return (self.inside[at][1] or None) if at >= 0 else None

    def _between_words(self, first: int, last: int) -> tuple[int, int]:
        """A window that cuts no word: half a number is another number."""
        before = self.flat.rfind(" ", max(first - WORD, 0), first) + 1
        after = self.flat.find(" ", last, last + WORD)
        return before or first, after if after >= 0 else last

    def near(self, needle: str) -> Iterator[tuple[int, str]]:
        """Windows of `flat` around a needle (lower case): where each begins, and its text.

        They overlap, so that what lies at the end of one is whole in the next.
        """
        if len(self.flat) <= WHOLE:
            yield 0, self.flat
            return
        at, seen = self.low.find(needle), 0
        while at >= 0 and seen < ATTEMPTS:
            first, last = self._between_words(max(at - BEFORE, 0), at + AFTER)
            seen += 1
            yield first, self.flat[first:last]
            at = self.low.find(needle, at + AFTER - BEFORE)


def text_of(raw: str) -> Text:
    """
    >>> text = text_of("> Found no NVIDIA\\n> driver on your system")
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    lines = without_help(cleaned(raw))
    parts = [SPACES.sub(" ", line).strip() for line in lines]
    starts, place = [], 0
    for part in parts:
        starts.append(place)
        place += len(part) + 1 if part else 0
    flat = " ".join(filter(None, parts))
    low = _lowered(flat)
    if spans := mentions(flat, low, starts):
        for number in sorted(set(_lines_of(starts, spans))):
            parts[number] = lines[number] = blanked(parts[number], starts[number], spans)
        flat = " ".join(filter(None, parts))
        low = _lowered(flat)
    return Text(
        lines=tuple(lines), flat=flat, low=low, starts=tuple(starts), inside=tuple(places(lines))
    )


def _lines_of(starts: list[int], spans: list[tuple[int, int]]) -> Iterator[int]:
    for first, last in spans:
        yield from range(max(bisect_right(starts, first) - 1, 0), bisect_right(starts, last - 1))


def _lowered(flat: str) -> str:
    return flat.lower() if flat.isascii() else "".join(_lower(char) for char in flat)


def _lower(char: str) -> str:
    """Of one letter, so that places stay what they are."""
    small = char.lower()
    return small if len(small) == 1 else char


# --- where a line was printed ---------------------------------------------------------------------

PROMPT = re.compile(
    r"^(?:\([\w .-]{1,40}\)\s?){0,3}\[?(?:[\w.-]{1,40}@([\w.-]{1,64}))[: ][^$#%>]{0,120}[\])]?\s?[$#%>]\s?(.{0,400})"
)
LABEL = re.compile(r"^\(?(?:in(?:side)?\s)?(?:the\s)?(container|host)\)?\s?[:$#]", re.I)
ENTERS = re.compile(
    r"\b(?:docker|podman|nerdctl)(?:[- ]compose)?\s(?:run|exec)\b|\bkubectl\s(?:[\w-]+\s){0,6}exec\b"
    r"|\bnvidia-docker\srun\b|\b(?:singularity|apptainer)\s(?:run|exec|shell)\b"
)
CONTAINER_HOST = re.compile(r"^[0-9a-f]{12}$")
SECTION = re.compile(r"^-{2,4} ?[\w .-]{1,40} ?-{2,4}$")


def places(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each line from which on the text comes from somewhere else.

    >>> list(places(["root@4728a09607c1:/opt# x", "user@box:~$ docker run a", "user@box:~$ ls"]))
    [(0, 'container'), (1, 'container'), (2, 'host')]
    """
    for number, line in enumerate(lines):
        if len(line) < 4:
            continue
        if (label := LABEL.match(line)) is not None:
            yield number, label.group(1).lower()
        elif line.startswith("-") and SECTION.match(line):
            yield number, ""
        elif "@" in line[:100] and (prompt := PROMPT.match(line)) is not None:
            host, command = prompt.groups()
            inside = CONTAINER_HOST.match(host) or ENTERS.search(command)
            yield number, "container" if inside else "host"
        elif ENTERS.search(line[:400]):
            yield number, "container"
