"""The measured table: which recipe lets a Qwen3 model train on A100 80 GB or H20 96 GB.

560 cells by the authors of Trinity-RFT (`data/plan/SOURCES.md`). Between two measured lengths the
longer one's recipe holds.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpusetup.catalog.gpus import tokens
from gpusetup.model.units import GIB
from gpusetup.plan.model.workload import Recipe, Workload

CELLS = Path(__file__).resolve().parents[2] / "data" / "plan" / "cells.csv"
NONE = "-"

Column = tuple[str, int, str]
"""GPU, number of GPUs, model."""


@lru_cache(maxsize=1)
def table() -> Mapping[Column, tuple[tuple[int, ...], tuple[str, ...]]]:
    """Column -> lengths in order, and the recipe of each."""
    columns: dict[Column, list[tuple[int, str]]] = {}
    with CELLS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            column = (row["gpu"], int(row["num_gpus"]), row["model"])
            columns.setdefault(column, []).append((int(row["max_model_len"]), row["recipe"]))
    return {
        column: tuple(zip(*sorted(cells), strict=True))  # type: ignore[misc]
        for column, cells in columns.items()
    }


def gpu_of(name: str | None, total_bytes: float) -> str | None:
    """The table's name of a GPU, or None where it was not measured.

    >>> gpu_of("NVIDIA A100-SXM4-80GB", 80 * GIB), gpu_of("NVIDIA A100-SXM4-40GB", 40 * GIB)
    ('A100', None)
    """
    words, gib = tokens(name or ""), total_bytes / GIB
    if "a100" in words and gib > 70:
        return "A100"
    return "H20" if "h20" in words and 90 < gib < 100 else None


def is_standard(w: Workload) -> bool:
    """Whether a workload is of the kind that was measured: a text, the trainer's defaults."""
    if not w.shape.writes_text or w.shape.tower:
        return False
    plain = Workload(shape=w.shape, gpus=w.gpus, context=w.context, linked=w.linked)
    return w == plain


def measured_recipe(gpu: str | None, w: Workload) -> str | None:
    """The measured recipe (`-`: none fits), or None where the table does not reach."""
    column = table().get((gpu or "", w.gpus, w.shape.name))
    if column is None or not is_standard(w):
        return None
    lengths, recipes = column
    place = bisect_left(lengths, w.context)
    return recipes[place] if place < len(lengths) else None


def longest_measured(gpu: str | None, w: Workload) -> tuple[int, Recipe] | None:
    """The longest measured length that fits, and its recipe."""
    column = table().get((gpu or "", w.gpus, w.shape.name))
    if column is None or not is_standard(w):
        return None
    fitting = [(n, r) for n, r in zip(*column, strict=True) if r != NONE]
    return (fitting[-1][0], Recipe.parse(fitting[-1][1])) if fitting else None
