"""A share of the census: its samples in an order that a seed gives, for so much time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import torch

from gpusetup.verify.checks import built, census
from gpusetup.verify.checks import database as database_check
from gpusetup.verify.database import sampling as of_database
from gpusetup.verify.operators.comparing import Sample
from gpusetup.verify.operators.sampling import FAMILIES, every
from gpusetup.verify.values import FAILED, Asked, Outcome, ask_for, sticky
from gpusetup.verify.worker import raised

TURNS = 40
"""So many draws of each entry of torch's database; each has two samples."""
Unit = tuple[str, "Sample | tuple[str, int]"]


def shuffled(seed: int) -> list[Unit]:
    """Every sample of every family, and draws of every entry of torch's database, whichever
    operator is faulty."""
    found: list[Unit] = [(family, sample) for family in FAMILIES for sample in every(family)]
    known = database_check.known_to(torch)
    found += [("database", (name, n)) for name in known for n in range(TURNS)]
    for kind in built.KINDS:
        found += [(kind, (name, n)) for name in built.known_to(torch, kind) for n in range(TURNS)]
    random.Random(f"share:{seed}").shuffle(found)
    return found


def wrong(seed: int, minutes: float) -> Iterator[tuple[str, Outcome]]:
    """The samples that fail in so many minutes of this process' CPU: check, and what it says."""
    until = time.process_time() + 60 * minutes
    for family, unit in shuffled(seed):
        if time.process_time() > until:
            return
        for name in _names(family, unit, seed):
            found = _one(family, name, seed)
            if found.status == FAILED:
                yield f"census-{family}", found


def _names(family: str, unit: object, seed: int) -> list[str]:
    if isinstance(unit, Sample):
        return [unit.name]
    assert isinstance(unit, tuple)
    if family in built.KINDS:
        known = built.known_to(torch, family)
        asked_of = built.KINDS[family].drawn(torch, known[unit[0]], seed, unit[1])
        return [each[0].name for each in asked_of]
    entry = database_check.known_to(torch)[unit[0]]
    drawn = of_database.drawn(torch, "cpu", entry, seed, unit[1])
    return list({sample.name for sample, _ in drawn})


def _one(family: str, name: str, seed: int) -> Outcome:
    ask_for(Asked(seed, level="census", only=(f"census-{family}/{name}",)))
    try:
        if family == "database":
            return database_check.database("cpu")
        if family in built.KINDS:
            return built.built(family, "cpu")
        return census.family(family, "cpu")
    except Exception as problem:  # as the worker does
        if sticky(problem):
            raise
        return raised(problem)
