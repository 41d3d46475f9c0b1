"""Why a batch must not be split otherwise in this very config, as sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Loop, not_training
from gpusetup.configs.settings import Setting, name_of, truth, unquoted, whole
from gpusetup.tune.case import Case, place, trainer_in

COUNTS = re.compile(
    r"(?ix) (?:max|min|num|total|train|warmup|decay|save|saving|eval|val|validation|checkpoint\w*"
    r"|ckpt|lr|limit|per|every|n|test|scheduler|cooldown|stable)s?_?(?:\w*_)?(?:steps?|iters?"
    r"|iterations?|batches|updates?)(?:_per_epoch|_ratio)?$"
    r"| ^(?:steps?|iters?|iterations?|steps_per_epoch|num_steps|T_max|step_size|milestones"
    r"|val_check_interval|val_interval|(?:eval|save|checkpoint)_(?:interval|every|freq)"
    r"|overfit_batches|by_epoch)$"
    r"| ^(?:eval|save)_every\w*$"
)
"""Names of what is counted in steps of some kind."""
NOT_COUNTED = re.compile(
    r"(?i)accum|micro|ratio|logging|log_|per_print|grad_|num_train_epochs"
    r"|^limit_(?:val|test|predict)|sanity"
)


def counted(case: Case) -> Iterator[Setting]:
    """The settings whose number is a count of steps (0, -1, ratios and epochs are none)."""
    for one in case.config.settings:
        name, around = name_of(one.path), [word for word in one.path[:-1] if isinstance(word, str)]
        if not COUNTS.search(name) or NOT_COUNTED.search(name) or any(map(not_training, around)):
            continue
        by_steps = name == "by_epoch" and truth(one) is False
        if one.kind == "list" or by_steps or (one.kind == "scalar" and (whole(one) or 0) > 0):
            yield one


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
NORM_KEYS = (
    "norm", "norm_layer", "norm_type", "normalization", "type", "model", "arch", "backbone",
    "model_name", "name", "encoder_name", "encoder", "cnn_module_norm", "conv_norm_type",
)  # fmt: skip
NORM_SWITCHES = ("batch_norm", "use_batchnorm", "use_batch_norm", "batchnorm", "use_bn")
GOES_WITH = {
    "optimizer_in_bwd": "steps within the backward: its trainer refuses accumulation with it",
    "early_step_in_backward": "steps within the backward: its trainer refuses accumulation with it",
    "steps_per_generation": "goes with the micro-batch",
    "generation_batch_size": "goes with the micro-batch",
}
"""Setting, where it is on or a number -> what it says against another micro-batch."""


def refusals(case: Case) -> Iterator[str]:
    """The reasons against another micro-batch, in the order of their weight."""
    if case.fixed:
        yield case.fixed
    trainer = trainer_in(case.config)
    for one in case.config.settings:
        name, text = name_of(one.path), unquoted(one.text)[:200]
        on = truth(one) is not False and whole(one) != 0 and one.kind == "scalar"
        if on and (IN_BATCH.search(name) or IN_BATCH.search(text)):
            yield (
                f"{place(one)} compares the samples of one batch with each other: another"
                " micro-batch is another loss"
            )
        if name in GOES_WITH and (truth(one) or whole(one)):
            yield f"{place(one)} {GOES_WITH[name]}"
        if "auto_scale_lr" in one.path and name == "enable" and truth(one):
            yield "auto_scale_lr is on: the learning rate follows the batch of the loader"
        if "GradientAccumulationScheduler" in text:
            yield f"line {one.line} schedules the accumulation itself"
        if one.path == ("batch_size",) and trainer and trainer.name == "axolotl":
            yield f"{place(one)} is axolotl's total: it derives the accumulation"
        said = name.lower() in NORM_KEYS and NORM.match(text.rpartition(".")[2])
        if one.kind == "scalar" and (said or (name.lower() in NORM_SWITCHES and truth(one))):
            yield (
                f"{place(one)} is {text}, which has BatchNorm: its statistics would be over other"
                " pieces. The choice is yours: keep the batch, synchronise BatchNorm over GPUs,"
                " or use GroupNorm"
            )
    loop = trainer or Loop(name="this trainer")
    for one in counted(case):
        name = name_of(one.path)
        if name in loop.micro.split():
            yield f"{place(one)} counts micro-batches: change both by hand"
        elif loop.steps == "unknown" and name not in loop.updates.split():
            yield (
                f"{place(one)} counts steps, and whether these are micro-batches or updates is not"
                " known here: change both by hand"
            )


# --- the other file that holds a batch and a precision too ----------------------------------------

DEEPSPEED = ("zero_optimization", "train_micro_batch_size_per_gpu")


def fixed_by_another(config: Config) -> str | None:
    """Why the batch and the precision of a config must stay: an HF config and its DeepSpeed JSON
    must agree, or the trainer refuses to start. None if they may change.

    >>> fixed_by_another(Config(name="train.yaml", text="", format="yaml", settings=()))
    """
    own = not {name_of(one.path) for one in config.settings}.isdisjoint(DEEPSPEED)
    for one in config.settings:
        text = unquoted(one.text)
        if own and text == "auto":
            return f"{place(one)} is auto: the trainer's own config decides"
        if one.path == ("deepspeed",) and ".json" in text:
            return f"{text} holds a batch and a precision too: change both by hand"
    return None
