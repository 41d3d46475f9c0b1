"""Decides on the batch of a config: the same effective batch may be split differently into a
micro-batch and accumulation steps, as far as `plan` says that it fits. Pure functions.

A micro-batch is only changed if the new size was measured on this machine, or if `plan` is certain
that it fits for this config on this card. If something else in the config depends on the batch (a
count of steps, BatchNorm, a loss over pairs, a second file), it stays, and the answer says why.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Literal

from gpusetup.configs.config import Config
from gpusetup.configs.keys import is_other_phase, is_switched_off, key_table, trainer_of
from gpusetup.configs.settings import (
    EMPTY,
    Setting,
    dotted,
    name_of,
    names_in,
    switch_value,
    unquoted,
    whole_number,
    words_of,
)
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, for_gpus, question_of
from gpusetup.plan.decide import Decision, changes_that_save, decide, near_limit, why_uncertain
from gpusetup.plan.job import BYTES, Recipe
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place
from gpusetup.plan.question import job_of, shape_of_question
from gpusetup.tune.advice import GuideBatch, guide_batch, measuring
from gpusetup.tune.case import (
    LONGEST_VALUE,
    MEASURED,
    ConfigCase,
    Proposed,
    Suggestion,
    add_key,
    change_value,
    label,
    names_batch_norm,
)

# --- what plan says about a batch -----------------------------------------------------------------

BY_PLAN = "`gpusetup plan --from-config`"
MOST_NAMED = 3
"""How many keys a sentence names."""


class BatchVerdict(Frozen):
    """The verdict on one batch size. `tune` may write the batch without a measurement only if the
    verdict is `clear`."""

    verdict: Literal["clear", "close", "too much"]
    decision: Decision
    """What `plan` decides without offload, which the config would have to ask for."""
    need: str
    """The memory that the run needs by this decision, and that of the card."""
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
    if from_config.per_gpu is None and from_config.total is None:
        raise UsageError("The config sets a budget of tokens and no batch")
    gpus = from_config.gpus or place.count or 1
    # With another split, the accumulation no longer follows from the config's total.
    if accumulate is not None or per_gpu != from_config.per_gpu:
        from_config = replace(from_config, per_gpu=per_gpu, total=None)
    question = for_gpus(from_config, gpus)
    question = replace(question, accumulate=accumulate or question.accumulate)
    job, recipe = job_of(question, shape_of_question(question), place), Recipe(sp=question.sp or 1)
    # The decision may choose expandable segments, which the config does not set.
    decision = decide(job, replace(place, offload=False, sp=recipe.sp))
    needed, capacity = memory(job, recipe).total / GIB, place.capacity / GIB
    near = near_limit(job)
    # A launcher may shard the model over several GPUs, which the config does not say.
    names_strategy = "strategy" in from_config.question.job_fields
    may_be_sharded = job.gpus > 1 and not names_strategy and job.copies_model
    # No way to train needs less than 16 bits a weight, or the bytes of a quantised one.
    weights = job.shape.parameters * (job.stored_bytes or BYTES["bf16"]) / GIB
    if may_be_sharded or job.shards_parameters:
        weights /= job.gpus
    # A need that is closer to the limit than the estimate's error stays `close`.
    verdict: Literal["clear", "close", "too much"] = "close"
    if needed > capacity * (1 + near):
        verdict = "too much"
    elif needed <= capacity * (1 - near) and not why_uncertain(job, recipe):
        # A key that plan does not understand may need memory, so no batch size is certain.
        verdict = "close" if from_config.read.not_understood else "clear"
    sharded = memory(replace(job, strategy="fsdp"), recipe).total / GIB
    may_fit_because = ""
    if may_be_sharded and sharded <= capacity:
        may_fit_because = (
            f"it fits only if its launcher shards the model over the {job.gpus} GPUs (FSDP, "
            "ZeRO), which this config does not say"
        )
    elif weights <= capacity:
        may_fit_because = _uncounted_saving(from_config)
    return BatchVerdict(
        verdict=verdict,
        decision=decision,
        need=f"{decision.memory.total / GIB:.1f} of {capacity:.1f} GiB",
        weights_gib=weights,
        may_fit_because=may_fit_because if verdict == "too much" else "",
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
            return "the config does not say how long a sequence is, so plan would only assume it"
        if steps is None and from_config.per_gpu != size:
            return "its batch may be that of all GPUs together, or one of several"
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
        context = from_config.question.context
        question = replace(from_config.question, context=context or 1)
        one = judge(replace(from_config, question=question), 1, card)
        # One sample that is within the margin of error may fit.
        if one.verdict != "too much" or one.may_fit_because or one.decision.fits:
            return None
        need = f"a single sample needs {one.need}"
        if context is None:
            need = f"even a sample of one token needs {one.need}"
        # This says more: no way to train needs less than the weights, whatever else a key saves.
        if one.weights_gib > card.capacity / GIB:
            need = f"its weights alone take {one.weights_gib:.1f} of {card.capacity / GIB:.1f} GiB"
        plan = f"gpusetup plan --from-config {case.file} --gpu {shlex.quote(card.gpu)} --batch 1"
        return (
            f"With these settings, the model does not fit on this card: {need}. "
            f"`{plan}` shows what saves memory"
        )
    except GpuSetupError:
        return None


def too_large(case: ConfigCase) -> str | None:
    """A sentence that explains why the batch of the config does not fit on this card, and what
    would make it fit; None if it may fit, or if plan cannot judge it."""
    for setting in case.with_role("batch"):
        size = whole_number(setting)
        # A measurement is surer than plan.
        if size is None or case.measured.batch_size:
            continue
        verdict = verdict_on(case, size)
        if isinstance(verdict, str) or verdict.decision.fits:
            continue
        # The sentence does not say how sure plan is of a change, so any confidence will do.
        helps = changes_that_save(verdict.decision, lambda _: "close")
        enough = [help.step for help in helps if help.recipe and help.kind == "setting"]
        sentence = f"{dotted(setting.path)} {size} does not fit on this card: by `gpusetup plan`, "
        sentence += f"it needs {verdict.need}"
        if verdict.may_fit_because:
            sentence += f" (but {verdict.may_fit_because})"
        if enough:
            sentence += f". One of these may be enough: {'; '.join(enough[:MOST_NAMED])}"
        else:
            sentence += f". {BY_PLAN} shows what saves memory"
        # The options of plan in brackets mean nothing in a config.
        return re.sub(r" \(`--.*?`\)", "", sentence)
    return None


# --- settings in other files ----------------------------------------------------------------------

DEEPSPEED_JSON = ("zero_optimization", "train_micro_batch_size_per_gpu")
"""Keys that occur only in DeepSpeed's JSON config."""
DEEPSPEED_KEYS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
"""Keys that refer to DeepSpeed's settings; the value is a file, the name of a preset, or `true`."""


def batch_fixed_by(config: Config) -> str | None:
    """Why the batch and precision of a config must not change, and plan cannot judge it: another
    file sets them too, or decides how the model is sharded. None if there is no such file.

    For example, transformers refuses to start if a config and its DeepSpeed JSON differ.
    """
    is_deepspeed_json = not names_in(config.settings).isdisjoint(DEEPSPEED_JSON)
    for setting in config.settings:
        if is_deepspeed_json and unquoted(setting.text) == "auto":
            return f"{label(setting)} is auto: the trainer's own config sets the value"
        # A map contains the settings and does not refer to another file.
        is_plain = setting.kind in ("scalar", "alias") and setting.text not in EMPTY
        if not is_plain or switch_value(setting) is False:
            continue
        if name_of(setting.path) in DEEPSPEED_KEYS:
            return (
                f"DeepSpeed's own configuration, {label(setting)}, sets a batch and a precision "
                "too: change both by hand"
            )
        if name_of(setting.path) == "fsdp_config":
            return f"{label(setting)} leaves to another file how the model is sharded"
    return None


# --- the split of a batch -------------------------------------------------------------------------

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
    """The accumulation setting; None if the config has none or several."""
    effective: int
    """The number of samples in one optimizer step; 0 if the trainer derives the accumulation from a
    global batch, or if the accumulation is no number (`auto`)."""


def split_batches(case: ConfigCase) -> Iterator[Suggestion]:
    """For each batch setting, suggest a better split of the same effective batch, or explain why
    the setting is kept; then mention the guides' batch for this card, once."""
    # In OpenNMT, ESPnet and others this key makes the batch count tokens, frames or elements.
    if any(case.with_name("batch_type")):
        return
    guide = guide_batch(case)
    for setting, key in case.keyed:
        size = whole_number(setting) if key.role == "batch" else None
        if size is None or size < 1:
            continue
        split = _split_of(case, setting, size)
        # Several batch settings belong to several loaders or stages: none of them is changed.
        may_change = key.written and len(case.with_role("batch")) == 1
        suggestions = list(_better_split(case, split)) if may_change else []
        yield from suggestions or _why_kept(case, split)
        # A measurement, another file that sets the batch, or a clear plan is surer than a guide.
        if guide is None or case.measured.batch_size or case.fixed_by:
            continue
        # plan judges the batch of one GPU, so it says nothing about that of all GPUs together.
        verdict = verdict_on(case, size)
        if guide.of_all_gpus or isinstance(verdict, str) or verdict.verdict != "clear":
            yield _compared_with_guide(case, split, guide)
            guide = None


def _split_of(case: ConfigCase, setting: Setting, size: int) -> Split:
    """A batch with the config's only accumulation, if it has one."""
    parent, accumulations = setting.path[:-1], case.with_role("accumulation")
    partner = accumulations[0] if len(accumulations) == 1 else None
    # A trainer with a global batch in the same map computes the accumulation from it.
    has_total = any(total.path[:-1] == parent for total in case.with_role("total"))
    if has_total and (partner is None or partner.path[:-1] != parent):
        return Split(setting=setting, size=size, partner=None, effective=0)
    steps = 1 if partner is None else whole_number(partner) or 0
    return Split(setting=setting, size=size, partner=partner, effective=size * steps)


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of `number` that are at most `most`, largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    return (size for size in range(min(most, number), 0, -1) if number % size == 0)


def _in_pieces(micro: int, effective: int) -> str:
    """An effective batch as micro-batches: `8 x 4 accumulated`, or `32 at once`."""
    steps = effective // micro
    return f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"


def _better_split(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest a better split of the batch, or explain why there is none; nothing if the present
    split is right."""
    measured, effective = case.measured.batch_size, split.effective
    name = dotted(split.setting.path)
    if measured is None:
        if effective:
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
    # There is no divisor if the effective batch is unknown (0).
    micro = next(divisors(effective, largest), 0)
    if not micro or micro * QUARTER < largest:
        partner = f", with {dotted(split.partner.path)}" if split.partner else ""
        yield f"{name} is {split.size}, {MEASURED} {measured} ran: by hand{partner}"
    elif micro != split.size:
        yield from _change_split(case, split, micro, MEASURED)


def _split_by_plan(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest the largest split that plan is certain to fit; a batch that may fit is not
    changed."""
    current, effective = verdict_on(case, split.size), split.effective
    if isinstance(current, str) or current.verdict == "close" or effective > LARGEST_EFFECTIVE:
        return
    for size in divisors(effective, effective):
        verdict = verdict_on(case, size, effective // size)
        if not isinstance(verdict, str) and verdict.verdict == "clear":
            if size != split.size:
                yield from _change_split(case, split, size, f"{BY_PLAN}, clear on this card")
            return


def _change_split(case: ConfigCase, split: Split, micro: int, source: str) -> list[Suggestion]:
    """The changes for another split of the same effective batch, or a sentence that explains why
    there are none."""
    effective, name = split.effective, dotted(split.setting.path)
    steps = effective // micro
    pieces = _in_pieces(micro, effective)
    tied = tied_to_micro_batch(case)
    if tied is not None:
        return [f"{name} stays {split.size} ({pieces} by {source}): {tied}"]
    reason = f"{pieces} fits on this card and keeps the effective batch of {effective} on a GPU"
    if source == MEASURED:
        # plan only knows models without BatchNorm, but a measured one may have it.
        reason += "; keep the old value if your model has BatchNorm"
    changes = [*change_value(case, split.setting, str(micro), reason, source)]
    if split.partner is not None:
        changes += change_value(case, split.partner, str(steps), reason, source)
    elif steps > 1:
        added = add_key(case, "accumulation", str(steps), reason)
        if not added:
            return [
                f"{name} is {split.size}; {source} says {micro} with {steps} steps of "
                "accumulation. The config has no known accumulation key, so gpusetup writes "
                "nothing: a smaller batch alone is another experiment"
            ]
        changes += added
    # Both settings change or neither; otherwise the effective batch would change.
    return [one for one in changes if not isinstance(one, Proposed)] or changes


def _why_kept(case: ConfigCase, split: Split) -> Iterator[str]:
    """Explain why a batch size is kept; nothing if it is too large, which the answer says first."""
    # Without a GPU, `several_gpus` says that only settings for the CPU were looked at.
    if not case.facts.gpus:
        return
    if case.measured.batch_size:
        reason = f"{case.measured.batch_size} ran ({MEASURED})"
    elif case.fixed_by:
        reason = case.fixed_by
    elif isinstance(verdict := verdict_on(case, split.size), str):
        reason = f"{BY_PLAN} cannot estimate the memory: {verdict}; {measuring(case)}"
    elif not verdict.decision.fits:
        return
    else:
        reason = f"by `gpusetup plan`, a batch of {split.size} needs {verdict.need}"
        if verdict.verdict != "clear":
            reason += f"; {measuring(case)}"
    yield f"{dotted(split.setting.path)} stays {split.size}: {reason}"


def _compared_with_guide(case: ConfigCase, split: Split, guide: GuideBatch) -> str:
    """A sentence that compares the config's batch with the guides' value, and says what to
    measure."""
    size, effective = split.size, split.effective
    sentence = f"{guide.text}; {label(split.setting)} is {size}."
    # A batch outside of the guide's range is split into micro-batches no larger than the guide's,
    # unless a batch that is too small would become even smaller; 0 means no other split.
    micro = 0
    if not guide.least <= size <= guide.most and 0 < effective <= LARGEST_EFFECTIVE:
        largest = next(divisors(effective, guide.most))
        if largest != size and not largest < size < guide.least:
            micro = largest
    if micro and tied_to_micro_batch(case) is None:
        sentence += f" {_in_pieces(micro, effective)} keeps the effective batch of {effective}."
    elif guide.least == 0:
        most = guide.most
        sentence += f" To go beyond it, accumulate: {most} x 2 is a batch of {2 * most}."
    elif 0 < effective < guide.least:
        sentence += " A larger effective batch is another experiment."
    return f"{sentence} {measuring(case, f' --max {guide.most}')}"


# --- what else depends on the micro-batch ---------------------------------------------------------

STEP_WORDS = frozenset((
    "step", "steps", "iter", "iters", "iteration", "iterations", "batches", "updates", "interval",
    "milestones",
))  # fmt: skip
"""Words in names of settings that are counted in some kind of steps."""
OTHER_WORDS = frozenset((
    "log", "logging", "print", "grad", "gradient", "gradients", "accum", "accumulate",
    "accumulation", "micro", "ratio", "epochs", "sanity",
))  # fmt: skip
"""Words in names that count something else, or steps that do not affect the training
(`logging_steps`)."""
CONTRASTIVE = re.compile(
    r"(?i)contrastive|info_?nce|nt_?xent|multiple_?negatives|simclr|supcon|clip_?loss|siglip"
    r"|in_?batch_?neg|barlow|vicreg|byol|\bmoco\b|\bkto\b|apo_zero_unpaired"
)
"""Matches names of losses over the pairs in a batch, whose value depends on the micro-batch."""
TIED_TO_MICRO_BATCH = frozenset((
    "optimizer_in_bwd", "early_step_in_backward", "steps_per_generation", "generation_batch_size",
))  # fmt: skip
"""Settings that fix the micro-batch if they are on or a positive number: a step within the backward
pass takes no accumulation, and a generation serves a count of micro-batches."""


def tied_to_micro_batch(case: ConfigCase) -> str | None:
    """Why another micro-batch changes the experiment, or may change it; None if it does not."""
    if case.fixed_by:
        return case.fixed_by
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
            return f"{label(setting)} depends on the micro-batch"
        # In axolotl the top-level `batch_size` is the total batch, unlike `micro_batch_size`.
        if setting.path == ("batch_size",) and trainer_of(case.config) == "axolotl":
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
    # The table has batch names only of trainers that count updates; such a count keeps its meaning.
    # A loop of one's own may have a key of such a trainer, but hardly the name of its batch too.
    batches = key_table().batches.get(trainer_of(case.config) or "", "").split()
    counted = next(filter(_counts_steps, case.config.settings), None)
    if counted is None or not names_in(case.config.settings).isdisjoint(batches):
        return None
    return (
        f"{label(counted)} counts steps, but gpusetup does not know whether of micro-batches or of "
        "updates: change it and the batch by hand"
    )


def _counts_steps(setting: Setting) -> bool:
    """Whether a setting counts steps; values of 0 or below, ratios and epochs do not."""
    words = words_of(name_of(setting.path))
    if words.isdisjoint(STEP_WORDS) or not words.isdisjoint(OTHER_WORDS):
        return False
    # Evaluation has a separate loader, so its steps do not depend on this batch.
    if any(is_other_phase(word) for word in setting.path[:-1] if isinstance(word, str)):
        return False
    # A list contains the steps at which something changes (`milestones: [1000, 2000]`).
    if setting.kind == "list":
        return True
    return setting.kind == "scalar" and (whole_number(setting) or 0) > 0
