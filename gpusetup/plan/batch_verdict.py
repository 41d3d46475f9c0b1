"""Decides whether a batch size certainly fits on a card with a given config; `tune` calls this
before it writes a batch into the config. Pure functions."""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.configs.config import Config
from gpusetup.configs.keys import is_switched_off
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, for_gpus, question_of
from gpusetup.plan.decide import decide, doubt, helps, near_limit
from gpusetup.plan.job import BYTES, Recipe, TrainingJob
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import job_of, shape_of_question


class BatchVerdict(Frozen):
    """The verdict on one batch size. `tune` may write the batch without a measurement only if the
    verdict is `clear`."""

    verdict: Literal["clear", "close", "too much"]
    total_gib: float
    capacity_gib: float
    reason: str
    """One sentence with the memory that the batch needs, and the GPU's memory."""
    weights_gib: float
    """The least memory that the weights alone take on a GPU; no way to train needs less."""
    may_fit_because: str = ""
    """Why a batch that is `too much` may still fit, as a clause; "" if there is no reason."""


MOST_KEYS_NAMED = 3


def batch_verdict(
    config: Config,
    per_gpu: int,
    place: Place,
    *,
    any_length: bool = False,
    accumulate: int | None = None,
) -> BatchVerdict:
    """Judge whether `per_gpu` sequences on each GPU fit with the config as it is, without adding
    any memory-saving recipe.

    The verdict is `clear` if enough of the card stays free (`near_limit`) and the memory model is
    well tested for such runs. `any_length` plans with one token if the config sets no length;
    `accumulate` replaces the config's gradient accumulation. Raises UsageError if the config does
    not say enough for a plan, or if it sets a token budget instead of a batch.
    """
    from_config = question_of(config)
    job, recipe = _job_of(from_config, per_gpu, place, any_length, accumulate)
    needed, capacity = memory(job, recipe).total / GIB, place.capacity / GIB
    near = near_limit(job)
    # A launcher may shard the model over several GPUs, which the config does not say.
    names_strategy = "strategy" in from_config.question.job_fields
    may_be_sharded = job.gpus > 1 and not names_strategy and job.copies_model
    # No way to train needs less than 16 bits a weight, or the bytes of a quantised one.
    weights = job.shape.parameters * (job.stored_bytes or BYTES["bf16"]) / GIB
    if may_be_sharded or job.shards_parameters:
        weights /= job.gpus
    verdict: Literal["clear", "close", "too much"] = "close"
    may_fit_because = ""
    if needed > capacity * (1 + near):
        verdict = "too much"
        sharded = memory(replace(job, strategy="fsdp"), recipe).total / GIB
        if may_be_sharded and sharded <= capacity:
            may_fit_because = (
                f"it fits only if its launcher shards the model over the {job.gpus} GPUs (FSDP, "
                "ZeRO), which this config does not say"
            )
        elif weights <= capacity:
            may_fit_because = _uncounted_saving(from_config)
    # A key that plan does not understand may need memory, so no batch size is certain.
    elif needed <= capacity * (1 - near) and not from_config.read.not_understood:
        verdict = "close" if doubt(job, recipe) else "clear"
    return BatchVerdict(
        verdict=verdict,
        total_gib=needed,
        capacity_gib=capacity,
        weights_gib=weights,
        reason=f"by `gpusetup plan` a batch of {per_gpu} needs {needed:.1f} of {capacity:.1f} GiB",
        may_fit_because=may_fit_because,
    )


def _uncounted_saving(from_config: FromConfig) -> str:
    """What in a config may save memory that plan does not count, such as keys that it does not
    understand (`use_badam`); "" for none."""
    if from_config.question.rl is not None:
        return "plan was never compared with a measured run of this method"
    # Only a number, a word or a switch that is on may save memory, not a path, a hub id or an item
    # of a list.
    keys = [
        key.key
        for key in from_config.read.not_understood
        if re.fullmatch(r"[A-Za-z_]+|\d+(?:\.\d+)?", key.value)
        and not (key.key.endswith("]") or is_switched_off(key.value))
    ]
    names = ", ".join(f"`{key}`" for key in keys[:MOST_KEYS_NAMED])
    return f"plan does not know how much memory {names} may save" if keys else ""


def _job_of(
    from_config: FromConfig, per_gpu: int, place: Place, any_length: bool, accumulate: int | None
) -> tuple[TrainingJob, Recipe]:
    """The job and recipe that the config describes with this batch; UsageError if the config gives
    no batch or no sequence length."""
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
    return job_of(question, shape, place), Recipe(sp=question.sp or 1)


def ways_to_fit(config: Config, place: Place) -> tuple[str, ...]:
    """Short phrases that name what would make a batch of one sequence per GPU fit, according to
    plan; empty if nothing would."""
    job, _ = _job_of(question_of(config), 1, place, True, None)
    decision = decide(job, replace(place, predict=True))
    if decision.fits:
        return (f"the recipe {decision.recipe} of `gpusetup plan`",)
    # No recipe fits, so suggest only changes that are enough on their own.
    return tuple(help.step for help in helps(decision) if help.recipe)
