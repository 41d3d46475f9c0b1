"""Embedding tables of users and items: what a cache of their vectors takes, tiers of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import Limits
from gpusetup.plan.answer.decide import Case, decide
from gpusetup.plan.answer.question import Question
from gpusetup.plan.model.workload import Workload, samples_per_group

COUNTS = (8, 4, 2)
TIERS = ((9, "above 8 GB"), (4, "4 to 8 GB"), (0, "below 4 GB"))
"""Whole GB of a GPU from which on a tier begins (the multi-GPU memory guide); 8 are not above."""

NO_HEAD = "the tables take the place of the model's head: no logits over its words are counted"


def table_notes(question: Question, w: Workload, case: Case) -> Iterator[str]:
    """What the multi-GPU guide asks: cached or per-batch user vectors, 8, 4 and 2 GPUs."""
    if question.model and (question.users or question.items):
        yield NO_HEAD
    if not question.users:
        return
    width = question.embedding_dim or w.shape.hidden
    yield cache_line(question.users * width, case.limits.capacity, _free(w, case))
    yield from _counts(w, case)


def cache_line(numbers: int, capacity: float, free: float | None) -> str:
    """What a cache of so many numbers takes, and whether it leaves the GPU as much again.

    >>> cache_line(50000 * 96, 6 * GIB, 2 * GIB).partition("GPU ")[2]
    '(4 to 8 GB): `use_cache: true` is safe'
    """
    cache = numbers * 4
    advice = "compute them for each batch (`use_cache: false`)"
    if free is not None and cache <= free / 2:
        advice = "`use_cache: true` is safe"
    took = f"a cache of all user vectors takes {_size(cache)} more on each GPU"
    return f"{took} ({tier(capacity)}): {advice}"


def tier(capacity: float) -> str:
    return next(name for least, name in TIERS if round(capacity / GIB) >= least)


def _size(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


def _free(w: Workload, case: Case) -> float | None:
    found = decide(w, case)
    return case.limits.capacity - found.shown.parts.total if found.recipe else None


def _counts(w: Workload, case: Case) -> Iterator[str]:
    """The batch and the memory of each GPU with 8, 4 and 2 of them."""
    if w.batch is None or w.strategy == "single":
        return
    limits: Limits = case.limits
    rows = []
    for gpus in COUNTS:
        found = decide(replace(w, gpus=gpus), case)
        each = samples_per_group(replace(w, gpus=gpus), found.shown.recipe)
        fits = "" if found.shown.parts.total <= limits.usable else ", does not fit"
        rows.append(f"{gpus} GPUs {each:,} samples, {found.shown.parts.total / GIB:.1f} GiB{fits}")
    yield f"a GPU has, with {'; '.join(rows)}"
