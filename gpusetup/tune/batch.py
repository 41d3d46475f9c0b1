"""Splits the same effective batch differently into a micro-batch and accumulation steps. Pure
functions.

A micro-batch is only changed if the new size was measured on this machine, or if `plan` is certain
that it fits for this config on this card. If something else in the config depends on the batch, the
batch stays and the answer gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs.settings import Setting, dotted, unquoted, whole_number
from gpusetup.model.frozen import Frozen
from gpusetup.plan.batch_verdict import BatchVerdict
from gpusetup.tune.case import (
    MEASURED,
    ConfigCase,
    DoesNotFit,
    Suggestion,
    Why,
    add_key,
    change_value,
    config_word,
    label,
    not_a_number,
)
from gpusetup.tune.marks import BatchMark, batch_mark
from gpusetup.tune.refusals import refusals
from gpusetup.tune.verdict import BY_PLAN, CannotJudge, how_to_fit, plan_verdict

LARGEST_EFFECTIVE = 1 << 16
"""The largest effective batch whose divisors are tried one by one; a malicious config may contain
any number."""


def measuring(case: ConfigCase) -> str:
    """The shell command that measures a batch size for this config."""
    config = config_word(case)
    # The user replaces the placeholder with their own function.
    return f"gpusetup tune {config} --batch-size --code MODULE:FUNCTION"


class Split(Frozen):
    """One batch setting of a config, with the accumulation setting that belongs to it."""

    setting: Setting
    size: int
    partner: Setting | None
    steps: int
    """The number of accumulation steps; 0 if several batch settings share one accumulation
    setting."""
    derived: bool
    """Whether a global batch in the same map lets the trainer derive the accumulation."""

    @property
    def effective(self) -> int:
        """The number of samples in one optimizer step; 0 if several batches share one accumulation
        setting."""
        micro_batch = self.size
        return micro_batch * self.steps

    @property
    def name(self) -> str:
        """The dotted name of the batch setting."""
        path = self.setting.path
        return dotted(path)


SAMPLE_UNITS = ("sample", "samples", "sents", "sentence", "static")
"""Values of `batch_type` with which the batch size counts samples; with any other value it counts
tokens, frames or elements."""


def split_batches(case: ConfigCase) -> Iterator[Suggestion]:
    """For each batch setting, suggest a better split of the same effective batch, or explain why
    the setting is kept."""
    unit = _other_unit(case)
    for setting, key in case.keyed:
        if key.role != "batch":
            continue
        size = whole_number(setting)
        if unit is not None:
            yield (
                f"{label(setting)} stays as it is, because {label(unit)} counts "
                f"{unquoted(unit.text)}"
            )
        elif size is None or size < 1:
            yield not_a_number(setting)
        else:
            split = _split_of(case, setting, size)
            suggestions = list(_better_split(case, split)) if key.written else []
            yield from suggestions or _why_unchanged(case, split)
            yield from _recommenders_tier(case, split)


def _other_unit(case: ConfigCase) -> Setting | None:
    """The setting which makes the batch count something other than samples, such as tokens; None if
    there is none."""
    for setting in case.with_name("batch_type"):
        if unquoted(setting.text).lower() not in SAMPLE_UNITS:
            return setting
    return None


def _split_of(case: ConfigCase, setting: Setting, size: int) -> Split:
    """A batch with its accumulation: the setting in the same map, otherwise the only one in the
    config."""
    parent = setting.path[:-1]
    accumulations = case.with_role("accumulation")
    same_map = [other for other in accumulations if other.path[:-1] == parent]
    totals = [total for total in case.with_role("total") if total.path[:-1] == parent]
    # A trainer with a global batch computes the accumulation from it.
    derived = bool(totals) and not same_map
    partners = same_map
    if not same_map and not derived:
        partners = accumulations
    partner = partners[0] if len(partners) == 1 else None
    steps = 1
    if partner is not None:
        steps = whole_number(partner) or 0
    has_several_batches = len(case.with_role("batch")) > 1
    # If several batches share one accumulation setting, changing it for one would change the
    # others.
    if partner is not None and not same_map and has_several_batches:
        steps = 0
    return Split(setting=setting, size=size, partner=partner, steps=steps, derived=derived)


# --- a batch size that is kept --------------------------------------------------------------------


def _why_unchanged(case: ConfigCase, split: Split) -> Iterator[str]:
    """Explain why a batch size is kept, with the guides' value for this card unless plan is certain
    that the batch fits."""
    if not case.facts.gpus:
        return
    stays = f"{split.name} stays {split.size}"
    if case.measured.batch_size:
        yield f"{stays}: {case.measured.batch_size} ran ({MEASURED})"
        return
    verdict = plan_verdict(case, split.size)
    # Several batch settings belong to several loaders or stages, so mention the guides' value only
    # once.
    is_first = split.setting is case.with_role("batch")[0]
    mark = batch_mark(case) if is_first else None
    is_sure = isinstance(verdict, BatchVerdict) and verdict.verdict == "clear"
    if case.fixed_by:
        reason = case.fixed_by
    elif isinstance(verdict, CannotJudge):
        reason = f"{BY_PLAN} cannot judge this config: {verdict}"
    elif verdict.may_fit_because:
        # plan's figure is left out: it leaves something uncounted, so the figure is too high.
        reason = f"{BY_PLAN} cannot judge this config: {verdict.may_fit_because}"
    else:
        reason = verdict.reason
    if is_sure or case.fixed_by:
        yield f"{stays}: {reason}"
    elif mark is None:
        yield f"{stays}: {reason}; `{measuring(case)}` measures it"
    else:
        yield f"{stays}: {reason}"
        # Skip recommenders, because `_recommenders_tier` already mentions their value.
        if not mark.of_all_gpus:
            yield _marked(case, split, mark)


def _recommenders_tier(case: ConfigCase, split: Split) -> Iterator[str]:
    """The multi-GPU guide's batch for a recommender, which is mentioned even if plan is certain of
    the batch; nothing if a batch was measured."""
    mark = batch_mark(case)
    # A measurement on this machine counts more than a guide.
    if mark is None or case.measured.batch_size:
        return
    if mark.of_all_gpus:
        yield _marked(case, split, mark)


def _marked(case: ConfigCase, split: Split, mark: BatchMark) -> str:
    """A sentence that compares the config's batch with the guides' value, and says what to
    measure."""
    name = label(split.setting)
    sentence = f"{_mark_text(case, mark)}; {name} is {split.size}."
    pieces = _pieces_within(split, mark)
    may_be_split = next(refusals(case), None) is None
    if pieces and may_be_split:
        sentence += f" {pieces} keeps the effective batch of {split.effective}."
    elif mark.least == 0:
        double = 2 * mark.most
        sentence += f" To go beyond it, accumulate: {mark.most} x 2 is a batch of {double}."
    elif split.effective < mark.least:
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
    is_shared = mark.of_all_gpus and gpus > 1
    if is_shared:
        # Each GPU gets at least one sample.
        batch_of_gpu = max(mark.most // gpus, 1)
        text += f", {batch_of_gpu} on each of the {gpus} GPUs"
    return text


def _to_measure(case: ConfigCase, mark: BatchMark) -> str:
    """A sentence with the command that measures batch sizes up to the guides' value."""
    command = measuring(case)
    # `--max` ends the search at the guide's largest value.
    return f"To measure which batch size fits, run `{command} --max {mark.most}`"


def _pieces_within(split: Split, mark: BatchMark) -> str:
    """The effective batch in micro-batches no larger than the guides' value, in words (`128 x 4
    accumulated`).

    Empty if the batch is already within the guides' range, or cannot be split like this.
    """
    is_within = mark.least <= split.size <= mark.most
    is_plausible = 0 < split.effective <= LARGEST_EFFECTIVE
    if is_within or not is_plausible:
        return ""
    micro = next(divisors(split.effective, mark.most))
    # If the batch is already below the guides' range, do not make it even smaller.
    moves_away = split.size < mark.least and micro < split.size
    if micro == split.size or moves_away:
        return ""
    return in_pieces(micro, split.effective)


def in_pieces(micro: int, effective: int) -> str:
    """An effective batch in micro-batches of size `micro`, in words.

    >>> in_pieces(128, 512), in_pieces(512, 512)
    ('128 x 4 accumulated', '512 at once')
    """
    steps = effective // micro
    if steps > 1:
        return f"{micro} x {steps} accumulated"
    return f"{micro} at once"


QUARTER = 4


# --- a batch size that is changed -----------------------------------------------------------------


def _better_split(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest a better split of the batch, or explain why there is none; nothing if the present
    split is right."""
    measured, effective = case.measured.batch_size, split.effective
    if measured is None:
        has_one_batch = len(case.with_role("batch")) == 1
        if split.steps and has_one_batch:
            yield from _split_by_plan(case, split)
        return
    if measured > effective > 0:
        yield (
            f"{split.name}: {measured} ran here, and a batch {measured / effective:.3g} times as"
            " large is another experiment: for SGD scale the learning rate with it, for Adam by"
            " its square root, and warm up. gpusetup does not write it"
        )
    if split.size == measured:
        return
    largest = min(measured, effective)
    micro = next(divisors(effective, largest), 0)
    # With a micro-batch below a quarter of the batch that ran, most of the card would be unused.
    wastes_the_card = micro * QUARTER < largest
    if not micro or wastes_the_card:
        partner = f", with {dotted(split.partner.path)}" if split.partner else ""
        yield f"{split.name} is {split.size}, {MEASURED} {measured} ran: by hand{partner}"
    elif micro != split.size:
        yield from _change_split(case, split, micro, MEASURED)


def divisors(number: int, most: int) -> Iterator[int]:
    """The divisors of `number` that are at most `most`, largest first.

    >>> list(divisors(96, 40))
    [32, 24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    # If `number` is 0, the loop yields nothing.
    largest = min(most, number)
    for size in range(largest, 0, -1):
        if number % size == 0:
            yield size


def _split_by_plan(case: ConfigCase, split: Split) -> Iterator[Suggestion]:
    """Suggest the largest split that plan is certain to fit; a batch that may fit is not
    changed."""
    current = plan_verdict(case, split.size)
    if isinstance(current, CannotJudge) or current.verdict == "close":
        return
    if split.effective > LARGEST_EFFECTIVE:
        return
    largest_clear = _largest_clear_split(case, split)
    if largest_clear == split.size:
        return
    if largest_clear is not None:
        source = f"{BY_PLAN}, clear on this card"
        yield from _change_split(case, split, largest_clear, source)
        yield from _more_may_run(case, split, largest_clear)
        return
    # If plan knows a reason why the batch may still fit, do not call it impossible.
    if not current.may_fit_because:
        yield DoesNotFit(
            f"{split.name}: {current.reason}, and no smaller batch is sure to fit. "
            f"{_way_to_fit(case, split)}"
        )


def _more_may_run(case: ConfigCase, split: Split, largest_clear: int) -> Iterator[str]:
    """A note if a guide's batch is larger than the largest that plan is certain to fit."""
    mark = batch_mark(case)
    # Skip recommenders, because `_recommenders_tier` already mentions their value.
    if mark is None or mark.of_all_gpus:
        return
    is_below_mark = largest_clear < mark.least
    if is_below_mark and mark.least <= split.effective:
        yield (
            f"{_mark_text(case, mark)}. {BY_PLAN} is sure of {largest_clear} and leaves a "
            f"fifth of the card free, so more may run. {_to_measure(case, mark)}"
        )


def _largest_clear_split(case: ConfigCase, split: Split) -> int | None:
    """The largest micro-batch that plan is certain to fit, with the same effective batch; None if
    it is not certain of any."""
    effective = split.effective
    # The divisors come in descending order, so the first clear one is the largest.
    for size in divisors(effective, effective):
        verdict = plan_verdict(case, size, effective // size)
        # A verdict is only clear if about a fifth of the card's memory stays free.
        if isinstance(verdict, BatchVerdict) and verdict.verdict == "clear":
            return size
    return None


def _way_to_fit(case: ConfigCase, split: Split) -> str:
    """Advice if plan is not certain of any batch: to measure it, or plan's suggestions if not even
    a batch of 1 fits."""
    measure_it = f"`{measuring(case)}` measures it"
    verdict = plan_verdict(case, 1, split.effective)
    card = case.facts.card
    if card is None or isinstance(verdict, CannotJudge):
        return measure_it
    # If a batch of 1 fits, but without the safety margin, only a measurement can tell.
    if verdict.total_gib <= verdict.capacity_gib:
        return measure_it
    ways = how_to_fit(case.config, card, split.effective)
    return f"Even 1 takes {verdict.total_gib:.1f} GiB. {ways}"


def _change_split(case: ConfigCase, split: Split, micro: int, source: str) -> list[Suggestion]:
    """The changes for another split of the same effective batch, or a sentence that explains why
    there are none."""
    effective = split.effective
    steps = effective // micro
    pieces = in_pieces(micro, effective)
    refusal = next(refusals(case), None)
    if refusal is not None:
        return [f"{split.name} stays {split.size} ({pieces} by {source}): {refusal}"]
    reason = f"{pieces} keeps the effective batch of {effective} on a GPU"
    if split.derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    why = Why(reason=f"{reason}; only BatchNorm would compute other statistics", source=source)
    changes = [*change_value(case, split.setting, str(micro), why)]
    needs_steps = steps > 1 and not split.derived
    if split.partner is not None:
        changes += change_value(case, split.partner, str(steps), why)
    elif needs_steps:
        added = add_key(case, "accumulation", str(steps), why)
        if not added:
            return [
                f"{split.name} is {effective}; {source} says {micro} with {steps} steps of "
                "accumulation. The config has no known accumulation key, so gpusetup writes "
                "nothing: a smaller batch alone is another experiment"
            ]
        changes += added
    # Change both settings or neither; otherwise the effective batch would change.
    problems = [part for part in changes if isinstance(part, str)]
    return [*problems] or changes
