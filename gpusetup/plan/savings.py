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
    data."""
    changes: Changes = {}
    if job.dtype == "fp32" and not job.amp:
        changes["mixed precision (`--amp bf16`)"] = {"amp": "bf16"}
    if job.encoder_parameters:
        changes["texts and images encoded before the training (`--encoded-before`)"] = {
            "encoder_parameters": 0
        }
    if not job.checkpointing:
        changes["checkpointing (`--checkpointing`)"] = {"checkpointing": True}
    # Image models and classifiers have no vocabulary, so they have no large logits.
    if job.shape.vocabulary and job.loss != "fused":
        changes["a fused loss kernel, which stores no logits"] = {"loss": "fused"}
    if job.gpus > 1:
        changes |= other_strategies(job)
    if job.optimizer in ("adam", "adamw"):
        changes["8-bit AdamW (`--optimizer adamw8bit`)"] = {"optimizer": "adamw8bit"}
    return changes


def other_strategies(job: TrainingJob) -> Changes:
    """Changes that switch to a strategy which shards more of the memory over several GPUs."""
    changes: Changes = {}
    if job.strategy == "dp":
        by_torchrun = "DistributedDataParallel (`--strategy ddp`, by torchrun)"
        changes[by_torchrun] = {"strategy": "ddp"}
    # ZeRO 1 and 2 keep the full weights on each GPU, as DDP does.
    if job.strategy in ("dp", "ddp", "zero1", "zero2"):
        changes["FSDP (`--strategy fsdp`)"] = {"strategy": "fsdp"}
    return changes


def fewer_tokens(job: TrainingJob, recipe: Recipe) -> Changes:
    """A change that halves the batch (or cuts the token budget to its minimum) without shortening
    the sequences; empty if impossible."""
    if job.fills_token_budget:
        least = least_tokens(job, recipe.sp)
        if tokens(job, recipe) <= least:
            return {}
        return {f"max_token_len_per_gpu {least}": {"tokens": least}}
    groups = max(job.data_parallel // recipe.sp, 1)
    # Each group of GPUs needs at least one sequence.
    if job.sequences < 2 * groups:
        return {}
    half = job.sequences // 2
    step = f"batch {half} with twice the accumulation"
    return {step: {"batch": half, "accumulate": 2}}


def adapters(job: TrainingJob) -> Changes:
    """Changes that switch to LoRA or to a quantised base, if the job does not use them yet."""
    # Frozen weights already have no gradients, so adapters would not help.
    if job.frozen:
        return {}
    four_bits = {"quantize": "nf4"}
    if job.lora is not None:
        if job.quantize:
            return {}
        return {"4-bit weights (`--quantize nf4`)": four_bits}
    lora = {"lora": 16, "dtype": "bf16", "amp": None}
    return {
        "LoRA of rank 16 (`--lora 16`)": lora,
        "LoRA on 4-bit weights (`--lora 16 --quantize nf4`)": lora | four_bits,
    }


# --- the suggestions ------------------------------------------------------------------------------


def helps(decision: RecipeDecision) -> tuple[Help, ...]:
    """All changes that reduce memory, each with the amount that it saves.

    If the job fits, these are the steps to take if memory runs out anyway: first recipes, from the
    fastest to the slowest (Env, then SP, then Offload), then settings sorted by savings. If the job
    does not fit, changes that are enough on their own come first, then the others, both sorted by
    savings.
    """
    if not decision.fits:
        return ways_to_fit(decision)
    recipes = next_recipes(decision)
    settings = settings_that_save(decision)
    return (*recipes, *settings)


def next_recipes(decision: RecipeDecision) -> Iterator[Help]:
    """The recipes that are slower than the chosen one, in order, without those that save no more
    than an earlier one.

    The order follows Trinity-RFT's guide: start with a simple recipe, and use a slower one only if
    memory runs out.
    """
    job, limits = decision.job, decision.limits
    recipes = candidates(job, limits)
    number = recipes.index(decision.shown.recipe)
    most_saved = LEAST_GIB
    for recipe in recipes[number + 1 :]:
        saved = saved_gib(decision, job, recipe)
        if saved <= most_saved or not host_holds(job, recipe, limits):
            continue
        most_saved = saved
        yield Help(step=f"`{recipe}`", kind="recipe", saves_gib=saved, recipe=str(recipe))


def settings_that_save(decision: RecipeDecision) -> list[Help]:
    """Changes of settings that keep the recipe, sorted by how much they save."""
    job, recipe = decision.job, decision.shown.recipe
    changes = fewer_tokens(job, recipe) | same_training(job)
    steps: list[Help] = []
    for step, fields in changes.items():
        changed_job = replace(job, **fields)
        saved = saved_gib(decision, changed_job, recipe)
        if saved <= LEAST_GIB:
            continue
        help = Help(
            step=step,
            kind="setting",
            saves_gib=saved,
            recipe=str(recipe),
        )
        steps.append(help)
    return sorted(steps, key=order_of_help)


def ways_to_fit(decision: RecipeDecision) -> tuple[Help, ...]:
    """All changes that could make the job fit: other settings, another kind of training, less work,
    or more GPUs."""
    job, recipe = decision.job, decision.shown.recipe
    changes = fewer_tokens(job, recipe) | same_training(job) | adapters(job)
    jobs = dict(fitting(job, decision.limits))
    for step, fields in changes.items():
        jobs[step] = replace(job, **fields)
    steps: list[Help] = []
    for step, changed_job in jobs.items():
        kind: Literal["setting", "job"] = "setting" if step in changes else "job"
        help = help_of(decision, step, changed_job, kind)
        if help.saves_gib > LEAST_GIB:
            steps.append(help)
    # If no single setting is enough, add the smallest combination that is enough.
    is_one_enough = any(help.recipe and help.kind == "setting" for help in steps)
    if not is_one_enough:
        combination = same_training(job)
        if job.lora:
            combination |= adapters(job)
        steps += together(decision, combination)
    return tuple(sorted(steps, key=order_of_help))


def help_of(
    decision: RecipeDecision, step: str, changed_job: TrainingJob, kind: Literal["setting", "job"]
) -> Help:
    """One change as a suggestion, with the memory that it saves and the recipe with which the job
    then fits (None if it still does not fit)."""
    then_recipe = decide(changed_job, decision.limits).recipe
    return Help(
        step=step,
        kind=kind,
        saves_gib=saved_gib(decision, changed_job, decision.shown.recipe),
        recipe=str(then_recipe) if then_recipe else None,
    )


def order_of_help(help: Help) -> tuple[bool, float]:
    """A sort key for suggestions: first those that are enough on their own, then those that save
    the most."""
    # False sorts before True.
    is_not_enough = help.recipe is None
    return (is_not_enough, -help.saves_gib)


def saved_gib(decision: RecipeDecision, job: TrainingJob, recipe: Recipe) -> float:
    """The GiB per GPU that another job or recipe saves compared with the decision; negative if it
    needs more."""
    needed = decision.shown.memory.total
    needed_then = memory(job, recipe).total
    saved = needed - needed_then
    return round(saved / GIB, 2)


def together(decision: RecipeDecision, changes: Changes) -> Iterator[Help]:
    """Yields the smallest set of changes that together make the job fit, if there is one, trying
    the mildest changes first.

    `changes` must be in this order: settings for the same training come before another kind of
    training.
    """
    for count in range(2, len(changes) + 1):
        for steps in itertools.combinations(changes, count):
            changed = decide_with(decision, changes, steps)
            if not changed.fits:
                continue
            difference = decision.shown.memory.total - changed.shown.memory.total
            yield Help(
                step=" and ".join(steps),
                saves_gib=round(difference / GIB, 2),
                recipe=str(changed.recipe),
            )
            return


def decide_with(
    decision: RecipeDecision, changes: Changes, steps: tuple[str, ...]
) -> RecipeDecision:
    """The decision for the job after applying several changes at once."""
    fields: dict[str, Any] = {}
    # If two changes set the same field, the later one counts.
    for step in steps:
        fields |= changes[step]
    changed_job = replace(decision.job, **fields)
    return decide(changed_job, decision.limits)


def fitting(job: TrainingJob, limits: MachineLimits) -> Iterator[tuple[str, TrainingJob]]:
    """Yields changed jobs that fit, each with a description: more GPUs, fewer tokens, or a smaller
    batch."""
    fewest, without_offload = fewest_gpus(job, limits), gpus_needed(job, limits)
    for bigger in (fewest, without_offload):
        if bigger is None or not bigger.fits:
            continue
        gpus = bigger.job.gpus
        if gpus > job.gpus:
            yield f"{gpus} GPUs of this kind", bigger.job
    shorter = max_context(job, limits)
    # Only texts can be made shorter, because the tokens of an image follow from its size.
    has_own_length = job.length == job.context and job.shape.tokens is None
    if has_own_length and job.context > 1 and shorter.fits:
        yield f"{shorter.job.context:,} tokens", shorter.job
    if job.sequences > job.data_parallel:
        smaller = max_batch(job, limits)
        accumulated = replace(smaller.job, accumulate=2)
        if smaller.fits:
            yield f"a batch of {smaller.job.sequences:,}, accumulated", accumulated
