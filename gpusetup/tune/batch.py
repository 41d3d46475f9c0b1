"""Batch times accumulation: another split of the same effective batch. Pure.

A micro-batch is changed only by what was measured here, or by what `plan` calls clear for this very
config on this card. If something else goes with the batch, the change is refused with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Loop, is_other_phase
from gpusetup.configs.settings import (
    Setting,
    dotted,
    name_of,
    names_in,
    switch_value,
    unquoted,
    whole_number,
)
from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.batch_verdict import BatchVerdict, batch_verdict, ways_to_fit
from gpusetup.plan.config import question_of
from gpusetup.plan.place import Place
from gpusetup.tune.case import (
    MEASURED,
    Case,
    DoesNotFit,
    Suggestion,
    Why,
    add_key,
    change_value,
    label,
    not_a_number,
    trainer_in,
)
from gpusetup.tune.grow import grown_batch, larger_batch_in_words

BY_PLAN = "`gpusetup plan --from-config`"
MEASURE_IT = "`gpusetup tune --batch-size --code MODULE:FUNCTION` measures it"
LARGEST_EFFECTIVE = 1 << 16
OTHER_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "fsdp_config", "_base_")
PREFERENCE = frozenset((
    "beta", "pref_beta", "loss_type", "precompute_ref_log_probs", "ref_model", "reference_free",
    "rpo_alpha", "desirable_weight", "max_prompt_length", "num_generations", "reward_funcs",
    "num_generations_per_prompt",
))  # fmt: skip
"""Names of preference training, whose pairs, references and generations the plan does not count."""


# --- what plan says of it -----------------------------------------------------------------------


def other_file_decides(case: Case) -> bool:
    """Whether another file says how the model is sharded or offloaded, or what stands below."""
    return any("." in one.text for one in case.with_name(*OTHER_FILES))


def _plan_verdict(case: Case, size: int, steps: int | None = None) -> BatchVerdict | None:
    """What plan says of a batch with so many steps of accumulation (None: as the config has it).

    None if plan knows too little.
    """
    card, config = case.facts.card, case.config if steps is None else case.tuned or case.config
    try:
        from_config = question_of(config)
        if card is None or from_config.notes or other_file_decides(case):
            return None
        if names_in(config.settings) & PREFERENCE or (
            steps is None and from_config.per_gpu != size
        ):
            return None
        return batch_verdict(config, size, card, accumulate=steps)
    except GpuSetupError:
        return None


def cannot_fit(case: Case) -> str | None:
    """What to say first of all if not even one sample of the model fits, whatever the other
    changes save."""
    card, config = case.facts.card, case.tuned or case.config
    if card is None or other_file_decides(case) or case.measured.batch_size:
        return None
    try:
        one = batch_verdict(config, 1, card, any_length=True)
        if one.verdict != "too much":
            return None
        return (
            "This model with these settings does not fit on this card: a single sample needs "
            f"{one.total_gib:.1f} of {one.capacity_gib:.1f} GiB. {_how_to_fit(config, card)}"
        )
    except GpuSetupError:
        return None


def _how_to_fit(config: Config, card: Place, steps: int | None = None) -> str:
    ways = "; ".join(ways_to_fit(config, card, steps)[:3])
    return f"What makes it fit: {ways}" if ways else f"{BY_PLAN} says what saves most"


# --- each batch ---------------------------------------------------------------------------------


class Split(Frozen):
    """One batch in its config: what it is, and what goes with it."""

    setting: Setting
    size: int
    partner: Setting | None
    steps: int
    """Of accumulation; 0 if several batches share one."""
    derived: bool
    """Whether a global batch in the same map lets the trainer derive the accumulation."""

    @property
    def effective(self) -> int:
        return self.size * self.steps

    @property
    def name(self) -> str:
        return dotted(self.setting.path)


SAMPLE_UNITS = ("sample", "samples", "sents", "sentence", "static")


def split_batches(case: Case) -> Iterator[Suggestion]:
    """Each batch with its accumulation: another split of the same effective batch."""
    units = (
        one
        for one in case.with_name("batch_type")
        if unquoted(one.text).lower() not in SAMPLE_UNITS
    )
    unit = next(units, None)
    for setting, key in case.keyed:
        size = whole_number(setting)
        if key.role != "batch":
            continue
        if unit:
            yield (
                f"{label(setting)} stays as it is, because {label(unit)} counts "
                f"{unquoted(unit.text)}"
            )
        elif not size or size < 1:
            yield not_a_number(setting)
        else:
            split = _split_of(case, setting, size)
            suggestions = list(_better_split(case, split)) if key.written else []
            yield from suggestions or _why_unchanged(case, split)


def _split_of(case: Case, setting: Setting, size: int) -> Split:
    """The accumulation that goes with a batch is in the same map, else the only one there is."""
    parent, steps_settings = setting.path[:-1], case.with_role("accumulation")
    same_map = [one for one in steps_settings if one.path[:-1] == parent]
    derived = not same_map and any(one.path[:-1] == parent for one in case.with_role("total"))
    partners = same_map or ([] if derived else steps_settings)
    partner = partners[0] if len(partners) == 1 else None
    steps = (whole_number(partner) or 0) if partner else 1
    if partner and not same_map and len(case.with_role("batch")) > 1:
        steps = 0
    return Split(setting=setting, size=size, partner=partner, steps=steps, derived=derived)


def _why_unchanged(case: Case, split: Split) -> Iterator[str]:
    """Why a batch stays."""
    if not case.facts.gpus:
        return
    verdict = _plan_verdict(case, split.size)
    why = f"{BY_PLAN} cannot judge this config. {MEASURE_IT}"
    if case.measured.batch_size:
        why = f"{case.measured.batch_size} ran ({MEASURED})"
    elif case.fixed_by or other_file_decides(case):
        why = case.fixed_by or "another file says how the model is sharded"
    elif verdict:
        why = verdict.reason + (f". {MEASURE_IT}" if verdict.verdict == "close" else "")
    yield f"{split.name} stays {split.size}: {why}"


def _better_split(case: Case, split: Split) -> Iterator[Suggestion]:
    """Another split, or why not; nothing if it is as it should be."""
    measured, effective = case.measured.batch_size, split.effective
    if measured is None:
        if split.steps and not other_file_decides(case) and len(case.with_role("batch")) == 1:
            yield from _split_by_plan(case, split)
        return
    if measured > effective > 0:
        if case.measured.grows:
            yield from grown_batch(case, split, measured)
            return
        yield larger_batch_in_words(split, measured)
    largest = min(measured, effective)
    micro = next(divisors(effective, largest), 0)
    if split.size == measured:
        return
    if not micro or micro * 4 < largest:
        partner = f", with {dotted(split.partner.path)}" if split.partner else ""
        yield f"{split.name} is {split.size}, {MEASURED} {measured} ran: by hand{partner}"
    elif micro != split.size:
        yield from _change_split(case, split, micro, MEASURED)


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of a number up to a size, the largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    return (size for size in range(min(most, number), 0, -1) if number % size == 0)


def _split_by_plan(case: Case, split: Split) -> Iterator[Suggestion]:
    """The largest clear split; a batch that is close is left as it is."""
    current = _plan_verdict(case, split.size)
    if current is None or current.verdict == "close" or split.effective > LARGEST_EFFECTIVE:
        return
    sizes = divisors(split.effective, split.effective)
    verdicts = ((size, _plan_verdict(case, size, split.effective // size)) for size in sizes)
    best = next((size for size, one in verdicts if one and one.verdict == "clear"), None)
    if best is None:
        one, card, way = _plan_verdict(case, 1, split.effective), case.facts.card, MEASURE_IT
        if one and card and one.total_gib > one.capacity_gib:
            enough = _how_to_fit(case.config, card, split.effective)
            way = f"Even 1 takes {one.total_gib:.1f} GiB. {enough}"
        problem = f"{split.name}: {current.reason}, and no smaller batch is sure to fit. {way}"
        yield DoesNotFit(problem)
    elif best != split.size:
        yield from _change_split(case, split, best, f"{BY_PLAN}, clear on this card")


def _change_split(case: Case, split: Split, micro: int, source: str) -> list[Suggestion]:
    """The same effective batch in other pieces: the batch and its accumulation, or why not."""
    steps = split.effective // micro
    pieces = f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"
    for reason in refusals(case):
        return [f"{split.name} stays {split.size} ({pieces} by {source}): {reason}"]
    reason = f"{pieces} keeps the effective batch of {split.effective} on a GPU"
    if split.derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    why = Why(reason=f"{reason}; only BatchNorm would compute other statistics", source=source)
    changes = [*change_value(case, split.setting, str(micro), why)]
    if split.partner:
        changes += change_value(case, split.partner, str(steps), why)
    elif steps > 1 and not split.derived:
        added = add_key(case, "accumulation", str(steps), why)
        if not added:
            return [
                f"{split.name} is {split.effective}; {source} says {micro} with {steps} steps of "
                "accumulation. The config has no known accumulation key, so gpusetup writes "
                "nothing: a smaller batch alone is another experiment"
            ]
        changes += added
    return [part for part in changes if isinstance(part, str)] or changes


# --- what is against another split ----------------------------------------------------------------

STEP_COUNTS = re.compile(
    r"(?ix) (?:max|min|num|total|train|warmup|decay|save|saving|eval|val|validation|checkpoint\w*"
    r"|ckpt|lr|limit|per|every|n|test|scheduler|cooldown|stable)s?_?(?:\w*_)?(?:steps?|iters?"
    r"|iterations?|batches|updates?)(?:_per_epoch|_ratio)?$"
    r"| ^(?:steps?|iters?|iterations?|steps_per_epoch|num_steps|T_max|step_size|milestones"
    r"|val_check_interval|val_interval|(?:eval|save|checkpoint)_(?:interval|every|freq)"
    r"|overfit_batches|by_epoch)$"
    r"| ^(?:eval|save)_every\w*$"
)
"""Names of what is counted in steps of some kind."""
OTHER_COUNTS = re.compile(
    r"(?i)accum|micro|ratio|logging|log_|per_print|grad_|num_train_epochs"
    r"|^limit_(?:val|test|predict)|sanity"
)


def step_counts(case: Case) -> Iterator[Setting]:
    """The settings whose number is a count of steps (0, -1, ratios and epochs are none)."""
    for setting in case.config.settings:
        name, around = (
            name_of(setting.path),
            [word for word in setting.path[:-1] if isinstance(word, str)],
        )
        if (
            not STEP_COUNTS.search(name)
            or OTHER_COUNTS.search(name)
            or any(map(is_other_phase, around))
        ):
            continue
        by_steps = name == "by_epoch" and switch_value(setting) is False
        if (
            setting.kind == "list"
            or by_steps
            or (setting.kind == "scalar" and (whole_number(setting) or 0) > 0)
        ):
            yield setting


CONTRASTIVE = re.compile(
    r"(?i)contrastive|info_?nce|nt_?xent|multiple_?negatives|simclr|supcon|clip_?loss|siglip"
    r"|in_?batch_?neg|barlow|vicreg|byol|\bmoco\b|\bkto\b|apo_zero_unpaired"
)
"""Words of losses over pairs in one batch: their value depends on the micro-batch."""
BATCH_NORM = re.compile(
    r"(?i)^(?:(?:sync_?)?bn(?:[123]d)?|(?:sync_?)?batch_?norm\w*|(?:wide_?|se_?)?resne[tx]t?\w*"
    r"|efficientnet\w*|tf_efficientnet\w*|mobilenet\w*|regnet\w*|densenet\w*|vgg\d+_bn"
    r"|(?:\w*_)?conformer|yolo\w*|inception\w*|mnasnet\w*|shufflenet\w*|hrnet\w*)$"
)
"""Values that name BatchNorm, or a model that is built with it."""
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
"""Setting, where it is on or a number -> what it says against another micro-batch."""


def refusals(case: Case) -> Iterator[str]:
    """The reasons against another micro-batch, in the order of their weight."""
    if case.fixed_by:
        yield case.fixed_by
    trainer = trainer_in(case.config)
    for setting in case.config.settings:
        name, text = name_of(setting.path), unquoted(setting.text)[:200]
        is_off = switch_value(setting) is False or whole_number(setting) == 0
        is_on = setting.kind == "scalar" and not is_off
        if is_on and (CONTRASTIVE.search(name) or CONTRASTIVE.search(text)):
            yield (
                f"{label(setting)} compares the samples of one batch with each other: another "
                "micro-batch changes the loss"
            )
        if name in TIED_TO_MICRO_BATCH and (switch_value(setting) or whole_number(setting)):
            yield f"{label(setting)} {TIED_TO_MICRO_BATCH[name]}"
        if "auto_scale_lr" in setting.path and name == "enable" and switch_value(setting):
            yield "auto_scale_lr is on: the learning rate changes with the loader's batch"
        if "GradientAccumulationScheduler" in text:
            yield f"line {setting.line} schedules the accumulation itself"
        if setting.path == ("batch_size",) and trainer and trainer.name == "axolotl":
            yield (
                f"{label(setting)} is axolotl's total batch: axolotl derives the accumulation "
                "from it"
            )
        names_batch_norm = name.lower() in BATCH_NORM_KEYS and BATCH_NORM.match(
            text.rpartition(".")[2]
        )
        if setting.kind == "scalar" and (
            names_batch_norm or (name.lower() in BATCH_NORM_SWITCHES and switch_value(setting))
        ):
            yield (
                f"{label(setting)} is {text}, which has BatchNorm: another micro-batch would "
                "change its statistics. The choice is yours: keep the batch, synchronise "
                "BatchNorm over GPUs, or use GroupNorm"
            )
    trainer_loop = trainer or Loop(name="this trainer")
    for setting in step_counts(case):
        name = name_of(setting.path)
        if name in trainer_loop.micro.split():
            yield f"{label(setting)} counts micro-batches: change it and the batch by hand"
        elif trainer_loop.steps == "unknown" and name not in trainer_loop.updates.split():
            yield (
                f"{label(setting)} counts steps, but gpusetup does not know whether of "
                "micro-batches or of updates: change it and the batch by hand"
            )


# --- the other file that holds a batch and a precision too ----------------------------------------

DEEPSPEED = ("zero_optimization", "train_micro_batch_size_per_gpu")


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and the precision of a config must stay: an HF config and its DeepSpeed JSON
    must agree, or the trainer refuses to start. None if they may change.

    >>> batch_fixed_by(Config(name="train.yaml", text="", format="yaml", settings=()))
    """
    is_deepspeed = not {name_of(setting.path) for setting in config.settings}.isdisjoint(DEEPSPEED)
    for setting in config.settings:
        text = unquoted(setting.text)
        if is_deepspeed and text == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        if setting.path == ("deepspeed",) and ".json" in text:
            return f"{text} sets a batch and a precision too: change both files by hand"
    return None
