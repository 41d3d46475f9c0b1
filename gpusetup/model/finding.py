"""A finding: what is wrong, the evidence for it, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines


class Severity(str, enum.Enum):
    """How serious a finding is. error: will not work; warning: works with loss; note: worth
    knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Evidence(Frozen):
    """A quote from a source that supports a finding."""

    source: str
    text: str


class Alternative(Frozen):
    """Another complete way to fix the problem. In `Fix.looks`, it is a command that shows more
    about the problem."""

    title: str
    """The words that follow "or", for example `with pip`."""
    commands: Lines


class Need(Frozen):
    """Something that must be known before a change can be recommended, and whether it is known."""

    what: str
    """`torch`, `environment`, `installer`, `system`, `rights`, `container engine`, `Python`…"""
    state: Literal["read", "unread", "denied"]
    because: str = ""
    """The reading that shows or contradicts the needed fact; "" if nothing was read."""
    reading: str | None = None
    """The command whose output shows the needed fact, if the fact is unknown."""


class Fix(Frozen):
    """How to fix the problem of a finding."""

    text: str
    commands: Lines = ()
    """The commands in order, to be pasted as one block."""
    alternatives: tuple[Alternative, ...] = ()
    looks: tuple[Alternative, ...] = ()
    """Commands that show more and change nothing; each title is a short instruction: `read the
    counters`."""
    needs_root: bool = False
    needs_reboot: bool = False
    min_driver: str | None = None
    needs: tuple[Need, ...] = ()
    """What must be known before the commands may change something. If such a fact is unknown or
    contradicted, the fix has no commands that change something, and `text` describes it."""


def command_lines(fix: Fix | None) -> Lines:
    """All command lines of a fix, including those in `alternatives` and `looks`; empty for None."""
    if fix is None:
        return ()
    blocks = (*fix.alternatives, *fix.looks)
    return (*fix.commands, *(line for block in blocks for line in block.commands))


def map_blocks(fix: Fix, change: Callable[[Alternative], Alternative | None]) -> Fix:
    """The fix with `change` applied to each block of commands; blocks for which it returns None are
    left out."""

    def changed(blocks: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
        return tuple(new for new in map(change, blocks) if new is not None)

    first_block = change(Alternative(title="", commands=fix.commands))
    return replace(
        fix,
        commands=first_block.commands if first_block else (),
        alternatives=changed(fix.alternatives),
        looks=changed(fix.looks),
    )


class Finding(Frozen):
    """A problem or fact found on a machine, with its values, evidence and fix."""

    id: str
    """The id of the finding, which is also the name of its page in the documentation."""
    severity: Severity
    """`error`, `warning` or `note`."""
    title: str
    """What is wrong, in one sentence."""
    detail: str = ""
    """More about the finding; empty if the title says everything."""
    root: bool = False
    """Whether this finding is the root cause."""
    explained_by: str | None = None
    """The id of the finding that this one is a consequence of."""
    evidence: tuple[Evidence, ...] = ()
    """The texts from which doctor derived the finding, with their sources."""
    fix: Fix | None = None
    """How to fix the problem; null if there is nothing to do."""


class RuledOut(Frozen):
    """A cause that a message suggests but that another fact contradicts."""

    id: str
    because: str
    """The contradicting fact, in a sentence."""


Findings = Iterator[Finding]


FIRST_WORDS = ("the ", "a ", "an ", "this ")
"""A title that begins with one of these words gets a capital letter. Other titles may begin with
the name of a program or package, which keeps its small letter."""


def sentence(title: str) -> str:
    """The title as the beginning of a sentence: with a capital letter, unless it begins with a
    name.

    >>> sentence("the NVIDIA GPU is lost"), sentence("torch 2.5.1 is lost")
    ('The NVIDIA GPU is lost', 'torch 2.5.1 is lost')
    """
    if not title.startswith(FIRST_WORDS):
        return title
    return title[0].upper() + title[1:]


def unique_evidence(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Evidence without duplicates: one quote per line of a text and, for other sources, each text
    once.

    >>> whole, part = Evidence(source="line 3", text="an AMD 6600xt"), "6600xt"
    >>> len(unique_evidence((whole, Evidence(source="nvidia-smi, line 3", text=part), whole)))
    1
    """
    first_quotes: dict[str, Evidence] = {}
    for quote in evidence:
        # Compare sources by line number: `nvidia-smi, line 3` and `line 3` are the same line of a
        # text.
        line_number = quote.source.partition("line ")[2]
        first_quotes.setdefault(line_number or quote.text, quote)
    return tuple(first_quotes.values())


Stage = Literal["install", "build", "import", "start", "first-kernel", "running", "distributed"]


class Failing(Frozen):
    """The program that failed, the stage, and the line that shows it; unknown parts are None."""

    program: str | None = None
    stage: Stage | None = None
    text: str | None = None
    source: str | None = None
