"""Decides on the batch of a config: the same effective batch may be split differently into a
micro-batch and accumulation steps. Pure functions.

A micro-batch is only changed if the new size was measured on this machine, or if `plan` is certain
that it fits for this config on this card. If something else in the config depends on the batch (a
count of steps, BatchNorm, a loss over pairs, a second file), it stays, and the answer says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.keys import is_other_phase
from gpusetup.configs.settings import (
    Setting,
    dotted,
    name_of,
    switch_value,
    unquoted,
    whole_number,
    words_of,
)
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.frozen import Frozen
from gpusetup.tune.advice import GuideBatch, guide_batch, measuring
from gpusetup.tune.case import (
    LONGEST_VALUE,
    MEASURED,
    ConfigCase,
    Proposed,
    Suggestion,
    add_key,
    change_value,
    counts_updates,
    label,
    names_batch_norm,
)
from gpusetup.tune.verdict import BY_PLAN, verdict_on

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
    """The number of samples in one optimizer step; 0 if several batches share one accumulation
    setting, or if the trainer derives the accumulation from a global batch."""


def split_batches(case: ConfigCase) -> Iterator[Suggestion]:
    """For each batch setting, suggest a better split of the same effective batch, or explain why
    the setting is kept, with the guides' batch for this card."""
    # In OpenNMT, ESPnet and others this key makes the batch count tokens, frames or elements.
    if any(case.with_name("batch_type")):
        return
    # Several batch settings belong to several loaders or stages; the guide is mentioned once.
    guide = guide_batch(case)
    for setting, key in case.keyed:
        if key.role != "batch":
            continue
        size = whole_number(setting)
        if size is None or size < 1:
            continue
        split = _split_of(case, setting, size)
        suggestions = list(_better_split(case, split)) if key.written else []
        yield from suggestions or _why_kept(case, split)
        # A measurement on this machine, and a batch that another file sets, count more than the
        # guide; so does plan where it is certain, except about the batch of all GPUs together.
        verdict = verdict_on(case, size)
        is_sure = not isinstance(verdict, str) and verdict.verdict == "clear"
        is_decided = case.measured.batch_size or case.fixed_by
        if guide and not is_decided and (guide.of_all_gpus or not is_sure):
            yield _beside_guide(case, split, guide)
            guide = None


def _split_of(case: ConfigCase, setting: Setting, size: int) -> Split:
    """A batch with its accumulation: the setting in the same map, otherwise the only one in the
    config."""
    parent = setting.path[:-1]
    accumulations = case.with_role("accumulation")
    partners = same_map = [other for other in accumulations if other.path[:-1] == parent]
    # A trainer with a global batch in the same map computes the accumulation from it.
    derives = any(total.path[:-1] == parent for total in case.with_role("total")) and not same_map
    if not same_map and not derives:
        partners = accumulations
    partner = partners[0] if len(partners) == 1 else None
    steps = 1 if partner is None else whole_number(partner) or 0
    # If several batches share one accumulation setting, changing it for one would change the
    # others.
    is_shared = partner is not None and not same_map and len(case.with_role("batch")) > 1
    if derives or is_shared:
        steps = 0
    return Split(setting=setting, size=size, partner=partner, effective=size * steps)


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of `number` that are at most `most`, largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    return (size for size in range(min(most, number), 0, -1) if number % size == 0)


def _in_pieces(micro: int, effective: int) -> str:
    steps = effective // micro
    return f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"


# --- a batch size that is changed -----------------------------------------------------------------


def _better_split(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest a better split of the batch, or explain why there is none; nothing if the present
    split is right."""
    measured, effective = case.measured.batch_size, split.effective
    name = dotted(split.setting.path)
    if measured is None:
        # With several batch settings, plan cannot tell which of them its answer is about.
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
    current, effective = verdict_on(case, split.size), split.effective
    if isinstance(current, str) or current.verdict == "close" or effective > LARGEST_EFFECTIVE:
        return
    for size in divisors(effective, effective):
        verdict = verdict_on(case, size, effective // size)
        # A verdict is only clear if about a fifth of the card's memory stays free.
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
    reason = (
        f"{pieces} keeps the effective batch of {effective} on a GPU; only BatchNorm would compute "
        "other statistics"
    )
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


# --- a batch size that is kept --------------------------------------------------------------------


def _why_kept(case: ConfigCase, split: Split) -> Iterator[str]:
    """Explain why a batch size is kept."""
    if not case.facts.gpus:
        return
    verdict = verdict_on(case, split.size)
    if case.measured.batch_size:
        reason = f"{case.measured.batch_size} ran ({MEASURED})"
    elif case.fixed_by:
        reason = case.fixed_by
    elif isinstance(verdict, str):
        reason = f"{BY_PLAN} cannot judge this config: {verdict}; `{measuring(case)}` measures it"
    else:
        reason = (
            f"by `gpusetup plan` a batch of {split.size} needs {verdict.total_gib:.1f} of "
            f"{verdict.capacity_gib:.1f} GiB"
        )
        if verdict.verdict == "too much":
            reason += ", and no smaller batch is sure to fit"
        if verdict.verdict != "clear":
            reason += f"; `{measuring(case)}` measures it"
    yield f"{dotted(split.setting.path)} stays {split.size}: {reason}"


def _beside_guide(case: ConfigCase, split: Split, guide: GuideBatch) -> str:
    """A sentence that compares the config's batch with the guides' value, and says what to
    measure."""
    size, effective = split.size, split.effective
    sentence = f"{guide.text}; {label(split.setting)} is {size}."
    # The effective batch in micro-batches no larger than the guide's, unless that moves away from
    # the guide's range.
    micro = 0
    if not guide.least <= size <= guide.most and 0 < effective <= LARGEST_EFFECTIVE:
        micro = next(divisors(effective, guide.most))
        if micro == size or micro < size < guide.least:
            micro = 0
    if micro and tied_to_micro_batch(case) is None:
        sentence += f" {_in_pieces(micro, effective)} keeps the effective batch of {effective}."
    elif guide.least == 0:
        most = guide.most
        sentence += f" To go beyond it, accumulate: {most} x 2 is a batch of {2 * most}."
    elif 0 < effective < guide.least:
        sentence += (
            " A larger effective batch is another experiment, because it needs another learning "
            "rate."
        )
    return f"{sentence} {guide.measure}"


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
    """Why another micro-batch would change the experiment, by the strongest reason; None if it
    would not."""
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
    counted = next(filter(_counts_steps, case.config.settings), None)
    if counted is None or counts_updates(case.config):
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
