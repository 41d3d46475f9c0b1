"""Chooses the recipe for a job: the measured one if there is one, otherwise the fastest one that
fits; finds the longest context, the largest batch and the fewest GPUs, and what would save memory.

The authors of Trinity-RFT published the 560 measured cells, one for each combination of GPU, number
of GPUs, model and length (`data/plan/SOURCES.md`). The file has the longest length at which each
recipe was measured, because a recipe that fits at a length also fits at shorter ones.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpusetup.catalog.gpus import tokens as words_of_name
from gpusetup.model.documents import Confidence, FewerGpus, Help
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.job import (
    Recipe,
    Strategy,
    TrainingJob,
    least_tokens,
    longest_sequence_fits_budget,
    tokens_per_gpu,
)
from gpusetup.plan.memory import JobMemory, host_bytes, memory
from gpusetup.plan.place import Place
from gpusetup.plan.rl import SUPERVISED

CLEAR = 0.03
"""The share of the card that must stay free for a clear answer with Trinity-RFT, for which we have
measurements (`measured_recipe`)."""
CLEAR_UNMEASURED = 0.2
"""The share of the card that must stay free for a clear answer with other trainers, for which we
only have published figures."""
CLEAR_SHARDED = 0.3
"""The share that must stay free for jobs with sharded weights or states. It is larger, because a
tenth of their published runs needed 50 to 70 % more memory than estimated."""
LARGEST_SOLUTION = 1 << 24
"""The upper end of the search for the largest batch or context."""
MOST_GPUS = 1024
"""The upper end of the search for the number of GPUs."""


CELLS = Path(__file__).resolve().parents[1] / "data" / "plan" / "cells.csv"
NO_RECIPE = "-"
"""Stands in the measured table, and in our answers, where no recipe fits."""


@lru_cache(maxsize=1)
def measured_cells() -> Mapping[tuple[str, str, str], Mapping[int, str]]:
    """The measured table: GPU, number of GPUs and model -> the longest length in tokens at which a
    recipe was measured -> this recipe."""
    cells: dict[tuple[str, str, str], dict[int, str]] = {}
    with CELLS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            combination = (row["gpu"], row["num_gpus"], row["model"])
            cells.setdefault(combination, {})[int(row["longest"])] = row["recipe"]
    return cells


def gpu_of(name: str | None, total_bytes: float) -> str | None:
    """The name of a GPU in the measured table, which has the A100 with 80 GB and the H20 with 96
    GB; None for any other, such as the A100 with 40 GB.

    >>> gpu_of("NVIDIA A100-SXM4-80GB", 80 * GIB), gpu_of("NVIDIA A100-SXM4-40GB", 40 * GIB)
    ('A100', None)
    """
    words = words_of_name(name or "")
    gib = total_bytes / GIB
    if "a100" in words and gib > 70:
        return "A100"
    return "H20" if "h20" in words and 90 < gib < 100 else None


def is_standard(job: TrainingJob) -> bool:
    """Whether a job is of the kind that was measured: a text model with all settings at their
    defaults. Only Qwen3 was measured, which has no image encoder."""
    shape = job.shape
    if shape.tower or not shape.writes_text:
        return False
    return job == TrainingJob(shape=shape, gpus=job.gpus, context=job.context)


def measured_recipe(gpu: str | None, job: TrainingJob) -> str | None:
    """The measured recipe for a job, `-` if none fitted; None if the table lacks the job."""
    if gpu is None or not is_standard(job):
        return None
    recipes = measured_cells().get((gpu, str(job.gpus), job.shape.name), {})
    # A recipe that fits at a longer length also fits at this one.
    longer = [length for length in recipes if length >= job.context]
    return recipes[min(longer)] if longer else None


class Decision(Frozen):
    """The recipe that was chosen for a job."""

    job: TrainingJob
    place: Place
    recipe: Recipe
    """The chosen recipe; if none fits, the one that needs the least memory."""
    memory: JobMemory
    """The memory that the job needs with this recipe."""
    fits: bool
    measured: bool
    """Whether the recipe comes from the measured table."""
    near: bool
    """Whether a recipe that was tried is so close to the memory limit (`near_limit`) that the
    memory model's error could change the decision."""

    @property
    def close_because(self) -> str | None:
        """Why the decision is uncertain, as a phrase; None if it was measured, or if every recipe
        that was tried is far from the memory limit and the memory model is well tested for such
        jobs."""
        if self.measured:
            return None
        if self.near:
            return f"within {round(100 * near_limit(self.job))} % of the limit"
        # If a job does not fit, these reasons do not matter: uncounted parts only add memory.
        return why_uncertain(self.job, self.recipe) if self.fits else None


def near_limit(job: TrainingJob) -> float:
    """The share of the GPU's memory within which an answer for this job counts as close."""
    if is_standard(job):
        return CLEAR
    # The memory that FSDP needs for gathering and sending was compared with few published runs.
    is_sharded = job.gpus > 1 and not job.copies_model
    return CLEAR_SHARDED if is_sharded else CLEAR_UNMEASURED


def why_uncertain(job: TrainingJob, recipe: Recipe) -> str | None:
    """Why a job that should fit may still run out of memory, as a clause; None for well-tested
    kinds of jobs."""
    shape = job.shape
    if shape.roughly:
        return (
            f"{shape.name} has layers without attention: plan counts their weights, but only "
            "roughly estimates their activations"
        )
    if shape.tower and job.lora is None:
        return "plan does not count the image encoder's activations (none are needed with LoRA)"
    keeps_parts_on_host = recipe.offload or job.offload_optimizer or job.offload_checkpoints
    # Only Trinity-RFT's measured runs (`is_standard`) also cover offload.
    if keeps_parts_on_host and not is_standard(job):
        return "published runs with offload to RAM needed 0.7 to 3 times plan's estimate"
    if job.strategy == "dp" and job.gpus > 1:
        return "plan's estimate for DataParallel was never compared with a measurement"
    if job.rl.method not in SUPERVISED:
        return f"plan's estimate for {job.rl.method} was never compared with a measurement"
    if job.lora is not None and job.strategy.startswith("zero"):
        return "training adapters with ZeRO often needs more memory than plan estimates"
    return None


def decide(job: TrainingJob, place: Place) -> Decision:
    """Choose the recipe for a job: the measured one if the table covers the job, otherwise the
    first candidate that fits according to the memory model."""
    possible = candidates(job, place)
    # If the RAM is too small for all of them, none fits, but the answer still shows one.
    recipes = [recipe for recipe in possible if host_holds(job, recipe, place)] or possible
    tried: dict[Recipe, JobMemory] = {}
    chosen: Recipe | None = None
    for recipe in recipes:
        tried[recipe] = memory(job, recipe)
        # The recipes are sorted from fastest to slowest, so take the first that fits. None does if
        # all were kept although the RAM or the token budget is too small for each.
        has_memory = tried[recipe].total <= place.capacity and host_holds(job, recipe, place)
        if has_memory and longest_sequence_fits_budget(job, recipe.sp):
            chosen = recipe
            break
    # The cells of the measured table were measured on Linux with expandable segments and a free
    # choice of the degree of sequence parallelism.
    measured: str | None = None
    if place.env and place.sp is None and not place.predict:
        measured = measured_recipe(gpu_of(place.gpu, place.total_bytes), job)
    by_name = {str(recipe): recipe for recipe in recipes}
    # The user, or a RAM that is too small, may exclude the measured recipe.
    is_measured = measured == NO_RECIPE or measured in by_name
    # Trust the measurement more than the memory model, even if it says that none fits.
    if is_measured:
        chosen = by_name.get(measured or NO_RECIPE)
    # A measured recipe may not be among those that were tried.
    shown = chosen or min(tried, key=lambda recipe: tried[recipe].total)
    return Decision(
        job=job,
        place=place,
        recipe=shown,
        memory=tried.get(shown) or memory(job, shown),
        fits=chosen is not None,
        measured=is_measured,
        near=any(
            abs(needed.total - place.capacity) < near_limit(job) * place.capacity
            for needed in tried.values()
        ),
    )


def host_holds(job: TrainingJob, recipe: Recipe, place: Place) -> bool:
    """Whether the machine's RAM is large enough for the data that the recipe moves there; True if
    the size of the RAM is unknown."""
    return place.host_bytes is None or host_bytes(job, recipe) <= place.host_bytes


def candidates(job: TrainingJob, place: Place) -> tuple[Recipe, ...]:
    """The recipes that the job can use on this machine, fastest first: each degree of sequence
    parallelism without and with expandable segments (Env), then each degree with offload."""
    # Sequence parallelism needs Linux.
    possible = sequence_degrees(job) if place.linux else (1,)
    if place.sp is not None:
        possible = (place.sp,)
    # Trainers refuse a token budget that is too small for the longest sequence. If it is too small
    # with every degree, keep all of them, because an answer needs a recipe even if none fits.
    degrees = [sp for sp in possible if longest_sequence_fits_budget(job, sp)] or possible
    recipes: list[Recipe] = []
    for sp in degrees:
        recipes.append(Recipe(sp=sp))
        if place.env:
            recipes.append(Recipe(sp=sp, env=True))
    # FSDP2's CPU offload needs a sharded model. Offload is by far the slowest recipe, so it is only
    # tried with Env, which saves memory and costs hardly any speed.
    may_offload = place.offload and place.linux and not place.unified
    if may_offload and job.shards_parameters:
        recipes += [Recipe(offload=True, sp=sp, env=place.env) for sp in degrees]
    return tuple(recipes)


def sequence_degrees(job: TrainingJob) -> tuple[int, ...]:
    """The possible degrees of sequence parallelism: common divisors of the number of GPUs and of
    attention heads; only 1 if each GPU holds the whole model.

    A degree must also divide the number of key-value heads or be a multiple of it, in which case
    the same head is on several GPUs with different query heads (verl's Ulysses).

    >>> from gpusetup.plan.models import model_named
    >>> job = TrainingJob(shape=model_named("qwen3-14b"), gpus=6, context=4096)
    >>> sequence_degrees(job), sequence_degrees(replace(job, gpus=8))
    ((1, 2), (1, 2, 4, 8))
    """
    if job.copies_model:
        return (1,)
    heads, key_value_heads = job.shape.heads, job.shape.key_value_heads
    return tuple(
        degree
        for degree in range(1, min(job.gpus, heads) + 1)
        if job.gpus % degree == 0
        and heads % degree == 0
        and (key_value_heads % degree == 0 or degree % key_value_heads == 0)
    )


# --- the longest context, the largest batch, the fewest GPUs --------------------------------------


def max_context(job: TrainingJob, place: Place) -> Decision:
    """The decision for the longest context, in tokens, at which some recipe fits; if not even one
    token fits, the answer shows the memory for one."""
    longest = largest(lambda context: decide(replace(job, context=context), place).fits)
    return decide(replace(job, context=max(longest, 1)), place)


def max_batch(job: TrainingJob, place: Place) -> Decision:
    """The decision for the largest batch over all GPUs at which some recipe fits, without sequence
    parallelism and offload if any batch fits so: for them, a trainer needs settings that many do
    not have."""
    simple = replace(place, offload=False, sp=place.sp or 1)
    most = largest(lambda batch: decide(replace(job, batch=batch), simple).fits)
    if not most:
        most = largest(lambda batch: decide(replace(job, batch=batch), place).fits)
    return decide(replace(job, batch=max(most, 1)), place)


def gpus_needed(job: TrainingJob, place: Place) -> Decision:
    """The decision for the smallest number of GPUs (one to seven, then multiples of eight) on which
    the job fits without offload.

    If the job only fits with offload, it is the smallest number with offload. Offload comes second
    because a model with 70 billion parameters "fits" on one GPU with a terabyte of RAM, but would
    be far too slow there.
    """
    with_offload: Decision | None = None
    # If every GPU has a whole copy of the model, more GPUs than samples do not help. With a token
    # budget, `sequences` is 0.
    most_gpus = min(max(job.sequences, 1), MOST_GPUS) if job.copies_model else MOST_GPUS
    # A job on several nodes takes all eight GPUs of each.
    for gpus in (*range(1, min(most_gpus + 1, 8)), *range(8, most_gpus + 1, 8)):
        # A loop for one GPU becomes DDP on several GPUs, with one process per GPU.
        becomes_ddp = job.strategy == "single" and gpus > 1
        strategy: Strategy = "ddp" if becomes_ddp else job.strategy
        decision = decide(replace(job, gpus=gpus, strategy=strategy), place)
        if decision.fits and not decision.recipe.offload:
            return decision
        if decision.fits and with_offload is None:
            with_offload = decision
    # More GPUs do not make a whole copy of the model smaller.
    none_fits = replace(job, gpus=1 if job.copies_model else MOST_GPUS)
    return with_offload or decide(none_fits, place)


SOLVERS: dict[str, Callable[[TrainingJob, Place], Decision]] = {
    "context": max_context, "batch": max_batch, "gpus": gpus_needed,
}  # fmt: skip


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number below `LARGEST_SOLUTION` for which `fits` is true, by bisection; 0 if
    there is none. `fits` must change from true to false only once.

    >>> largest(lambda n: n <= 1000)
    1000
    """
    low, high = 0, 1
    # Double the number until `fits` is false, then search by bisection.
    while high < LARGEST_SOLUTION and fits(high):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


LEAST_GIB = 0.05
"""The minimum saving in GiB for which a change gets a line in the answer."""
Changes = dict[str, dict[str, Any]]
"""Name of a change -> the job fields that it sets."""


def with_option(change: str, fields: Mapping[str, Any]) -> str:
    """A change with the options of plan that set its job fields.

    >>> with_option("LoRA", {"lora": 16, "dtype": "bf16", "amp": None})
    'LoRA (`--lora 16 --dtype bf16`)'
    """
    # plan has no option for a budget of tokens, which is set in the trainer's config.
    if "tokens" in fields:
        return change
    options = []
    for name, value in fields.items():
        # None, such as no mixed precision under adapters, needs no option.
        if value is not None:
            options.append(f"--{name}" if value is True else f"--{name} {value}")
    return f"{change} (`{' '.join(options)}`)"


def milder_settings(job: TrainingJob) -> Changes:
    """Changes of settings that need less memory and still train the same parameters on the same
    data, the mildest first."""
    changes: Changes = {}
    if job.dtype == "fp32" and not job.amp:
        changes["mixed precision"] = {"amp": "bf16"}
    if not job.checkpointing:
        changes["checkpointing"] = {"checkpointing": True}
    # Image models and classifiers have no vocabulary, so they have no large logits.
    if job.shape.vocabulary and job.loss != "fused":
        changes["a fused loss kernel"] = {"loss": "fused"}
    if job.gpus > 1 and job.strategy == "dp":
        changes["DistributedDataParallel"] = {"strategy": "ddp"}
    # ZeRO 1 and 2 keep the full weights on each GPU, as DDP does.
    if job.gpus > 1 and job.strategy in ("dp", "ddp", "zero1", "zero2"):
        changes["FSDP"] = {"strategy": "fsdp"}
    if job.optimizer in ("adam", "adamw"):
        changes["8-bit AdamW"] = {"optimizer": "adamw8bit"}
    return changes


def smaller_batch(job: TrainingJob, recipe: Recipe) -> Changes:
    """A change that halves the batch (or cuts the token budget to its minimum) without shortening
    the sequences; empty if impossible."""
    if job.fills_token_budget:
        least = least_tokens(job, recipe.sp)
        if tokens_per_gpu(job, recipe) <= least:
            return {}
        return {f"max_token_len_per_gpu {least}": {"tokens": least}}
    # Each group of GPUs needs at least one sequence.
    if job.sequences < 2 * max(job.gpus // recipe.sp, 1):
        return {}
    half = job.sequences // 2
    fields = {"batch": half, "accumulate": 2 * job.accumulate}
    return {f"batch {half} with twice the accumulation": fields}


def changes_to_adapters(job: TrainingJob) -> Changes:
    """Changes that switch to LoRA, to a quantised base or to 16-bit frozen weights, if the job does
    not use them yet."""
    # Frozen weights already have no gradients, so adapters would not help.
    if job.frozen:
        return {}
    if job.lora is not None:
        changes: Changes = {} if job.quantize else {"4-bit weights": {"quantize": "nf4"}}
        # PEFT's preparation would convert what is not quantised to 32 bits again.
        if job.dtype == "fp32" and not (job.quantize and job.upcast_rest):
            weights = "unquantised weights" if job.quantize else "a base"
            changes[f"{weights} in 16 bits"] = {"dtype": "bf16"}
        return changes
    # The frozen base is kept in 16 bits and computes in them, without mixed precision.
    lora = {"lora": 16, "dtype": "bf16", "amp": None}
    return {"LoRA": lora, "QLoRA": {**lora, "quantize": "nf4"}}


def changes_that_save(
    decision: Decision, confidence: Callable[[Decision], Confidence]
) -> tuple[Help, ...]:
    """The changes that reduce memory, each with the GiB that it saves on a GPU: slower recipes if
    the job fits, then other changes. Those with which the job fits come first; both groups are
    sorted by savings, with those that train adapters last. `confidence` tells how sure it is that a
    changed job fits."""
    job, place = decision.job, decision.place

    def help_by(step: str, changed: Decision, kind: Literal["setting", "job"] = "setting") -> Help:
        # Without a recipe and a confidence, the answer shows that the change is not enough.
        return Help(
            step=step,
            kind=kind,
            saves_gib=saved_gib(decision, changed.job, decision.recipe),
            recipe=str(changed.recipe) if changed.fits else None,
            confidence=confidence(changed) if changed.fits else None,
        )

    def helps_by(changes: Changes) -> list[Help]:
        return [
            help_by(with_option(name, fields), decide(replace(job, **fields), place))
            for name, fields in changes.items()
        ]

    train_less = changes_to_adapters(job)
    helps = helps_by(smaller_batch(job, decision.recipe) | milder_settings(job))
    # To train adapters instead of the model would be another experiment, so it is no answer to a
    # job that fits. But a job that trains adapters already may have a smaller base.
    proposes_adapters = job.lora is not None or not decision.fits
    with_adapters = helps_by(train_less) if proposes_adapters else []
    if not decision.fits:
        # If no setting is enough on its own, several together may be.
        one_is_enough = any(help.recipe for help in helps + with_adapters)
        enough = None if one_is_enough else smallest_set(job, place)
        if enough:
            together, changed = enough
            step = " and ".join(with_option(name, fields) for name, fields in together.items())
            group = helps if together.keys().isdisjoint(train_less) else with_adapters
            group.append(help_by(step, changed))
        other_jobs = more_gpus_or_fewer_tokens(job, place)
        helps += [help_by(step, changed, kind="job") for step, changed in other_jobs]

    def in_order(group: list[Help]) -> list[Help]:
        return sorted(group, key=lambda help: -help.saves_gib)

    # `sorted` keeps the order of those that are equal.
    changes = sorted(in_order(helps) + in_order(with_adapters), key=lambda help: not help.recipe)
    recipes = slower_recipes(decision) if decision.fits else ()
    return (*recipes, *(help for help in changes if help.saves_gib > LEAST_GIB))


def smallest_set(job: TrainingJob, place: Place) -> tuple[Changes, Decision] | None:
    """The smallest set of changes that makes the job fit, with the decision for the changed job; of
    several sets of this size the one with the mildest changes. None if no set is enough."""
    milder = milder_settings(job)
    # Checkpointing trains the same and only costs time, so every set has it.
    in_every_set = {"checkpointing": milder["checkpointing"]} if not job.checkpointing else {}
    others = {name: fields for name, fields in milder.items() if name not in in_every_set}
    # Adapters train less than the job does, so they are only tried if nothing else is enough.
    for changes in (others, others | changes_to_adapters(job)):
        for count in range(len(changes) + 1):
            for chosen in itertools.combinations(changes.items(), count):
                together = in_every_set | dict(chosen)
                new_fields: dict[str, Any] = {}
                # Of two changes that set the same field, the later one counts.
                for fields in together.values():
                    new_fields |= fields
                decision = decide(replace(job, **new_fields), place)
                if decision.fits:
                    return together, decision
    return None


def slower_recipes(decision: Decision) -> Iterator[Help]:
    """The recipes that are slower than the chosen one, in order, without those that save no more
    than an earlier one.

    The order is that of Trinity-RFT's guide: use a slower recipe only if memory runs out.
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
    """The GiB per GPU that another job or recipe saves; negative if it needs more."""
    return round((decision.memory.total - memory(job, recipe).total) / GIB, 2)


def more_gpus_or_fewer_tokens(job: TrainingJob, place: Place) -> Iterator[tuple[str, Decision]]:
    """Yields changed jobs that fit, each with a description: more GPUs, or fewer tokens."""
    bigger = gpus_needed(job, place)
    if bigger.fits and bigger.job.gpus > job.gpus:
        yield f"{bigger.job.gpus} such GPUs (`--gpus {bigger.job.gpus}`)", bigger
    # Only texts can be made shorter, because the tokens of an image follow from its size.
    if job.shape.tokens is None and job.context > 1:
        shorter = max_context(job, place)
        if shorter.fits:
            length = shorter.job.context
            yield f"sequences of at most {length:,} tokens (`--context {length}`)", shorter


MOST_TRIED = 7
"""How many smaller numbers of GPUs to try: all of a node, which usually has eight GPUs."""


def better_with_fewer(
    decision: Decision, solve: str | None, confidence: Callable[[Decision], Confidence]
) -> FewerGpus | None:
    """A smaller number of GPUs that works better than using all of them; None if there is none.
    `confidence` tells how sure it is that a job fits.

    A smaller number is better if the job fits only on it, if it avoids offload (which costs the
    most speed), or, if `solve` is `context`, if it allows a longer context. For example, the degree
    of sequence parallelism must divide the number of GPUs and of heads, so that four GPUs (SP=4)
    hold longer sequences than six (SP=2). This is so in 28 of the 560 measured cells.
    """
    # An answer for `gpus` already is the smallest number; the largest batch needs all GPUs.
    if solve in ("gpus", "batch"):
        return None
    job, place = decision.job, decision.place

    def rank(one: Decision) -> tuple[bool, int, bool]:
        """How well a number of GPUs works: whether the job fits, at which length, and whether it
        does without offload; larger is better."""
        length = one.job.context if solve == "context" else 0
        return (one.fits, length, one.fits and not one.recipe.offload)

    numbers = range(job.gpus - 1, max(job.gpus - MOST_TRIED - 1, 0), -1)
    solver = max_context if solve == "context" else decide
    # The degree of sequence parallelism that the user chose must divide the smaller number too.
    tried = [solver(replace(job, gpus=n), place) for n in numbers if n % (place.sp or 1) == 0]
    # Of equally good numbers take a measured one, else the largest: more GPUs are faster, and `max`
    # takes the first of equals.
    best = max(tried, key=lambda one: (*rank(one), one.measured), default=decision)
    if rank(best) <= rank(decision):
        return None
    degree = sequence_degrees(job)[-1]
    degree_of_fewer = sequence_degrees(best.job)[-1]
    # For example with DataParallel, whose first GPU holds the outputs of all GPUs.
    reason = "Each GPU then needs less memory."
    if degree_of_fewer > degree and place.sp is None:
        reason = (
            "The degree of sequence parallelism must divide both the GPUs and the "
            f"{job.shape.heads} heads: with {job.gpus} GPUs that is SP={degree} at most, "
            f"with {best.job.gpus} SP={degree_of_fewer}."
        )
    return FewerGpus(
        gpus=best.job.gpus,
        recipe=str(best.recipe),
        confidence=confidence(best),
        context=best.job.context,
        reason=reason,
        environment={"CUDA_VISIBLE_DEVICES": visible_devices(best.job.gpus)},
    )


def visible_devices(gpus: int) -> str:
    """The first `gpus` GPUs of a machine as a value for CUDA_VISIBLE_DEVICES."""
    return ",".join(map(str, range(gpus)))
