"""Solving for the unknown: the longest context, the largest batch, the fewest GPUs that fit."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.model.frozen import replace
from gpusetup.plan.answer.decide import Case, Decision, decide
from gpusetup.plan.answer.measured import longest_measured
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
    unit = w.tensor_parallel * w.pipeline_parallel * (w.shard or 1)
    for gpus in range(unit, MOST_GPUS + 1, unit):
        found = decide(replace(w, gpus=gpus), case)
        if found.recipe is not None:
            return found
    return decide(replace(w, gpus=max(MOST_GPUS // unit, 1) * unit), case)


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
