"""Finds a smaller number of GPUs that works better than using all of them, or that needs no
offload.

For example, the degree of sequence parallelism must divide the number of GPUs and of heads. So six
GPUs may only use SP=2 while four can use SP=4, and four GPUs then hold longer sequences than six.
This is the case in 28 of the 560 cells of the measured table.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.documents import FewerGpus
from gpusetup.model.frozen import replace
from gpusetup.plan.decide import RecipeDecision, decide, group_size, max_context, sequence_degrees

MOST_TRIED = 8
"""How many smaller numbers of GPUs to try; a node usually has eight GPUs."""


def better_with_fewer(decision: RecipeDecision, solve: str | None) -> FewerGpus | None:
    """A smaller number of GPUs that works better than using all of them; None if there is none.

    A smaller number is better if the job fits only on it, if it avoids offload (which costs the
    most speed), or, if `solve` is `context`, if it allows a longer context.
    """
    # If plan solves for `gpus`, its answer already is the smallest number; the largest batch needs
    # all GPUs.
    if solve in ("gpus", "batch"):
        return None
    best: RecipeDecision | None = None
    for smaller in smaller_numbers(decision, solve):
        if rank(smaller, solve) <= rank(decision, solve):
            continue
        # Among equally good numbers prefer a measured one, then the largest, which comes first.
        if best is None or rank_with_source(smaller, solve) > rank_with_source(best, solve):
            best = smaller
    if best is None:
        return None
    all_need_offload = decision.fits and decision.shown.recipe.offload
    return FewerGpus(
        gpus=best.job.gpus,
        recipe=str(best.shown.recipe),
        context=best.job.context,
        without_offload=all_need_offload and not best.shown.recipe.offload,
        reason=reason(decision, best),
        environment={"CUDA_VISIBLE_DEVICES": visible_devices(best.job.gpus)},
    )


def smaller_numbers(decision: RecipeDecision, solve: str | None) -> Iterator[RecipeDecision]:
    """The decisions for the same job on fewer GPUs. The largest number comes first, because with
    the same recipe more GPUs are faster."""
    job, limits = decision.job, decision.limits
    solver = max_context if solve == "context" else decide
    fewest = max(job.gpus - MOST_TRIED, 0)
    for gpus in range(job.gpus - 1, fewest, -1):
        # Only whole groups can be removed, because the GPUs of a group share one copy of the model.
        if gpus % group_size(job) != 0:
            continue
        # If the user chose a degree, it must divide the smaller number of GPUs too.
        if limits.sp is not None and gpus % limits.sp != 0:
            continue
        smaller_job = replace(job, gpus=gpus)
        yield solver(smaller_job, limits)


def rank(decision: RecipeDecision, solve: str | None) -> tuple[int, ...]:
    """A sort key for a decision, where larger is better: whether the job fits, its context (if the
    longest is wanted), and whether it needs no offload."""
    fits = decision.fits
    length = 0
    if solve == "context":
        length = decision.job.context
    needs_no_offload = fits and not decision.shown.recipe.offload
    return (int(fits), length, int(needs_no_offload))


def rank_with_source(decision: RecipeDecision, solve: str | None) -> tuple[int, ...]:
    """The rank of a decision, which prefers a measured decision to an equal prediction."""
    plain_rank = rank(decision, solve)
    is_measured = int(decision.measured)
    return (*plain_rank, is_measured)


def reason(all_gpus: RecipeDecision, fewer: RecipeDecision) -> str:
    """A sentence that explains why fewer GPUs work better than all of them."""
    most_with_all = sequence_degrees(all_gpus.job, all_gpus.limits)[-1]
    most_with_fewer = sequence_degrees(fewer.job, fewer.limits)[-1]
    if most_with_fewer <= most_with_all:
        return "Each GPU then needs less memory."
    heads = all_gpus.job.shape.heads
    return (
        f"The degree of sequence parallelism must divide both the GPUs and the {heads} heads: "
        f"with {all_gpus.job.gpus} GPUs that is SP={most_with_all} at most, with "
        f"{fewer.job.gpus} SP={most_with_fewer}."
    )


def visible_devices(gpus: int) -> str:
    """The first `gpus` GPUs of a machine as a value for CUDA_VISIBLE_DEVICES.

    >>> visible_devices(4)
    '0,1,2,3'
    """
    numbers = range(gpus)
    return ",".join(map(str, numbers))
