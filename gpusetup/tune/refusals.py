"""Finds reasons why the batch or precision of a config must not change. Pure functions.

Another micro-batch size only leaves the experiment unchanged if nothing else depends on it: no step
count, no BatchNorm, no loss over pairs within a batch, and no second file that also sets the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Loop, is_other_phase
from gpusetup.configs.settings import (
    EMPTY,
    Setting,
    name_of,
    switch_value,
    unquoted,
    whole_number,
)
from gpusetup.tune.case import ConfigCase, label, trainer_in

# --- settings in other files ----------------------------------------------------------------------

DEEPSPEED_JSON = ("zero_optimization", "train_micro_batch_size_per_gpu")
"""Keys that occur only in DeepSpeed's JSON config."""
DEEPSPEED_KEYS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Keys that refer to DeepSpeed's settings; the value is a file, the name of a preset, or `true`."""
FILE_NAME = re.compile(r"\S{1,200}\.\w{1,9}")
BASE_FILES = "_base_"
"""mmengine's key for the config files that a config inherits from."""
OTHER_FILES = (*DEEPSPEED_KEYS, "fsdp_config", BASE_FILES)


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and precision of a config must not change; None if they may.

    For example, transformers refuses to start if a config and its DeepSpeed JSON differ.

    >>> batch_fixed_by(Config(name="train.yaml", text="", format="yaml", settings=()))
    """
    names = {name_of(setting.path) for setting in config.settings}
    is_deepspeed_json = not names.isdisjoint(DEEPSPEED_JSON)
    for setting in config.settings:
        text = unquoted(setting.text)
        if is_deepspeed_json and text == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        names_deepspeed = name_of(setting.path) in DEEPSPEED_KEYS
        if names_deepspeed and _names_settings(setting):
            # A word without a file extension names a preset that comes with a program, not a file.
            is_file = FILE_NAME.fullmatch(text) is not None
            holder = text if is_file else "DeepSpeed's own configuration"
            return f"{holder} sets a batch and a precision too: change both files by hand"
    return None


def sharded_elsewhere(case: ConfigCase) -> str | None:
    """A sentence that names the other file that decides how the model is sharded; None if no
    setting refers to such a file."""
    for setting in case.with_name(*OTHER_FILES):
        if not _names_settings(setting):
            continue
        if name_of(setting.path) == BASE_FILES:
            return f"{label(setting)} takes the other settings from another file"
        return f"{label(setting)} leaves to another file how the model is sharded"
    return None


def _names_settings(setting: Setting) -> bool:
    """Whether a setting's value refers to settings elsewhere, rather than containing them as
    a map."""
    if setting.kind == "list":
        # Only `_base_` has a list of files; `fsdp: [full_shard]` is a list of words.
        return name_of(setting.path) == BASE_FILES
    if setting.kind not in ("scalar", "alias"):
        return False
    is_switched_off = switch_value(setting) is False
    is_empty = setting.text in EMPTY
    return not is_empty and not is_switched_off


# --- counts of steps ------------------------------------------------------------------------------

STEP_COUNTS = re.compile(
    r"(?ix) (?:max|min|num|total|train|warmup|decay|save|saving|eval|val|validation|checkpoint\w*"
    r"|ckpt|lr|limit|per|every|n|test|scheduler|cooldown|stable)s?_?(?:\w*_)?(?:steps?|iters?"
    r"|iterations?|batches|updates?)(?:_per_epoch|_ratio)?$"
    r"| ^(?:steps?|iters?|iterations?|steps_per_epoch|num_steps|T_max|step_size|milestones"
    r"|val_check_interval|val_interval|(?:eval|save|checkpoint)_(?:interval|every|freq)"
    r"|overfit_batches|by_epoch)$"
    r"| ^(?:eval|save)_every\w*$"
)
"""Matches names of settings that are counted in some kind of steps."""
OTHER_COUNTS = re.compile(
    r"(?i)accum|micro|ratio|logging|log_|per_print|grad_|num_train_epochs"
    r"|^limit_(?:val|test|predict)|sanity"
)
"""Matches names that look similar but count something else."""


def step_counts(case: ConfigCase) -> Iterator[Setting]:
    """The settings that count steps; values of 0 or below, ratios and epochs are left out."""
    for setting in case.config.settings:
        name = name_of(setting.path)
        if not STEP_COUNTS.search(name) or OTHER_COUNTS.search(name):
            continue
        maps = [word for word in setting.path[:-1] if isinstance(word, str)]
        # Evaluation has a separate loader, so its steps do not depend on this batch.
        if any(map(is_other_phase, maps)):
            continue
        # With `by_epoch: false`, mmengine counts everything in iterations.
        counts_iterations = name == "by_epoch" and switch_value(setting) is False
        number = whole_number(setting) or 0
        is_positive = setting.kind == "scalar" and number > 0
        if setting.kind == "list" or counts_iterations or is_positive:
            yield setting


LONGEST_VALUE = 200
"""The number of characters of a value to look at; a longer value is a text."""


# --- the model and its loss -----------------------------------------------------------------------

CONTRASTIVE = re.compile(
    r"(?i)contrastive|info_?nce|nt_?xent|multiple_?negatives|simclr|supcon|clip_?loss|siglip"
    r"|in_?batch_?neg|barlow|vicreg|byol|\bmoco\b|\bkto\b|apo_zero_unpaired"
)
"""Matches names of losses over the pairs in a batch, whose value depends on the micro-batch."""
BATCH_NORM = re.compile(
    r"(?i)^(?:(?:sync_?)?bn(?:[123]d)?|(?:sync_?)?batch_?norm\w*|(?:wide_?|se_?)?resne[tx]t?\w*"
    r"|efficientnet\w*|tf_efficientnet\w*|mobilenet\w*|regnet\w*|densenet\w*|vgg\d+_bn"
    r"|(?:\w*_)?conformer|yolo\w*|inception\w*|mnasnet\w*|shufflenet\w*|hrnet\w*)$"
)
"""Matches values that name BatchNorm or a model that contains it."""
BATCH_NORM_KEYS = (
    "norm", "norm_layer", "norm_type", "normalization", "type", "model", "arch", "backbone",
    "model_name", "name", "encoder_name", "encoder", "cnn_module_norm", "conv_norm_type",
)  # fmt: skip
BATCH_NORM_SWITCHES = ("batch_norm", "use_batchnorm", "use_batch_norm", "batchnorm", "use_bn")
TIED_TO_MICRO_BATCH = {
    "optimizer_in_bwd": "steps within the backward pass: its trainer refuses accumulation",
    "early_step_in_backward": "steps within the backward pass: its trainer refuses accumulation",
    "steps_per_generation": "depends on the micro-batch",
    "generation_batch_size": "depends on the micro-batch",
}
"""Setting that matters if it is on or a positive number -> why the micro-batch must then not
change."""


def names_batch_norm(setting: Setting) -> bool:
    """Whether a setting switches on BatchNorm, or names a model that contains it."""
    if setting.kind != "scalar":
        return False
    name = name_of(setting.path).lower()
    if name in BATCH_NORM_SWITCHES:
        return switch_value(setting) is True
    if name not in BATCH_NORM_KEYS:
        return False
    text = unquoted(setting.text)[:LONGEST_VALUE]
    # The model's name may be the last part (`torchvision.models.resnet50`) or the first
    # (`yolo11n.pt`).
    last_word = text.rpartition(".")[2]
    first_word = text.partition(".")[0]
    return any(map(BATCH_NORM.match, (last_word, first_word)))


def has_batch_norm(case: ConfigCase) -> bool:
    """Whether any setting shows that the model has BatchNorm."""
    settings = case.config.settings
    # A single setting that shows BatchNorm is enough.
    return any(map(names_batch_norm, settings))


def refusals(case: ConfigCase) -> Iterator[str]:
    """The reasons against another micro-batch, strongest first."""
    if case.fixed_by:
        yield case.fixed_by
    for setting in case.config.settings:
        yield from _refusals_of(case, setting)
    yield from _refusals_of_counts(case)


def _refusals_of(case: ConfigCase, setting: Setting) -> Iterator[str]:
    """The reasons against another micro-batch that follow from one setting."""
    name = name_of(setting.path)
    text = unquoted(setting.text)[:LONGEST_VALUE]
    switch = switch_value(setting)
    number = whole_number(setting)
    is_off = switch is False or number == 0
    is_on = switch is True or bool(number)
    speaks_of_pairs = CONTRASTIVE.search(name) or CONTRASTIVE.search(text)
    if setting.kind == "scalar" and not is_off and speaks_of_pairs:
        yield (
            f"{label(setting)} compares the samples of one batch with each other: another "
            "micro-batch changes the loss"
        )
    if name in TIED_TO_MICRO_BATCH and is_on:
        yield f"{label(setting)} {TIED_TO_MICRO_BATCH[name]}"
    if "auto_scale_lr" in setting.path and name == "enable" and switch:
        yield "auto_scale_lr is on: the learning rate changes with the loader's batch"
    if "GradientAccumulationScheduler" in text:
        yield f"line {setting.line} schedules the accumulation itself"
    # In axolotl the top-level `batch_size` is the total batch, unlike `micro_batch_size`.
    is_top_batch = setting.path == ("batch_size",)
    if is_top_batch and _is_axolotls(case):
        yield (
            f"{label(setting)} is axolotl's total batch: axolotl derives the accumulation from it"
        )
    if names_batch_norm(setting):
        yield (
            f"{label(setting)} is {text}, which has BatchNorm: another micro-batch would "
            "change its statistics. The choice is yours: keep the batch, synchronise "
            "BatchNorm over GPUs, or use GroupNorm"
        )


def _is_axolotls(case: ConfigCase) -> bool:
    """Whether the config is for axolotl."""
    trainer = trainer_in(case.config)
    # A user's own training loop has no known trainer.
    if trainer is None:
        return False
    return trainer.name == "axolotl"


def _refusals_of_counts(case: ConfigCase) -> Iterator[str]:
    """A reason against another micro-batch for each setting that counts, or may count,
    micro-batches."""
    trainer = trainer_in(case.config) or Loop(name="this trainer")
    micro_names = trainer.micro.split()
    update_names = trainer.updates.split()
    for setting in step_counts(case):
        name = name_of(setting.path)
        may_count_either = trainer.steps == "unknown" and name not in update_names
        if name in micro_names:
            yield f"{label(setting)} counts micro-batches: change it and the batch by hand"
        # A count of updates keeps its meaning if the same effective batch is split differently.
        elif may_count_either:
            yield (
                f"{label(setting)} counts steps, but gpusetup does not know whether of "
                "micro-batches or of updates: change it and the batch by hand"
            )
