"""The measured table: which recipe lets a Qwen3 model train on an A100 80 GB or an H20 96 GB.

The authors of Trinity-RFT published its 560 cells, one for each combination of GPU, number of GPUs,
model and length (`data/plan/SOURCES.md`). For a length between two measured ones, the recipe of the
longer one is used.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from gpusetup.catalog.gpus import tokens
from gpusetup.model.units import GIB
from gpusetup.plan.job import TrainingJob

CELLS = Path(__file__).resolve().parents[1] / "data" / "plan" / "cells.csv"
NONE = "-"


@lru_cache(maxsize=1)
def measured_cells() -> Sequence[Mapping[str, str]]:
    """The rows of the measured table, one for each combination of GPU, model and length."""
    with CELLS.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return tuple(rows)


def gpu_of(name: str | None, total_bytes: float) -> str | None:
    """The name of a GPU in the measured table; None if the GPU was not measured.

    >>> gpu_of("NVIDIA A100-SXM4-80GB", 80 * GIB), gpu_of("NVIDIA A100-SXM4-40GB", 40 * GIB)
    ('A100', None)
    """
    words = tokens(name or "")
    gib = total_bytes / GIB
    # Check the size, because the A100 with 40 GB was not measured.
    if "a100" in words and gib > 70:
        return "A100"
    # Check the size, because the H20 with 141 GB was not measured.
    if "h20" in words and 90 < gib < 100:
        return "H20"
    return None


def is_standard(job: TrainingJob) -> bool:
    """Whether a job is of the kind that was measured: a text model with all settings at their
    defaults."""
    shape = job.shape
    # Only Qwen3 was measured, which has no image encoder.
    if shape.tower or not shape.writes_text:
        return False
    measured_kind = TrainingJob(shape=shape, gpus=job.gpus, context=job.context)
    return job == measured_kind


def measured_recipe(gpu: str | None, job: TrainingJob) -> str | None:
    """The measured recipe for a job, or `-` if none fitted; None if the table does not cover the
    job."""
    if gpu is None or not is_standard(job):
        return None
    wanted_column = (gpu, str(job.gpus), job.shape.name)
    recipes: dict[int, str] = {}
    for row in measured_cells():
        column = (row["gpu"], row["num_gpus"], row["model"])
        if column == wanted_column:
            length = int(row["max_model_len"])
            recipes[length] = row["recipe"]
    # A recipe that fits at a longer length also fits at this one.
    longer_lengths = [length for length in recipes if length >= job.context]
    if not longer_lengths:
        return None
    return recipes[min(longer_lengths)]
