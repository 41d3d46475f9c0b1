"""Batch times accumulation: another split of the same effective batch. Pure.

A micro-batch is changed only by what was measured here, or by what `plan` calls clear for this very
config on this card. If something else goes with the batch, the change is refused with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Loop, not_training
from gpusetup.configs.settings import (
    Setting,
    in_words,
    name_of,
    names_in,
    truth,
    unquoted,
    whole,
)
from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.config import question_of
from gpusetup.plan.place import Place
from gpusetup.plan.verdict import BatchVerdict, batch_verdict, what_fits
from gpusetup.tune.case import (
    MEASURED,
    Case,
    DoesNotFit,
    Part,
    Why,
    added_key,
    no_number,
    place,
    trainer_in,
    written_over,
)

BY_PLAN = "`gpusetup plan --from-config`"
MEASURE_IT = "`gpusetup tune --batch-size --code MODULE:FUNCTION` measures it"
MOST_SPLIT = 1 << 16
OTHER_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "fsdp_config", "_base_")
PREFERENCE = frozenset((
    "beta", "pref_beta", "loss_type", "precompute_ref_log_probs", "ref_model", "reference_free",
    "rpo_alpha", "desirable_weight", "max_prompt_length", "num_generations", "reward_funcs",
    "num_generations_per_prompt",
))  # fmt: skip
"""Names of preference training, whose pairs, references and generations the plan does not count."""


# --- what plan says of it -----------------------------------------------------------------------


def elsewhere(case: Case) -> bool:
    """Whether another file says how the model is sharded or offloaded, or what stands below."""
    return any("." in one.text for one in case.named(*OTHER_FILES))


def _verdict(case: Case, size: int, steps: int | None = None) -> BatchVerdict | None:
    """Of a batch with so many steps, None: as it is now; None if plan knows too little."""
    card, config = case.facts.card, case.config if steps is None else case.changed or case.config
    try:
        asked = question_of(config)
        if card is None or asked.notes or elsewhere(case):
            return None
        if names_in(config.settings) & PREFERENCE or (steps is None and asked.per_gpu != size):
            return None
        return batch_verdict(config, size, card, accumulate=steps)
    except GpuSetupError:
        return None


def cannot_fit(case: Case) -> str | None:
    """What to say first of all if not even one sample of the model fits, whatever the other
    changes save."""
    card, config = case.facts.card, case.changed or case.config
    if card is None or elsewhere(case) or case.option.measured:
        return None
    try:
        one = batch_verdict(config, 1, card, short=True)
        if one.verdict != "too much":
            return None
        return (
            f"This model cannot be trained like this on this card: a single sample needs"
            f" {one.total_gib:.1f} of {one.capacity_gib:.1f} GiB."
            f" {_enough(config, card)}"
        )
    except GpuSetupError:
        return None


def _enough(config: Config, card: Place, steps: int | None = None) -> str:
    ways = "; ".join(what_fits(config, card, steps)[:3])
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
        return in_words(self.setting.path)


SAMPLES = ("sample", "samples", "sents", "sentence", "static")


def batch(case: Case) -> Iterator[Part]:
    """Each batch with its accumulation: another split of the same effective batch."""
    units = (one for one in case.named("batch_type") if unquoted(one.text).lower() not in SAMPLES)
    unit = next(units, None)
    for setting, key in case.found:
        size = whole(setting)
        if key.role != "batch":
            continue
        if unit:
            yield f"{place(setting)} is left as it is: {place(unit)} counts {unquoted(unit.text)}"
        elif not size or size < 1:
            yield no_number(setting)
        else:
            split = _split_of(case, setting, size)
            parts = list(_judged(case, split)) if key.written else []
            yield from parts or _left(case, split)


def _split_of(case: Case, setting: Setting, size: int) -> Split:
    """The accumulation that goes with a batch is in the same map, else the only one there is."""
    around, there = setting.path[:-1], case.having("accumulation")
    same = [one for one in there if one.path[:-1] == around]
    derived = not same and any(one.path[:-1] == around for one in case.having("total"))
    here = same or ([] if derived else there)
    partner = here[0] if len(here) == 1 else None
    steps = (whole(partner) or 0) if partner else 1
    if partner and not same and len(case.having("batch")) > 1:
        steps = 0
    return Split(setting=setting, size=size, partner=partner, steps=steps, derived=derived)


def _left(case: Case, split: Split) -> Iterator[str]:
    """Why a batch stays."""
    if not case.facts.gpus:
        return
    now = _verdict(case, split.size)
    why = f"{BY_PLAN} cannot judge this config. {MEASURE_IT}"
    if case.option.measured:
        why = f"{case.option.measured} ran ({MEASURED})"
    elif case.fixed or elsewhere(case):
        why = case.fixed or "another file says how the model is sharded"
    elif now:
        why = now.reason + (f". {MEASURE_IT}" if now.verdict == "close" else "")
    yield f"{split.name} stays {split.size}: {why}"


def _judged(case: Case, split: Split) -> Iterator[Part]:
    """Another split, or why not; nothing if it is as it should be."""
    measured, effective = case.option.measured, split.effective
    if measured is None:
        if split.steps and not elsewhere(case) and len(case.having("batch")) == 1:
            yield from _by_plan(case, split)
        return
    most = min(measured, effective)
    micro = next(divisors(effective, most), 0)
    if split.size == measured:
        return
    if 0 < effective < measured:
        yield (
            f"{split.name}: {measured} ran here; a batch {measured / effective:.3g} times as large"
            " is another experiment: scale the learning rate with it for SGD, by its square root"
            " for Adam, and warm up"
        )
    elif not micro or micro * 4 < most:
        partner = f", with {in_words(split.partner.path)}" if split.partner else ""
        yield f"{split.name} is {split.size}, {MEASURED} {measured} ran: by hand{partner}"
    elif micro != split.size:
        yield from _same_batch(case, split, micro, MEASURED)


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of a number up to a size, the largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    return (size for size in range(min(most, number), 0, -1) if number % size == 0)


def _by_plan(case: Case, split: Split) -> Iterator[Part]:
    """The largest clear split; a batch that is close is left as it is."""
    now = _verdict(case, split.size)
    if now is None or now.verdict == "close" or split.effective > MOST_SPLIT:
        return
    sizes = divisors(split.effective, split.effective)
    verdicts = ((size, _verdict(case, size, split.effective // size)) for size in sizes)
    best = next((size for size, one in verdicts if one and one.verdict == "clear"), None)
    if best is None:
        one, card, way = _verdict(case, 1, split.effective), case.facts.card, MEASURE_IT
        if one and card and one.total_gib > one.capacity_gib:
            enough = _enough(case.config, card, split.effective)
            way = f"Even 1 takes {one.total_gib:.1f} GiB. {enough}"
        yield DoesNotFit(f"{split.name}: {now.reason}, and no smaller one is clear. {way}")
    elif best != split.size:
        yield from _same_batch(case, split, best, f"{BY_PLAN}, clear on this card")


def _same_batch(case: Case, split: Split, micro: int, source: str) -> list[Part]:
    """The same effective batch in other pieces: the batch and its accumulation, or why not."""
    steps = split.effective // micro
    pieces = f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"
    for reason in refusals(case):
        return [f"{split.name} stays {split.size} ({pieces} by {source}): {reason}"]
    reason = f"{pieces} keeps the effective batch of {split.effective} on a GPU"
    if split.derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    why = Why(reason=f"{reason}; only BatchNorm would see other pieces", source=source)
    both = [*written_over(case, split.setting, str(micro), why)]
    if split.partner:
        both += written_over(case, split.partner, str(steps), why)
    elif steps > 1 and not split.derived:
        added = added_key(case, "accumulation", str(steps), why)
        if not added:
            return [
                f"{split.name} is {split.effective}; {source} says {micro} with {steps} steps"
                " of accumulation. The config has no accumulation key that is known: nothing is"
                " written: a smaller batch alone is another experiment"
            ]
        both += added
    return [part for part in both if isinstance(part, str)] or both


# --- what is against another split ----------------------------------------------------------------

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
