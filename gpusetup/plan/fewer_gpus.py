"""Finds a smaller number of GPUs that works better than using all of them, or that needs no
offload.

For example, the degree of sequence parallelism must divide the number of GPUs and of heads. So six
GPUs may only use SP=2 while four can use SP=4, and four GPUs then hold longer sequences than six.
This is the case in 28 of the 560 cells of the measured table.
"""

from __future__ import annotations

from gpusetup.model.documents import FewerGpus
from gpusetup.model.frozen import replace
from gpusetup.plan.decide import RecipeDecision, decide, max_context, sequence_degrees

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
    job, limits = decision.job, decision.limits
    solver = max_context if solve == "context" else decide

    def rank(found: RecipeDecision) -> tuple[int, ...]:
        """Larger is better."""
        length = found.job.context if solve == "context" else 0
        return (found.fits, length, found.fits and not found.shown.recipe.offload)

    best: RecipeDecision | None = None
    # With the same recipe more GPUs are faster, so the largest number comes first.
    for gpus in range(job.gpus - 1, max(job.gpus - MOST_TRIED, 0), -1):
        # The GPUs of a group share one copy of the model, and a degree that the user chose must
        # divide the smaller number too.
        if gpus % job.group_size or gpus % (limits.sp or 1):
            continue
        found = solver(replace(job, gpus=gpus), limits)
        if rank(found) <= rank(decision):
            continue
        # Among equally good numbers prefer a measured one.
        if best is None or (rank(found), found.measured) > (rank(best), best.measured):
            best = found
    if best is None:
        return None
    offloads = decision.fits and decision.shown.recipe.offload
    most, fewer = (sequence_degrees(one.job, one.limits)[-1] for one in (decision, best))
    # DataParallel uses no such degrees: its first GPU holds the outputs of all GPUs.
    reason = "Each GPU then needs less memory."
    if fewer > most:
        reason = (
            "The degree of sequence parallelism must divide both the GPUs and the "
            f"{job.shape.heads} heads: with {job.gpus} GPUs that is SP={most} at most, with "
            f"{best.job.gpus} SP={fewer}."
        )
    return FewerGpus(
        gpus=best.job.gpus,
        recipe=str(best.shown.recipe),
        context=best.job.context,
        without_offload=offloads and not best.shown.recipe.offload,
        reason=reason,
        environment={"CUDA_VISIBLE_DEVICES": visible_devices(best.job.gpus)},
    )


def visible_devices(gpus: int) -> str:
    """The first `gpus` GPUs of a machine as a value for CUDA_VISIBLE_DEVICES.

    >>> visible_devices(4)
    '0,1,2,3'
    """
    return ",".join(map(str, range(gpus)))
