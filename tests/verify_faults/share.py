"""A share of the census: its samples in an order that a seed gives, for so much time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from gpusetup.verify.checks import census
from gpusetup.verify.operators.comparing import Sample
from gpusetup.verify.operators.sampling import FAMILIES, every
from gpusetup.verify.values import FAILED, Asked, Outcome, ask_for, sticky
from gpusetup.verify.worker import raised


def shuffled(seed: int) -> list[tuple[str, Sample]]:
    """Every sample of every family, whichever operator is faulty."""
    found = [(family, sample) for family in FAMILIES for sample in every(family)]
    random.Random(f"share:{seed}").shuffle(found)
    return found


def wrong(seed: int, minutes: float) -> Iterator[tuple[str, Outcome]]:
    """The samples that fail in so many minutes of this process' CPU: check, and what it says."""
    until = time.process_time() + 60 * minutes
    for family, sample in shuffled(seed):
        if time.process_time() > until:
            return
        found = _one(family, sample, seed)
        if found.status == FAILED:
            yield f"census-{family}", found


def _one(family: str, sample: Sample, seed: int) -> Outcome:
    name = f"census-{family}/{sample.name}"
    ask_for(Asked(seed, level="census", only=(name,)))
    try:
        return census.family(family, "cpu")
    except Exception as problem:  # as the worker does
        if sticky(problem):
            raise
        return raised(problem)
