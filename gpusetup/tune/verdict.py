"""What `plan` says about a config's batch on this card. Pure functions."""

from __future__ import annotations

from typing import Literal

from gpusetup.configs.config import Config
from gpusetup.configs.settings import EMPTY, name_of, names_in, switch_value, unquoted
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, for_gpus, question_of
from gpusetup.plan.decide import doubt, near_limit
from gpusetup.plan.job import BYTES, Recipe
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import job_of, shape_of_question
from gpusetup.tune.case import ConfigCase, label

BY_PLAN = "`gpusetup plan --from-config`"


class BatchVerdict(Frozen):
    """The verdict on one batch size. `tune` may write the batch without a measurement only if the
    verdict is `clear`."""

    verdict: Literal["clear", "close", "too much"]
    total_gib: float
    capacity_gib: float
    weights_gib: float
    """The least memory that the weights alone take on a GPU; no way to train needs less."""


def judge(
    from_config: FromConfig, per_gpu: int, place: Place, accumulate: int | None = None
) -> BatchVerdict:
    """Judge whether `per_gpu` sequences on each GPU fit with the config as it is, without adding
    any memory-saving recipe. `accumulate` replaces the config's gradient accumulation.

    The verdict is `clear` if enough of the card stays free (`near_limit`) and the memory model is
    well tested for such runs. It is never `too much` if something that plan does not count may save
    the memory. Raises UsageError if the config does not say enough for a plan.
    """
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or place.count or 1
    question = for_gpus(replace(from_config, per_gpu=per_gpu, total=None), gpus)
    question = replace(question, accumulate=accumulate or question.accumulate)
    job = job_of(question, shape_of_question(question), place)
    recipe = Recipe(sp=question.sp or 1)
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
    # A key that plan does not understand may need or save memory, and plan was never compared with
    # a measured run of reinforcement learning.
    not_counted = bool(from_config.read.not_understood) or from_config.question.rl is not None
    if needed > capacity * (1 + near):
        may_fit = weights <= capacity and (may_be_sharded or not_counted)
        verdict = "close" if may_fit else "too much"
    elif needed <= capacity * (1 - near) and not from_config.read.not_understood:
        verdict = "close" if doubt(job, recipe) else "clear"
    return BatchVerdict(
        verdict=verdict, total_gib=needed, capacity_gib=capacity, weights_gib=weights
    )


def verdict_on(case: ConfigCase, size: int, steps: int | None = None) -> BatchVerdict | str:
    """plan's verdict on a batch of `size` samples on a GPU; a text is the reason why plan cannot
    judge it.

    `steps`: the accumulation steps of another split of the batch, judged with the other rules'
    changes, together with which it would be written. None: the config as its owner wrote it.
    """
    config = case.config if steps is None else case.tuned or case.config
    if case.facts.card is None:
        return "the memory of the GPU is not known"
    if case.fixed_by:
        return case.fixed_by
    try:
        from_config = question_of(config)
        question = from_config.question
        if question.model is None and question.params is None:
            return "it names no model that plan knows"
        shape = shape_of_question(question)
        if question.context is None and shape.tokens is None and not shape.encoder:
            return "the config does not say how long a sequence is"
        if steps is None and from_config.per_gpu is None:
            return "its batch may be that of all GPUs together"
        if steps is None and from_config.per_gpu != size:
            return "it holds several batches"
        return judge(from_config, size, case.facts.card, steps)
    except GpuSetupError as problem:
        return problem.message


def cannot_fit(case: ConfigCase) -> str | None:
    """A sentence that explains why not even one sample fits on this card; None if one may fit.

    The answer shows this sentence first.
    """
    card, config = case.facts.card, case.tuned or case.config
    if card is None or case.fixed_by or case.measured.batch_size:
        return None
    try:
        from_config = question_of(config)
        # A length that the config does not set is at least one token.
        context = from_config.question.context or 1
        question = replace(from_config.question, context=context)
        from_config = replace(from_config, question=question)
        verdict = judge(from_config, 1, card)
        if verdict.verdict != "too much":
            return None
        need = f"a single sample needs {verdict.total_gib:.1f} GiB"
        # No way to train needs less than the weights, whatever else a key saves.
        if verdict.weights_gib > verdict.capacity_gib:
            need = f"its weights alone take {verdict.weights_gib:.1f} GiB"
        return (
            f"With these settings, the model does not fit on this card: {need}, and the card has "
            f"{verdict.capacity_gib:.1f} GiB. `gpusetup plan --from-config {case.file}` says what "
            "saves most"
        )
    except GpuSetupError:
        return None


# --- settings in other files ----------------------------------------------------------------------

DEEPSPEED_JSON = ("zero_optimization", "train_micro_batch_size_per_gpu")
"""Keys that occur only in DeepSpeed's JSON config."""
DEEPSPEED_KEYS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Keys that refer to DeepSpeed's settings; the value is a file, the name of a preset, or `true`."""


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and precision of a config must not change; None if they may.

    For example, transformers refuses to start if a config and its DeepSpeed JSON differ.
    """
    is_deepspeed_json = not names_in(config.settings).isdisjoint(DEEPSPEED_JSON)
    for setting in config.settings:
        if is_deepspeed_json and unquoted(setting.text) == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        # A map contains the settings itself.
        is_reference = setting.kind in ("scalar", "alias")
        is_off = setting.text in EMPTY or switch_value(setting) is False
        if name_of(setting.path) in DEEPSPEED_KEYS and is_reference and not is_off:
            return (
                f"DeepSpeed's own configuration, {label(setting)}, sets a batch and a precision "
                "too: change both by hand"
            )
    return None
