"""What would help: each change with what it saves, the most first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpusetup.model.documents import Help
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import choose
from gpusetup.plan.answer.decide import Case, Decision, decide
from gpusetup.plan.answer.solve import gpus_needed, max_batch, max_context
from gpusetup.plan.model.workload import Workload

LEAST_GIB = 0.05
"""What a change must save to be worth a line."""


COPIES = ("dp", "ddp", "zero1", "zero2")
"""Strategies that leave whole weights on every GPU."""


def helps(decision: Decision, case: Case) -> tuple[Help, ...]:
    """The changes where nothing fits; where one GPU needs Offload, the adapters that need none."""
    w = decision.fit.workload
    if decision.recipe is None:
        return _weighed(w, _changes(w, case), case)
    if w.gpus > 1 or not decision.recipe.offload:
        return ()
    case = replace(case, limits=replace(case.limits, offload=False))
    return _weighed(w, _adapters(w), case)


def _weighed(w: Workload, changes: Iterable[tuple[str, Workload]], case: Case) -> tuple[Help, ...]:
    """Those that save something, those that are enough first, then by GiB saved."""
    here = least(w, case)
    found = []
    for step, changed in changes:
        saved = (here - least(changed, case)) / GIB
        if saved > LEAST_GIB:
            recipe = decide(changed, case).recipe
            with_it = str(recipe) if recipe else None
            found.append(Help(step=step, saves_gib=round(saved, 2), recipe=with_it))
    return tuple(sorted(found, key=lambda one: (one.recipe is None, -one.saves_gib)))


def least(w: Workload, case: Case) -> float:
    """Bytes of the recipe that takes least, whatever the GPU has."""
    return choose(w, replace(case.limits, capacity=0.0), case.constants).nearest.parts.total


def _changes(w: Workload, case: Case) -> Iterator[tuple[str, Workload]]:
    yield from _more_or_shorter(w, case)
    yield from _adapters(w)
    yield from _kernels(w)
    if w.strategy in COPIES and w.gpus > 1:
        yield "FSDP (`--strategy fsdp`)", replace(w, strategy="fsdp")


def _more_or_shorter(w: Workload, case: Case) -> Iterator[tuple[str, Workload]]:
    """More GPUs, fewer tokens, a smaller batch: the least change that fits."""
    more = gpus_needed(w, case)
    if more.recipe is not None and more.fit.workload.gpus > w.gpus:
        yield f"{more.fit.workload.gpus} GPUs of this kind", more.fit.workload
    if w.shape.fixed_tokens is None and w.context > 1:
        shorter = max_context(w, case)
        if shorter.recipe is not None:
            fewer_pixels = " (fewer frames or pixels)" if w.shape.sample else ""
            yield f"{shorter.fit.workload.context:,} tokens{fewer_pixels}", shorter.fit.workload
    if w.batch is not None and w.batch > w.data_parallel:
        fewer = max_batch(w, case)
        if fewer.recipe is not None and (fewer.fit.workload.batch or 0) < w.batch:
            small = replace(fewer.fit.workload, accumulation=True, micro_batches=None)
            yield f"a batch of {small.batch:,}, accumulated", small


def _adapters(w: Workload) -> Iterator[tuple[str, Workload]]:
    frozen = w.frozen or w.trained_layers is not None
    if w.lora is None and not frozen:
        small = replace(w, lora=16, dtype="bf16", amp=None)
        four = replace(small, quantize="nf4")
        yield "LoRA of rank 16 (`--lora 16`)", small
        yield "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)", four
        if not w.checkpointing:
            yield (
                "LoRA with checkpointing (`--lora 16 --checkpointing`)",
                replace(small, checkpointing=True),
            )
        yield from _least_lora(four)
    elif w.lora is not None and w.quantize is None:
        yield "4-bit weights (`--quantize nf4`)", replace(w, quantize="nf4")
        if w.dtype == "fp32":
            yield "a base in 16 bits (`--dtype bf16`)", replace(w, dtype="bf16", amp=None)


def _least_lora(w: Workload) -> Iterator[tuple[str, Workload]]:
    """LoRA on 4-bit weights with all that keeps less."""
    loss = {"loss": "fused"} if w.loss != "fused" and w.shape.vocabulary else {}
    kept = {} if w.checkpointing else {"checkpointing": True}
    if loss or kept:
        flags = " --loss fused" * bool(loss) + " --checkpointing" * bool(kept)
        changed: dict[str, Any] = {**loss, **kept}
        yield f"4-bit LoRA (`--lora 16 --quantize nf4{flags}`)", replace(w, **changed)


def _kernels(w: Workload) -> Iterator[tuple[str, Workload]]:
    if w.loss != "fused" and w.shape.vocabulary:
        yield "a fused loss kernel (`--loss fused`)", replace(w, loss="fused")
    if w.eval_batch is not None and w.eval_batch > 1:
        yield "an evaluation of one sequence (`--eval-batch 1`)", replace(w, eval_batch=1)
    if w.optimizer in ("adam", "adamw"):
        yield "8-bit AdamW (`--optimizer adamw8bit`)", replace(w, optimizer="adamw8bit")
    if not w.checkpointing:
        yield "checkpointing (`--checkpointing`)", replace(w, checkpointing=True)
    if w.amp is None and w.dtype == "fp32":
        yield "mixed precision (`--amp bf16`)", replace(w, amp="bf16")
    yield from _together(w)


def _together(w: Workload) -> Iterator[tuple[str, Workload]]:
    """What changes neither what is trained nor the optimizer, all at once."""
    parts: dict[str, dict[str, Any]] = {
        "--strategy fsdp": {"strategy": "fsdp"} if w.strategy in COPIES and w.gpus > 1 else {},
        "--checkpointing": {} if w.checkpointing else {"checkpointing": True},
        "--amp bf16": {"amp": "bf16"} if w.amp is None and w.dtype == "fp32" else {},
        "--loss fused": {"loss": "fused"} if w.loss != "fused" and w.shape.vocabulary else {},
    }
    flags = [flag for flag, change in parts.items() if change]
    if len(flags) > 1:
        changes = {name: value for change in parts.values() for name, value in change.items()}
        yield f"all of `{' '.join(flags)}`", replace(w, **changes)
