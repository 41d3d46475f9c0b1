"""Chooses the recipe for a job: the measured one if there is one, otherwise the fastest one that
fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.job import Recipe, Strategy, TrainingJob, longest_sequence_fits_budget
from gpusetup.plan.measured import NONE, is_standard, measured_recipe
from gpusetup.plan.memory import JobMemory, memory
from gpusetup.plan.rl import beside_in_words
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


class MachineLimits(Frozen):
    """The memory limits of a machine, and the memory-saving settings that its system supports."""

    capacity: float
    """The bytes of memory that CUDA can use on one GPU."""
    env: bool = True
    """Whether expandable segments work; they do not on Windows, WSL and Jetson."""
    linux: bool = True
    """Whether the system is Linux (WSL and Jetson included), which sequence parallelism and FSDP2
    with CPU offload need."""
    offload: bool = True
    """Whether the GPU's memory is separate from the machine's RAM, so that offload can help."""
    host: float | None = None
    """The bytes of the machine's RAM; None if unknown."""
    sp: int | None = None
    """The only allowed degree of sequence parallelism; None allows every degree."""
    measured_gpu: str | None = None
    """The GPU's name in the measured table; None if the table is not to be used."""


class RecipeOption(Frozen):
    """A recipe, with the memory that the job needs under it."""

    recipe: Recipe
    memory: JobMemory

    def over(self, limits: MachineLimits) -> float:
        """The bytes by which the job exceeds the GPU's memory; negative if memory remains."""
        return self.memory.total - limits.capacity


class RecipeDecision(Frozen):
    """The decision for one job: the recipe that was chosen, if any fits, and all recipes that were
    tried."""

    job: TrainingJob
    limits: MachineLimits
    tried: tuple[RecipeOption, ...]
    shown: RecipeOption
    """The chosen option; if none fits, the option that needs the least memory."""
    fits: bool
    measured: bool = False
    """Whether the recipe comes from the measured table."""

    @property
    def recipe(self) -> Recipe | None:
        """The chosen recipe; None if none fits."""
        return self.shown.recipe if self.fits else None

    @property
    def close_because(self) -> str | None:
        """Why the prediction is uncertain, as a phrase; None if every recipe that was tried is far
        from the memory limit and the memory model is well tested for such jobs."""
        near_share = near_limit(self.job)
        for option in self.tried:
            if abs(option.over(self.limits)) < near_share * self.limits.capacity:
                return f"within {round(100 * near_share)} % of the limit"
        # A doubt cannot change that a job does not fit, because uncounted parts only add memory.
        if self.fits and doubt(self.job, self.shown.recipe):
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


OFTEN_MORE = "often need more memory than plan counts"


# --- the decision ---------------------------------------------------------------------------------


def decide(job: TrainingJob, limits: MachineLimits) -> RecipeDecision:
    """Choose the recipe for a job: the measured one if the table covers the job, otherwise the
    first candidate that fits according to the memory model."""
    recipes = [recipe for recipe in candidates(job, limits) if host_holds(job, recipe, limits)]
    tried: list[RecipeOption] = []
    chosen: RecipeOption | None = None
    for recipe in recipes:
        option = RecipeOption(recipe=recipe, memory=memory(job, recipe))
        tried.append(option)
        # The recipes are sorted from fastest to slowest, so take the first that fits.
        if option.over(limits) <= 0 and longest_sequence_fits_budget(job, recipe.sp):
            chosen = option
            break
    # The cells of the measured table were measured on Linux with expandable segments and a free
    # choice of the degree of sequence parallelism.
    measured: str | None = None
    if limits.env and limits.linux and limits.sp is None:
        measured = measured_recipe(limits.measured_gpu, job)
    is_measured = measured == NONE
    # If the job fitted with no recipe when it was measured, trust the measurement more than the
    # memory model.
    if measured == NONE:
        chosen = None
    for recipe in recipes:
        if str(recipe) == measured:
            chosen = RecipeOption(recipe=recipe, memory=memory(job, recipe))
            is_measured = True
    return RecipeDecision(
        job=job,
        limits=limits,
        tried=tuple(tried),
        # If nothing fits, the answer shows the option that needs the least memory.
        shown=chosen or min(tried, key=lambda option: option.memory.total),
        fits=chosen is not None,
        measured=is_measured,
    )


def host_holds(job: TrainingJob, recipe: Recipe, limits: MachineLimits) -> bool:
    """Whether the machine's RAM is large enough for the data that the recipe moves there; True if
    the size of the RAM is unknown."""
    return limits.host is None or host_bytes(job, recipe) <= limits.host


def candidates(job: TrainingJob, limits: MachineLimits) -> tuple[Recipe, ...]:
    """The recipes that the job can use on this machine, fastest first.

    Offload is always combined with Env if Env works. With a token budget, only degrees with which
    the longest sequence fits into the budget are used. If there are none, all degrees are used.
    """
    all_degrees = sequence_degrees(job, limits)
    degrees = [sp for sp in all_degrees if longest_sequence_fits_budget(job, sp)]
    recipes: list[Recipe] = []
    for sp in degrees or all_degrees:
        recipes += [Recipe(sp=sp), Recipe(sp=sp, env=limits.env)]
    # FSDP2's CPU offload needs Linux, a sharded model, and RAM that is separate from the GPU's
    # memory.
    if limits.linux and limits.offload and job.shards_parameters:
        recipes += [Recipe(offload=True, sp=sp, env=limits.env) for sp in degrees or all_degrees]
    # Remove duplicates: without expandable segments the recipes with and without Env are equal.
    return tuple(dict.fromkeys(recipes))


def sequence_degrees(job: TrainingJob, limits: MachineLimits) -> tuple[int, ...]:
    """The possible degrees of sequence parallelism: common divisors of the number of GPUs and of
    attention heads.

    A degree must also divide the number of key-value heads or be a multiple of it, in which case
    the same head is on several GPUs with different query heads (verl's Ulysses).

    >>> from gpusetup.plan.models import model_named
    >>> job = TrainingJob(shape=model_named("qwen3-14b"), gpus=6, context=4096)
    >>> sequence_degrees(job, MachineLimits(capacity=0))
    (1, 2)
    >>> sequence_degrees(replace(job, gpus=8), MachineLimits(capacity=0))
    (1, 2, 4, 8)
    """
    if limits.sp is not None:
        return (limits.sp,)
    if not limits.linux or job.copies_model:
        return (1,)
    gpus = job.data_parallel
    heads = job.shape.heads // job.tensor_parallel
    key_value_heads = max(1, job.shape.key_value_heads // job.tensor_parallel)
    return tuple(
        degree
        for degree in range(1, min(gpus, heads) + 1)
        if gpus % degree == 0
        and heads % degree == 0
        and (key_value_heads % degree == 0 or degree % key_value_heads == 0)
    )


# --- the longest context, the largest batch, the fewest GPUs --------------------------------------


def max_context(job: TrainingJob, limits: MachineLimits) -> RecipeDecision:
    """The decision for the longest context, in tokens, at which some recipe fits; if not even one
    token fits, the answer shows the memory for one."""
    longest = largest(lambda context: decide(replace(job, context=context), limits).fits)
    return decide(replace(job, context=max(longest, 1)), limits)


def max_batch(job: TrainingJob, limits: MachineLimits) -> RecipeDecision:
    """The decision for the largest batch over all GPUs at which some recipe fits, without offload
    if any batch fits so."""
    for limits_tried in (replace(limits, offload=False), limits):

        def fits(batch: int, limits: MachineLimits = limits_tried) -> bool:
            return decide(replace(job, batch=batch), limits).fits

        most = largest(fits)
        if most:
            break
    return decide(replace(job, batch=max(most, 1)), limits)


def gpus_needed(job: TrainingJob, limits: MachineLimits) -> RecipeDecision:
    """The decision for the smallest number of GPUs on which the job fits without offload.

    If the job only fits with offload, it is the smallest number with offload. Offload comes second
    because a model with 70 billion parameters "fits" on one GPU with a terabyte of RAM, but would
    be far too slow there.
    """
    with_offload: RecipeDecision | None = None
    for decision in decisions_by_gpus(job, limits):
        if decision.fits and not decision.shown.recipe.offload:
            return decision
        if decision.fits and with_offload is None:
            with_offload = decision
    if with_offload is not None:
        return with_offload
    # If each GPU holds a whole copy of the model, more GPUs do not make the copy smaller.
    groups = 1 if job.copies_model else max(MOST_GPUS // job.group_size, 1)
    return decide(replace(job, gpus=groups * job.group_size), limits)


def fewest_gpus(job: TrainingJob, limits: MachineLimits) -> RecipeDecision | None:
    """The decision for the smallest number of GPUs on which the job fits with any recipe, offload
    included; None if there is none."""
    return next((found for found in decisions_by_gpus(job, limits) if found.fits), None)


def decisions_by_gpus(job: TrainingJob, limits: MachineLimits) -> Iterator[RecipeDecision]:
    """The decisions for a growing number of GPU groups: one to seven, then multiples of eight. A
    group holds one copy of the model (`TrainingJob.group_size`)."""
    most_gpus = MOST_GPUS
    # If every GPU has a whole copy, more GPUs than samples do not help.
    if job.copies_model:
        most_gpus = min(job.group_size * max(job.sequences, 2), MOST_GPUS)
    for groups in (*range(1, 8), *range(8, MOST_GPUS + 1, 8)):
        gpus = groups * job.group_size
        if gpus > most_gpus:
            return
        # A loop for one GPU becomes DDP on several GPUs, with one process per GPU.
        becomes_ddp = job.strategy == "single" and gpus > 1
        strategy: Strategy = "ddp" if becomes_ddp else job.strategy
        yield decide(replace(job, gpus=gpus, strategy=strategy), limits)


SOLVERS: dict[str, Callable[[TrainingJob, MachineLimits], RecipeDecision]] = {
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
