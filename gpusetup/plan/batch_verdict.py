"""Whether a batch is *clear* for a config on a card: `tune` asks before it writes one. Pure."""

from __future__ import annotations

from typing import Literal

from gpusetup.configs.config import Config
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import for_gpus, question_of
from gpusetup.plan.decide import decide, doubt, near_limit
from gpusetup.plan.job import Job, Recipe
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import job_of, shape_of_question
from gpusetup.plan.savings import helps


class BatchVerdict(Frozen):
    """The answer for one batch. Only `clear` allows that it is written unmeasured."""

    verdict: Literal["clear", "close", "too much"]
    total_gib: float
    capacity_gib: float
    reason: str
    """One sentence."""


def batch_verdict(
    config: Config,
    per_gpu: int,
    place: Place,
    *,
    any_length: bool = False,
    accumulate: int | None = None,
) -> BatchVerdict:
    """Whether so many sequences on each GPU are sure to fit as the config is, with no recipe added.

    `clear`: a fifth of the card stays free beyond what the plan says, and such runs are known well
    enough. `any_length` takes one token if no length is said; `accumulate` other steps than the
    config has. UsageError if the config does not say enough for a plan, or fills a budget of
    tokens.
    """
    job, recipe = _run(config, per_gpu, place, any_length=any_length, accumulate=accumulate)
    needed, capacity = memory(job, recipe).total / GIB, place.capacity / GIB
    verdict: Literal["clear", "close", "too much"] = "close"
    # A key that nothing has read may take memory, so no batch is sure beside it.
    is_uncounted = bool(question_of(config).read.not_understood)
    near = near_limit(job)
    leaves_enough = needed <= capacity * (1 - near)
    if leaves_enough and not is_uncounted and not doubt(job, recipe):
        verdict = "clear"
    elif needed > capacity * (1 + near):
        verdict = "too much"
    return BatchVerdict(
        verdict=verdict,
        total_gib=needed,
        capacity_gib=capacity,
        reason=f"by `gpusetup plan` a batch of {per_gpu} needs {needed:.1f} of {capacity:.1f} GiB",
    )


def _run(
    config: Config, per_gpu: int, place: Place, *, any_length: bool, accumulate: int | None
) -> tuple[Job, Recipe]:
    """The run as the config has it."""
    from_config = question_of(config)
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or place.count or 1
    question = for_gpus(replace(from_config, per_gpu=per_gpu, total=None), gpus)
    question = replace(question, accumulate=accumulate or question.accumulate)
    shape = shape_of_question(question)
    if question.context is None and shape.tokens is None and not shape.encoder:
        if not any_length:
            raise UsageError("The config does not say how long a sequence is")
        question = replace(question, context=1)
    return job_of(question, shape, place.limits()), Recipe(sp=question.sp or 1)


def ways_to_fit(config: Config, place: Place, accumulate: int | None = None) -> tuple[str, ...]:
    """What would make one sequence on each GPU fit, by the plan's own answer."""
    job, _ = _run(config, 1, place, any_length=True, accumulate=accumulate)
    decision = decide(job, place.limits(predict=True))
    steps = (one.step for one in helps(decision) if one.recipe)
    return (
        (f"the recipe {decision.recipe} of `gpusetup plan`",) if decision.recipe else tuple(steps)
    )
