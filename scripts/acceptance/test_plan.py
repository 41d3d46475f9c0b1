"""plan --code and plan beside what the same steps allocate on the card."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from acceptance import trainings
from acceptance.conftest import Work, unknown
from acceptance.trainings import TRAININGS, Training

GIB = 1 << 30
CODE_ERROR, ARITHMETIC_ERROR = 10.0, 15.0
"""Percent of the peak."""
MARGIN = 0.02
"""What `tune` keeps free by default."""
ROWS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.whole] * (row not in TRAININGS[:2]))
    for row in TRAININGS
]
PLAN_GPT = (
    *("plan", "--model", "gpt2", "--context", "512", "--batch", "8", "--gpus", "1"),
    *("--strategy", "single", "--gpu-mem", "80GiB", "--dtype", "fp32", "--no-checkpointing"),
)
measured_peaks: dict[str, dict[str, float]] = {}


def traced(work: Work, row: Training, batch: int) -> float:
    """plan's peak in bytes."""
    code = f"{Path(__file__).with_name('trainings.py')}:{row.function}"
    words = ["plan", "--code", code, "--batch", str(batch), "--gpus", "1", "--gpu-mem", "80GiB"]
    words += ["--amp", row.amp] if row.amp else []
    words += ["--checkpointing"] if row.checkpointing else []
    document = work.gpusetup(*words, "--json", limit=60).document
    phases = (document.get("code") or {}).get("phases_gib")
    assert phases, document.get("message")
    return float(max(phases.values()) * GIB)


def measured(work: Work, row: Training, batch: int) -> dict[str, float]:
    """The third step's peaks: what torch allocated, and what it reserved from the driver."""
    import torch

    steps = __import__("trace_step")
    gc.collect()
    torch.manual_seed(0)
    job = steps.made(getattr(trainings, row.function), batch)
    job.model.to(work.device).train()
    data = tuple(one.to(work.device) for one in job.batch)
    if row.checkpointing:
        steps.checkpoint(job.model)
    trained = [one for one in job.model.parameters() if one.requires_grad]
    optimizer = (job.optimizer or torch.optim.AdamW)(trained)
    kind = work.device.partition(":")[0]
    for _ in range(3):
        if work.on_card:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        cast: Any = contextlib.nullcontext()
        with torch.autocast(kind, steps.DTYPES[row.amp]) if row.amp else cast:
            loss = steps.loss_of(job.model, data, job.loss)[1]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss
    if not work.on_card:
        return {}
    torch.cuda.synchronize()
    peaks = {"allocated": torch.cuda.max_memory_allocated()}
    return peaks | {"reserved": torch.cuda.max_memory_reserved()}


@pytest.mark.claim("plan-code-error")
@pytest.mark.parametrize("row", ROWS)
def test_the_plan_of_code_is_near_what_it_allocates(
    work: Work, row: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not work.on_card:
        monkeypatch.setenv("GPUSETUP_ACCEPTANCE_SIZE", "small")
    if row.needs and importlib.util.find_spec(row.needs) is None:
        pytest.skip(f"{row.needs} is not installed")
    batch = row.batch if work.on_card else 4
    ours, peaks = traced(work, row, batch), measured(work, row, batch)
    told = {f"{name}_gib": round(peak / GIB, 3) for name, peak in peaks.items()}
    work.row("trainings", training=row.name, traced_gib=round(ours / GIB, 3), **told)
    if not peaks:
        unknown("the CPU's allocator counts nothing")
    measured_peaks[row.name] = peaks
    error = 100 * (ours / peaks["allocated"] - 1)
    work.found(f"{row.name} {error:+.1f} %")
    assert abs(error) <= CODE_ERROR


@pytest.mark.card
@pytest.mark.claim("doubt-28")
def test_reserved_memory_stays_within_the_margin(work: Work) -> None:
    over = {name: each["reserved"] / each["allocated"] - 1 for name, each in measured_peaks.items()}
    if not over:
        unknown("no training was measured")
    name = max(over, key=lambda each: over[each])
    work.found(f"reserved is {100 * over[name]:.1f} % above allocated at most ({name})")
    assert over[name] <= MARGIN


@pytest.mark.claim("plan-error")
def test_the_plan_of_a_gpt_is_near_what_it_allocates(work: Work) -> None:
    plan = work.gpusetup(*PLAN_GPT, "--json").document["memory_gib"]
    if "GPT" not in measured_peaks:
        unknown("no GPT was measured")
    errors = {
        name: 100 * (plan[name] * GIB / peak - 1)
        for name, peak in measured_peaks["GPT"].items()
        if plan.get(name)
    }
    work.found(", ".join(f"{name} {error:+.1f} %" for name, error in errors.items()))
    assert all(abs(error) <= ARITHMETIC_ERROR for error in errors.values())
