"""All records of causes, and all known messages of programs."""

from __future__ import annotations

from importlib import import_module

from gpusetup.causes.record import Cause
from gpusetup.messages import boundary, driver, makers, outputs, packages, torch, trainers

FILES = (
    "containers", "cuda_start", "driver", "extensions", "gpu_faults",
    "host", "libraries", "makers", "parallel", "programs", "torch", "wheels", "windows",
)  # fmt: skip
_known = (cause for file in FILES for cause in import_module(f"gpusetup.causes.{file}").CAUSES)
CAUSES: tuple[Cause, ...] = tuple(sorted(_known, key=lambda cause: cause.order))
FACTS = (
    *driver.ROWS,
    *boundary.ROWS,
    *torch.ROWS,
    *packages.ROWS,
    *makers.ROWS,
    *trainers.ROWS,
    *outputs.ROWS,
)
"""Messages that prove a fact but not a cause."""
ROWS = (*FACTS, *(row for cause in CAUSES for row in cause.rows))
