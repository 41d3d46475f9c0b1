"""The guide's ordered advice for a utilisation below half: batch, loader, AMP. Pure."""

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
"""Words of a command that switch mixed precision on."""


class Advice(NamedTuple):
    """One of the guide's three, and the verdicts, or their causes, that it helps."""

    text: str
    helps: tuple[str, ...]
    fits: Callable[[Subject], bool]


def has_room(subject: Subject) -> bool:
    """Whether every GPU has memory for a larger batch."""
    shares = [or_zero(gpu.memory.p95) for gpu in subject.run.gpus]
    return max(shares, default=0.0) < MEMORY_HIGH


def has_no_mixed_precision(subject: Subject) -> bool:
    """Whether the command does not ask for mixed precision already."""
    words = " ".join(subject.run.command or ())
    return MIXED.search(words) is None


STARVED = (
    "input-starved/workers",
    "input-starved/by-itself",
    "input-starved/slow-items",
    "input-starved/each-step",
)
ADVICE = (
    Advice(LARGER_BATCH, ("launch-bound",), has_room),
    Advice(MORE_WORKERS, STARVED, WORKERS_HELP),
    Advice(MIXED_PRECISION, ("launch-bound",), has_no_mixed_precision),
)
SHORT_PIECES = "bursty/short-pieces"
"""Work in short pieces, whose cause nobody saw: each of the three may help."""


def ordered_advice(subject: Subject | None, verdict: str | None, cause: str) -> tuple[str, ...]:
    """What helps against this cause, without what is so already, and for a training alone."""
    if subject is None or subject.run.kind not in ("training", ""):
        return ()
    names = {str(verdict), f"{verdict}/{cause}"}
    workers = useful_workers(subject.run)
    sentences = []
    for row in ADVICE:
        helps = SHORT_PIECES in names or names.intersection(row.helps)
        if helps and row.fits(subject):
            sentences.append(row.text.format(workers=workers))
    return tuple(sentences)
