"""A share of the census: its samples in an order that a seed gives, for so much time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import torch

from gpusetup.verify.checks import built, census
from gpusetup.verify.checks import database as database_check
from gpusetup.verify.database import sampling as of_database
from gpusetup.verify.database.calls import exact_products
from gpusetup.verify.operators.comparing import Sample
from gpusetup.verify.operators.sampling import FAMILIES, QUICK, USED, every
from gpusetup.verify.values import FAILED, Asked, Outcome, ask_for, sticky
from gpusetup.verify.worker import raised

TURNS = 40
"""So many draws of each entry of torch's database; each is one sample, as it is or in a form."""
Unit = tuple[str, "Sample | tuple[str, int]"]
COSTLY = ("block", "long")
"""Size classes whose samples take many times as long: a round has them of one row in so many."""
COSTLY_OF = 6


def shuffled(seed: int) -> list[Unit]:
    """Every sample of every family, and draws of every entry of torch's database, whichever
    operator is faulty, in rounds: a round has one sample of each row and one of each entry."""
    chance = random.Random(f"share:{seed}")
    decks = [_deck(family, chance) for family in FAMILIES]
    rounds: dict[int, list[Unit]] = {}
    for rows in decks:
        for samples in rows:
            for place, unit in enumerate(samples):
                rounds.setdefault(place, []).append(unit)
    for name in database_check.known_to(torch):
        for turn in range(TURNS):
            rounds.setdefault(turn, []).append(("database", (name, turn)))
    for kind in built.KINDS:
        for name in built.known_to(torch, kind):
            for turn in range(TURNS):
                rounds.setdefault(turn, []).append((kind, (name, turn)))
    for units in rounds.values():
        chance.shuffle(units)
    return [unit for place in sorted(rounds) for unit in rounds[place]]


def _deck(family: str, chance: random.Random) -> list[list[Unit]]:
    """The samples of each row of a family, drawn by how often they are used; a costly one stands at
    every `COSTLY_OF`th place, from a place that is drawn, until others are used up."""
    rows: dict[str, list[Sample]] = {}
    for sample in every(family):
        rows.setdefault(sample.operator, []).append(sample)
    found: list[list[Unit]] = []
    for samples in rows.values():
        weights = {s: QUICK.get(s.size, 1) * USED.get(s.dtype, 1) for s in samples}
        order = sorted(samples, key=lambda s: -(chance.random() ** (1 / weights[s])))
        cheap = [s for s in order if s.size not in COSTLY]
        costly = [s for s in order if s.size in COSTLY]
        first = chance.randrange(COSTLY_OF)
        dealt: list[Unit] = []
        while cheap or costly:
            turn = len(dealt) % COSTLY_OF == first
            home = costly if costly and (turn or not cheap) else cheap
            dealt.append((family, home.pop(0)))
        found.append(dealt)
    return found


def wrong(seed: int, minutes: float) -> Iterator[tuple[str, Outcome]]:
    """The samples that fail in so many minutes of this process' CPU: check, and what it says."""
    for family, _, found in answers(seed, minutes):
        if found.status == FAILED:
            yield f"census-{family}", found


def answers(seed: int, minutes: float) -> Iterator[tuple[str, str, Outcome]]:
    """All samples that so many minutes of this process' CPU reach: family, name, outcome."""
    until = time.process_time() + 60 * minutes
    for family, unit in shuffled(seed):
        if time.process_time() > until:
            return
        if isinstance(unit, Sample):
            yield family, unit.name, _row(family, unit.name, seed)
            continue
        if family in built.KINDS:
            for name, outcome in _built(family, *unit, seed):
                yield family, name, outcome
            continue
        name, outcome = _entry(*unit, seed)
        if name:
            yield family, name, outcome


def _built(kind: str, name: str, turn: int, seed: int) -> Iterator[tuple[str, Outcome]]:
    """A draw of torch's modules or optimizers."""
    drawn = built.KINDS[kind].drawn(torch, built.known_to(torch, kind)[name], seed, turn)
    for each in drawn:
        yield each[0].name, _row(kind, each[0].name, seed)


def _row(family: str, name: str, seed: int) -> Outcome:
    ask_for(Asked(seed, level="census", only=(f"census-{family}/{name}",)))
    try:
        if family in built.KINDS:
            return built.built(family, "cpu")
        return census.family(family, "cpu")
    except Exception as problem:  # as the worker does
        if sticky(problem):
            raise
        return raised(problem)


def _entry(name: str, turn: int, seed: int) -> tuple[str, Outcome]:
    """The draw of an entry, judged as the check does; without making it again from its name."""
    entry = database_check.known_to(torch)[name]
    ask_for(Asked(seed, level="census"))
    try:
        with exact_products(torch):
            for asked in of_database.one(torch, "cpu", entry, seed, turn):
                return asked[0].name, database_check.outcome_of(torch, "cpu", entry, asked)
    except Exception as problem:  # as the worker does
        if sticky(problem):
            raise
    return "", Outcome("", "")
