"""Which program a text is about: what is built, else what a traceback runs through, else a name."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.messages.programs import PROGRAMS, of_package
from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing, Stage
from gpusetup.model.patterns import lazy

LOOKED_AT = 200_000
"""Of a text's end: there its failure stands."""
PACKAGE = lazy(r"-packages[/\\](\w{2,40})")
BUILT = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that is built here."""


def failing(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing where no mark of one is there."""
    first = max(len(text.flat) - LOOKED_AT, 0)
    shown = max(_signs(text, first), default=None)
    if shown:
        _, place, name, stage = shown
        where = text.shown(place, place + 1)
        yield Failing(program=name, stage=stage, text=where, source=text.source(place))


def _signs(text: Text, first: int) -> Iterator[tuple[int, int, str, Stage | None]]:
    """What names a program: how much that says, its place, the name, the stage."""
    for found in BUILT.finditer(text.flat, first):
        called = found[found.lastindex or 0]
        program = of_package(called)
        if called.lower() != "torch":
            yield 4, found.start(), program.name if program else called.lower(), "build"
    for found in PACKAGE.finditer(text.flat, first) if "-packages" in text.low else ():
        if program := of_package(found[1]):
            yield 3, found.start(), program.name, None
    for program, mark in ((one, mark) for one in PROGRAMS for mark in one.marks):
        if (place := text.low.rfind(mark)) >= 0:
            # A bare name counts only if the text shows nothing else, not even torch.
            yield 0 if mark == program.name.lower() else 2, place, program.name, None
    if (place := text.low.rfind("torch")) >= 0:
        yield 1, place, "torch", None
