"""Writes a larger effective batch than the config's, which is another experiment and is therefore
done only on request. Pure functions.

Settings that depend on the batch must change with it: the learning rate, and everything that is
counted in steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpusetup.configs.settings import Setting
from gpusetup.tune.case import MEASURED, ConfigCase, Suggestion, Why, change_value, label
from gpusetup.tune.refusals import refusals, step_counts

if TYPE_CHECKING:
    from gpusetup.tune.batch import Split

RATE_NAMES = ("lr", "learning_rate", "base_lr", "max_lr", "peak_lr", "init_lr", "lr0")
"""Names of the learning rate in configs."""
GROW = "`--grow-batch` writes it"


def larger_batch_in_words(split: Split, measured: int) -> str:
    """A note that a larger batch ran here, and what else would have to change with it."""
    return (
        f"{split.name}: {measured} ran here. A batch {measured / split.effective:.3g} times as"
        f" large is another experiment: for SGD scale the learning rate with it, for Adam by its"
        f" square root, and warm up. {GROW}"
    )


def grown_batch(case: ConfigCase, split: Split, measured: int) -> Iterator[Suggestion]:
    """The changes for the larger batch that ran, and notes about what must change with it; or the
    reason why the batch stays."""
    for reason in reasons_to_stay(case, split):
        yield f"{split.name} stays {split.size}, though {measured} ran here: {reason}"
        return
    factor = measured / split.effective
    at_once = "" if split.steps == 1 else ", at once instead of accumulated"
    reason = (
        f"`--grow-batch`: the effective batch grows from {split.effective} to {measured}"
        f" ({factor:.3g} times{at_once})"
    )
    why = Why(reason=reason, source=MEASURED)
    yield from change_value(case, split.setting, str(measured), why)
    if split.partner and split.steps > 1:
        yield from change_value(case, split.partner, "1", why)
    yield learning_rate_in_words(case, factor)
    counts = [label(setting) for setting in step_counts(case)]
    if counts:
        yield (
            f"Each step now sees {factor:.3g} times as many samples. Counted in steps, so perhaps"
            f" to be divided by that: {', '.join(counts[:6])}"
        )
    for reason in refusals(case):
        is_count = any(reason.startswith(count) for count in counts)
        if not is_count:
            yield reason


def reasons_to_stay(case: ConfigCase, split: Split) -> Iterator[str]:
    """The reasons why a larger batch cannot be written even though it was requested."""
    if case.fixed_by:
        yield case.fixed_by
    if split.derived:
        yield "the config also has a global batch, from which the trainer derives the accumulation"
    if split.steps < 1:
        yield "several batches share one accumulation: change them by hand"
    if len(case.with_role("batch")) > 1:
        yield "the config has several batches: change the one you mean by hand"


def learning_rate_in_words(case: ConfigCase, factor: float) -> str:
    """Advice on how to scale the learning rate with the batch, with the config's own value if there
    is exactly one."""
    rates = [setting for setting in case.with_name(*RATE_NAMES) if rate_of(setting)]
    keep = "To keep the experiment as it was, leave out `--grow-batch`"
    if len(rates) != 1:
        return (
            f"A batch {factor:.3g} times as large needs another learning rate: for SGD multiply it"
            f" by {factor:.3g} (linear scaling), for Adam by {math.sqrt(factor):.3g}, and warm up."
            f" {keep}"
        )
    rate = rate_of(rates[0]) or 0.0
    return (
        f"{label(rates[0])} is {rates[0].text}. A batch {factor:.3g} times as large needs another"
        f" learning rate: {rate * factor:.3g} for SGD (linear scaling),"
        f" {rate * math.sqrt(factor):.3g} for Adam (square root), with a warm-up. gpusetup does"
        f" not write it. {keep}"
    )


def rate_of(setting: Setting) -> float | None:
    """The learning rate in a setting; None if it is not a positive number.

    >>> rate_of(Setting(path=("lr",), kind="scalar", text="2e-4", start=0, end=4, line=1))
    0.0002
    """
    try:
        rate = float(setting.text) if setting.kind == "scalar" else 0.0
    except ValueError:
        return None
    return rate if 0 < rate < math.inf else None
