"""Decides whether a batch size certainly fits on a card with a given config; `tune` calls this
before it writes a batch into the config. Pure functions."""

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
from gpusetup.plan.job import BYTES, Recipe, TrainingJob
from gpusetup.plan.job_of_question import job_of
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import shape_of_question
from gpusetup.plan.savings import helps


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


def batch_verdict(
    config: Config,
    per_gpu: int,
    hardware: Place,
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
    run = ConfigRun(per_gpu=per_gpu, any_length=any_length, accumulate=accumulate)
    from_config = question_of(config)
    job, recipe = _job_of_run(from_config, run, hardware)
    needed = memory(job, recipe).total / GIB
    capacity = hardware.capacity / GIB
    near = near_limit(job)
    # If there are notes, assume sharding, because a note may name a way to shard weights that plan
    # does not count.
    divided = _may_be_sharded(from_config, job) or job.shards_parameters or bool(from_config.notes)
    weights = _least_weights_gib(job, divided=divided)
    verdict: Literal["clear", "close", "too much"] = "close"
    may_fit_because = ""
    if needed > capacity * (1 + near):
        verdict = "too much"
        may_fit_because = _why_it_may_fit(from_config, job, recipe, capacity, weights)
    elif needed <= capacity * (1 - near) and _is_counted(from_config, job, recipe):
        verdict = "clear"
    return BatchVerdict(
        verdict=verdict,
        total_gib=needed,
        capacity_gib=capacity,
        weights_gib=weights,
        reason=f"by `gpusetup plan` a batch of {per_gpu} needs {needed:.1f} of {capacity:.1f} GiB",
        may_fit_because=may_fit_because,
    )


class ConfigRun(Frozen):
    """How to run a config: the batch on each GPU, and options that replace its settings."""

    per_gpu: int
    any_length: bool
    accumulate: int | None


def _is_counted(from_config: FromConfig, job: TrainingJob, recipe: Recipe) -> bool:
    """Whether the plan counts everything in this run that needs memory."""
    # A key that plan does not understand may need memory, so no batch size is certain.
    if from_config.read.not_understood:
        return False
    return doubt(job, recipe) is None


MOST_KEYS_NAMED = 3


def _may_be_sharded(from_config: FromConfig, job: TrainingJob) -> bool:
    """Whether a launcher may shard the model over several GPUs, which the config does not say."""
    names_strategy = "strategy" in from_config.question.job_fields
    return job.gpus > 1 and not names_strategy and job.copies_model


def _why_it_may_fit(
    from_config: FromConfig,
    job: TrainingJob,
    recipe: Recipe,
    capacity_gib: float,
    weights_gib: float,
) -> str:
    """Why a run that is too large according to plan may still fit; "" if nothing known could save
    enough memory.

    Plan cannot see three things: a launcher that shards the model (accelerate and DeepSpeed have
    their own config files), keys that it does not understand (`use_badam`), and features that its
    notes name (expert parallelism).
    """
    if _may_be_sharded(from_config, job):
        sharded = replace(job, strategy="fsdp")
        if memory(sharded, recipe).total / GIB <= capacity_gib:
            return (
                f"it fits only if its launcher shards the model over the {job.gpus} GPUs (FSDP, "
                "ZeRO), which this config does not say"
            )
    if weights_gib > capacity_gib:
        return ""
    if from_config.question.rl is not None:
        return "plan was never compared with a measured run of this method"
    if from_config.notes:
        return from_config.notes[0]
    keys = [key.key for key in from_config.read.not_understood if _may_save_memory(key)]
    if not keys:
        return ""
    names = ", ".join(f"`{key}`" for key in keys[:MOST_KEYS_NAMED])
    return f"plan does not know how much memory {names} may save"


def _least_weights_gib(job: TrainingJob, *, divided: bool) -> float:
    """The minimum memory in GiB for the weights on one GPU: 16 bits each, or less if they are
    quantised. `divided`: whether the weights are sharded over the GPUs."""
    bytes_per_weight = job.stored_bytes or BYTES["bf16"]
    weights = job.shape.parameters * bytes_per_weight
    # Divide by the number of GPUs at most, because together they hold at least one copy of the
    # weights.
    if divided:
        weights /= job.gpus
    return weights / GIB


def _may_save_memory(key: ConfigKey) -> bool:
    """Whether a config key that plan does not know could save memory, because its value is a
    number, a word or a switch that is on.

    So values such as paths, hub ids and special tokens do not count; items of a list never do.
    """
    is_list_item = key.key.endswith("]")
    if is_list_item:
        return False
    value = key.value.lower()
    is_off = value in ("false", "no", "off", "0", "none", "null", "")
    is_plain = re.fullmatch(r"[A-Za-z_]+|\d+(?:\.\d+)?", key.value)
    return bool(is_plain) and not is_off


def _job_of_run(
    from_config: FromConfig, run: ConfigRun, hardware: Place
) -> tuple[TrainingJob, Recipe]:
    """The job and recipe that the config describes with this batch; UsageError if the config gives
    no batch or no sequence length."""
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or hardware.count or 1
    with_batch = replace(from_config, per_gpu=run.per_gpu, total=None)
    question = for_gpus(with_batch, gpus)
    if run.accumulate:
        question = replace(question, accumulate=run.accumulate)
    shape = shape_of_question(question)
    has_length = shape.tokens is not None or shape.encoder
    if question.context is None and not has_length:
        if not run.any_length:
            raise UsageError("The config does not say how long a sequence is")
        question = replace(question, context=1)
    job = job_of(question, shape, hardware.limits())
    return job, Recipe(sp=question.sp or 1)


def ways_to_fit(config: Config, hardware: Place, accumulate: int | None = None) -> tuple[str, ...]:
    """Short phrases that name what would make a batch of one sequence per GPU fit, according to
    plan; empty if nothing would."""
    run = ConfigRun(per_gpu=1, any_length=True, accumulate=accumulate)
    from_config = question_of(config)
    job, _ = _job_of_run(from_config, run, hardware)
    limits = hardware.limits(predict=True)
    decision = decide(job, limits)
    if decision.recipe:
        return (f"the recipe {decision.recipe} of `gpusetup plan`",)
    # No recipe fits, so suggest only changes that are enough on their own.
    enough = [help.step for help in helps(decision) if help.recipe]
    return tuple(enough)
