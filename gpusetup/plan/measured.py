"""The measured table: which recipe lets a Qwen3 model train on an A100 80 GB or an H20 96 GB.

The authors of Trinity-RFT published its 560 cells, one for each combination of GPU, number of GPUs,
model and length (`data/plan/SOURCES.md`). The file has the longest length at which each recipe was
measured, because a recipe that fits at a length also fits at shorter ones.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpusetup.catalog.gpus import tokens
from gpusetup.model.units import GIB
from gpusetup.plan.job import TrainingJob

CELLS = Path(__file__).resolve().parents[1] / "data" / "plan" / "cells.csv"
NONE = "-"


@lru_cache(maxsize=1)
def measured_cells() -> Mapping[tuple[str, str, str], Mapping[int, str]]:
    """The measured table: GPU, number of GPUs and model -> the longest length in tokens at which a
    recipe was measured -> this recipe."""
    cells: dict[tuple[str, str, str], dict[int, str]] = {}
    with CELLS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            column = (row["gpu"], row["num_gpus"], row["model"])
            cells.setdefault(column, {})[int(row["longest"])] = row["recipe"]
    return cells


def gpu_of(name: str | None, total_bytes: float) -> str | None:
    """The name of a GPU in the measured table; None if the GPU was not measured, such as the A100
    with 40 GB and the H20 with 141 GB.

    >>> gpu_of("NVIDIA A100-SXM4-80GB", 80 * GIB), gpu_of("NVIDIA A100-SXM4-40GB", 40 * GIB)
    ('A100', None)
    """
    words = tokens(name or "")
    gib = total_bytes / GIB
    if "a100" in words and gib > 70:
        return "A100"
    return "H20" if "h20" in words and 90 < gib < 100 else None


def is_standard(job: TrainingJob) -> bool:
    """Whether a job is of the kind that was measured: a text model with all settings at their
    defaults. Only Qwen3 was measured, which has no image encoder."""
    shape = job.shape
    if shape.tower or not shape.writes_text:
        return False
    return job == TrainingJob(shape=shape, gpus=job.gpus, context=job.context)


def measured_recipe(gpu: str | None, job: TrainingJob) -> str | None:
    """The measured recipe for a job, or `-` if none fitted; None if the table does not cover the
    job."""
    if gpu is None or not is_standard(job):
        return None
    recipes = measured_cells().get((gpu, str(job.gpus), job.shape.name), {})
    # A recipe that fits at a longer length also fits at this one.
    longer = [length for length in recipes if length >= job.context]
    return recipes[min(longer)] if longer else None
