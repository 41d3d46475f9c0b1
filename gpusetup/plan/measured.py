"""The measured table: which recipe lets a Qwen3 model train on A100 80 GB or H20 96 GB.

560 cells by the authors of Trinity-RFT (`data/plan/SOURCES.md`). Between two measured lengths the
longer one's recipe holds.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpusetup.catalog.gpus import tokens
from gpusetup.model.units import GIB
from gpusetup.plan.job import Job

CELLS = Path(__file__).resolve().parents[1] / "data" / "plan" / "cells.csv"
NONE = "-"


@lru_cache(maxsize=1)
def measured_cells() -> Sequence[Mapping[str, str]]:
    with CELLS.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


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


def measured_recipe(gpu: str | None, job: Job) -> str | None:
    """The measured recipe (`-`: none fits), or None if the table does not reach."""
    if gpu is None or not is_standard(job):
        return None
    column = (gpu, str(job.gpus), job.shape.name)
    cells = {int(row["max_model_len"]): row["recipe"] for row in measured_cells()
             if (row["gpu"], row["num_gpus"], row["model"]) == column}  # fmt: skip
    return cells.get(min((length for length in cells if length >= job.context), default=0))
