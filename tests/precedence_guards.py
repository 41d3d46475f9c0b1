"""Guards that may be an order of causes in disguise, and whether any recorded material needs them.

A guard is one call of `is_report` or `says_nothing_else`, or one row of a table of events that
silence a rule. Its mutants: the call answers always yes, or always no; the row is gone.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from judging import judged
from machines_named import snapshots
from message_samples import samples
from precedence_witnesses import witnesses
from report_classes_all import EVERY
from report_messages import MESSAGES

import gpusetup
from gpusetup.diagnosis.diagnose import Diagnosis
from gpusetup.evidence import context as questions
from gpusetup.findings.driver import presence
from gpusetup.findings.makers import gpu_maker
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.report.read import read_report

PACKAGE = Path(gpusetup.__file__).parent
GUARDS = ("is_report", "says_nothing_else")
TABLES = (
    (gpu_maker, "STOPS_EARLIER"),
    (gpu_maker, "LOOKED_FOR_CUDA"),
    (presence, "FAILS_WITHOUT_GPU"),
    (questions, "BESIDE_THE_POINT"),
)
Answer = tuple[str, tuple[Finding, ...], str | None]


class Call(Frozen):
    """A guard where it is asked."""

    module: str
    function: str
    line: int
    guard: str

    @property
    def place(self) -> str:
        return f"{self.module.removeprefix('gpusetup.')}.{self.function}:{self.line} {self.guard}"


@cache
def calls() -> tuple[Call, ...]:
    """Every guard in the rules, what they share, and the judgement."""
    rooms = ("evidence", "findings", "fixes", "diagnosis")
    files = chain.from_iterable(sorted((PACKAGE / room).rglob("*.py")) for room in rooms)
    return tuple(call for file in files for call in _calls_of(file))


def _calls_of(file: Path) -> Iterator[Call]:
    module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for function in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in GUARDS
            ):
                yield Call(module=module, function=function.name, line=node.lineno,
                           guard=node.func.id)  # fmt: skip


# --- the material -------------------------------------------------------------------------------


@cache
def material() -> tuple[Snapshot, ...]:
    """The recorded machines, the witnesses of the order, and what the texts of the tests say."""
    classes = chain.from_iterable((*one.variants, *one.neighbours) for one in EVERY.values())
    texts = dict.fromkeys(
        (*(text for _, text in MESSAGES), *(one.text for one in samples()), *classes)
    )
    return (
        *snapshots().values(),
        *(witness.machine for _, witness in witnesses()),
        *map(read_report, texts),
    )


def _answer(diagnosis: Diagnosis) -> Answer:
    return diagnosis.cause, diagnosis.findings, diagnosis.proof


Asked = dict[Call, dict[bool, list[int]]]


@cache
def baseline() -> tuple[tuple[Answer, ...], Asked]:
    """What is answered about each machine, and which calls said yes or no there."""
    asked: Asked = {call: {True: [], False: []} for call in calls()}
    answers = []
    with _watched(asked) as number:
        for number[0], machine in enumerate(material()):
            answers.append(_answer(judged(machine)))
    return tuple(answers), asked


@contextmanager
def _watched(asked: Asked) -> Iterator[list[int]]:
    at = {(call.module, call.line, call.guard): call for call in asked}
    number = [0]

    def watch(module: str, name: str, guard: Callable[..., bool]) -> Callable[..., bool]:
        def answer(*given: Any) -> bool:
            said = guard(*given)
            call = at[module, sys._getframe(1).f_lineno, name]
            asked[call][said].append(number[0])
            return said

        return answer

    names = {(call.module, call.guard) for call in asked}
    with _patched(
        (module, name, watch(module.__name__, name, getattr(module, name)))
        for module, name in ((importlib.import_module(m), g) for m, g in sorted(names))
    ):
        yield number


@contextmanager
def _patched(values: Iterable[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    replaced = [(module, name, getattr(module, name), value) for module, name, value in values]
    for module, name, _, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, before, _ in replaced:
            setattr(module, name, before)


# --- mutants ------------------------------------------------------------------------------------


def guards_told() -> tuple[list[str], int]:
    """The mutants that no material notices, and how many there are."""
    made = [*_mutants_of_calls(), *_mutants_of_tables()]
    return [what for what, noticed in made if not noticed], len(made)


def _mutants_of_calls() -> Iterator[tuple[str, bool]]:
    for call, said in baseline()[1].items():
        for always in (True, False):
            where = dict.fromkeys(said[not always])
            yield f"{call.place} is always {always}", _noticed(where, _constant(call, always))


def _constant(call: Call, always: bool) -> tuple[ModuleType, str, Any]:
    module = importlib.import_module(call.module)
    guard = getattr(module, call.guard)

    def answer(*given: Any) -> bool:
        return always if sys._getframe(1).f_lineno == call.line else guard(*given)

    return module, call.guard, answer


def _mutants_of_tables() -> Iterator[tuple[str, bool]]:
    for module, name in TABLES:
        rows = getattr(module, name)
        for row in rows:
            without = tuple(one for one in rows if one != row)
            where = [
                number
                for number, machine in enumerate(material())
                if any(event.kind == row for event in machine.events)
            ]
            yield f"{name} without {row}", _noticed(where, (module, name, without))


def _noticed(where: Iterable[int], patch: tuple[ModuleType, str, Any]) -> bool:
    with _patched([patch]):
        return any(_answer(judged(material()[n])) != baseline()[0][n] for n in where)
