"""Whether a batch is *clear* for a config on a card: `tune` asks before it writes one. Pure."""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.configs.config import Config
from gpusetup.errors import UsageError
from gpusetup.model.documents import ConfigKey
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, for_gpus, question_of
from gpusetup.plan.decide import decide, doubt, near_limit
from gpusetup.plan.job import BYTES, Job, Recipe
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
    may_fit_because: str = ""
    """Why a batch that is too much may fit all the same, as the end of a sentence."""


def batch_verdict(
    config: Config,
    per_gpu: int,
    hardware: Place,
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
    job, recipe = _run(config, per_gpu, hardware, any_length=any_length, accumulate=accumulate)
    needed, capacity = memory(job, recipe).total / GIB, hardware.capacity / GIB
    verdict: Literal["clear", "close", "too much"] = "close"
    # A key that nothing has read may take memory, so no batch is sure beside it.
    is_uncounted = bool(question_of(config).read.not_understood)
    near = near_limit(job)
    leaves_enough = needed <= capacity * (1 - near)
    may_fit_because = ""
    if leaves_enough and not is_uncounted and not doubt(job, recipe):
        verdict = "clear"
    elif needed > capacity * (1 + near):
        verdict = "too much"
        may_fit_because = _why_it_may_fit(question_of(config), job, recipe, capacity)
    return BatchVerdict(
        verdict=verdict,
        total_gib=needed,
        capacity_gib=capacity,
        reason=f"by `gpusetup plan` a batch of {per_gpu} needs {needed:.1f} of {capacity:.1f} GiB",
        may_fit_because=may_fit_because,
    )


MOST_KEYS_NAMED = 3


def _why_it_may_fit(from_config: FromConfig, job: Job, recipe: Recipe, capacity_gib: float) -> str:
    """Why a run that is too large by the plan may fit all the same; "" if nothing can save enough.

    Three things are outside of what plan counts: a launcher that shards the model (accelerate's and
    DeepSpeed's settings are not in this file), keys that plan has not read (`use_badam`), and what
    its notes name (expert parallelism).
    """
    names_strategy = "strategy" in from_config.question.job_fields
    may_be_sharded = job.gpus > 1 and not names_strategy and job.copies_model
    if may_be_sharded:
        job = replace(job, strategy="fsdp")
        if memory(job, recipe).total / GIB <= capacity_gib:
            return (
                f"its launcher shards the model over the {job.gpus} GPUs (FSDP, ZeRO), which this "
                "config does not say"
            )
    # Whatever saves memory, the GPUs hold the weights: in 16 bits, or as they are quantised.
    sharing_gpus = job.gpus if may_be_sharded or job.shards_parameters or from_config.notes else 1
    bytes_per_weight = job.stored_bytes or BYTES["bf16"]
    weights_gib = job.shape.parameters * bytes_per_weight / sharing_gpus / GIB
    if weights_gib > capacity_gib:
        return ""
    if from_config.question.rl is not None:
        return "plan counts too much: it never compared such a run with a measurement"
    if from_config.notes:
        return from_config.notes[0]
    unread_keys = [key for key in from_config.read.not_understood if _may_save_memory(key)]
    if unread_keys:
        names = ", ".join(f"`{key.key}`" for key in unread_keys[:MOST_KEYS_NAMED])
        return f"a key that plan does not know saves memory ({names})"
    return ""


def _may_save_memory(key: ConfigKey) -> bool:
    """Whether a key could switch on something that saves memory: a switch, a number or a word.

    Paths, names on a hub, special tokens and the items of a list are none of these.
    """
    is_list_item = key.key.endswith("]")
    is_off = key.value.lower() in ("false", "no", "off", "0", "none", "null", "")
    is_plain = re.fullmatch(r"[A-Za-z_]+|\d+(?:\.\d+)?", key.value) is not None
    return is_plain and not is_off and not is_list_item


def _run(
    config: Config, per_gpu: int, hardware: Place, *, any_length: bool, accumulate: int | None
) -> tuple[Job, Recipe]:
    """The run as the config has it."""
    from_config = question_of(config)
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or hardware.count or 1
    question = for_gpus(replace(from_config, per_gpu=per_gpu, total=None), gpus)
    question = replace(question, accumulate=accumulate or question.accumulate)
    shape = shape_of_question(question)
    if question.context is None and shape.tokens is None and not shape.encoder:
        if not any_length:
            raise UsageError("The config does not say how long a sequence is")
        question = replace(question, context=1)
    return job_of(question, shape, hardware.limits()), Recipe(sp=question.sp or 1)


def ways_to_fit(config: Config, hardware: Place, accumulate: int | None = None) -> tuple[str, ...]:
    """What would make one sequence on each GPU fit, by the plan's own answer."""
    job, _ = _run(config, 1, hardware, any_length=True, accumulate=accumulate)
    decision = decide(job, hardware.limits(predict=True))
    steps = (one.step for one in helps(decision) if one.recipe)
    return (
        (f"the recipe {decision.recipe} of `gpusetup plan`",) if decision.recipe else tuple(steps)
    )
