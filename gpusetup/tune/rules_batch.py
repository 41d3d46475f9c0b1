"""Batch times accumulation: another split of the same effective batch. Pure.

A micro-batch is raised only by what was measured here, or where `plan` calls it clear for this very
config on this card; a preset lowers or advises. What goes with the batch is carried along, or the
change is refused with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs import keys
from gpusetup.configs.keys import Key
from gpusetup.configs.settings import Setting, in_words, whole
from gpusetup.model.frozen import Frozen
from gpusetup.plan.verdict import BatchVerdict
from gpusetup.tune.case import MEASURED, Case, Part, Proposed, added_key, no_number, written_over
from gpusetup.tune.fitting import BY_PLAN, elsewhere, fits_now, largest_clear
from gpusetup.tune.fitting import cannot_fit as not_even_one
from gpusetup.tune.limits import carried
from gpusetup.tune.trainers import trainer_in
from gpusetup.tune.vetoes import batchnorm, other_unit, veto

MEASURE_IT = "`gpusetup tune --batch-size --code MODULE:FUNCTION` measures it"


class Wanted(Frozen):
    """Sizes of a micro-batch, and who says so."""

    least: int
    most: int
    source: str


class Split(Frozen):
    """One batch in its config: what it is, and what goes with it."""

    setting: Setting
    size: int
    partner: Setting | None
    steps: int

    @property
    def effective(self) -> int:
        return self.size * self.steps


def batch(case: Case) -> Iterator[Part]:
    """Each batch with its accumulation: another split of the same effective batch."""
    rows = list(case.having(keys.BATCH))
    for setting, key in rows:
        size = whole(setting)
        if said := other_unit(case, setting):
            yield f"{in_words(setting.path)} (line {setting.line}) is left as it is: {said}"
        elif size is None:
            yield no_number(setting)
        elif size < 1:
            yield f"{in_words(setting.path)} (line {setting.line}) is {size}: that is no batch size"
        else:
            judged = _judged(case, setting, key, size, len(rows))
            yield from judged or _left(case, setting, key, size)


def _judged(case: Case, setting: Setting, key: Key, size: int, rows: int) -> list[Part]:
    if key.written:
        return list(_split(case, setting, size, rows))
    return list(_batch_in_words(case, setting, key, size))


def _left(case: Case, setting: Setting, key: Key, size: int) -> Iterator[str]:
    """Why a batch stays that nothing was said of; nothing where the answer says so already."""
    if not case.facts.gpus or key.source == keys.TRINITY or not_even_one(case):
        return
    trainer, now = trainer_in(case.config), fits_now(case, size)
    wanted = _asked(case)
    why = f"neither {BY_PLAN} nor a mark of the guides can judge this config. {MEASURE_IT}"
    if trainer and trainer.stays:
        why = trainer.stays
    elif case.option.fixed_beside or elsewhere(case):
        why = case.option.fixed_beside or "another file says how the model is sharded"
    elif now:
        why = now.reason + (f". {MEASURE_IT}" if now.verdict == "close" else "")
    elif wanted and wanted.least <= size <= wanted.most and not _long(case):
        why = f"the mark for such a card is {_span(wanted)} ({wanted.source})"
    yield f"{in_words(setting.path)} stays {size}: {why}"


MARKED_LENGTH = 512
"""The longest sequence that the marks of the guides are said of: theirs are 64 to 256."""


def _long(case: Case) -> bool:
    return any((whole(one) or 0) > MARKED_LENGTH for one, _ in case.having(keys.LENGTH))


def cannot_fit(case: Case) -> str | None:
    """What to say first of all where not even one sample of the model fits, with plan's table."""
    found = not_even_one(case)
    if found is None:
        return None
    one, table = found
    return (
        f"This model cannot be trained like this on this card: a single sample needs"
        f" {one.total_gib or 0:.1f} of {one.capacity_gib:.1f} GiB ({table}). No batch was changed:"
        f" {BY_PLAN} says which recipe fits"
    )


def _batch_in_words(case: Case, setting: Setting, key: Key, size: int) -> Iterator[Part]:
    wanted = _asked(case)
    if wanted and size > wanted.most:
        yield (
            f"{in_words(setting.path)} is {size}; {wanted.source} says {_span(wanted)}: the trainer"
            f" derives other settings from it ({key.source}), so it is not written"
        )


def _asked(case: Case) -> Wanted | None:
    """What was measured here, else the preset."""
    measured = case.option.measured
    if measured:
        return Wanted(least=measured, most=measured, source=MEASURED)
    preset = case.preset()
    if preset is None:
        return None
    return Wanted(least=preset.batch[0], most=preset.batch[1], source=preset.source)


def _span(wanted: Wanted) -> str:
    one = wanted.least == wanted.most
    return str(wanted.least) if one else f"{wanted.least} to {wanted.most}"


def _split(case: Case, setting: Setting, size: int, rows: int) -> Iterator[Part]:
    partner = _accumulation(case, setting)
    steps = whole(partner) if partner else 1
    known = not (partner and rows > 1 and not _beside(partner, setting))
    split = Split(setting=setting, size=size, partner=partner, steps=steps or 0)
    if case.option.measured is None:
        if not_even_one(case) or elsewhere(case):
            return
        if known and rows == 1 and (now := fits_now(case, size)):
            yield from _by_plan(case, split, now)
            return
    wanted = _asked(case)
    if wanted is None or wanted.least <= size <= wanted.most:
        return
    if size < wanted.least and not case.option.measured and _long(case):
        return
    if not known or split.steps < 1:
        yield (
            f"{in_words(setting.path)} is {size}, {wanted.source} says {_span(wanted)}: by hand"
            + (f", with {in_words(partner.path)}" if partner else "")
        )
    elif size < wanted.least and not case.option.measured:
        yield (
            f"{in_words(setting.path)}: the mark for such a card is {_span(wanted)}"
            f" ({wanted.source}); nothing is raised unmeasured: {MEASURE_IT}"
        )
    elif size < wanted.least and split.effective < wanted.least:
        yield from _grown(case, split, wanted)
    else:
        yield from _into(case, split, wanted.most, wanted.source)


def _by_plan(case: Case, split: Split, now: BatchVerdict) -> Iterator[Part]:
    """The largest clear split; a batch that is close is left as it is."""
    name = in_words(split.setting.path)
    if split.steps < 1 or split.effective > MOST_SPLIT:
        return
    best = largest_clear(case, split.effective)
    if now.verdict == "close" or (best or 0) == split.size:
        return
    if best is None:
        yield f"{name}: {now.reason}, and no smaller one is clear: try 1, or {BY_PLAN}"
        return
    yield from _written_split(case, split, best, f"{BY_PLAN}, clear on this card")


MOST_SPLIT = 1 << 16


def _into(case: Case, split: Split, most: int, source: str) -> Iterator[Part]:
    """The largest piece of the effective batch up to a size."""
    effective = split.effective
    micro = largest_divisor(effective, most)
    if micro * 4 < min(most, effective):
        near = effective - effective % most or most
        yield (
            f"{in_words(split.setting.path)}: {effective} has no divisor near {most};"
            f" an effective batch of {near} would split well, but it is another experiment"
        )
    elif micro != split.size:
        yield from _written_split(case, split, micro, source)


def largest_divisor(number: int, most: int) -> int:
    """
    >>> largest_divisor(96, 40)
    32
    """
    return next(size for size in range(min(most, number), 0, -1) if number % size == 0)


def _accumulation(case: Case, setting: Setting) -> Setting | None:
    """The accumulation that goes with a batch: in the same map, else the only one there is."""
    all_of_them = [one for one, _ in case.having(keys.ACCUMULATION)]
    same = [one for one in all_of_them if _beside(one, setting)]
    if not same and _derived(case, setting):
        return None
    here = same or [one for one in all_of_them if one.document == setting.document]
    return here[0] if len(here) == 1 else None


def _derived(case: Case, setting: Setting) -> bool:
    """Whether a global batch beside it lets the trainer work the accumulation out by itself."""
    return any(_beside(total, setting) for total, _ in case.having(keys.TOTAL))


def _beside(one: Setting, other: Setting) -> bool:
    return one.document == other.document and one.path[:-1] == other.path[:-1]


def _written_split(case: Case, split: Split, micro: int, source: str) -> Iterator[Part]:
    """The batch, its accumulation and what counts micro-batches: all of them or none."""
    steps, name = split.effective // micro, in_words(split.setting.path)
    pieces = f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"
    said = veto(case, steps)
    if said:
        yield f"{name} stays {split.size} ({pieces} by {source}): {said}"
        return
    more, refused = carried(case, split.size, micro, source, (split.effective, split.effective))
    if refused:
        yield f"{name} stays {split.size} ({pieces} by {source}): {refused}"
        return
    reason = f"{pieces} keeps the effective batch of {split.effective} on a GPU"
    both = [*_pieces(case, split, micro, steps, reason, source), *more]
    if any(isinstance(part, str) for part in both):  # both or none
        yield from (part for part in both if isinstance(part, str))
        return
    yield from both
    if not source.startswith(BY_PLAN):
        yield from _about_batchnorm(case)


def _pieces(
    case: Case, split: Split, micro: int, steps: int, reason: str, source: str
) -> Iterator[Part]:
    setting, partner = split.setting, split.partner
    derived = partner is None and _derived(case, setting)
    if derived:
        reason += " (the trainer derives the accumulation from the global batch)"
    extra: list[Part] = []
    if partner is None and not derived:
        extra = list(added_key(case, keys.ACCUMULATION, str(steps), reason))
        if not extra:
            yield (
                f"{in_words(setting.path)} is {split.effective}; {source} says {micro} with {steps}"
                " steps of accumulation. No accumulation key that is known stands here, so nothing"
                " is written: a smaller batch alone is another experiment"
            )
            return
    yield from written_over(case, setting, str(micro), reason, source)
    if partner:
        yield from written_over(case, partner, str(steps), reason, source)
    yield from extra


def _about_batchnorm(case: Case) -> Iterator[Part]:
    found = batchnorm(case)
    if found:
        yield f"BatchNorm ({in_words(found.path)}) sees the other pieces, as it was allowed to"
    else:
        yield (
            "The same effective batch in other pieces gives the same gradient, except for layers"
            " that look across the batch (BatchNorm, of which nothing is said here)"
        )


def _grown(case: Case, split: Split, wanted: Wanted) -> Iterator[Part]:
    """More than the effective batch ran: only with `--grow-batch`."""
    target, setting = wanted.least, split.setting
    word = (
        f"a batch {target / split.effective:.3g} times as large is another experiment: scale the"
        " learning rate with it for SGD, by its square root for Adam, and warm up"
    )
    if not case.option.grow:
        yield f"{in_words(setting.path)}: {target} ran here (`--grow-batch`); {word}"
        return
    more, refused = carried(case, split.size, target, wanted.source, (split.effective, target))
    said = refused or veto(case, 1)
    if said:
        yield f"{in_words(setting.path)} stays {split.size}, though {target} ran here: {said}"
        return
    reason = f"--grow-batch: from an effective batch of {split.effective} to {target}"
    both = list(written_over(case, setting, str(target), reason, wanted.source))
    if split.partner and split.steps > 1:
        both += written_over(case, split.partner, "1", reason, wanted.source)
    if not all(isinstance(part, Proposed) for part in both):
        yield from (part for part in both if isinstance(part, str))
        return
    yield from (*both, *more)
    rates = [in_words(one.path) for one, _ in case.having(keys.LEARNING_RATE)]
    yield f"{', '.join(rates) or 'The learning rate'} is not written: {word}"
