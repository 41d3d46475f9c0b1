"""Which program a text is about, and at what it failed: the mark that says most, the last of equals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from gpusetup.messages.program import Mark, Weight
from gpusetup.messages.programs import LIBRARIES, PROGRAMS, of_package
from gpusetup.messages.row import FAILED
from gpusetup.messages.search import Index
from gpusetup.model.failing import Failing, Stage
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.text import Text

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
MARKS = Index(
    ((program.name, mark), (mark.needle,)) for program in PROGRAMS for mark in program.marks
)


class Sign(NamedTuple):
    """One place that names a program."""

    weight: Weight
    place: int
    name: str
    stage: Stage | None


def failing(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing where no mark of one is there."""
    signs = sorted(_signs(text), key=lambda sign: (sign.weight, sign.place))
    if signs:
        best = signs[-1]
        stages = [sign.stage for sign in signs if sign.name == best.name and sign.stage]
        stage = best.stage or (stages[-1] if stages else None)
        shown = text.shown(best.place, best.place + 1)
        source = text.source(best.place)
        yield Failing(program=best.name, stage=stage, text=shown, source=source)


def _signs(text: Text) -> Iterator[Sign]:
    for name, mark in MARKS.rows_in(text):
        if (place := _place(text, mark)) >= 0:
            yield Sign(mark.weight, place, name, mark.stage)
    first = max(len(text.flat) - LOOKED_AT, 0)
    for found in PACKAGE.finditer(text.flat, first) if "-packages" in text.low else ():
        if (program := of_package(found[1])) is not None:
            weight = Weight.UNDER_ALL if program.name in LIBRARIES else Weight.TRACED
            yield Sign(weight, found.start(), program.name, None)
    # The package whose build a text shows: more than any word that the build prints.
    for found in BUILT.finditer(text.flat, first):
        name = found[found.lastindex or 0]
        program = of_package(name)
        called = program.name if program else name.lower()
        if called != "torch":
            yield Sign(Weight.BUILT, found.start(), called, "build")


def _place(text: Text, mark: Mark) -> int:
    """The last place of a mark, or -1."""
    if not mark.pattern:
        return text.low.rfind(mark.needle)
    found = (
        start + one.start()
        for start, window in text.near(mark.needle)
        for one in in_any_case(mark.pattern).finditer(window)
    )
    return max(found, default=-1)


def told_by(events: tuple[Event, ...], failing: Failing) -> Failing:
    """The program whose own message says that it failed, where none but torch is named else.

    >>> said = Event(kind=FAILED, values={"program": "uv", "stage": "install"})
    >>> told_by((said,), Failing()).stage
    'install'
    """
    if failing.program not in (None, "torch"):
        return failing
    kinds = FAILED if failing.program else ""
    own = (e for e in events if e.kind.startswith(kinds) and e.values.get("program"))
    event = next(own, None)
    if event is None:
        return failing
    stage = event.values.get("stage") or event.values.get("step") or failing.stage
    program, known = event.values["program"], cast("Stage | None", stage)
    return Failing(program=program, stage=known, text=event.text, source=event.source)
