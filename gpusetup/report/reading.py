"""How a text was read: each line with what became of it, for who asks why an answer is as it is."""

from __future__ import annotations

import re

from gpusetup.model.failing import COMPLAINT, Failing
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event
from gpusetup.report.facts import Claim, Fact, Gpus
from gpusetup.report.text import text_of

LINE = re.compile(r"\bline (\d{1,7})$")
TRUST = ("a guess", "a hint", "a program's word", "the word of the program that knows")


class Read(Frozen):
    """What one place of a text became."""

    line: int | None
    """Counted from 1; None where a reader took it from the whole text."""
    became: str
    tells: bool = True
    """Whether it says what failed or what is there, and not only that somebody complains, or of
    which program."""


class Reading(Frozen):
    """A cleaned text, and what was read of it."""

    lines: tuple[str, ...]
    reads: tuple[Read, ...]

    def of_line(self, number: int) -> tuple[str, ...]:
        """What a line became, each once."""
        return tuple(dict.fromkeys(r.became for r in self.reads if r.line == number))

    @property
    def untold(self) -> tuple[int, ...]:
        """The numbers of the lines that hold words and that no reader took a fact from."""
        told = {read.line for read in self.reads if read.tells}
        return tuple(
            n
            for n, line in enumerate(self.lines, 1)
            if n not in told and any(map(str.isalpha, line))
        )

    @property
    def unread(self) -> tuple[int, ...]:
        """The numbers of the lines that hold words and that no reader used."""
        used = {read.line for read in self.reads}
        return tuple(
            n
            for n, line in enumerate(self.lines, 1)
            if n not in used and any(map(str.isalpha, line))
        )


def reading_of(raw: str) -> Reading:
    """
    >>> reading = reading_of("hello\\nFound no NVIDIA driver on your system")
    >>> reading.of_line(2)[0], reading.unread
    ('event no-nvidia-driver', (1,))
    """
    from gpusetup.report.read import facts

    text = text_of(raw)
    return Reading(lines=text.lines, reads=tuple(map(_read, facts(text))))


def _read(fact: Fact) -> Read:
    source = getattr(fact, "source", None) or ""
    found = LINE.search(source)
    line = int(found.group(1)) if found else None
    complains = isinstance(fact, Claim) and fact.subject == COMPLAINT
    return Read(line=line, became=_became(fact), tells=not (complains or isinstance(fact, Failing)))


def _became(fact: Fact) -> str:
    if isinstance(fact, Claim) and fact.subject == COMPLAINT:
        return "somebody complains; what failed is not read from it"
    if isinstance(fact, Failing):
        return f"the program: {fact.program}{f', at {fact.stage}' if fact.stage else ''}"
    if isinstance(fact, Claim):
        return f"{fact.subject} = {fact.value} ({TRUST[fact.trust]})"
    if isinstance(fact, Event):
        values = " ".join(f"{name}={value}" for name, value in fact.values.items())
        return f"event {fact.kind} {values}".rstrip()
    if isinstance(fact, Gpus):
        return f"GPUs: {', '.join(gpu.name for gpu in fact.gpus) or 'none'}"
    named = (getattr(fact, name, None) for name in ("program", "stage", "name", "version", "path"))
    return f"{type(fact).__name__.lower()}: {' '.join(str(one) for one in named if one)}"
