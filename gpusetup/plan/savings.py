"""Finds what would need less memory, and how much each change saves: another recipe, other
settings, another kind of training, or fewer GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from gpusetup.model.documents import FewerGpus, Help
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    Decision,
    candidates,
    decide,
    fewest_gpus,
    gpus_needed,
    host_holds,
    max_batch,
    max_context,
    sequence_degrees,
)
from gpusetup.plan.job import Recipe, TrainingJob, least_tokens, tokens
from gpusetup.plan.memory import memory
from gpusetup.plan.place import Place

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
    if job.sequences < 2 * max(job.gpus // recipe.sp, 1):
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


def helps(decision: Decision) -> tuple[Help, ...]:
    """All changes that reduce memory, each with the GiB that it saves on a GPU.

    If the job fits, these are the steps to take if memory runs out anyway: first recipes, from the
    fastest to the slowest (Env, then SP, then Offload), then settings sorted by savings. If the job
    does not fit, changes that are enough on their own come first, then the others, both sorted by
    savings.
    """
    job, place, recipe = decision.job, decision.place, decision.recipe
    settings = fewer_tokens(job, recipe) | same_training(job)
    if not decision.fits:
        settings |= adapters(job)
    jobs: dict[str, TrainingJob] = {} if decision.fits else dict(fitting(job, place))
    jobs |= {step: replace(job, **fields) for step, fields in settings.items()}
    steps: list[Help] = []
    for step, changed_job in jobs.items():
        saved = saved_gib(decision, changed_job, recipe)
        if saved <= LEAST_GIB:
            continue
        kind: Literal["setting", "job"] = "setting" if step in settings else "job"
        changed = decision if decision.fits else decide(changed_job, place)
        found = str(changed.recipe) if changed.fits else None
        steps.append(Help(step=step, kind=kind, saves_gib=saved, recipe=found))
    if decision.fits:
        return (*next_recipes(decision), *sorted(steps, key=lambda step: -step.saves_gib))
    return tuple(sorted(steps, key=lambda step: (step.recipe is None, -step.saves_gib)))


def next_recipes(decision: Decision) -> Iterator[Help]:
    """The recipes that are slower than the chosen one, in order, without those that save no more
    than an earlier one.

    The order follows Trinity-RFT's guide: start with a simple recipe, and use a slower one only if
    memory runs out.
    """
    job, place = decision.job, decision.place
    recipes = candidates(job, place)
    most_saved = LEAST_GIB
    for recipe in recipes[recipes.index(decision.recipe) + 1 :]:
        saved = saved_gib(decision, job, recipe)
        if saved > most_saved and host_holds(job, recipe, place):
            most_saved = saved
            yield Help(step=f"`{recipe}`", kind="recipe", saves_gib=saved, recipe=str(recipe))


def saved_gib(decision: Decision, job: TrainingJob, recipe: Recipe) -> float:
    """The GiB per GPU that another job or recipe saves compared with the decision; negative if it
    needs more."""
    return round((decision.memory.total - memory(job, recipe).total) / GIB, 2)


def fitting(job: TrainingJob, place: Place) -> Iterator[tuple[str, TrainingJob]]:
    """Yields changed jobs that fit, each with a description: more GPUs, fewer tokens, or a smaller
    batch."""
    for bigger in (fewest_gpus(job, place), gpus_needed(job, place)):
        if bigger is not None and bigger.fits and bigger.job.gpus > job.gpus:
            yield f"{bigger.job.gpus} GPUs of this kind", bigger.job
    # Only texts can be made shorter, because the tokens of an image follow from its size.
    has_own_length = job.length == job.context and job.shape.tokens is None
    if has_own_length and job.context > 1:
        shorter = max_context(job, place)
        if shorter.fits:
            yield f"{shorter.job.context:,} tokens", shorter.job
    if job.sequences > job.gpus:
        smaller = max_batch(job, place)
        if smaller.fits:
            accumulated = replace(smaller.job, accumulate=2)
            yield f"a batch of {smaller.job.sequences:,}, accumulated", accumulated


# --- fewer GPUs -----------------------------------------------------------------------------------

MOST_TRIED = 8
"""How many smaller numbers of GPUs to try; a node usually has eight GPUs."""


def better_with_fewer(decision: Decision, solve: str | None) -> FewerGpus | None:
    """A smaller number of GPUs that works better than using all of them; None if there is none.

    A smaller number is better if the job fits only on it, if it avoids offload (which costs the
    most speed), or, if `solve` is `context`, if it allows a longer context. For example, the degree
    of sequence parallelism must divide the number of GPUs and of heads, so that four GPUs (SP=4)
    hold longer sequences than six (SP=2). This is so in 28 of the 560 measured cells.
    """
    # If plan solves for `gpus`, its answer already is the smallest number; the largest batch needs
    # all GPUs.
    if solve in ("gpus", "batch"):
        return None
    job, place = decision.job, decision.place
    solver = max_context if solve == "context" else decide

    def rank(found: Decision) -> tuple[int, ...]:
        """Larger is better."""
        length = found.job.context if solve == "context" else 0
        return (found.fits, length, found.fits and not found.recipe.offload)

    best: Decision | None = None
    # With the same recipe more GPUs are faster, so the largest number comes first.
    for gpus in range(job.gpus - 1, max(job.gpus - MOST_TRIED, 0), -1):
        # A degree that the user chose must divide the smaller number too.
        if gpus % (place.sp or 1):
            continue
        found = solver(replace(job, gpus=gpus), place)
        if rank(found) <= rank(decision):
            continue
        # Among equally good numbers prefer a measured one.
        if best is None or (rank(found), found.measured) > (rank(best), best.measured):
            best = found
    if best is None:
        return None
    most, fewer = (sequence_degrees(one.job)[-1] for one in (decision, best))
    # DataParallel uses no such degrees: its first GPU holds the outputs of all GPUs.
    reason = "Each GPU then needs less memory."
    if fewer > most and place.sp is None:
        reason = (
            "The degree of sequence parallelism must divide both the GPUs and the "
            f"{job.shape.heads} heads: with {job.gpus} GPUs that is SP={most} at most, with "
            f"{best.job.gpus} SP={fewer}."
        )
    return FewerGpus(
        gpus=best.job.gpus,
        recipe=str(best.recipe),
        context=best.job.context,
        without_offload=decision.fits and decision.recipe.offload and not best.recipe.offload,
        reason=reason,
        environment={"CUDA_VISIBLE_DEVICES": visible_devices(best.job.gpus)},
    )


def visible_devices(gpus: int) -> str:
    """The first `gpus` GPUs of a machine as a value for CUDA_VISIBLE_DEVICES.

    >>> visible_devices(4)
    '0,1,2,3'
    """
    return ",".join(map(str, range(gpus)))
