"""Batch times accumulation: another split of the same effective batch. Pure.

A micro-batch is raised only by what was measured here, or where `plan` calls it clear for this very
config on this card; a mark of the guides lowers or advises. What goes with the batch is carried
along, or the change is refused with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs.keys import Loop
from gpusetup.configs.settings import Setting, in_words, names_in, whole
from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.config import question_of
from gpusetup.plan.verdict import BatchVerdict, batch_verdict, memory_table
from gpusetup.tune.case import (
    MEASURED,
    Case,
    Part,
    Why,
    added_key,
    no_number,
    place,
    written_over,
)
from gpusetup.tune.refusals import batchnorm, counted, other_unit, refusal
from gpusetup.tune.trainers import trainer_in

BY_PLAN = "`gpusetup plan --from-config`"
MEASURE_IT = "`gpusetup tune --batch-size --code MODULE:FUNCTION` measures it"
MOST_SPLIT = 1 << 16
MARKED_LENGTH = 512
"""The longest sequence that the marks of the guides are said of: theirs are 64 to 256."""
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
    """Of a batch with so many steps, None: as it is now; None where plan knows too little."""
    card, config = case.facts.card, case.config if steps is None else case.changed or case.config
    try:
        asked = question_of(config)
        if card is None or asked.notes or elsewhere(case):
            return None
        if names_in(config.settings) & PREFERENCE or (steps is None and asked.per_gpu != size):
            return None
        found = batch_verdict(config, size, card, accumulate=steps)
    except GpuSetupError:
        return None
    return None if found.verdict == "unknown" else found


def cannot_fit(case: Case) -> str | None:
    """What to say first of all where not even one sample of the model fits, with plan's table,
    whatever the other changes save."""
    card, config = case.facts.card, case.changed or case.config
    if card is None or elsewhere(case):
        return None
    try:
        one = batch_verdict(config, 1, card, short=True)
        if one.verdict != "too much":
            return None
        table = memory_table(config, 1, card)
    except GpuSetupError:
        return None
    return (
        f"This model cannot be trained like this on this card: a single sample needs"
        f" {one.total_gib or 0:.1f} of {one.capacity_gib:.1f} GiB ({table}). No batch was changed:"
        f" {BY_PLAN} says which recipe fits"
    )


# --- each batch ---------------------------------------------------------------------------------


class Wanted(Frozen):
    """Sizes of a micro-batch, and who says so."""

    least: int
    most: int
    source: str

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


class Split(Frozen):
    """One batch in its config: what it is, and what goes with it."""

    setting: Setting
    size: int
    partner: Setting | None
    steps: int
    derived: bool
    """Whether a global batch beside it lets the trainer work the accumulation out by itself."""

    @property
    def effective(self) -> int:
        return self.size * self.steps

    @property
    def name(self) -> str:
        return in_words(self.setting.path)


def batch(case: Case) -> Iterator[Part]:
    """Each batch with its accumulation: another split of the same effective batch."""
    for setting, key in case.found:
        size = whole(setting)
        if key.role != "batch":
            continue
        if said := other_unit(case, setting):
            yield f"{place(setting)} is left as it is: {said}"
        elif size is None:
            yield no_number(setting)
        elif size < 1:
            yield f"{place(setting)} is {size}: that is no batch size"
        elif key.written:
            split = _split_of(case, setting, size)
            yield from list(_judged(case, split)) or _left(case, split)
        elif (wanted := _wanted(case)) and size > wanted.most:
            yield (
                f"{in_words(setting.path)} is {size}; {wanted.source} says {wanted}: the trainer"
                f" derives other settings from it ({key.source}), so it is not written"
            )
        elif not key.source.startswith("Trinity"):
            yield from _left(case, _split_of(case, setting, size))


def _split_of(case: Case, setting: Setting, size: int) -> Split:
    """The accumulation that goes with a batch is in the same map, else the only one there is."""

    def beside(one: Setting) -> bool:
        return one.document == setting.document and one.path[:-1] == setting.path[:-1]

    several = len(case.having("batch")) > 1
    there = [one for one in case.having("accumulation") if one.document == setting.document]
    same = [one for one in there if beside(one)]
    derived = not same and any(map(beside, case.having("total")))
    here = same or ([] if derived else there)
    partner = here[0] if len(here) == 1 else None
    steps = (whole(partner) or 0) if partner else 1
    if partner and several and not same:
        steps = 0
    return Split(setting=setting, size=size, partner=partner, steps=steps, derived=derived)


def _wanted(case: Case) -> Wanted | None:
    """What was measured here, else the guides' mark."""
    measured, preset = case.option.measured, case.preset()
    if measured:
        return Wanted(least=measured, most=measured, source=MEASURED)
    if preset is None:
        return None
    return Wanted(least=preset.batch[0], most=preset.batch[1], source=preset.source)


def _long(case: Case) -> bool:
    return any((whole(one) or 0) > MARKED_LENGTH for one in case.having("length"))


def _left(case: Case, split: Split) -> Iterator[str]:
    """Why a batch stays that nothing was said of; nothing where the answer says so already."""
    if not case.facts.gpus or cannot_fit(case):
        return
    now, wanted = _verdict(case, split.size), _wanted(case)
    why = f"neither {BY_PLAN} nor a mark of the guides can judge this config. {MEASURE_IT}"
    if case.option.fixed_beside or elsewhere(case):
        why = case.option.fixed_beside or "another file says how the model is sharded"
    elif now:
        why = now.reason + (f". {MEASURE_IT}" if now.verdict == "close" else "")
    elif wanted and wanted.least <= split.size <= wanted.most and not _long(case):
        why = f"the mark for such a card is {wanted} ({wanted.source})"
    yield f"{split.name} stays {split.size}: {why}"


def _judged(case: Case, split: Split) -> Iterator[Part]:
    """Another split, or why not; nothing where it is as it should be."""
    measured, wanted = case.option.measured, _wanted(case)
    if measured is None:
        if cannot_fit(case) or elsewhere(case):
            return
        now = _verdict(case, split.size) if len(case.having("batch")) == 1 else None
        if now and split.steps:
            yield from _by_plan(case, split, now)
            return
    if wanted is None or wanted.least <= split.size <= wanted.most:
        return
    too_small = split.size < wanted.least
    if too_small and measured is None and _long(case):
        return
    if split.steps < 1:
        partner = f", with {in_words(split.partner.path)}" if split.partner else ""
        yield f"{split.name} is {split.size}, {wanted.source} says {wanted}: by hand{partner}"
    elif too_small and measured is None:
        yield (
            f"{split.name}: the mark for such a card is {wanted} ({wanted.source}); nothing is"
            f" raised unmeasured: {MEASURE_IT}"
        )
    elif too_small and split.effective < wanted.least:
        yield from _grown(case, split, wanted)
    else:
        yield from _into(case, split, wanted)


def _by_plan(case: Case, split: Split, now: BatchVerdict) -> Iterator[Part]:
    """The largest clear split; a batch that is close is left as it is."""
    if split.effective > MOST_SPLIT or now.verdict == "close":
        return
    sizes = (size for size in range(split.effective, 0, -1) if split.effective % size == 0)
    verdicts = ((size, _verdict(case, size, split.effective // size)) for size in sizes)
    best = next((size for size, one in verdicts if one and one.verdict == "clear"), None)
    if best is None:
        yield f"{split.name}: {now.reason}, and no smaller one is clear: try 1, or {BY_PLAN}"
    elif best != split.size:
        yield from _written(case, split, best, f"{BY_PLAN}, clear on this card")


def _into(case: Case, split: Split, wanted: Wanted) -> Iterator[Part]:
    """The largest piece of the effective batch up to a size."""
    effective, most = split.effective, wanted.most
    micro = next(size for size in range(min(most, effective), 0, -1) if effective % size == 0)
    if micro * 4 < min(most, effective):
        near = effective - effective % most or most
        yield (
            f"{split.name}: {effective} has no divisor near {most}; an effective batch of {near}"
            " would split well, but it is another experiment"
        )
    elif micro != split.size:
        yield from _written(case, split, micro, wanted.source)


def _written(case: Case, split: Split, micro: int, source: str) -> Iterator[Part]:
    """The batch, its accumulation and what counts micro-batches: all of them or none."""
    steps = split.effective // micro
    pieces = f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"
    more, refused = carried(case, split, (micro, split.effective), source)
    if said := refusal(case) or refused:
        yield f"{split.name} stays {split.size} ({pieces} by {source}): {said}"
        return
    reason = f"{pieces} keeps the effective batch of {split.effective} on a GPU"
    if split.derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    why = Why(reason=reason, source=source)
    both = list(written_over(case, split.setting, str(micro), why))
    if split.partner:
        both += written_over(case, split.partner, str(steps), why)
    elif not split.derived:
        added = added_key(case, "accumulation", str(steps), reason)
        if not added:
            yield (
                f"{split.name} is {split.effective}; {source} says {micro} with {steps} steps of"
                " accumulation. This file has no known accumulation key, so nothing is"
                " written: a smaller batch alone is another experiment"
            )
            return
        both += added
    yield from _all_or_none([*both, *more])
    if not source.startswith(BY_PLAN):
        found = batchnorm(case)
        yield (
            f"BatchNorm ({in_words(found.path)}) sees the other pieces, as it was allowed to"
            if found
            else "The same effective batch in other pieces gives the same gradient, except for"
            " layers that look across the batch (BatchNorm, of which nothing is said here)"
        )


def _all_or_none(parts: list[Part]) -> list[Part]:
    return [part for part in parts if isinstance(part, str)] or parts


def _grown(case: Case, split: Split, wanted: Wanted) -> Iterator[Part]:
    """More than the effective batch ran: only with `--grow-batch`."""
    target = wanted.least
    word = (
        f"a batch {target / split.effective:.3g} times as large is another experiment: scale the"
        " learning rate with it for SGD, by its square root for Adam, and warm up"
    )
    if not case.option.grow:
        yield f"{split.name}: {target} ran here (`--grow-batch`); {word}"
        return
    more, refused = carried(case, split, (target, target), wanted.source)
    if said := refused or refusal(case):
        yield f"{split.name} stays {split.size}, though {target} ran here: {said}"
        return
    reason = f"--grow-batch: from an effective batch of {split.effective} to {target}"
    why = Why(reason=reason, source=wanted.source)
    both = list(written_over(case, split.setting, str(target), why))
    if split.partner and split.steps > 1:
        both += written_over(case, split.partner, "1", why)
    yield from _all_or_none([*both, *more])
    rates = ", ".join(in_words(one.path) for one in case.having("learning-rate"))
    yield f"{rates or 'The learning rate'} is not written: {word}"


# --- what goes with it --------------------------------------------------------------------------


def carried(
    case: Case, split: Split, after: tuple[int, int], source: str
) -> tuple[list[Part], str | None]:
    """What counts micro-batches, changed with them; or why the change must not be made.

    `after`: the new micro-batch, and the new effective batch.
    """
    trainer = trainer_in(case.config) or Loop(name="this trainer")
    micro, effective = after
    parts: list[Part] = []
    for one in counted(case):
        name, samples = str(one.path[-1]).lstrip("-").replace("-", "_"), (whole(one) or 0)
        if name in trainer.micro.split():
            samples *= split.size
            why = f"it counts micro-batches: the same {samples} samples in pieces of {micro}"
            if not samples or samples % micro:
                return [], (
                    f"{place(one)} counts micro-batches, and {samples} samples are no whole number"
                    f" of {micro}"
                )
            value = str(samples // micro)
            found = Why(reason=why, source=trainer.source or source)
            parts += written_over(case, one, value, found)
            if any(isinstance(part, str) for part in parts):
                return [], f"{place(one)} counts micro-batches and cannot be changed in place"
        elif trainer.steps == "unknown" and name not in trainer.updates.split():
            return [], (
                f"{place(one)} counts steps, and whether these are micro-batches or updates is not"
                " known here: change both by hand"
            )
        elif effective != split.effective:
            return [], (
                f"{place(one)} counts updates, and each would see {effective} samples instead of"
                f" {split.effective}"
            )
    return parts, None
