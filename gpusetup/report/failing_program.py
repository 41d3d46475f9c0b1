"""Finds the program that a text is about."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.messages.programs import PROGRAMS, of_package
from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing, Stage
from gpusetup.model.patterns import lazy

CHARACTERS_READ = 200_000
"""The failing program is looked for in this many characters at the end of the text."""
# `.../site-packages/vllm/engine.py`.
PACKAGE_IN_PATH = lazy(r"-packages[/\\](\w{2,40})")
# `Failed building wheel for X`; `Collecting X`, then `Getting requirements to build ... error`; `pip
# install X --no-build-isolation`. Each form has a group for the package's name.
BUILT_PACKAGE = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that was being compiled on this machine."""

# The weights of the marks that tell which program failed, from the weakest to the strongest: its bare
# name anywhere in the text (weaker than the name of torch), words that only it prints, a path to one
# of its files (usually in a traceback), and its build on this machine.
BARE_NAME, TORCH_NAMED, MARK_OF_PROGRAM, PACKAGE_OF_FRAME, BUILT_HERE = range(5)
Mark = tuple[int, int, str, Stage | None]
"""Weight, position, program, stage. The greatest mark wins: by weight, then the last in the text."""


def failing_program(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing if the text names no program."""
    if best := max(_marks(text), default=None):
        _, start, name, stage = best
        quote = text.shown(start, start + 1)
        yield Failing(program=name, stage=stage, text=quote, source=text.source(start))


def _marks(text: Text) -> Iterator[Mark]:
    """All marks of programs near the end of the text."""
    first = max(len(text.flat) - CHARACTERS_READ, 0)
    for match in BUILT_PACKAGE.finditer(text.flat, first):
        package = match[match.lastindex or 0]
        program = of_package(package)
        # If torch itself is being built, no other program failed.
        if package.lower() != "torch":
            name = program.name if program else package.lower()
            yield BUILT_HERE, match.start(), name, "build"
    # The pattern is slow on long texts, and most texts have no such path.
    if "-packages" in text.low:
        for match in PACKAGE_IN_PATH.finditer(text.flat, first):
            if program := of_package(match[1]):
                yield PACKAGE_OF_FRAME, match.start(), program.name, None
    for known in PROGRAMS:
        for mark in known.marks:
            if (start := text.low.rfind(mark)) >= 0:
                weight = BARE_NAME if mark == known.name.lower() else MARK_OF_PROGRAM
                yield weight, start, known.name, None
    if (start := text.low.rfind("torch")) >= 0:
        yield TORCH_NAMED, start, "torch", None
