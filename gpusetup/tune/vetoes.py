"""Why a batch must not be split otherwise in this very config, as sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.configs.settings import Setting, in_words, name_of, truth, unquoted, whole
from gpusetup.tune.case import Case
from gpusetup.tune.trainers import trainer_in

IN_BATCH = re.compile(
    r"(?i)contrastive|info_?nce|nt_?xent|multiple_?negatives|simclr|supcon|clip_?loss|siglip"
    r"|in_?batch_?neg|barlow|vicreg|byol|\bmoco\b|\bkto\b|apo_zero_unpaired"
)
"""Words of losses over pairs in one batch: their value depends on the micro-batch."""
NORM = re.compile(
    r"(?i)^(?:(?:sync_?)?bn(?:[123]d)?|(?:sync_?)?batch_?norm\w*|(?:wide_?|se_?)?resne[tx]t?\w*"
    r"|efficientnet\w*|tf_efficientnet\w*|mobilenet\w*|regnet\w*|densenet\w*|vgg\d+_bn"
    r"|(?:\w*_)?conformer|yolo\w*|inception\w*|mnasnet\w*|shufflenet\w*|hrnet\w*)$"
)
"""Values that name BatchNorm, or a model that is built with it."""
NORM_KEYS = frozenset((
    "norm", "norm_layer", "norm_type", "normalization", "type", "model", "arch", "backbone",
    "model_name", "name", "encoder_name", "encoder", "cnn_module_norm", "conv_norm_type",
))  # fmt: skip
NORM_SWITCHES = frozenset(("batch_norm", "use_batchnorm", "use_batch_norm", "batchnorm", "use_bn"))


def batchnorm(case: Case) -> Setting | None:
    """The setting that says that the model has BatchNorm; None where nothing does."""
    without = next(_named(case, "cnn_module_norm", "conv_norm_type"), None)
    for one in case.config.settings:
        name = name_of(one.path)
        if one.kind != "scalar":
            continue
        value = unquoted(one.text).rpartition(".")[2]
        if without and value.lower().endswith("conformer"):  # it says itself which norm it has
            continue
        if name.lower() in NORM_SWITCHES and truth(one):
            return one
        if name.lower() in NORM_KEYS and NORM.match(value):
            return one
    return None


def _batchnorm(case: Case, steps: int) -> str | None:
    found = batchnorm(case)
    if found is None or case.option.batchnorm:
        return None
    return (
        f"{in_words(found.path)} (line {found.line}) is {unquoted(found.text)}, which has"
        " BatchNorm: its statistics would be over other pieces. The choice is yours: keep the"
        " batch, synchronise BatchNorm over GPUs, use GroupNorm, or `--allow-batchnorm`"
    )


def _in_batch(case: Case, steps: int) -> str | None:
    for one in case.config.settings:
        words = [name_of(one.path), unquoted(one.text)[:200]]
        off = truth(one) is False or whole(one) == 0
        if one.kind == "scalar" and not off and any(map(IN_BATCH.search, words)):
            return (
                f"{in_words(one.path)} (line {one.line}) compares the samples of one batch with"
                " each other: another micro-batch is another loss"
            )
    return None


def _in_backward(case: Case, steps: int) -> str | None:
    on = [one for one in _named(case, "optimizer_in_bwd", "early_step_in_backward") if truth(one)]
    if on and steps > 1:
        return (
            f"{in_words(on[0].path)} (line {on[0].line}) steps within the backward: its trainer"
            " refuses accumulation with it"
        )
    return None


def _rate_follows(case: Case, steps: int) -> str | None:
    for one in _named(case, "enable"):
        if "auto_scale_lr" in one.path and truth(one):
            return "auto_scale_lr is on: the learning rate follows the batch of the loader"
    return None


def _generations(case: Case, steps: int) -> str | None:
    for one in _named(case, "steps_per_generation", "generation_batch_size", "num_generations"):
        if name_of(one.path) != "num_generations" and whole(one):
            return f"{in_words(one.path)} (line {one.line}) goes with the micro-batch"
    return None


def _schedule(case: Case, steps: int) -> str | None:
    for one in case.config.settings:
        if "GradientAccumulationScheduler" in one.text:
            return f"line {one.line} schedules the accumulation itself"
    return None


def _total_beside(case: Case, steps: int) -> str | None:
    """axolotl takes `batch_size` or `gradient_accumulation_steps`, never both."""
    trainer = trainer_in(case.config)
    for one in _named(case, "batch_size"):
        if trainer and trainer.name == "axolotl" and len(one.path) == 1:
            return f"batch_size (line {one.line}) is axolotl's total: it derives the accumulation"
    return None


def _shared_steps(case: Case, steps: int) -> str | None:
    """nanoGPT divides its accumulation by the number of GPUs, and asserts that it can."""
    trainer, gpus = trainer_in(case.config), max(1, case.facts.gpus)
    if trainer and trainer.name == "nanogpt" and steps % gpus:
        return f"nanoGPT shares its {steps} steps of accumulation among {gpus} GPUs"
    return None


def _together(case: Case, steps: int) -> str | None:
    return case.option.fixed_beside


COUNTED_BY = re.compile(r"(?i)^(?:numel|length|folded|dynamic|tokens?|frames?|bins)$")
BUDGETS = ("batch_bins", "max_tokens", "batch_tokens", "tokens_per_batch", "batch_frames")
"""Names of a batch that is counted in tokens, frames or elements."""


def other_unit(case: Case, batch: Setting) -> str | None:
    """Why the loader does not read this batch: it counts another unit (espnet, fairseq)."""
    for one in _named(case, "batch_type"):
        if COUNTED_BY.match(unquoted(one.text)):
            return f"batch_type (line {one.line}) is {unquoted(one.text)}: {_not_samples(case)}"
    budget = next((one for one in _named(case, *BUDGETS) if (whole(one) or 0) > 0), None)
    if budget and budget.path[:-1] == batch.path[:-1] and whole(batch) is None:
        return f"{in_words(budget.path)} (line {budget.line}) rules: {_not_samples(case)}"
    return None


def _not_samples(case: Case) -> str:
    budget = next(_named(case, *BUDGETS), None)
    by = f", by {in_words(budget.path)}" if budget else ""
    return f"the loader counts its batch in another unit than samples{by}"


def _named(case: Case, *names: str) -> Iterator[Setting]:
    return (one for one in case.config.settings if name_of(one.path) in names)


VETOES: tuple[Callable[[Case, int], str | None], ...] = (
    _together,
    _in_batch,
    _in_backward,
    _rate_follows,
    _generations,
    _schedule,
    _total_beside,
    _shared_steps,
    _batchnorm,
)


def veto(case: Case, steps: int) -> str | None:
    """The first reason against another micro-batch with so many steps of accumulation."""
    return next((said for one in VETOES if (said := one(case, steps))), None)
