"""Decides on the batch of a config: the same effective batch may be split differently into a
micro-batch and accumulation steps. Pure functions.

A micro-batch is only changed if the new size was measured on this machine, or if `plan` is certain
that it fits for this config on this card. If something else in the config depends on the batch (a
count of steps, BatchNorm, a loss over pairs, a second file), it stays, and the answer says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Loop, is_other_phase
from gpusetup.configs.settings import (
    EMPTY,
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
    LONGEST_VALUE,
    MEASURED,
    ConfigCase,
    DoesNotFit,
    Suggestion,
    Why,
    add_key,
    change_value,
    config_word,
    label,
    names_batch_norm,
    not_a_number,
    trainer_in,
)
from gpusetup.tune.marks import BatchMark, batch_mark

BY_PLAN = "`gpusetup plan --from-config`"
SAMPLE_UNITS = ("sample", "samples", "sents", "sentence", "static")
"""Values of `batch_type` with which the batch size counts samples; with any other value it counts
tokens, frames or elements."""
LARGEST_EFFECTIVE = 1 << 16
"""The largest effective batch whose divisors are tried one by one; a malicious config may contain
any number."""
QUARTER = 4
"""With a micro-batch below a quarter of the batch that ran, most of the card would be unused."""


class Split(Frozen):
    """One batch setting of a config, with the accumulation setting that belongs to it."""

    setting: Setting
    size: int
    partner: Setting | None
    effective: int
    """The number of samples in one optimizer step; 0 if several batches share one accumulation
    setting."""
    derived: bool
    """Whether a global batch in the same map lets the trainer derive the accumulation."""


def split_batches(case: ConfigCase) -> Iterator[Suggestion]:
    """For each batch setting, suggest a better split of the same effective batch, or explain why
    the setting is kept."""
    units = [
        setting
        for setting in case.with_name("batch_type")
        if unquoted(setting.text).lower() not in SAMPLE_UNITS
    ]
    for setting, key in case.keyed:
        if key.role != "batch":
            continue
        size = whole_number(setting)
        if units:
            yield (
                f"{label(setting)} stays as it is, because {label(units[0])} counts "
                f"{unquoted(units[0].text)}"
            )
        elif size is None or size < 1:
            yield not_a_number(setting)
        else:
            split = _split_of(case, setting, size)
            suggestions = list(_better_split(case, split)) if key.written else []
            yield from suggestions or _why_unchanged(case, split)
            # The multi-GPU guide's batch is mentioned even if plan is certain of the config's, but
            # a measurement on this machine counts more.
            mark = batch_mark(case)
            if mark and mark.of_all_gpus and not case.measured.batch_size:
                yield _marked(case, split, mark)


def _split_of(case: ConfigCase, setting: Setting, size: int) -> Split:
    """A batch with its accumulation: the setting in the same map, otherwise the only one in the
    config."""
    parent = setting.path[:-1]
    accumulations = case.with_role("accumulation")
    partners = same_map = [other for other in accumulations if other.path[:-1] == parent]
    # A trainer with a global batch computes the accumulation from it.
    totals = [total for total in case.with_role("total") if total.path[:-1] == parent]
    derived = bool(totals) and not same_map
    if not same_map and not derived:
        partners = accumulations
    partner = partners[0] if len(partners) == 1 else None
    steps = 1 if partner is None else whole_number(partner) or 0
    # If several batches share one accumulation setting, changing it for one would change the
    # others.
    if partner is not None and not same_map and len(case.with_role("batch")) > 1:
        steps = 0
    return Split(
        setting=setting, size=size, partner=partner, effective=size * steps, derived=derived
    )


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of `number` that are at most `most`, largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    for size in range(min(most, number), 0, -1):
        if number % size == 0:
            yield size


def _in_pieces(micro: int, effective: int) -> str:
    """An effective batch in micro-batches of size `micro`, in words."""
    steps = effective // micro
    return f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"


def measuring(case: ConfigCase) -> str:
    """The shell command that measures a batch size for this config; the user replaces the
    placeholder with their own function."""
    return f"gpusetup tune {config_word(case)} --batch-size --code MODULE:FUNCTION"


# --- a batch size that is changed -----------------------------------------------------------------


def _better_split(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest a better split of the batch, or explain why there is none; nothing if the present
    split is right."""
    measured, effective = case.measured.batch_size, split.effective
    name = dotted(split.setting.path)
    if measured is None:
        if effective and len(case.with_role("batch")) == 1:
            yield from _split_by_plan(case, split)
        return
    if measured > effective > 0:
        yield (
            f"{name}: {measured} ran here, and a batch {measured / effective:.3g} times as"
            " large is another experiment: for SGD scale the learning rate with it, for Adam by"
            " its square root, and warm up. gpusetup does not write it"
        )
    if split.size == measured:
        return
    largest = min(measured, effective)
    micro = next(divisors(effective, largest), 0)
    if not micro or micro * QUARTER < largest:
        partner = f", with {dotted(split.partner.path)}" if split.partner else ""
        yield f"{name} is {split.size}, {MEASURED} {measured} ran: by hand{partner}"
    elif micro != split.size:
        yield from _change_split(case, split, micro, MEASURED)


def _split_by_plan(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest the largest split that plan is certain to fit; a batch that may fit is not
    changed."""
    current, effective = plan_verdict(case, split.size), split.effective
    if isinstance(current, CannotJudge) or current.verdict == "close":
        return
    if effective > LARGEST_EFFECTIVE:
        return
    for size in divisors(effective, effective):
        verdict = plan_verdict(case, size, effective // size)
        # A verdict is only clear if about a fifth of the card's memory stays free.
        if isinstance(verdict, CannotJudge) or verdict.verdict != "clear":
            continue
        if size != split.size:
            yield from _change_split(case, split, size, f"{BY_PLAN}, clear on this card")
            mark = batch_mark(case)
            if mark and not mark.of_all_gpus and size < mark.least <= effective:
                yield (
                    f"{_mark_text(case, mark)}. {BY_PLAN} is sure of {size} and leaves a "
                    f"fifth of the card free, so more may run. {_to_measure(case, mark)}"
                )
        return
    # If plan knows a reason why the batch may still fit, it is not called impossible.
    if current.may_fit_because:
        return
    advice = f"`{measuring(case)}` measures it"
    smallest, card = plan_verdict(case, 1, effective), case.facts.card
    # If a batch of 1 fits, but without the safety margin, only a measurement can tell.
    lacks_gib = 0.0
    if isinstance(smallest, BatchVerdict):
        lacks_gib = smallest.total_gib - smallest.capacity_gib
    if card and isinstance(smallest, BatchVerdict) and lacks_gib > 0:
        ways = _how_to_fit(case.config, card, effective)
        advice = f"Even 1 takes {smallest.total_gib:.1f} GiB. {ways}"
    name = dotted(split.setting.path)
    yield DoesNotFit(f"{name}: {current.reason}, and no smaller batch is sure to fit. {advice}")


def _change_split(case: ConfigCase, split: Split, micro: int, source: str) -> list[Suggestion]:
    """The changes for another split of the same effective batch, or a sentence that explains why
    there are none."""
    effective, name = split.effective, dotted(split.setting.path)
    steps = effective // micro
    pieces = _in_pieces(micro, effective)
    refused = refusal(case)
    if refused is not None:
        return [f"{name} stays {split.size} ({pieces} by {source}): {refused}"]
    reason = f"{pieces} keeps the effective batch of {effective} on a GPU"
    if split.derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    why = Why(reason=f"{reason}; only BatchNorm would compute other statistics", source=source)
    changes = [*change_value(case, split.setting, str(micro), why)]
    if split.partner is not None:
        changes += change_value(case, split.partner, str(steps), why)
    elif steps > 1 and not split.derived:
        added = add_key(case, "accumulation", str(steps), why)
        if not added:
            return [
                f"{name} is {effective}; {source} says {micro} with {steps} steps of "
                "accumulation. The config has no known accumulation key, so gpusetup writes "
                "nothing: a smaller batch alone is another experiment"
            ]
        changes += added
    # Both settings change or neither; otherwise the effective batch would change.
    problems: list[Suggestion] = [part for part in changes if isinstance(part, str)]
    return problems or changes


# --- a batch size that is kept --------------------------------------------------------------------


def _why_unchanged(case: ConfigCase, split: Split) -> Iterator[str]:
    """Explain why a batch size is kept, with the guides' value for this card unless plan is certain
    that the batch fits."""
    if not case.facts.gpus:
        return
    stays = f"{dotted(split.setting.path)} stays {split.size}"
    if case.measured.batch_size:
        yield f"{stays}: {case.measured.batch_size} ran ({MEASURED})"
        return
    verdict = plan_verdict(case, split.size)
    # plan's figure is left out if it leaves something uncounted, because it is then too high.
    doubt = verdict if isinstance(verdict, CannotJudge) else verdict.may_fit_because
    reason = f"{BY_PLAN} cannot judge this config: {doubt}"
    if isinstance(verdict, BatchVerdict) and not doubt:
        reason = verdict.reason
    reason = case.fixed_by or reason
    is_sure = isinstance(verdict, BatchVerdict) and verdict.verdict == "clear"
    # Several batch settings belong to several loaders or stages; the guide is mentioned once.
    mark = batch_mark(case) if split.setting is case.with_role("batch")[0] else None
    if is_sure or case.fixed_by:
        yield f"{stays}: {reason}"
    elif mark is None:
        yield f"{stays}: {reason}; `{measuring(case)}` measures it"
    else:
        yield f"{stays}: {reason}"
        if not mark.of_all_gpus:
            yield _marked(case, split, mark)


def _marked(case: ConfigCase, split: Split, mark: BatchMark) -> str:
    """A sentence that compares the config's batch with the guides' value, and says what to
    measure."""
    size, effective = split.size, split.effective
    sentence = f"{_mark_text(case, mark)}; {label(split.setting)} is {size}."
    # The effective batch in micro-batches no larger than the guide's, unless that moves away from
    # the guide's range.
    micro = 0
    if not mark.least <= size <= mark.most and 0 < effective <= LARGEST_EFFECTIVE:
        micro = next(divisors(effective, mark.most))
        if micro == size or (size < mark.least and micro < size):
            micro = 0
    if micro and refusal(case) is None:
        sentence += f" {_in_pieces(micro, effective)} keeps the effective batch of {effective}."
    elif mark.least == 0:
        sentence += f" To go beyond it, accumulate: {mark.most} x 2 is a batch of {2 * mark.most}."
    elif effective < mark.least:
        sentence += (
            " A larger effective batch is another experiment, because it needs another learning "
            "rate."
        )
    return f"{sentence} {_to_measure(case, mark)}"


def _mark_text(case: ConfigCase, mark: BatchMark) -> str:
    """Part of a sentence with the batch that a guide starts with on this card, and each GPU's share
    of it."""
    unit = "in all" if mark.of_all_gpus else "on a GPU"
    text = f"{mark.where} the {mark.source} starts with a batch of {mark.range_text} {unit}"
    gpus = case.facts.gpus
    if mark.of_all_gpus and gpus > 1:
        text += f", {max(mark.most // gpus, 1)} on each of the {gpus} GPUs"
    return text


def _to_measure(case: ConfigCase, mark: BatchMark) -> str:
    """A sentence with the command that measures batch sizes up to the guides' value."""
    return f"To measure which batch size fits, run `{measuring(case)} --max {mark.most}`"


# --- what plan says -------------------------------------------------------------------------------

PREFERENCE = frozenset((
    "beta", "pref_beta", "loss_type", "precompute_ref_log_probs", "ref_model", "reference_free",
    "rpo_alpha", "desirable_weight", "max_prompt_length", "num_generations", "reward_funcs",
    "num_generations_per_prompt",
))  # fmt: skip
"""Keys of preference or reinforcement training, whose method plan may not know."""


class CannotJudge(str):
    """The reason why `plan` cannot judge a config, as the end of a sentence."""


def plan_verdict(
    case: ConfigCase, size: int, steps: int | None = None
) -> BatchVerdict | CannotJudge:
    """plan's verdict on this batch size with this number of accumulation steps (None keeps the
    config's), or the reason why plan cannot judge it."""
    card = case.facts.card
    config = case.config if steps is None else case.tuned or case.config
    if card is None:
        return CannotJudge("the memory of the GPU is not known")
    elsewhere = sharded_elsewhere(case)
    if elsewhere:
        return CannotJudge(elsewhere)
    try:
        from_config = question_of(config)
        question = from_config.question
        preference_names = sorted(names_in(config.settings) & PREFERENCE)
        # If plan recognises the method, it counts the additional models.
        if preference_names and question.rl is None:
            return CannotJudge(
                f"`{preference_names[0]}` belongs to preference or reinforcement training, whose "
                "pairs, reference model and generations plan does not count"
            )
        if question.model is None and question.params is None:
            return CannotJudge("it names no model that plan knows")
        if from_config.notes:
            return CannotJudge("; ".join(from_config.notes))
        if steps is None and from_config.per_gpu is None:
            return CannotJudge("its batch may be that of all GPUs together")
        if steps is None and from_config.per_gpu != size:
            return CannotJudge("it holds several batches")
        return batch_verdict(config, size, card, accumulate=steps)
    except GpuSetupError as problem:
        return CannotJudge(problem.message)


def cannot_fit(case: ConfigCase) -> str | None:
    """A sentence that explains why not even one sample fits on this card; None if one may fit.

    The answer shows this sentence first.
    """
    card, config = case.facts.card, case.tuned or case.config
    if card is None or sharded_elsewhere(case) or case.measured.batch_size:
        return None
    try:
        verdict = batch_verdict(config, 1, card, any_length=True)
        if verdict.verdict != "too much" or verdict.may_fit_because:
            return None
        need = f"a single sample needs {verdict.total_gib:.1f} GiB"
        # No way to train needs less than the weights, whatever else a key saves.
        if verdict.weights_gib > verdict.capacity_gib:
            need = f"its weights alone take {verdict.weights_gib:.1f} GiB"
        return (
            f"With these settings, the model does not fit on this card: {need}, and the card has "
            f"{verdict.capacity_gib:.1f} GiB. {_how_to_fit(config, card)}"
        )
    except GpuSetupError:
        return None


MOST_WAYS = 3


def _how_to_fit(config: Config, card: Place, steps: int | None = None) -> str:
    """A sentence with up to three ways to make one sample fit, those that save most first."""
    ways = ways_to_fit(config, card, steps)[:MOST_WAYS]
    if not ways:
        return f"{BY_PLAN} says what saves most"
    return f"The model fits with one of these: {'; '.join(ways)}"


# --- settings in other files ----------------------------------------------------------------------

DEEPSPEED_JSON = ("zero_optimization", "train_micro_batch_size_per_gpu")
"""Keys that occur only in DeepSpeed's JSON config."""
DEEPSPEED_KEYS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Keys that refer to DeepSpeed's settings; the value is a file, the name of a preset, or `true`."""
FILE_NAME = re.compile(r"\S{1,200}\.\w{1,9}")
BASE_FILES = "_base_"
"""mmengine's key for the config files that a config inherits from."""


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and precision of a config must not change; None if they may.

    For example, transformers refuses to start if a config and its DeepSpeed JSON differ.
    """
    is_deepspeed_json = not names_in(config.settings).isdisjoint(DEEPSPEED_JSON)
    for setting in config.settings:
        text = unquoted(setting.text)
        if is_deepspeed_json and text == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        if name_of(setting.path) in DEEPSPEED_KEYS and _names_settings(setting):
            # A word without a file extension names a preset that comes with a program, not a file.
            is_file = FILE_NAME.fullmatch(text) is not None
            holder = text if is_file else "DeepSpeed's own configuration"
            return f"{holder} sets a batch and a precision too: change both files by hand"
    return None


def sharded_elsewhere(case: ConfigCase) -> str | None:
    """A sentence that names the other file that decides how the model is sharded; None if no
    setting refers to such a file."""
    for setting in case.with_name(*DEEPSPEED_KEYS, "fsdp_config", BASE_FILES):
        if _names_settings(setting):
            takes = "leaves to another file how the model is sharded"
            if name_of(setting.path) == BASE_FILES:
                takes = "takes the other settings from another file"
            return f"{label(setting)} {takes}"
    return None


def _names_settings(setting: Setting) -> bool:
    """Whether a setting's value refers to settings elsewhere, rather than containing them as
    a map."""
    # Only `_base_` has a list of files; `fsdp: [full_shard]` is a list of words.
    if setting.kind == "list":
        return name_of(setting.path) == BASE_FILES
    is_plain = setting.kind in ("scalar", "alias")
    return is_plain and setting.text not in EMPTY and switch_value(setting) is not False


# --- what else depends on the micro-batch ---------------------------------------------------------

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
CONTRASTIVE = re.compile(
    r"(?i)contrastive|info_?nce|nt_?xent|multiple_?negatives|simclr|supcon|clip_?loss|siglip"
    r"|in_?batch_?neg|barlow|vicreg|byol|\bmoco\b|\bkto\b|apo_zero_unpaired"
)
"""Matches names of losses over the pairs in a batch, whose value depends on the micro-batch."""
TIED_TO_MICRO_BATCH = {
    "optimizer_in_bwd": "steps within the backward pass: its trainer refuses accumulation",
    "early_step_in_backward": "steps within the backward pass: its trainer refuses accumulation",
    "steps_per_generation": "depends on the micro-batch",
    "generation_batch_size": "depends on the micro-batch",
}
"""Setting that matters if it is on or a positive number -> why the micro-batch must then not
change."""


def refusal(case: ConfigCase) -> str | None:
    """Why another micro-batch would change the experiment, by the strongest reason; None if it
    would not."""
    if case.fixed_by:
        return case.fixed_by
    loop = trainer_in(case.config)
    for setting in case.config.settings:
        name, text = name_of(setting.path), unquoted(setting.text)[:LONGEST_VALUE]
        switch, number = switch_value(setting), whole_number(setting)
        is_off = switch is False or number == 0
        speaks_of_pairs = CONTRASTIVE.search(name) or CONTRASTIVE.search(text)
        if setting.kind == "scalar" and not is_off and speaks_of_pairs:
            return (
                f"{label(setting)} compares the samples of one batch with each other: another "
                "micro-batch changes the loss"
            )
        if name in TIED_TO_MICRO_BATCH and (switch is True or number):
            return f"{label(setting)} {TIED_TO_MICRO_BATCH[name]}"
        if "auto_scale_lr" in setting.path and name == "enable" and switch:
            return "auto_scale_lr is on: the learning rate changes with the loader's batch"
        if "GradientAccumulationScheduler" in text:
            return f"line {setting.line} schedules the accumulation itself"
        # In axolotl the top-level `batch_size` is the total batch, unlike `micro_batch_size`.
        if setting.path == ("batch_size",) and loop is not None and loop.name == "axolotl":
            return (
                f"{label(setting)} is axolotl's total batch: axolotl derives the accumulation "
                "from it"
            )
        if names_batch_norm(setting):
            return (
                f"{label(setting)} is {text}, which has BatchNorm: another micro-batch would "
                "change its statistics. The choice is yours: keep the batch, synchronise "
                "BatchNorm over GPUs, or use GroupNorm"
            )
    loop = loop or Loop(name="this trainer")
    for setting in filter(_counts_steps, case.config.settings):
        name = name_of(setting.path)
        if name in loop.micro.split():
            return f"{label(setting)} counts micro-batches: change it and the batch by hand"
        # A count of updates keeps its meaning if the same effective batch is split differently.
        if loop.steps == "unknown" and name not in loop.updates.split():
            return (
                f"{label(setting)} counts steps, but gpusetup does not know whether of "
                "micro-batches or of updates: change it and the batch by hand"
            )
    return None


def _counts_steps(setting: Setting) -> bool:
    """Whether a setting counts steps; values of 0 or below, ratios and epochs do not."""
    name = name_of(setting.path)
    if not STEP_COUNTS.search(name) or OTHER_COUNTS.search(name):
        return False
    # Evaluation has a separate loader, so its steps do not depend on this batch.
    if any(is_other_phase(word) for word in setting.path[:-1] if isinstance(word, str)):
        return False
    # With `by_epoch: false`, mmengine counts everything in iterations.
    counts_iterations = name == "by_epoch" and switch_value(setting) is False
    is_positive = setting.kind == "scalar" and (whole_number(setting) or 0) > 0
    return setting.kind == "list" or counts_iterations or is_positive
