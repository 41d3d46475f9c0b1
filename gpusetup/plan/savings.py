"""Finds changes of recipe, settings or training that need less memory, and how much each saves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from gpusetup.model.documents import Help
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    MachineLimits,
    RecipeDecision,
    candidates,
    decide,
    fewest_gpus,
    gpus_needed,
    host_holds,
    max_batch,
    max_context,
)
from gpusetup.plan.job import Recipe, TrainingJob, least_tokens, tokens
from gpusetup.plan.memory import memory

LEAST_GIB = 0.05
"""The minimum saving in GiB for which a change gets a line in the answer."""
Changes = dict[str, dict[str, Any]]
"""Description of a change, as the answer shows it -> the job fields that it sets."""

# --- the changes ----------------------------------------------------------------------------------


def same_training(job: TrainingJob) -> Changes:
    """Changes of settings that need less memory and still train the same parameters on the same
    data, the mildest first."""
    changes: Changes = {}
    if job.dtype == "fp32" and not job.amp:
        changes["mixed precision (`--amp bf16`)"] = {"amp": "bf16"}
    if not job.checkpointing:
        changes["checkpointing (`--checkpointing`)"] = {"checkpointing": True}
    # Image models and classifiers have no vocabulary, so they have no large logits.
    if job.shape.vocabulary and job.loss != "fused":
        changes["a fused loss kernel, which stores no logits"] = {"loss": "fused"}
    if job.gpus > 1 and job.strategy == "dp":
        by_torchrun = "DistributedDataParallel (`--strategy ddp`, by torchrun)"
        changes[by_torchrun] = {"strategy": "ddp"}
    # ZeRO 1 and 2 keep the full weights on each GPU, as DDP does.
    if job.gpus > 1 and job.strategy in ("dp", "ddp", "zero1", "zero2"):
        changes["FSDP (`--strategy fsdp`)"] = {"strategy": "fsdp"}
    if job.optimizer in ("adam", "adamw"):
        changes["8-bit AdamW (`--optimizer adamw8bit`)"] = {"optimizer": "adamw8bit"}
    return changes


def fewer_tokens(job: TrainingJob, recipe: Recipe) -> Changes:
    """A change that halves the batch (or cuts the token budget to its minimum) without shortening
    the sequences; empty if impossible."""
    if job.fills_token_budget:
        least = least_tokens(job, recipe.sp)
        if tokens(job, recipe) <= least:
            return {}
        return {f"max_token_len_per_gpu {least}": {"tokens": least}}
    # Each group of GPUs needs at least one sequence.
    if job.sequences < 2 * max(job.data_parallel // recipe.sp, 1):
        return {}
    half = job.sequences // 2
    return {f"batch {half} with twice the accumulation": {"batch": half, "accumulate": 2}}


def adapters(job: TrainingJob) -> Changes:
    """Changes that switch to LoRA or to a quantised base, if the job does not use them yet."""
    # Frozen weights already have no gradients, so adapters would not help. Without adapters, fp8 is
    # the only quantised format that can be trained.
    if job.frozen or (job.quantize and job.lora is not None):
        return {}
    if job.lora is not None:
        return {"4-bit weights (`--quantize nf4`)": {"quantize": "nf4"}}
    # The frozen base is kept in 16 bits and computes in them, without mixed precision.
    lora = {"lora": 16, "dtype": "bf16", "amp": None}
    return {
        "LoRA of rank 16 (`--lora 16`)": lora,
        "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)": {**lora, "quantize": "nf4"},
    }


# --- the suggestions ------------------------------------------------------------------------------


def helps(decision: RecipeDecision) -> tuple[Help, ...]:
    """All changes that reduce memory, each with the GiB that it saves on a GPU.

    If the job fits, these are the steps to take if memory runs out anyway: first recipes, from the
    fastest to the slowest (Env, then SP, then Offload), then settings sorted by savings. If the job
    does not fit, changes that are enough on their own come first, then the others, both sorted by
    savings.
    """
    job, limits, recipe = decision.job, decision.limits, decision.shown.recipe
    settings = fewer_tokens(job, recipe) | same_training(job)
    if not decision.fits:
        settings |= adapters(job)
    jobs: dict[str, TrainingJob] = {} if decision.fits else dict(fitting(job, limits))
    jobs |= {step: replace(job, **fields) for step, fields in settings.items()}
    steps: list[Help] = []
    for step, changed_job in jobs.items():
        saved = saved_gib(decision, changed_job, recipe)
        then = recipe if decision.fits else decide(changed_job, limits).recipe
        if saved > LEAST_GIB:
            kind: Literal["setting", "job"] = "setting" if step in settings else "job"
            found = str(then) if then else None
            steps.append(Help(step=step, kind=kind, saves_gib=saved, recipe=found))
    if decision.fits:
        return (*next_recipes(decision), *sorted(steps, key=lambda step: -step.saves_gib))
    # If no single setting is enough, add the smallest combination that is enough.
    if not any(help.recipe and help.kind == "setting" for help in steps):
        steps += together(decision, same_training(job) | (adapters(job) if job.lora else {}))
    return tuple(sorted(steps, key=lambda step: (step.recipe is None, -step.saves_gib)))


def next_recipes(decision: RecipeDecision) -> Iterator[Help]:
    """The recipes that are slower than the chosen one, in order, without those that save no more
    than an earlier one.

    The order follows Trinity-RFT's guide: start with a simple recipe, and use a slower one only if
    memory runs out.
    """
    job, limits = decision.job, decision.limits
    recipes = candidates(job, limits)
    most_saved = LEAST_GIB
    for recipe in recipes[recipes.index(decision.shown.recipe) + 1 :]:
        saved = saved_gib(decision, job, recipe)
        if saved > most_saved and host_holds(job, recipe, limits):
            most_saved = saved
            yield Help(step=f"`{recipe}`", kind="recipe", saves_gib=saved, recipe=str(recipe))


def saved_gib(decision: RecipeDecision, job: TrainingJob, recipe: Recipe) -> float:
    """The GiB per GPU that another job or recipe saves compared with the decision; negative if it
    needs more."""
    return round((decision.shown.memory.total - memory(job, recipe).total) / GIB, 2)


def together(decision: RecipeDecision, changes: Changes) -> Iterator[Help]:
    """Yields the smallest set of changes that together make the job fit, if there is one, trying
    the mildest changes first."""
    for count in range(2, len(changes) + 1):
        for steps in itertools.combinations(changes, count):
            fields: dict[str, Any] = {}
            # If two changes set the same field, the later one counts.
            for step in steps:
                fields |= changes[step]
            changed = decide(replace(decision.job, **fields), decision.limits)
            if changed.fits:
                saved = saved_gib(decision, changed.job, changed.shown.recipe)
                step = " and ".join(steps)
                yield Help(step=step, saves_gib=saved, recipe=str(changed.recipe))
                return


def fitting(job: TrainingJob, limits: MachineLimits) -> Iterator[tuple[str, TrainingJob]]:
    """Yields changed jobs that fit, each with a description: more GPUs, fewer tokens, or a smaller
    batch."""
    for bigger in (fewest_gpus(job, limits), gpus_needed(job, limits)):
        if bigger is not None and bigger.fits and bigger.job.gpus > job.gpus:
            yield f"{bigger.job.gpus} GPUs of this kind", bigger.job
    # Only texts can be made shorter, because the tokens of an image follow from its size.
    has_own_length = job.length == job.context and job.shape.tokens is None
    if has_own_length and job.context > 1:
        shorter = max_context(job, limits)
        if shorter.fits:
            yield f"{shorter.job.context:,} tokens", shorter.job
    if job.sequences > job.data_parallel:
        smaller = max_batch(job, limits)
        if smaller.fits:
            accumulated = replace(smaller.job, accumulate=2)
            yield f"a batch of {smaller.job.sequences:,}, accumulated", accumulated
