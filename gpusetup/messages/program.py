"""What is known of a program beside torch: its packages, its own way to the GPU, its marks in a text."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

from gpusetup.model.failing import Stage
from gpusetup.model.frozen import Frozen


class Weight(enum.IntEnum):
    """How much a mark says: the higher wins, of equal ones the later in the text."""

    MENTIONED = enum.auto()
    """Its bare name: it counts where the text shows nothing else, not even torch."""
    UNDER_ALL = enum.auto()
    """torch: it stands below every other program of a text."""
    NOTICE = enum.auto()
    """A line that it logs beside another program's work as well."""
    RAISED = enum.auto()
    """torch's own exception."""
    NAMED = enum.auto()
    """Its command, or a line of its log."""
    TRACED = enum.auto()
    """A file of it in a traceback."""
    TOLD = enum.auto()
    """Its own word that it failed."""
    BUILT = enum.auto()
    """Its build: whatever else that prints is a part of it."""


class Mark(Frozen):
    """Letters (lower case) by which a program is known, and near them a pattern where they do not suffice."""

    needle: str
    pattern: str = ""
    stage: Stage | None = None
    weight: Weight = Weight.TOLD


class Program(Frozen):
    """One program: what it is called, its packages, what it needs for the GPU, its words."""

    name: str
    packages: tuple[str, ...] = ()
    """Import names and distributions, lower case, `_` for `-`."""
    on_torch: bool = True
    """Whether torch is under it: then torch's way out is its own."""
    way: str = ""
    """How it comes to the GPU, where that is not by torch."""
    reading: str = ""
    """The command by which it says itself what it finds of a GPU."""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """Its way where the GPU is another maker's: a cause, and what to do."""
    marks: tuple[Mark, ...] = ()


Marks = tuple[Mark, ...]


def _marks(weight: Weight) -> Callable[..., Marks]:
    """Marks of one weight: a stage, then letters."""
    return lambda stage, *needles: tuple(
        Mark(needle=each, stage=stage, weight=weight) for each in needles
    )


told, notice, raised, under_all = map(
    _marks, (Weight.TOLD, Weight.NOTICE, Weight.RAISED, Weight.UNDER_ALL)
)


def named(*needles: str, stage: Stage | None = None, pattern: str = "") -> Marks:
    return tuple(
        Mark(needle=each, pattern=pattern, stage=stage, weight=Weight.NAMED) for each in needles
    )


def spelled(name: str) -> Marks:
    """A program's own name, in the ways that it is written."""
    low = name.lower()
    return mentioned(*dict.fromkeys((low, *(low.replace(sign, "") for sign in " -_"))))


def mentioned(*names: str) -> Marks:
    """Names, lower case, as words of their own."""
    return tuple(Mark(needle=each, pattern=_alone(each), weight=Weight.MENTIONED) for each in names)


def _alone(name: str) -> str:
    return rf"(?<![\w./-]){re.escape(name)}(?![\w/-])"
