"""Finds the program that a text is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpusetup.messages.programs import PROGRAMS, Program, of_package
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

# The weights of the marks that tell which program failed, from the weakest to the strongest.
BARE_NAME = 0
"""The program's name anywhere in the text. It is weaker than the name of torch, so it counts only
if torch is not named."""
TORCH_NAMED = 1
MARK_OF_PROGRAM = 2
"""Weight of words that only this program prints."""
PACKAGE_OF_FRAME = 3
"""A path to one of the package's files, usually in a traceback."""
BUILT_HERE = 4


class ProgramMark(NamedTuple):
    """Words that name the failing program. The mark with the highest weight wins; among equal
    weights, the last one in the text."""

    weight: int
    start: int
    name: str
    stage: Stage | None


def failing_program(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing if the text names no program."""
    marks = _program_marks(text)
    best_mark = max(marks, default=None)
    if best_mark:
        start = best_mark.start
        yield Failing(
            program=best_mark.name,
            stage=best_mark.stage,
            text=text.shown(start, start + 1),
            source=text.source(start),
        )


def _program_marks(text: Text) -> Iterator[ProgramMark]:
    """All marks of programs near the end of the text."""
    first = max(len(text.flat) - CHARACTERS_READ, 0)
    for match in BUILT_PACKAGE.finditer(text.flat, first):
        package_name = match[match.lastindex or 0]
        program = of_package(package_name)
        # If torch itself is being built, no other program failed.
        if package_name.lower() != "torch":
            name = program.name if program else package_name.lower()
            yield ProgramMark(BUILT_HERE, match.start(), name, "build")
    # The pattern is slow on long texts, and most texts have no such path.
    if "-packages" in text.low:
        for match in PACKAGE_IN_PATH.finditer(text.flat, first):
            program = of_package(match[1])
            if program:
                yield ProgramMark(PACKAGE_OF_FRAME, match.start(), program.name, None)
    for known_program in PROGRAMS:
        yield from _marks_of(known_program, text)
    torch_start = text.low.rfind("torch")
    if torch_start >= 0:
        yield ProgramMark(TORCH_NAMED, torch_start, "torch", None)


def _marks_of(program: Program, text: Text) -> Iterator[ProgramMark]:
    """The last position of each mark of a program."""
    for mark in program.marks:
        start = text.low.rfind(mark)
        if start < 0:
            continue
        is_bare_name = mark == program.name.lower()
        weight = BARE_NAME if is_bare_name else MARK_OF_PROGRAM
        yield ProgramMark(weight, start, program.name, None)
