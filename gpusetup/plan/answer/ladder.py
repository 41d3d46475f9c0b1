"""What to climb when memory runs out all the same: each rung with what it saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model.documents import Rung
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import Limits, candidates, host_holds
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.model.workload import Recipe, Workload, least_tokens, tokens_per_gpu

Variant = tuple[str, Workload, Recipe]
LEAST_GIB = 0.05
"""What a rung must save beyond the one before it to be worth a line."""


def ladder(w: Workload, r: Recipe, limits: Limits, c: Constants) -> tuple[Rung, ...]:
    """The rungs from a recipe up: recipes that save more and more, then changes of the settings."""
    here = parts(w, r, c).total
    rungs, most, kinds = [], 0.0, list[str]()
    for kind, other in _recipes(w, r, limits):
        saved = (here - parts(w, other, c).total) / GIB
        if saved > most + LEAST_GIB:
            kinds += [kind] * (kind not in kinds)
            text = f"{ORDINALS[kinds.index(kind)]}, {kind}: `{other}`"
            rungs.append(Rung(step=text, saves_gib=round(saved, 2)))
            most = saved
    for change in CHANGES:
        for text, changed, recipe in change(w, r):
            saved = (here - parts(changed, recipe, c).total) / GIB
            if saved > LEAST_GIB:
                rungs.append(Rung(step=text, saves_gib=round(saved, 2)))
    return tuple(rungs)


ORDINALS = ("first", "second", "third")


def _recipes(w: Workload, r: Recipe, limits: Limits) -> Iterator[tuple[str, Recipe]]:
    """The environment, then SP, then offload (the resources guide); each keeps the one before."""
    after = [
        other
        for other in candidates(w, limits)
        if other.rank > r.rank and other.env >= r.env and other.sp >= r.sp
    ]
    env = any(other.env for other in after)
    for other in after:
        kind = "offload" if other.offload > r.offload else "sequence parallelism"
        kind = "the environment" if (other.offload, other.sp) == (r.offload, r.sp) else kind
        if other.env == env and host_holds(w, other, limits):
            yield kind, other


def _half_budget(w: Workload, r: Recipe) -> Iterator[Variant]:
    """One sequence a GPU at a time instead of two; it stays as long as the longest one."""
    least = least_tokens(w, r.sp)
    if w.batch is None and tokens_per_gpu(w, r) > least:
        yield f"max_token_len_per_gpu {least}", replace(w, tokens=least), r


def _half_batch(w: Workload, r: Recipe) -> Iterator[Variant]:
    if w.batch is not None and w.batch >= 2 * max(w.data_parallel // r.sp, 1):
        half = w.batch // 2
        yield (
            f"batch {half} with 2 steps of accumulation",
            replace(w, batch=half, accumulation=True, micro_batches=None),
            r,
        )


def _mixed_precision(w: Workload, r: Recipe) -> Iterator[Variant]:
    if w.amp is None and w.dtype == "fp32":
        yield "mixed precision (`--amp bf16`)", replace(w, amp="bf16"), r


def _checkpointing(w: Workload, r: Recipe) -> Iterator[Variant]:
    if not w.checkpointing:
        yield "activation checkpointing", replace(w, checkpointing=True), r


def _fused_loss(w: Workload, r: Recipe) -> Iterator[Variant]:
    if w.loss != "fused" and w.shape.vocabulary:
        yield "a fused loss kernel that never holds the logits", replace(w, loss="fused"), r


def _sharding(w: Workload, r: Recipe) -> Iterator[Variant]:
    if w.gpus > 1 and w.strategy in ("dp", "ddp", "zero1", "zero2"):
        yield "shard by FSDP2 (`--strategy fsdp`)", replace(w, strategy="fsdp"), r


def _small_optimizer(w: Workload, r: Recipe) -> Iterator[Variant]:
    if w.optimizer in ("adam", "adamw") and not r.offload:
        yield "8-bit AdamW", replace(w, optimizer="adamw8bit"), r


CHANGES: tuple[Callable[[Workload, Recipe], Iterator[Variant]], ...] = (
    _half_budget,
    _half_batch,
    _mixed_precision,
    _checkpointing,
    _fused_loss,
    _sharding,
    _small_optimizer,
)
"""Changes of the settings; none changes what is trained."""
