"""A cleaned text in the two forms that readers use: its lines, and all of it on one line.

Readers ask for the neighbourhood of a few letters (`near`), so that no pattern ever sees more than
a window.
"""

from __future__ import annotations

from gpusetup.messages.search import Flat, flat_of
from gpusetup.report.cleaning.clean import cleaned

SHOWN = 300


class Text(Flat):
    """A report, cleaned: its lines, and all of it on one line."""

    lines: tuple[str, ...]

    def shown(self, first: int, last: int) -> str:
        """The lines that a piece of `flat` lies in, as evidence."""
        lines = self.lines[self.line_at(first) : self.line_at(max(last - 1, first)) + 1]
        whole = " ".join(" ".join(lines).split())
        return whole if len(whole) <= SHOWN else self.flat[first:last].strip()[:SHOWN]

    def source(self, place: int) -> str:
        return f"report, line {self.line_at(place) + 1}"


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
    )
