"""The grid of one workload: a plan for each length and each number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.model.documents import PlanCell
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.answer.cell import Asked, answer
from gpusetup.plan.answer.decide import decide
from gpusetup.plan.model.workload import Workload

LENGTHS = (*range(4096, 40961, 4096), *range(51200, 133121, 10240), 163840, 196608, 262144)
COUNTS = (1, 2, 4, 6, 8)


class Grid(Frozen):
    """Plans by length (rows) and number of GPUs (columns)."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    plans: tuple[tuple[PlanCell, ...], ...]


def grid(w: Workload, asked: Asked, most: int | None) -> Grid:
    """Every count up to `most` (and `most` itself), every length until none fits any more.

    The workload's own length is a row, too, unless it is 1 (none was named).
    """
    counts = counts_up_to(most, w.tensor_parallel * w.pipeline_parallel)
    asked = replace(asked, brief=True)
    rows: list[tuple[PlanCell, ...]] = []
    lengths = sorted({*LENGTHS, *([w.context] if w.context > 1 else [])})
    for length in lengths:
        at = [replace(w, context=length, gpus=gpus) for gpus in counts]
        rows.append(tuple(answer(decide(one, asked.case), asked) for one in at))
        if not any(plan.fits for plan in rows[-1]):
            break
    return Grid(lengths=tuple(lengths[: len(rows)]), counts=counts, plans=tuple(rows))


def counts_up_to(most: int | None, unit: int = 1) -> tuple[int, ...]:
    """
    >>> counts_up_to(None), counts_up_to(5), counts_up_to(16, 2)
    ((1, 2, 4, 6, 8), (1, 2, 4, 5), (2, 4, 6, 8, 16))
    """
    usual: Sequence[int] = [n for n in COUNTS if most is None or n <= most]
    counts = sorted({*usual, *([most] if most else [])})
    return tuple(n for n in counts if n % unit == 0) or (unit,)
