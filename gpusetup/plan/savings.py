"""What takes less memory, each change with what it saves: recipes, settings, what is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.model.documents import Help
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
Changes = dict[str, dict[str, Any]]
"""What a person reads -> the fields of the job."""


def same_training(job: Job) -> Changes:
    """Changes of the settings, none of what is trained."""
    copies = job.gpus > 1 and job.strategy in ("ddp", "zero1", "zero2")
    changes = (
        (not job.amp and job.dtype == "fp32", "mixed precision (`--amp bf16`)", {"amp": "bf16"}),
        (not job.checkpointing, "checkpointing (`--checkpointing`)", {"checkpointing": True}),
        (job.loss != "fused" and job.shape.vocabulary > 0,
         "a fused loss kernel, which stores no logits", {"loss": "fused"}),
        (copies, "FSDP (`--strategy fsdp`)", {"strategy": "fsdp"}),
        (job.optimizer in ("adam", "adamw"), "8-bit AdamW (`--optimizer adamw8bit`)",
         {"optimizer": "adamw8bit"}),
    )  # fmt: skip
    return {text: fields for helps, text, fields in changes if helps}


def fewer_tokens(job: Job, recipe: Recipe) -> Changes:
    """Half of the tokens at once; a sequence stays as long as it is."""
    if job.batch is None:
        least = least_tokens(job, recipe.sp)
        few = {f"max_token_len_per_gpu {least}": {"tokens": least}}
        return few if tokens(job, recipe) > least else {}
    half = job.batch // 2
    small = {f"batch {half} with twice the accumulation": {"batch": half, "accumulate": 2}}
    return small if job.batch >= 2 * max(job.data_parallel // recipe.sp, 1) else {}


def adapters(job: Job) -> Changes:
    """LoRA and quantised bases, if they are not there yet."""
    four = {"quantize": "nf4"}
    if job.lora is not None:
        return {} if job.quantize else {"4-bit weights (`--quantize nf4`)": four}
    small = {"lora": 16, "dtype": "bf16", "amp": None}
    return {
        "LoRA of rank 16 (`--lora 16`)": small,
        "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)": small | four,
    }


def helps(decision: Decision) -> tuple[Help, ...]:
    """Changes that are enough first, then by what they save.

    If it fits: what is left to do if memory runs out all the same. If nothing fits: also other
    trainings, less work, more GPUs.
    """
    job, limits, recipe = decision.job, decision.limits, decision.shown.recipe
    fields = fewer_tokens(job, recipe) | same_training(job)
    if decision.fits:
        recipes = candidates(job, limits)
        later = recipes[recipes.index(recipe) + 1 :]
        changes = [(f"`{one}`", job, one) for one in later if host_holds(job, one, limits)]
    else:
        fields |= adapters(job)
        changes = [(text, other, recipe) for text, other in fitting(job, limits)]
    changes += [(text, replace(job, **change), recipe) for text, change in fields.items()]
    saving_steps = []
    for text, other, with_recipe in changes:
        saved = (decision.shown.memory.total - memory(other, with_recipe).total) / GIB
        if saved > LEAST_GIB:
            then_recipe = with_recipe if decision.fits else decide(other, limits).recipe
            enough = str(then_recipe) if then_recipe else None
            saving_steps.append(Help(step=text, saves_gib=round(saved, 2), recipe=enough))
    if not decision.fits and not any(one.recipe for one in saving_steps):
        saving_steps += together(decision, same_training(job) | (adapters(job) if job.lora else {}))
    return tuple(sorted(saving_steps, key=lambda one: (one.recipe is None, -one.saves_gib)))


def together(decision: Decision, changes: Changes) -> Iterator[Help]:
    """The fewest changes that are enough if all are made, those that save most first."""
    job, recipe = decision.job, decision.shown.recipe
    by_saving = sorted(
        changes, key=lambda text: memory(replace(job, **changes[text]), recipe).total
    )
    for count in range(2, len(by_saving) + 1):
        steps = by_saving[:count]
        fields = {name: value for text in steps for name, value in changes[text].items()}
        changed = decide(replace(job, **fields), decision.limits)
        if changed.fits:
            saved = (decision.shown.memory.total - changed.shown.memory.total) / GIB
            yield Help(
                step=" and ".join(steps),
                saves_gib=round(saved, 2),
                recipe=str(changed.recipe),
            )
            return


def fitting(job: Job, limits: Limits) -> Iterator[tuple[str, Job]]:
    """More GPUs, fewer tokens, a smaller batch: the least that fits."""
    bigger, shorter = gpus_needed(job, limits), max_context(job, limits)
    if bigger.fits and bigger.job.gpus > job.gpus:
        yield f"{bigger.job.gpus} GPUs of this kind", bigger.job
    if job.length == job.context > 1 and shorter.fits and job.shape.tokens is None:
        yield f"{shorter.job.context:,} tokens", shorter.job
    if job.batch is not None and job.batch > job.data_parallel:
        smaller = max_batch(job, limits)
        accumulated = replace(smaller.job, accumulate=2)
        if smaller.fits:
            yield f"a batch of {smaller.job.batch:,}, accumulated", accumulated
