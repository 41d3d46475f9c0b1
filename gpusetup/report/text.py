"""A cleaned text in the two forms that readers use: its lines, and all of it on one line.

Readers ask for the neighbourhood of a few letters (`near`), so that no pattern ever sees more than
a window.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from gpusetup.messages.search import Flat, flat_of
from gpusetup.model.patterns import lazy
from gpusetup.report.cleaning.clean import cleaned

SHOWN = 300


class Text(Flat):
    """A report, cleaned: its lines, and all of it on one line."""

    lines: tuple[str, ...]
    inside: tuple[tuple[int, str], ...] = ()
    """From which line on the text comes from a `container` or the `host`."""

    def shown(self, first: int, last: int) -> str:
        """The lines that a piece of `flat` lies in, as evidence."""
        lines = self.lines[self.line_at(first) : self.line_at(max(last - 1, first)) + 1]
        whole = " ".join(" ".join(lines).split())
        return whole if len(whole) <= SHOWN else self.flat[first:last].strip()[:SHOWN]

    def source(self, place: int) -> str:
        return f"report, line {self.line_at(place) + 1}"

    def where(self, place: int) -> str | None:
        """`container` or `host`, where the text shows both."""
        at = bisect_right(self.inside, (self.line_at(place), "~")) - 1
        return (self.inside[at][1] or None) if at >= 0 else None


def text_of(raw: str) -> Text:
    """
    >>> text = text_of("> Found no NVIDIA\\n> driver on your system")
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    lines = cleaned(raw)
    text = flat_of(lines)
    return Text(
        lines=tuple(lines),
        flat=text.flat,
        low=text.low,
        starts=text.starts,
        inside=tuple(places(lines)),
    )


# --- where a line was printed ---------------------------------------------------------------------

PROMPT = lazy(
    r"^(?:\([\w .-]{1,40}\)\s?){0,3}\[?(?:[\w.-]{1,40}@([\w.-]{1,64}))[: ][^$#%>]{0,120}[\])]?\s?[$#%>]\s?(.{0,400})"
)
LABEL = lazy(r"^\(?(?:in(?:side)?\s)?(?:the\s)?(container|host)\)?\s?[:$#]", re.I)
ENTERS = lazy(
    r"\b(?:docker|podman|nerdctl)(?:[- ]compose)?\s(?:run|exec)\b|\bkubectl\s(?:[\w-]+\s){0,6}exec\b"
    r"|\bnvidia-docker\srun\b|\b(?:singularity|apptainer)\s(?:run|exec|shell)\b"
)
CONTAINER_HOST = lazy(r"^[0-9a-f]{12}$")
SECTION = lazy(r"^-{2,4} ?[\w .-]{1,40} ?-{2,4}$")


def places(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each line from which on the text comes from somewhere else.

    >>> lines = ["root@4728a09607c1:/opt# x", "user@box:~$ docker run a", "user@box:~$ ls"]
    >>> list(places(lines))
    [(0, 'container'), (1, 'container'), (2, 'host')]
    """
    for number, line in enumerate(lines):
        if label := LABEL.match(line):
            yield number, label[1].lower()
        elif line.startswith("-") and SECTION.match(line):
            yield number, ""
        elif prompt := PROMPT.match(line) if "@" in line[:100] else None:
            host, command = prompt.groups()
            inside = CONTAINER_HOST.match(host) or ENTERS.search(command)
            yield number, "container" if inside else "host"
        elif ENTERS.search(line, 0, 400):
            yield number, "container"
