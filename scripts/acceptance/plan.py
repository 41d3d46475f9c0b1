"""plan --code and plan beside what the same steps allocate on the card."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from acceptance.work import ROOT, Work

GIB = 1 << 30
CODE_ERROR, ARITHMETIC_ERROR = 10.0, 15.0
"""Percent of the peak."""
TRACE_SECONDS = 40
MARGIN = 0.02
"""What `tune` keeps free by default."""


def run(work: Work) -> None:
    if not work.on_card:
        os.environ["GPUSETUP_ACCEPTANCE_SIZE"] = "small"
    from acceptance.trainings import TRAININGS

    asked = [each for each in TRAININGS if each.needs is None or importable(each.needs)]
    for each in TRAININGS:
        if each not in asked:
            work.row("trainings", training=each.name, problem=f"{each.needs} is not installed")
    asked = asked[:2] if work.short else asked
    with ThreadPoolExecutor(1 if work.short else 4) as pool:
        plans = [pool.submit(_planned, work, each) for each in asked]
        arithmetic = pool.submit(_arithmetic, work)
        rows: list[dict[str, Any]] = []
        for place, each in enumerate(asked):
            rows += filter(None, [_compared(work, each, plans[place])])
            _judged(work, rows, len(asked))
        _gpt(work, arithmetic.result(), rows)


def importable(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _planned(work: Work, training: Any) -> dict[str, Any]:
    code = f"{Path(__file__).with_name('trainings.py')}:{training.function}"
    words = ["plan", "--code", code, "--batch", str(_batch(work, training)), "--gpus", "1"]
    words += ["--amp", training.amp] if training.amp else []
    words += ["--checkpointing"] if training.checkpointing else []
    said = work.gpusetup(*words, "--gpu-mem", "80GiB", "--json", limit=TRACE_SECONDS)
    work.keep(f"plan-{training.name}.json", said.stdout)
    return said.document or {"message": said.problem}


def _batch(work: Work, training: Any) -> int:
    return int(training.batch) if work.on_card else 4


def _compared(work: Work, training: Any, plan: Any) -> dict[str, Any] | None:
    """One row: the allocator's peak, and how far the plan is from it."""
    try:
        real = measured(work, training)
    except Exception as problem:
        work.row(
            "trainings", training=training.name, problem=f"{type(problem).__name__}: {problem}"
        )
        return None
    document = plan.result()
    phases = (document.get("code") or {}).get("phases_gib")
    if not phases:
        work.row("trainings", training=training.name, problem=document.get("message"), **real)
        return None
    traced = max(phases.values()) * GIB
    row = {"training": training.name, "traced_gib": round(traced / GIB, 3), **real}
    if real["allocated_gib"]:
        row["error_percent"] = round(100 * (traced / GIB / real["allocated_gib"] - 1), 2)
    work.row("trainings", **row)
    return row


def measured(work: Work, training: Any) -> dict[str, Any]:
    """The third step's peaks: what torch allocated, and what it reserved from the driver."""
    import torch

    from acceptance import trainings

    sys.path.insert(0, str(ROOT / "gpusetup" / "child_scripts"))
    steps = __import__("trace_step")
    _emptied(work)
    torch.manual_seed(0)
    job = steps.made(getattr(trainings, training.function), _batch(work, training))
    job.model.to(work.device).train()
    job.batch = _moved(job.batch, work.device)
    if training.checkpointing:
        steps.checkpoint(job.model)
    trained = [one for one in job.model.parameters() if one.requires_grad]
    optimizer = (job.optimizer or torch.optim.AdamW)(trained)
    for _ in range(3):
        _emptied(work, keep=True)
        step(work, steps, job, optimizer, training.amp)
    return peaks(work)


def step(work: Work, steps: Any, job: Any, optimizer: Any, amp: str | None) -> None:
    import contextlib

    import torch

    kind = work.device.partition(":")[0]
    cast: Any = torch.autocast(kind, steps.DTYPES[amp]) if amp else contextlib.nullcontext()
    with cast:
        output, loss = steps.loss_of(job.model, job.batch, job.loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    del output, loss


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_moved(one, device) for one in value)
    return value.to(device)


def _emptied(work: Work, keep: bool = False) -> None:
    """A new measurement of peaks; without `keep` also a new start of the allocator."""
    import torch

    gc.collect()
    if work.on_card:
        torch.cuda.synchronize()
        if not keep:
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peaks(work: Work) -> dict[str, Any]:
    """The CPU's allocator counts nothing: None there."""
    import torch

    if not work.on_card:
        return {"allocated_gib": None, "reserved_gib": None}
    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"allocated_gib": round(allocated / GIB, 3), "reserved_gib": round(reserved / GIB, 3)}


def _judged(work: Work, rows: list[dict[str, Any]], every: int) -> None:
    """After each training, so that a killed part has said what it knew."""
    errors = {row["training"]: row["error_percent"] for row in rows if "error_percent" in row}
    if not errors:
        work.claim("plan-code-error", "open", f"{len(rows)} trainings traced, none measured")
        return
    name, worst = max(errors.items(), key=lambda pair: abs(pair[1]))
    told = f"{len(errors)} of {every} trainings, greatest error {worst:+.1f} % ({name})"
    near, whole = abs(worst) <= CODE_ERROR, len(errors) == every
    work.claim("plan-code-error", "open" if near and not whole else near, told)
    over = {row["training"]: row["reserved_gib"] / row["allocated_gib"] - 1 for row in rows
            if row.get("allocated_gib")}  # fmt: skip
    name, most = max(over.items(), key=lambda pair: pair[1])
    told = f"reserved is {100 * most:.1f} % above allocated at most ({name})"
    work.claim("doubt-28", most <= MARGIN, told)


def _arithmetic(work: Work) -> dict[str, Any]:
    """GPT-2 small by its name: 512 tokens, 8 at once, one GPU, nothing sharded."""
    words = ("plan", "--model", "gpt2", "--context", "512", "--batch", "8", "--gpus", "1")
    more = ("--strategy", "single", "--gpu-mem", "80GiB", "--dtype", "fp32", "--no-checkpointing")
    return work.gpusetup(*words, *more, "--loss", "eager", "--json", limit=TRACE_SECONDS).document


def _gpt(work: Work, plan: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    real = next((row for row in rows if row["training"] == "GPT"), {})
    memory, allocated = plan.get("memory_gib"), real.get("allocated_gib")
    if not memory or not allocated:
        work.claim("plan-error", "open", plan.get("message") or "no GPT was measured")
        return
    pairs = [(name, memory.get(name), real[f"{name}_gib"]) for name in ("allocated", "reserved")]
    errors = [(name, 100 * (ours / true - 1)) for name, ours, true in pairs if ours]
    told = ", ".join(f"{name} {error:+.1f} %" for name, error in errors)
    work.claim("plan-error", all(abs(error) <= ARITHMETIC_ERROR for _, error in errors), told)
