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
from gpusetup.plan.job import Job

CELLS = Path(__file__).resolve().parents[1] / "data" / "plan" / "cells.csv"
NONE = "-"

Column = tuple[str, int, str]
"""GPU, number of GPUs, model."""


@lru_cache(maxsize=1)
def table() -> Mapping[Column, Mapping[int, str]]:
    """Column -> length -> recipe, the shortest first."""
    columns: dict[Column, dict[int, str]] = {}
    with CELLS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            column = (row["gpu"], int(row["num_gpus"]), row["model"])
            columns.setdefault(column, {})[int(row["max_model_len"])] = row["recipe"]
    return {column: dict(sorted(cells.items())) for column, cells in columns.items()}


def gpu_of(name: str | None, total_bytes: float) -> str | None:
    """The table's name of a GPU, or None if it was not measured.

    >>> gpu_of("NVIDIA A100-SXM4-80GB", 80 * GIB), gpu_of("NVIDIA A100-SXM4-40GB", 40 * GIB)
    ('A100', None)
    """
    words, gib = tokens(name or ""), total_bytes / GIB
    if "a100" in words and gib > 70:
        return "A100"
    return "H20" if "h20" in words and 90 < gib < 100 else None


def is_standard(job: Job) -> bool:
    """Whether a job is of the kind that was measured: a text, the trainer's defaults."""
    plain = Job(shape=job.shape, gpus=job.gpus, context=job.context)
    return job.shape.writes_text and not job.shape.tower and job == plain


def measured(gpu: str | None, job: Job) -> Mapping[int, str]:
    """Length -> recipe of all that was measured of such a job; empty if nothing was."""
    column = (gpu or "", job.gpus, job.shape.name)
    return table().get(column, {}) if gpu and is_standard(job) else {}


def measured_recipe(gpu: str | None, job: Job) -> str | None:
    """The measured recipe (`-`: none fits), or None if the table does not reach."""
    cells = measured(gpu, job)
    lengths = [*cells]
    place = bisect_left(lengths, job.context)
    return cells[lengths[place]] if place < len(lengths) else None


def longest_measured(gpu: str | None, job: Job) -> int | None:
    """The longest measured length that fits."""
    return max((n for n, recipe in measured(gpu, job).items() if recipe != NONE), default=None)
