"""What takes less memory, each change with what it saves: recipes, settings, what is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.model.documents import Help, Rung
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    Decision,
    Limits,
    candidates,
    decide,
    gpus_needed,
    host_holds,
    max_batch,
    max_context,
)
from gpusetup.plan.job import Job, Recipe, least_tokens, tokens
from gpusetup.plan.memory import memory

LEAST_GIB = 0.05
"""What a change must save to be worth a line."""


def same_training(job: Job) -> dict[str, dict[str, Any]]:
    """Changes of the settings, none of what is trained or of the optimizer -> the fields."""
    copies = job.gpus > 1 and job.strategy in ("ddp", "zero1", "zero2")
    loss = job.loss != "fused" and job.shape.vocabulary > 0
    found: dict[str, tuple[bool, dict[str, Any]]] = {
        "mixed precision (`--amp bf16`)": (not job.amp and job.dtype == "fp32", {"amp": "bf16"}),
        "checkpointing (`--checkpointing`)": (not job.checkpointing, {"checkpointing": True}),
        "a fused loss kernel that never holds the logits": (loss, {"loss": "fused"}),
        "FSDP (`--strategy fsdp`)": (copies, {"strategy": "fsdp"}),
    }
    return {text: fields for text, (helps, fields) in found.items() if helps}


def small_optimizer(job: Job) -> dict[str, dict[str, Any]]:
    is_usual = job.optimizer in ("adam", "adamw")
    return {"8-bit AdamW (`--optimizer adamw8bit`)": {"optimizer": "adamw8bit"}} if is_usual else {}


def ladder(decision: Decision) -> tuple[Rung, ...]:
    """The rungs to climb if memory runs out: recipes that save more and more, then settings."""
    job, recipe = decision.job, decision.shown.recipe
    here = decision.shown.memory.total
    found, most = [], LEAST_GIB
    for other in later(job, recipe, decision.limits):
        saved = (here - memory(job, other).total) / GIB
        if saved > most:
            found.append(Rung(step=f"`{other}`", saves_gib=round(saved, 2)))
            most = saved + LEAST_GIB
    small = small_optimizer(job) if not recipe.offload else {}
    for text, fields in {**fewer_tokens(job, recipe), **same_training(job), **small}.items():
        saved = (here - memory(replace(job, **fields), recipe).total) / GIB
        if saved > LEAST_GIB:
            found.append(Rung(step=text, saves_gib=round(saved, 2)))
    return tuple(found)


def later(job: Job, recipe: Recipe, limits: Limits) -> Iterator[Recipe]:
    """The recipes after one that keep what it has: the environment, SP, then offload."""
    every = [one for one in candidates(job, limits) if one.rank > recipe.rank]
    kept = [one for one in every if one.env >= recipe.env and one.sp >= recipe.sp]
    env = any(one.env for one in kept)
    return (one for one in kept if one.env == env and host_holds(job, one, limits))


def fewer_tokens(job: Job, recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Half of the tokens at once; a sequence stays as long as it is."""
    least = least_tokens(job, recipe.sp)
    if job.batch is None:
        few = {f"max_token_len_per_gpu {least}": {"tokens": least}}
        return few if tokens(job, recipe) > least else {}
    half = job.batch // 2
    small = {f"batch {half} with twice the accumulation": {"batch": half, "accumulate": 2}}
    return small if job.batch >= 2 * max(job.data_parallel // recipe.sp, 1) else {}


def helps(decision: Decision) -> tuple[Help, ...]:
    """If nothing fits, what would help, and if it fits only with Offload, the adapters that fit
    without: those that are enough first, then by what they save."""
    job, limits = decision.job, decision.limits
    if decision.recipe is None:
        changes = [*least_change(job, limits), *changed(job)]
    elif job.gpus == 1 and decision.shown.recipe.offload:
        limits = replace(limits, offload=False)
        changes = [(text, replace(job, **fields)) for text, fields in adapters(job).items()]
    else:
        return ()
    found, here = [], least(job, limits)
    for text, other in changes:
        saved = (here - least(other, limits)) / GIB
        if saved > LEAST_GIB:
            then = decide(other, limits).recipe
            said = str(then) if then else None
            found.append(Help(step=text, saves_gib=round(saved, 2), recipe=said))
    return tuple(sorted(found, key=lambda one: (one.recipe is None, -one.saves_gib)))


def least(job: Job, limits: Limits) -> float:
    """Bytes of the recipe that takes least, whatever the GPU has."""
    every = [one for one in candidates(job, limits) if host_holds(job, one, limits)]
    return min(memory(job, one).total for one in every)


def least_change(job: Job, limits: Limits) -> Iterator[tuple[str, Job]]:
    """More GPUs, fewer tokens, a smaller batch: the least that fits."""
    more = gpus_needed(job, limits)
    if more.fits and more.job.gpus > job.gpus:
        yield f"{more.job.gpus} GPUs of this kind", more.job
    shorter = max_context(job, limits)
    if job.shape.fixed_tokens is None and job.context > 1 and shorter.fits:
        pixels = " (fewer frames or pixels)" if job.shape.sample else ""
        yield f"{shorter.job.context:,} tokens{pixels}", shorter.job
    if job.batch is not None and job.batch > job.data_parallel:
        fewer = max_batch(job, limits)
        if fewer.fits:
            yield (
                f"a batch of {fewer.job.batch:,}, accumulated",
                replace(fewer.job, accumulate=2),
            )


def changed(job: Job) -> Iterator[tuple[str, Job]]:
    """Each change alone, and all together that leave the training as it is."""
    same = same_training(job)
    everything = {name: value for fields in same.values() for name, value in fields.items()}
    together = (
        {"all of these that leave the training as it is": everything} if len(same) > 1 else {}
    )
    for text, fields in {**adapters(job), **small_optimizer(job), **same, **together}.items():
        yield text, replace(job, **fields)


def adapters(job: Job) -> dict[str, dict[str, Any]]:
    """LoRA and quantised bases, if they are not there yet."""
    if job.lora is not None:
        four = {"4-bit weights (`--quantize nf4`)": {"quantize": "nf4"}}
        half = {"a base in 16 bits (`--dtype bf16`)": {"dtype": "bf16", "amp": None}}
        return {} if job.quantize else {**four, **(half if job.dtype == "fp32" else {})}
    if job.frozen or job.trained_layers is not None:
        return {}
    small = {"lora": 16, "dtype": "bf16", "amp": None}
    found = {
        "LoRA of rank 16 (`--lora 16`)": small,
        "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)": {**small, "quantize": "nf4"},
    }
    if not job.checkpointing:
        every = {**small, "quantize": "nf4", "checkpointing": True}
        found["the same with checkpointing (`--lora 16 --quantize nf4 --checkpointing`)"] = every
    return found
