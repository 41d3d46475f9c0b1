"""What `plan` says about a config's batch on this card. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from gpusetup.configs.config import Config
from gpusetup.configs.keys import is_switched_off, key_of
from gpusetup.configs.settings import (
    EMPTY,
    Setting,
    dotted,
    name_of,
    names_in,
    switch_value,
    unquoted,
)
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, for_gpus, question_of
from gpusetup.plan.decide import (
    Decision,
    adapters,
    decide,
    doubt,
    near_limit,
    same_training,
    together,
)
from gpusetup.plan.job import BYTES, Recipe, TrainingJob
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import job_of, shape_of_question
from gpusetup.plan.trainers import changed_settings
from gpusetup.tune.case import ConfigCase, label

BY_PLAN = "`gpusetup plan --from-config`"
MOST_NAMED = 3
"""How many keys, or ways to make a model fit, a sentence names."""


class BatchVerdict(Frozen):
    """The verdict on one batch size. `tune` may write the batch without a measurement only if the
    verdict is `clear`."""

    verdict: Literal["clear", "close", "too much"]
    total_gib: float
    capacity_gib: float
    weights_gib: float
    """The least memory that the weights alone take on a GPU; no way to train needs less."""
    may_fit_because: str = ""
    """Why a batch that is `too much` may still fit, as a clause; "" if there is no reason."""


def judge(
    from_config: FromConfig, per_gpu: int, place: Place, accumulate: int | None = None
) -> BatchVerdict:
    """Judge whether `per_gpu` sequences on each GPU fit with the config as it is, without adding
    any memory-saving recipe. `accumulate` replaces the config's gradient accumulation.

    The verdict is `clear` if enough of the card stays free (`near_limit`) and the memory model is
    well tested for such runs. Raises UsageError if the config does not say enough for a plan.
    """
    job, recipe = _job_of(from_config, per_gpu, place, accumulate)
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
    names = ", ".join(f"`{key}`" for key in keys[:MOST_NAMED])
    return f"plan does not know how much memory {names} may save" if keys else ""


def _job_of(
    from_config: FromConfig, per_gpu: int, place: Place, accumulate: int | None = None
) -> tuple[TrainingJob, Recipe]:
    """The job and recipe that the config describes with this batch; UsageError if the config sets
    a budget of tokens and no batch."""
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or place.count or 1
    question = for_gpus(replace(from_config, per_gpu=per_gpu, total=None), gpus)
    question = replace(question, accumulate=accumulate or question.accumulate)
    shape = shape_of_question(question)
    return job_of(question, shape, place), Recipe(sp=question.sp or 1)


def verdict_on(case: ConfigCase, size: int, steps: int | None = None) -> BatchVerdict | str:
    """plan's verdict on a batch of `size` samples on a GPU; a text is the reason why plan cannot
    judge it.

    `steps`: the accumulation steps of another split of the batch, judged with the other rules'
    changes, together with which it would be written. None: the config as its owner wrote it.
    """
    config = case.config if steps is None else case.tuned or case.config
    if case.facts.card is None:
        return "the memory of the GPU is not known"
    elsewhere = sharded_elsewhere(case)
    if elsewhere:
        return elsewhere
    try:
        from_config = question_of(config)
        question = from_config.question
        if question.model is None and question.params is None:
            return "it names no model that plan knows"
        shape = shape_of_question(question)
        if question.context is None and shape.tokens is None and not shape.encoder:
            return "the config does not say how long a sequence is, so plan would only assume it"
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
    if card is None or sharded_elsewhere(case) or case.measured.batch_size:
        return None
    try:
        from_config = question_of(config)
        # A length that the config does not set is at least one token.
        context, size = from_config.question.context, from_config.per_gpu
        question = replace(from_config.question, context=context or 1)
        from_config = replace(from_config, question=question)
        verdict, own = judge(from_config, 1, card), judge(from_config, size or 1, card)
        # A batch of 1 within the margin of error may fit, but not if it is above the card's memory
        # and the config's own batch is far above it.
        is_over = own.verdict == "too much" and verdict.total_gib > verdict.capacity_gib
        if not (verdict.verdict == "too much" or is_over) or verdict.may_fit_because:
            return None
        need = f"a single sample needs {verdict.total_gib:.1f} GiB"
        if context is None:
            need = f"even a sample of one token needs {verdict.total_gib:.1f} GiB"
        # No way to train needs less than the weights, whatever else a key saves.
        if verdict.weights_gib > verdict.capacity_gib:
            need = f"its weights alone take {verdict.weights_gib:.1f} GiB"
        return (
            f"With these settings, the model does not fit on this card: {need}, and the card has "
            f"{verdict.capacity_gib:.1f} GiB. {_how_to_fit(case, question_of(config), card)}"
        )
    except GpuSetupError:
        return None


def _how_to_fit(case: ConfigCase, from_config: FromConfig, card: Place) -> str:
    """A sentence with up to three ways to make one sample fit, as keys of this config if its
    trainer's keys are known; checkpointing comes first, because it trains the same."""
    job, _ = _job_of(from_config, 1, card)
    # Use the memory model alone, as `judge` did; a measured run may say something else.
    place = replace(card, predict=True)
    start = f"With sequences of {job.context:,} tokens"
    for setting in case.with_role("batch")[:1]:
        start += f" and `{dotted(setting.path)}: 1`"

    def sentence(how: str, decisions: Iterable[Decision]) -> str:
        is_close = any(decision.close_because for decision in decisions)
        fits = "may fit" if is_close or from_config.read.not_understood else "fits"
        return f"{start}, it {fits} with {how}"

    decision = decide(job, place)
    if decision.fits:
        return sentence(f"the recipe {decision.recipe} of {BY_PLAN}", [decision])
    changes = same_training(job) | adapters(job)
    first = ""
    if "checkpointing" in changes:
        # Checkpointing trains the same, so set it in any case.
        fields = changes.pop("checkpointing")
        first = _as_settings(case, from_config, job, "checkpointing", fields)
        job = replace(job, **fields)
        decision = decide(job, place)
        if decision.fits:
            return sentence(first, [decision])
        first += " and "
    alone: dict[tuple[str, ...], Decision] = {
        (name,): decide(replace(job, **changes[name]), place) for name in changes
    }
    enough = [names for names, changed in alone.items() if changed.fits][:MOST_NAMED]
    found = {names: alone[names] for names in enough} or dict(together(job, place, changes))
    if not found:
        return f"{BY_PLAN} says what saves most"
    ways = [
        " and ".join(_as_settings(case, from_config, job, name, changes[name]) for name in names)
        for names in found
    ]
    one_of = "one of: " if len(ways) > 1 else ""
    return sentence(f"{first}{one_of}{'; '.join(ways)}", found.values())


def _as_settings(
    case: ConfigCase, from_config: FromConfig, job: TrainingJob, name: str, fields: dict[str, Any]
) -> str:
    """A change in words, with the keys that make it in this config if plan knows them."""
    settings = changed_settings(from_config.read.trainer, job, replace(job, **fields))
    for setting in case.config.settings if name == "checkpointing" else ():
        key = key_of(setting.path)
        if key is not None and key.role == "checkpoints":
            settings = {dotted(setting.path): True}
    written = ", ".join(
        f"`{key}: {str(value).lower() if isinstance(value, bool) else value}`"
        for key, value in settings.items()
    )
    return f"{name} ({written})" if written else name


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
        if name_of(setting.path) in DEEPSPEED_KEYS and _names_settings(setting):
            return (
                f"DeepSpeed's own configuration, {label(setting)}, sets a batch and a precision "
                "too: change both by hand"
            )
    return None


def sharded_elsewhere(case: ConfigCase) -> str | None:
    """A sentence that names the other file that decides how the model is sharded; None if no
    setting refers to such a file."""
    for setting in case.with_name(*DEEPSPEED_KEYS, "fsdp_config"):
        if _names_settings(setting):
            return f"{label(setting)} leaves to another file how the model is sharded"
    return None


def _names_settings(setting: Setting) -> bool:
    """Whether a value refers to settings elsewhere, rather than containing them as a map."""
    is_plain = setting.kind in ("scalar", "alias")
    return is_plain and setting.text not in EMPTY and switch_value(setting) is not False
