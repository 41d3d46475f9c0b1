"""What takes less memory, each change with what it saves: recipes, settings, what is trained."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from gpusetup.model.documents import Help
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    Decision,
    Limits,
    candidates,
    decide,
    fewest_gpus,
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
    copies = job.gpus > 1 and job.strategy in ("dp", "ddp", "zero1", "zero2")
    changes = (
        (not job.amp and job.dtype == "fp32", "mixed precision (`--amp bf16`)", {"amp": "bf16"}),
        (job.encoder_parameters > 0, "texts and images encoded before the training",
         {"encoder_parameters": 0}),
        (not job.checkpointing, "checkpointing (`--checkpointing`)", {"checkpointing": True}),
        (job.loss != "fused" and job.shape.vocabulary > 0,
         "a fused loss kernel, which stores no logits", {"loss": "fused"}),
        (job.gpus > 1 and job.strategy == "dp",
         "DistributedDataParallel (`--strategy ddp`, by torchrun)", {"strategy": "ddp"}),
        (copies, "FSDP (`--strategy fsdp`)", {"strategy": "fsdp"}),
        (job.optimizer in ("adam", "adamw"), "8-bit AdamW (`--optimizer adamw8bit`)",
         {"optimizer": "adamw8bit"}),
    )  # fmt: skip
    return {text: fields for helps, text, fields in changes if helps}


def fewer_tokens(job: Job, recipe: Recipe) -> Changes:
    """Half of the tokens at once; a sequence stays as long as it is."""
    if job.fills_token_budget:
        least = least_tokens(job, recipe.sp)
        few = {f"max_token_len_per_gpu {least}": {"tokens": least}}
        return few if tokens(job, recipe) > least else {}
    half = job.sequences // 2
    small = {f"batch {half} with twice the accumulation": {"batch": half, "accumulate": 2}}
    return small if job.sequences >= 2 * max(job.data_parallel // recipe.sp, 1) else {}


def adapters(job: Job) -> Changes:
    """LoRA and quantised bases, if they are not there yet."""
    four = {"quantize": "nf4"}
    if job.frozen:  # what is frozen needs no adapters to have no gradients
        return {}
    if job.lora is not None:
        return {} if job.quantize else {"4-bit weights (`--quantize nf4`)": four}
    small = {"lora": 16, "dtype": "bf16", "amp": None}
    return {
        "LoRA of rank 16 (`--lora 16`)": small,
        "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)": small | four,
    }


def helps(decision: Decision) -> tuple[Help, ...]:
    """What takes less memory.

    If the job fits: the steps to take if memory runs out all the same, recipes in the order of
    their cost in speed (Env, then SP, then Offload), then settings by what they save. If it does
    not fit: what is enough alone, then what is not, each by what it saves.
    """
    if decision.fits:
        return (*next_recipes(decision), *settings_that_save(decision))
    return ways_to_fit(decision)


def next_recipes(decision: Decision) -> Iterator[Help]:
    """The recipes after this one, in order; one that saves no more than an earlier one is no step.

    The order is the guide's of Trinity-RFT: start simple, and climb only when memory runs out.
    """
    job, limits, recipe = decision.job, decision.limits, decision.shown.recipe
    recipes = candidates(job, limits)
    most_saved = LEAST_GIB
    for later in recipes[recipes.index(recipe) + 1 :]:
        saved = saved_gib(decision, job, later)
        if saved > most_saved and host_holds(job, later, limits):
            most_saved = saved
            yield Help(step=f"`{later}`", kind="recipe", saves_gib=saved, recipe=str(later))


def settings_that_save(decision: Decision) -> list[Help]:
    """Changes of the settings, with the recipe as it is; what saves most first."""
    job, recipe = decision.job, decision.shown.recipe
    steps = []
    for step, changes in (fewer_tokens(job, recipe) | same_training(job)).items():
        saved = saved_gib(decision, replace(job, **changes), recipe)
        if saved > LEAST_GIB:
            steps.append(Help(step=step, kind="setting", saves_gib=saved, recipe=str(recipe)))
    return sorted(steps, key=lambda help: -help.saves_gib)


def ways_to_fit(decision: Decision) -> tuple[Help, ...]:
    """Changes of the settings, other trainings, less work, more GPUs."""
    job, limits, recipe = decision.job, decision.limits, decision.shown.recipe
    changes = fewer_tokens(job, recipe) | same_training(job) | adapters(job)
    jobs = dict(fitting(job, limits))
    jobs |= {step: replace(job, **fields) for step, fields in changes.items()}
    steps: list[Help] = []
    for step, changed_job in jobs.items():
        saved = saved_gib(decision, changed_job, recipe)
        if saved > LEAST_GIB:
            then_recipe = decide(changed_job, limits).recipe
            enough = str(then_recipe) if then_recipe else None
            kind: Literal["setting", "job"] = "setting" if step in changes else "job"
            steps.append(Help(step=step, kind=kind, saves_gib=saved, recipe=enough))
    if not any(help.recipe and help.kind == "setting" for help in steps):
        combination = same_training(job) | (adapters(job) if job.lora else {})
        steps += together(decision, combination)
    return tuple(sorted(steps, key=lambda help: (help.recipe is None, -help.saves_gib)))


def saved_gib(decision: Decision, job: Job, recipe: Recipe) -> float:
    """GiB of one GPU that another job or recipe needs less than the decision."""
    difference = decision.shown.memory.total - memory(job, recipe).total
    return round(difference / GIB, 2)


def together(decision: Decision, changes: Changes) -> Iterator[Help]:
    """The fewest changes that are enough if all are made; those that change the least come first.

    `changes` are in that order: settings of the same training before another training.
    """
    job = decision.job
    for count in range(2, len(changes) + 1):
        for steps in itertools.combinations(changes, count):
            fields: dict[str, Any] = {}
            for text in steps:
                fields |= changes[text]
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
    without_offload, shorter = gpus_needed(job, limits), max_context(job, limits)
    for bigger in (fewest_gpus(job, limits), without_offload):
        if bigger is not None and bigger.fits and bigger.job.gpus > job.gpus:
            yield f"{bigger.job.gpus} GPUs of this kind", bigger.job
    if job.length == job.context > 1 and shorter.fits and job.shape.tokens is None:
        yield f"{shorter.job.context:,} tokens", shorter.job
    if job.sequences > job.data_parallel:
        smaller = max_batch(job, limits)
        accumulated = replace(smaller.job, accumulate=2)
        if smaller.fits:
            yield f"a batch of {smaller.job.sequences:,}, accumulated", accumulated
