"""Solving for the unknown: the longest context, the largest batch, the fewest GPUs that fit."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.model.frozen import replace
from gpusetup.plan.answer.decide import Case, Decision, decide
from gpusetup.plan.answer.measured import longest_measured
from gpusetup.plan.memory.states import SHARDED
from gpusetup.plan.model.workload import Workload

MOST_CONTEXT = 1 << 24
MOST_BATCH = 1 << 24
MOST_GPUS = 1024


def solve(w: Workload, case: Case, unknown: str) -> Decision:
    """The decision at the best value of the unknown, or at its easiest where nothing fits."""
    return SOLVERS[unknown](w, case)


def max_context(w: Workload, case: Case) -> Decision:
    """The longest context that some recipe fits; the measured one where the table has one."""
    if case.measured_gpu and case.limits.sp is None:
        longest = longest_measured(case.measured_gpu, w)
        if longest:
            return decide(replace(w, context=longest[0]), case)
    best = _largest(lambda n: _fits(replace(w, context=n), case), MOST_CONTEXT)
    return decide(replace(w, context=max(best, 1)), case)


def max_batch(w: Workload, case: Case) -> Decision:
    """The largest batch of all GPUs together that some recipe fits."""
    best = _largest(lambda n: _fits(replace(w, batch=n), case), MOST_BATCH)
    return decide(replace(w, batch=max(best, 1)), case)


def gpus_needed(w: Workload, case: Case) -> Decision:
    """The fewest GPUs with which some recipe fits."""
    unit = w.tensor_parallel * w.pipeline_parallel * w.context_parallel * (w.shard or 1)
    last = max(_most_that_matter(w, unit) // unit, 1) * unit
    if any(_fits(replace(w, gpus=gpus), case) for gpus in _far(w, unit, last)):
        for gpus in range(unit, last + 1, unit):
            found = decide(replace(w, gpus=gpus), case)
            if found.recipe is not None:
                return found
    return decide(replace(w, gpus=max(MOST_GPUS // unit, 1) * unit), case)


def _most_that_matter(w: Workload, unit: int) -> int:
    """Where every GPU has a whole copy, no more help than there are samples."""
    if any(SHARDED[w.strategy]):
        return MOST_GPUS
    return min(unit * max(w.batch or 1, 2), MOST_GPUS)


def _far(w: Workload, unit: int, last: int) -> list[int]:
    """The numbers that leave a GPU least: the last, and the largest for each sequence degree."""
    heads = w.shape.heads // w.tensor_parallel
    degrees = [n for n in range(1, heads + 1) if heads % n == 0]
    return sorted({last, *(last // (unit * n) * unit * n or unit for n in degrees)}, reverse=True)


SOLVERS: dict[str, Callable[[Workload, Case], Decision]] = {
    "context": max_context,
    "batch": max_batch,
    "gpus": gpus_needed,
}


def _fits(w: Workload, case: Case) -> bool:
    return decide(w, case).recipe is not None


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number that fits, of a question whose answer turns to no once; 0 where none does.

    >>> _largest(lambda n: n <= 1000, 1 << 24)
    1000
    """
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
