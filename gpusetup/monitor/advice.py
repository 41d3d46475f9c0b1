"""The acceleration guide's advice for a GPU that is busy less than half of the time: a larger
batch, more loader workers, mixed precision. (docs/how-to/tune.md lists this guide and the other
published tuning guides.) Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpusetup.monitor.marks import MEMORY_HIGH
from gpusetup.monitor.run import useful_workers
from gpusetup.monitor.steps import WORKERS_HELP
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.work import or_zero
from gpusetup.readings.gpu_use import LARGER_BATCH, MIXED_PRECISION, MORE_WORKERS

MIXED = re.compile(
    r"(bf16|fp16|float16|bfloat16|--?(use[_-])?amp\b|mixed[_-]precision)"
    r"(?![= ](0|false|no|none)\b)",
    re.I,
)
"""Words in a command line that switch mixed precision on."""


class GuideAdvice(NamedTuple):
    """One of the acceleration guide's three pieces of advice, the verdicts or causes for which it
    helps, and a function that tests whether the run can still use this advice."""

    text: str
    helps: tuple[str, ...]
    fits: Callable[[Subject], bool]


def has_room(subject: Subject) -> bool:
    """Whether every GPU has enough free memory for a larger batch; a GPU with unknown memory counts
    as empty."""
    fullest = 0.0
    for gpu in subject.run.gpus:
        # Unknown memory counts as empty.
        memory_share = or_zero(gpu.memory.p95)
        fullest = max(fullest, memory_share)
    return fullest < MEMORY_HIGH


def has_no_mixed_precision(subject: Subject) -> bool:
    """Whether the command line contains no word that switches mixed precision on."""
    command = subject.run.command or ()
    words = " ".join(command)
    match = MIXED.search(words)
    return match is None


STARVED = (
    "input-starved/workers",
    "input-starved/by-itself",
    "input-starved/slow-items",
    "input-starved/each-step",
)
ADVICE = (
    GuideAdvice(LARGER_BATCH, ("launch-bound",), has_room),
    GuideAdvice(MORE_WORKERS, STARVED, WORKERS_HELP),
    GuideAdvice(MIXED_PRECISION, ("launch-bound",), has_no_mixed_precision),
)
SHORT_PIECES = ("bursty/short-pieces", "input-starved/short-pieces")
"""Verdicts for work in short pieces of unknown cause: any of the three pieces of advice may help.
"""


def ordered_advice(subject: Subject | None, verdict: str | None, cause: str) -> tuple[str, ...]:
    """The guide's advice that helps against this verdict and cause, without the advice that the
    command already follows.

    Empty if the run is known to be something other than a training, or if the verdict is about the
    whole run.
    """
    if subject is None or subject.run.kind not in ("training", ""):
        return ()
    whole_cause = f"{verdict}/{cause}"
    names = {str(verdict), whole_cause}
    workers = useful_workers(subject.run)
    sentences = []
    for row in ADVICE:
        helps = not names.isdisjoint(row.helps)
        # With short pieces of unknown cause, any of the three may help.
        is_candidate = helps or whole_cause in SHORT_PIECES
        if is_candidate and row.fits(subject):
            sentence = row.text.format(workers=workers)
            sentences.append(sentence)
    return tuple(sentences)
