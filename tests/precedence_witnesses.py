"""Machines on which the order of causes decides: `tests/precedence/*.json`, and what is mutated.

A row says a machine in one place: on what it is built (`healthy`, or `nothing` where nothing is
known), what is `changed` there (a path of fields and its value), and the `events` that programs
said. Then what is expected: the `root`, and all that is `wrong`, each with what explains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from judging import HEALTHY, judged

from gpusetup.diagnosis.diagnose import linked, root_of
from gpusetup.diagnosis.rules import all_rules
from gpusetup.findings.layers import SHOWS, Layer
from gpusetup.findings.record import RECORDS, Cause
from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot

FOLDER = Path(__file__).resolve().parent / "precedence"
BASES = {"healthy": HEALTHY, "nothing": Snapshot()}
Answer = tuple[str | None, dict[str, str | None]]
"""The root, and all that is wrong with what explains it."""

all_rules()  # with the rules, their records


class Witness(Frozen):
    on: str
    changed: dict[str, Any] = {}
    events: tuple[Event, ...] = ()
    root: str | None
    wrong: dict[str, str | None]

    @property
    def machine(self) -> Snapshot:
        plain = json.loads(json.dumps(to_plain(BASES[self.on])))
        for path, value in self.changed.items():
            *parents, last = path.split(".")
            part = plain
            for name in parents:
                part = part[name]
            part[last] = value
        return replace(from_plain(plain, Snapshot, what="a witness"), events=self.events)


@cache
def witnesses() -> tuple[tuple[str, Witness], ...]:
    """Every row, by its file and number."""
    rows = ((file.stem, json.loads(file.read_text())) for file in sorted(FOLDER.glob("*.json")))
    return tuple(
        (f"{stem}-{number}", from_plain(row, Witness, what=stem))
        for stem, several in rows
        for number, row in enumerate(several)
    )


def answer(findings: tuple[Finding, ...]) -> Answer:
    """What the order makes of the findings of a machine."""
    ready = linked(tuple(replace(f, explained_by=None, root=False) for f in findings))
    root = root_of(ready)
    grave = (f for f in ready if f.severity is Severity.ERROR or f.explained_by)
    return root.id if root else None, {f.id: f.explained_by for f in grave}


@cache
def found() -> tuple[tuple[tuple[Finding, ...], Answer], ...]:
    """The findings of every witness, and what is expected of them."""
    return tuple((judged(w.machine).findings, (w.root, w.wrong)) for _, w in witnesses())


# --- mutants ------------------------------------------------------------------------------------


class Mutant(Frozen):
    what: str
    records: tuple[Cause, ...] = ()
    """Those that are other than they are."""
    shows: dict[Layer, tuple[str, ...]] = {}


def mutants() -> Iterator[Mutant]:
    """One edge less, or two neighbours of the order exchanged."""
    yield from _edges()
    yield from _neighbours()
    yield from _layers()


def _edges() -> Iterator[Mutant]:
    for cause in sorted(RECORDS.values(), key=lambda cause: cause.order):
        for id in dict.fromkeys(cause.explains):
            less = tuple(one for one in cause.explains if one != id)
            yield Mutant(
                what=f"{cause.id} explains {id}", records=(_changed(cause, explains=less),)
            )
    for layer, shown in SHOWS.items():
        for id in shown:
            less = tuple(one for one in shown if one != id)
            yield Mutant(what=f"layer {layer.name} shows {id}", shows={**SHOWS, layer: less})


def _neighbours() -> Iterator[Mutant]:
    """Where the one explains the other, the edge says already which comes first; causes that
    exclude each other share a rank."""
    order = sorted((c for c in RECORDS.values() if c.place), key=lambda cause: cause.order)
    for first, second in pairwise(order):
        if _exchangeable(first, second):
            exchanged = (
                _changed(first, place=second.place),
                _changed(second, place=first.place),
            )
            yield Mutant(what=f"{first.id} before {second.id}", records=exchanged)


def _exchangeable(first: Cause, second: Cause) -> bool:
    linked_already = second.id in first.explains or first.id in second.explains
    layers = {cause.place[0] for cause in (first, second) if cause.place}
    return len(layers) == 1 and first.place != second.place and not linked_already


def _layers() -> Iterator[Mutant]:
    for one, other in pairwise(Layer):
        to = {one: other, other: one}
        moved = tuple(
            _changed(cause, place=(to[cause.place[0]], cause.place[1]))
            for cause in tuple(RECORDS.values())
            if cause.place and cause.place[0] in to
        )
        shows = {to.get(layer, layer): shown for layer, shown in SHOWS.items()}
        yield Mutant(what=f"layer {one.name} before {other.name}", records=moved, shows=shows)


def _changed(cause: Cause, **fields: Any) -> Cause:
    with _without(cause.id):
        return replace(cause, **fields)


@contextmanager
def _without(id: str) -> Iterator[None]:
    """A record's id is free for a moment: the second one of an id is refused."""
    kept = RECORDS.pop(id)
    try:
        yield
    finally:
        RECORDS[id] = kept


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    records, shows = dict(RECORDS), dict(SHOWS)
    RECORDS.update({cause.id: cause for cause in mutant.records})
    _fill(SHOWS, mutant.shows or shows)
    try:
        yield
    finally:
        RECORDS.update(records)
        _fill(SHOWS, shows)


def _fill(table: dict[Layer, tuple[str, ...]], rows: dict[Layer, tuple[str, ...]]) -> None:
    table.clear()
    table.update(rows)


def is_noticed(mutant: Mutant) -> bool:
    """Whether any witness gets another answer."""
    touched = {cause.id for cause in mutant.records}
    with mutated(mutant):
        return any(
            answer(findings) != expected
            for findings, expected in found()
            if not touched or any(finding.id in touched for finding in findings)
        )


def told() -> tuple[list[str], int]:
    """The mutants that nobody notices, and how many there are."""
    made = list(mutants())
    return [mutant.what for mutant in made if not is_noticed(mutant)], len(made)
