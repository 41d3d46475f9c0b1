"""Batch times accumulation: another split of the same effective batch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs import keys
from gpusetup.configs.keys import Key
from gpusetup.configs.settings import Setting, in_words, whole
from gpusetup.tune.case import Case, Part, added_key, no_number, written_over


def batch(case: Case) -> Iterator[Part]:
    """Each batch with its accumulation: another split of the same effective batch."""
    rows = list(case.having(keys.BATCH))
    for setting, key in rows:
        size = whole(setting)
        if size is None:
            yield no_number(setting)
        elif size < 1:
            yield f"{in_words(setting.path)} (line {setting.line}) is {size}: that is no batch size"
        elif not key.written:
            yield from _batch_in_words(case, setting, key, size)
        else:
            yield from _split(case, setting, size, len(rows))


def _batch_in_words(case: Case, setting: Setting, key: Key, size: int) -> Iterator[Part]:
    wanted = _range(case)
    if wanted and not wanted[0] <= size <= wanted[1]:
        yield (
            f"{in_words(setting.path)} is {size}; {wanted[2]} says {_span(wanted)}: the trainer"
            f" derives other settings from it ({key.source}), so it is not written"
        )


def _range(case: Case) -> tuple[int, int, str] | None:
    """From, to, and who says so: measured here, else the preset."""
    if case.option.measured:
        return case.option.measured, case.option.measured, "measured on this machine"
    preset = case.preset()
    if preset is None or preset.batch is None:
        return None
    return (*preset.batch, preset.source)


def _span(wanted: tuple[int, int, str]) -> str:
    return str(wanted[0]) if wanted[0] == wanted[1] else f"{wanted[0]} to {wanted[1]}"


def _split(case: Case, setting: Setting, size: int, rows: int) -> Iterator[Part]:
    wanted = _range(case)
    if wanted is None or wanted[0] <= size <= wanted[1]:
        return
    partner = _accumulation(case, setting)
    steps = whole(partner) if partner else 1
    if steps is None or steps < 1 or (partner and rows > 1 and not _beside(partner, setting)):
        yield f"{in_words(setting.path)} is {size}, {wanted[2]} says {_span(wanted)}: by hand" + (
            f", with {in_words(partner.path)}" if partner else ""
        )
        return
    effective = size * steps
    if size < wanted[0] and effective < wanted[0]:
        yield from _grown(case, setting, size, steps, wanted)
        return
    micro = largest_divisor(effective, wanted[1])
    if micro * 4 < min(wanted[1], effective):
        near = effective - effective % wanted[1] or wanted[1]
        yield (
            f"{in_words(setting.path)}: {effective} has no divisor near {wanted[1]};"
            f" an effective batch of {near} would split well, but it is another experiment"
        )
    elif micro != size:
        yield from _written_split(case, setting, partner, effective, micro, wanted[2])


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


def _written_split(
    case: Case, setting: Setting, partner: Setting | None, effective: int, micro: int, source: str
) -> Iterator[Part]:
    steps = effective // micro
    split = f"{micro} x {steps} accumulated" if steps > 1 else f"{micro} at once"
    reason = f"{split} keeps the effective batch of {effective} on a GPU"
    if partner:
        both = [
            *written_over(case, setting, str(micro), reason, source),
            *written_over(case, partner, str(steps), reason, source),
        ]
    else:
        total = _derived(case, setting)
        extra = [] if total else list(added_key(case, keys.ACCUMULATION, str(steps), reason))
        if not extra and not total:
            yield (
                f"{in_words(setting.path)} is {effective}; {source} says {micro} with {steps} steps"
                " of accumulation. No accumulation key that is known stands here, so nothing is"
                " written: a smaller batch alone is another experiment"
            )
            return
        if not extra:
            reason += " (the trainer derives the accumulation from the global batch)"
        both = [*written_over(case, setting, str(micro), reason, source), *extra]
    if any(isinstance(part, str) for part in both):  # both or none
        yield from (part for part in both if isinstance(part, str))
        return
    yield from both
    yield (
        "The same effective batch in other pieces gives the same gradient, except for layers that"
        " look across the batch (BatchNorm): those see the smaller pieces"
    )


def _grown(
    case: Case, setting: Setting, size: int, steps: int, wanted: tuple[int, int, str]
) -> Iterator[Part]:
    """More than the effective batch would fit: only with `--grow-batch`."""
    target = wanted[0]
    word = (
        f"a batch {target / (size * steps):.3g} times as large is another experiment: scale the"
        " learning rate with it for SGD, by its square root for Adam, and warm up"
    )
    if not case.option.grow:
        yield f"{in_words(setting.path)}: {target} would fit ({wanted[2]}; `--grow-batch`); {word}"
        return
    partner = _accumulation(case, setting)
    reason = f"--grow-batch: from an effective batch of {size * steps} to {target}"
    yield from written_over(case, setting, str(target), reason, wanted[2])
    if partner and steps > 1:
        yield from written_over(case, partner, "1", reason, wanted[2])
    rates = [in_words(one.path) for one, _ in case.having(keys.LEARNING_RATE)]
    yield f"{', '.join(rates) or 'The learning rate'} is not written: {word}"
