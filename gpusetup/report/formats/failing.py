"""Which program a text is about, and at what it failed: the mark that says most, the last of equals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from gpusetup.messages.program import Mark, Program, Weight
from gpusetup.messages.programs import LIBRARIES, PROGRAMS, of_package
from gpusetup.model.failing import Failing, Stage
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.text import Text

LOOKED_AT = 200_000
"""Of a text's end: there its failure stands."""
PACKAGES = "-packages"
PACKAGE = lazy(r"[/\\](\w{2,40})")
FOLDERS = ("comfy", "vllm", "sglang", "cupy", "cupy_backends")
"""Packages that also run from a folder of their own."""
FOLDER = lazy(rf"[/\\]({'|'.join(FOLDERS)})(?=[/\\])")
"""A file of a package, in a traceback or a loader's message: behind `site-packages`, or such a folder."""
BUILT = lazy(
    r"(?:Failed to (?:download and )?build:? `|Failed building wheel for |Building wheel for "
    r"|Could not build wheels for |subprocess to build )(?P<built>[A-Za-z][\w.-]{1,40})"
    r"|Collecting (?P<collected>[A-Za-z][\w.-]{1,40})[^\0]{0,400}?"
    r"(?:Getting requirements to build|Preparing metadata|setup\.py egg_info)[^\0]{0,80}?error"
    r"|pip3? install (?:--no-build-isolation (?P<asked>[A-Za-z][\w.-]{1,40})|(?P<first>[A-Za-z][\w.-]{1,40}) --no-build-isolation)"
)
"""A package that is built here."""
WARNED = lazy(r"[^\s'\"]{1,200}\.py:\d{1,6}: \w*Warning:")
"""A file that only warns, which other programs' texts hold as well."""
WORKS = lazy(
    r"(?i)[\w.+-]{2,30}(?:,? (?:and|or) [\w ]{2,30}?)? (?:all |both )?(?:works?|worked|runs?|ran|is|are)"
    r" (?:just |perfectly |totally )?(?:fine|well|ok|okay|great|perfectly|flawlessly)\b"
)
"""A program's name, and that it works."""
BESIDE = (Weight.MENTIONED, Weight.NOTICE, Weight.NAMED)
"""Marks by which a text may know a program that did not fail."""
NAMES = (Weight.MENTIONED, Weight.NAMED)
"""Marks that may stand in somebody's own sentence."""
MARKS = tuple((program.name, mark) for program in PROGRAMS for mark in program.marks)


class Sign(NamedTuple):
    """One place that names a program."""

    weight: Weight
    place: int
    name: str
    stage: Stage | None


def failing(text: Text) -> Iterator[Failing]:
    """The program that failed; nothing where no mark of one is there."""
    signs = list(_signs(text))
    if not signs:
        return
    best = max(signs, key=_order)
    stage = best.stage or _stage_of(best.name, signs)
    end = min(best.place + 200, len(text.flat))
    shown = text.shown(best.place, best.place + 1) or text.flat[best.place : end]
    yield Failing(program=best.name, stage=stage, text=shown, source=text.source(best.place))


def _stage_of(name: str, signs: list[Sign]) -> Stage | None:
    """The stage that a weaker mark of the same program shows."""
    known = [sign for sign in signs if sign.name == name and sign.stage]
    return max(known, key=_order).stage if known else None


def _order(sign: Sign) -> tuple[Weight, int]:
    return sign.weight, sign.place


def _signs(text: Text) -> Iterator[Sign]:
    for name, mark in MARKS:
        if (place := _place(text, mark)) >= 0:
            yield Sign(mark.weight, place, name, mark.stage)
    yield from _traced(text)
    yield from _built(text)


def _place(text: Text, mark: Mark) -> int:
    """The last place of a mark, or -1."""
    place = text.low.rfind(mark.needle)
    if place < 0 or not mark.pattern:
        return place
    pattern = in_any_case(mark.pattern)
    found = (
        start + one.start()
        for start, window in text.near(mark.needle)
        for one in pattern.finditer(window)
    )
    return max(found, default=-1)


def _traced(text: Text) -> Iterator[Sign]:
    """The packages whose files a traceback goes through."""
    first = max(len(text.flat) - LOOKED_AT, 0)
    for place, name in _packages(text, first):
        program = of_package(name)
        if program is not None:
            weight = _of_frame(program)
            if weight is Weight.TRACED and WARNED.match(text.flat, place):
                weight = Weight.NOTICE
            yield Sign(weight, place, program.name, None)


def _packages(text: Text, first: int) -> Iterator[tuple[int, str]]:
    """What stands behind `site-packages/`, and where: found by its letters, which is quick."""
    at = text.low.find(PACKAGES, first)
    while at >= 0:
        if (found := PACKAGE.match(text.flat, at + len(PACKAGES))) is not None:
            yield at, found.group(1)
        at = text.low.find(PACKAGES, at + 1)


def _of_frame(program: Program) -> Weight:
    return Weight.UNDER_ALL if program.name in LIBRARIES else Weight.TRACED


def _built(text: Text) -> Iterator[Sign]:
    """The package whose build a text shows: more than any word that the build prints."""
    first = max(len(text.flat) - LOOKED_AT, 0)
    for found in BUILT.finditer(text.flat, first):
        name = next(filter(None, found.groups()))
        program = of_package(name)
        if program is None or program.name != "torch":
            called = program.name if program else name.lower()
            yield Sign(Weight.BUILT, found.start(), called, "build")


def told_by(events: tuple[Event, ...], failing: Failing) -> Failing:
    """The program whose own message says that it failed, where none but torch is named else.

    >>> said = Event(kind="program-failed", values={"program": "uv", "stage": "install"})
    >>> told_by((said,), Failing()).stage
    'install'
    """
    if failing.program not in (None, "torch"):
        return failing
    kinds = "program-failed" if failing.program else ""
    own = (e for e in events if e.kind.startswith(kinds) and e.values.get("program"))
    event = next(own, None)
    if event is None:
        return failing
    stage = event.values.get("stage") or event.values.get("step") or failing.stage
    program, known = event.values["program"], cast("Stage | None", stage)
    return Failing(program=program, stage=known, text=event.text, source=event.source)
