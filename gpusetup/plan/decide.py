"""Chooses the recipe for a job: the measured one if there is one, otherwise the fastest one that
fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.job import Recipe, Strategy, TrainingJob, longest_sequence_fits_budget
from gpusetup.plan.measured import NONE, gpu_of, is_standard, measured_recipe
from gpusetup.plan.memory import JobMemory, memory
from gpusetup.plan.place import Place
from gpusetup.plan.states import host_bytes

CLEAR = 0.03
"""The share of the card that must stay free for a clear answer with Trinity-RFT, for which we have
measurements (`measured.py`)."""
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
        # A doubt cannot change that a job does not fit, because uncounted parts only add memory.
        if self.fits and doubt(self.job, self.recipe):
            return "plan knows little about this kind of job (see the notes)"
        return None


# --- how certain an answer is ---------------------------------------------------------------------


def near_limit(job: TrainingJob) -> float:
    """The share of the GPU's memory within which an answer for this job counts as close."""
    if is_standard(job):
        return CLEAR
    # The memory that FSDP needs for gathering and sending was compared with few published runs.
    is_sharded = job.gpus > 1 and not job.copies_model
    return CLEAR_SHARDED if is_sharded else CLEAR_UNMEASURED


def doubt(job: TrainingJob, recipe: Recipe) -> str | None:
    """Why a job that should fit may still run out of memory, as a sentence; None for well-tested
    kinds of jobs."""
    shape = job.shape
    if shape.roughly:
        return (
            f"{shape.name} has layers without attention: plan counts their weights, but only "
            "roughly estimates their activations"
        )
    if shape.tower and job.lora is None:
        return "plan does not count what the image encoder keeps; with LoRA it is not trained"
    keeps_parts_on_host = recipe.offload or job.offload_optimizer or job.offload_checkpoints
    # Only Trinity-RFT's measured runs (`is_standard`) also cover offload.
    if keeps_parts_on_host and not is_standard(job):
        return (
            "published runs that keep parts in the host's RAM took 0.7 to 3 times what plan "
            "counts: measure one step first"
        )
    if job.strategy == "dp" and job.gpus > 1:
        return "plan never compared DataParallel with a measurement"
    if job.generates or job.models_beside:
        return (
            f"plan also counts {beside_in_words(job)}, and has never been compared with a "
            "measured run of this kind"
        )
    if job.sequences_of_sample > 1:
        return (
            "each sample is a pair of answers, and plan never compared such a run with a "
            "measurement"
        )
    if job.lora is not None and job.strategy.startswith("zero"):
        return f"runs of adapters under ZeRO {OFTEN_MORE}"
    return None


def beside_in_words(job: TrainingJob) -> str:
    """The counted additional models as part of a sentence; empty if there are none."""
    roles = [f"the {model.role} model" for model in job.models_beside]
    if job.engine_bytes:
        roles.append("the inference engine on the same GPUs")
    if job.rl.generated_at_once:
        roles.append(
            f"a cache for {job.rl.generated_at_once:,} sequences that are generated at once"
        )
    return " and ".join(filter(None, (", ".join(roles[:-1]), *roles[-1:])))


OFTEN_MORE = "often need more memory than plan counts"


# --- the decision ---------------------------------------------------------------------------------


def decide(job: TrainingJob, place: Place) -> Decision:
    """Choose the recipe for a job: the measured one if the table covers the job, otherwise the
    first candidate that fits according to the memory model."""
    recipes = [recipe for recipe in candidates(job, place) if host_holds(job, recipe, place)]
    tried: dict[Recipe, JobMemory] = {}
    chosen: Recipe | None = None
    for recipe in recipes:
        tried[recipe] = memory(job, recipe)
        # The recipes are sorted from fastest to slowest, so take the first that fits.
        enough = tried[recipe].total <= place.capacity
        if enough and longest_sequence_fits_budget(job, recipe.sp):
            chosen = recipe
            break
    # The cells of the measured table were measured on Linux with expandable segments and a free
    # choice of the degree of sequence parallelism.
    measured: str | None = None
    if place.env and place.sp is None and not place.predict:
        measured = measured_recipe(gpu_of(place.gpu, place.total_bytes), job)
    by_name = {str(recipe): recipe for recipe in recipes}
    is_measured = measured == NONE or measured in by_name
    # Trust the measurement more than the memory model, even if no recipe fitted then.
    if is_measured:
        chosen = by_name.get(measured or NONE)
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
    """The recipes that the job can use on this machine, fastest first.

    Offload is always combined with Env if Env works. With a token budget, only degrees of sequence
    parallelism with which the longest sequence fits into the budget are used, if there are any.
    """
    possible = sequence_degrees(job) if place.linux else (1,)
    if place.sp is not None:
        possible = (place.sp,)
    degrees = [sp for sp in possible if longest_sequence_fits_budget(job, sp)] or possible
    recipes: list[Recipe] = []
    for sp in degrees:
        recipes += [Recipe(sp=sp), Recipe(sp=sp, env=place.env)]
    # FSDP2's CPU offload needs a sharded model.
    if place.can_offload and job.shards_parameters:
        recipes += [Recipe(offload=True, sp=sp, env=place.env) for sp in degrees]
    # Remove duplicates: without expandable segments the recipes with and without Env are equal.
    return tuple(dict.fromkeys(recipes))


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
    """The decision for the largest batch over all GPUs at which some recipe fits, without offload
    if any batch fits so."""
    for tried_place in (replace(place, offload=False), place):

        def fits(batch: int, place: Place = tried_place) -> bool:
            return decide(replace(job, batch=batch), place).fits

        most = largest(fits)
        if most:
            break
    return decide(replace(job, batch=max(most, 1)), place)


def gpus_needed(job: TrainingJob, place: Place) -> Decision:
    """The decision for the smallest number of GPUs on which the job fits without offload.

    If the job only fits with offload, it is the smallest number with offload. Offload comes second
    because a model with 70 billion parameters "fits" on one GPU with a terabyte of RAM, but would
    be far too slow there.
    """
    with_offload: Decision | None = None
    for decision in decisions_by_gpus(job, place):
        if decision.fits and not decision.recipe.offload:
            return decision
        if decision.fits and with_offload is None:
            with_offload = decision
    if with_offload is not None:
        return with_offload
    # If each GPU holds a whole copy of the model, more GPUs do not make the copy smaller.
    return decide(replace(job, gpus=1 if job.copies_model else MOST_GPUS), place)


def fewest_gpus(job: TrainingJob, place: Place) -> Decision | None:
    """The decision for the smallest number of GPUs on which the job fits with any recipe, offload
    included; None if there is none."""
    return next((found for found in decisions_by_gpus(job, place) if found.fits), None)


def decisions_by_gpus(job: TrainingJob, place: Place) -> Iterator[Decision]:
    """The decisions for a growing number of GPUs: one to seven, then multiples of eight."""
    most_gpus = MOST_GPUS
    # If every GPU has a whole copy, more GPUs than samples do not help.
    if job.copies_model:
        most_gpus = min(max(job.sequences, 2), MOST_GPUS)
    for gpus in (*range(1, 8), *range(8, MOST_GPUS + 1, 8)):
        if gpus > most_gpus:
            return
        # A loop for one GPU becomes DDP on several GPUs, with one process per GPU.
        becomes_ddp = job.strategy == "single" and gpus > 1
        strategy: Strategy = "ddp" if becomes_ddp else job.strategy
        yield decide(replace(job, gpus=gpus, strategy=strategy), place)


SOLVERS: dict[str, Callable[[TrainingJob, Place], Decision]] = {
    "context": max_context, "batch": max_batch, "gpus": gpus_needed,
}  # fmt: skip


def largest(fits: Callable[[int], bool], limit: int = LARGEST_SOLUTION) -> int:
    """The largest number for which `fits` is true, by bisection; 0 if there is none. `fits` must
    change from true to false only once.

    >>> largest(lambda n: n <= 1000)
    1000
    """
    low, high = 0, 1
    # Double the number until `fits` is false, then search by bisection.
    while high < limit and fits(high):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
