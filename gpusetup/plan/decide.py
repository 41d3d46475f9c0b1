"""The decision: the measured recipe, or the first that fits in the order that costs least speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.job import Job, Recipe, Strategy, takes_longest
from gpusetup.plan.measured import NONE, is_standard, measured_recipe
from gpusetup.plan.memory import Memory, memory
from gpusetup.plan.models_beside import beside_in_words
from gpusetup.plan.shape import DENOISERS
from gpusetup.plan.states import host_bytes

CLEAR, CLEAR_UNMEASURED, CLEAR_SHARDED = 0.03, 0.2, 0.3
"""The share of the card that a clear answer leaves: for the trainer that was measured; for other
jobs, of which only published figures are known; and for those whose weights or states are divided
among GPUs, of which a tenth needed 50 to 70 % more than was counted."""
LARGEST_SOLUTION, MOST_GPUS = 1 << 24, 1024
"""The largest batch or context that is looked for, and the most GPUs."""


class Limits(Frozen):
    """What the machine gives and allows."""

    capacity: float
    """Bytes of one GPU as CUDA sees them."""
    env: bool = True
    """Whether expandable segments work there: not on Windows, WSL and Jetson."""
    linux: bool = True
    """Sequence parallelism and FSDP2 with CPU offload need Linux."""
    offload: bool = True
    """Whether the machine's memory is another than the GPU's."""
    host: float | None = None
    """Bytes of the machine's own memory; None if they are not known."""
    sp: int | None = None
    """The only degree of sequence parallelism that may be used; None: any."""
    measured_gpu: str | None = None
    """The GPU's name in the measured table; None leaves the table aside."""


class Option(Frozen):
    """A recipe and the memory it takes."""

    recipe: Recipe
    memory: Memory

    def over(self, limits: Limits) -> float:
        """Bytes that it lacks; negative: that it leaves."""
        return self.memory.total - limits.capacity


class Decision(Frozen):
    """A recipe, or none, and the memory of it and of those that were tried before it."""

    job: Job
    limits: Limits
    tried: tuple[Option, ...]
    shown: Option
    """The chosen option; if none fits, the one that lacks least."""
    fits: bool
    measured: bool = False
    """Whether the recipe comes from the measured table."""

    @property
    def recipe(self) -> Recipe | None:
        return self.shown.recipe if self.fits else None

    @property
    def clear(self) -> bool:
        """Whether no option that was tried is near the limit, and such jobs are known enough."""
        near_bytes = near_limit(self.job) * self.limits.capacity
        if any(abs(option.over(self.limits)) < near_bytes for option in self.tried):
            return False
        return not (self.fits and doubt(self.job, self.shown.recipe))


def near_limit(job: Job) -> float:
    """The share of the limit within which an answer is close."""
    if is_standard(job):
        return CLEAR
    is_sharded = job.gpus > 1 and not job.copies_model
    return CLEAR_SHARDED if is_sharded else CLEAR_UNMEASURED


MARGINS = {
    "measured": 0.05, "one GPU": 0.2, "adapters": 0.35, "several GPUs": 0.3, "sharded": 0.5,
    "doubtful": 0.6, "images": 1.0,
}  # fmt: skip
"""Kind of job -> by how much a run may need more than is counted: nine of ten published runs of the
kind (`tests/plan_published.csv`) stayed within about as much."""


def error_margin(job: Job, recipe: Recipe) -> float:
    """By how much a run of this kind may need more than is counted, as a share of it."""
    if is_standard(job):
        return MARGINS["measured"]
    if job.shape.kind in DENOISERS:
        return MARGINS["images"]
    if doubt(job, recipe) or job.shape.assumed:
        return MARGINS["doubtful"]
    if job.gpus > 1 and not job.copies_model:
        return MARGINS["sharded"]
    if job.lora is not None:
        return MARGINS["adapters"]
    return MARGINS["several GPUs" if job.gpus > 1 else "one GPU"]


def doubt(job: Job, recipe: Recipe) -> str | None:
    """Why a job that fits is not sure to, for kinds of which little is known."""
    on_host = recipe.offload or job.offload_optimizer or job.offload_checkpoints
    often = "often need more memory than plan counts"
    rows = (
        # Scripts for images differ in what they hold, and the levels of a U-Net in their widths.
        (job.shape.kind in DENOISERS,
         f"plan counts what {job.shape.name} keeps only roughly, and runs of images and video "
         f"{often}"),
        (job.shape.roughly,
         f"{job.shape.name} has layers that are no attention; plan counts their weights, and what "
         "they keep only roughly"),
        (job.shape.tower and job.lora is None,
         "plan does not count what the image encoder keeps; with LoRA it is not trained"),
        (on_host and not is_standard(job), f"runs with parts on the host {often}"),
        (job.strategy == "dp" and job.gpus > 1,
         "plan never compared DataParallel with a measurement"),
        (job.generates or bool(job.models_beside),
         f"plan also counts {beside_in_words(job)}, and never compared such a run with a "
         "measurement"),
        (job.sequences_of_sample > 1,
         "each sample is a pair of answers, and plan never compared such a run with a measurement"),
        (job.lora is not None and job.strategy.startswith("zero"),
         f"runs of adapters under ZeRO {often}"),
    )  # fmt: skip
    return next((text for holds, text in rows if holds), None)


def option_of(job: Job, recipe: Recipe) -> Option:
    return Option(recipe=recipe, memory=memory(job, recipe))


def decide(job: Job, limits: Limits) -> Decision:
    """The measured recipe if the table reaches and the system allows it, else the model's."""
    recipes = [one for one in candidates(job, limits) if host_holds(job, one, limits)]
    tried: list[Option] = []
    last_fits = False
    for recipe in recipes:
        tried.append(option_of(job, recipe))
        if last_fits := tried[-1].over(limits) <= 0 and takes_longest(job, recipe.sp):
            break
    table_recipe = None
    if limits.env and limits.linux and limits.sp is None:
        table_recipe = measured_recipe(limits.measured_gpu, job)
    measured = next((option_of(job, one) for one in recipes if str(one) == table_recipe), None)
    fits = bool(measured) or (last_fits and table_recipe != NONE)
    least = min(tried, key=lambda one: one.memory.total)
    return Decision(
        job=job,
        limits=limits,
        tried=tuple(tried),
        shown=measured or (tried[-1] if fits else least),
        fits=fits,
        measured=measured is not None or table_recipe == NONE,
    )


def host_holds(job: Job, recipe: Recipe, limits: Limits) -> bool:
    """Whether the machine's own memory takes what a recipe keeps there; yes if it is unknown."""
    return limits.host is None or host_bytes(job, recipe) <= limits.host


def candidates(job: Job, limits: Limits) -> tuple[Recipe, ...]:
    """The recipes that this job may use here, in order.

    Offload is always used with Env if Env works. A budget
    of tokens leaves the degrees that take the longest sequence; all if none does.
    """
    may_offload = limits.linux and limits.offload and job.shards_parameters
    all_degrees = sequence_degrees(job, limits)
    degrees = [sp for sp in all_degrees if takes_longest(job, sp)] or all_degrees
    recipes = []
    for offload in (False, True) if may_offload else (False,):
        for sp in degrees:
            envs = (True,) if offload else (False, True)
            recipes += [Recipe(offload=offload, sp=sp, env=env and limits.env) for env in envs]
    return tuple(dict.fromkeys(recipes))


def sequence_degrees(job: Job, limits: Limits) -> tuple[int, ...]:
    """The degrees of sequence parallelism: common divisors of the GPUs and the heads.

    They must divide the key-value heads, or be a multiple of them, which then are repeated (verl's
    Ulysses).

    >>> from gpusetup.plan.models import model_named
    >>> job = Job(shape=model_named("qwen3-14b"), gpus=6, context=4096)
    >>> sequence_degrees(job, Limits(capacity=0))
    (1, 2)
    >>> sequence_degrees(replace(job, gpus=8), Limits(capacity=0))
    (1, 2, 4, 8)
    """
    if limits.sp is not None:
        return (limits.sp,)
    if not limits.linux or job.copies_model:
        return (1,)
    gpus, heads = job.data_parallel, job.shape.heads // job.tensor_parallel
    shared = max(1, job.shape.key_value_heads // job.tensor_parallel)
    both = [n for n in range(1, min(gpus, heads) + 1) if gpus % n == 0 and heads % n == 0]
    return tuple(n for n in both if shared % n == 0 or n % shared == 0)


# --- solving for the unknown --------------------------------------------------------------------


def max_context(job: Job, limits: Limits) -> Decision:
    """The longest context that some recipe fits."""

    def fits(context: int) -> bool:
        return decide(replace(job, context=context), limits).fits

    longest = max(largest(fits), 1)
    return decide(replace(job, context=longest), limits)


def max_batch(job: Job, limits: Limits) -> Decision:
    """The largest batch of all GPUs together that some recipe fits."""

    def fits(batch: int) -> bool:
        return decide(replace(job, batch=batch), limits).fits

    most = max(largest(fits), 1)
    return decide(replace(job, batch=most), limits)


def gpus_needed(job: Job, limits: Limits) -> Decision:
    """The fewest GPUs with which some recipe fits without offload.

    Where only offload fits, the fewest with it: a model of 70 billion parameters "fits" on one GPU
    with a terabyte of RAM, but nobody trains it there.
    """
    with_offload: Decision | None = None
    for decision in decisions_by_gpus(job, limits):
        if decision.fits and not decision.shown.recipe.offload:
            return decision
        if decision.fits and with_offload is None:
            with_offload = decision
    if with_offload is not None:
        return with_offload
    group = group_size(job)
    groups = max(MOST_GPUS // group, 1)
    if job.copies_model:  # more GPUs take nothing off a whole copy
        groups = 1
    return decide(replace(job, gpus=groups * group), limits)


def fewest_gpus(job: Job, limits: Limits) -> Decision | None:
    """The fewest GPUs with which any recipe fits, offload included; None if none does."""
    for decision in decisions_by_gpus(job, limits):
        if decision.fits:
            return decision
    return None


def decisions_by_gpus(job: Job, limits: Limits) -> Iterator[Decision]:
    """The job on more and more GPUs: up to eight, then whole nodes of eight.

    If every GPU has a whole copy, no more help than there are samples.
    """
    group = group_size(job)
    most_gpus = MOST_GPUS
    if job.copies_model:
        most_gpus = min(group * max(job.sequences, 2), MOST_GPUS)
    for groups in (*range(1, 8), *range(8, MOST_GPUS + 1, 8)):
        gpus = groups * group
        # A loop on one GPU becomes one process a GPU on several.
        strategy: Strategy = "ddp" if job.strategy == "single" and gpus > 1 else job.strategy
        if gpus <= most_gpus:
            yield decide(replace(job, gpus=gpus, strategy=strategy), limits)


def group_size(job: Job) -> int:
    """The GPUs that hold one copy of the model together."""
    return job.tensor_parallel * job.pipeline_parallel * job.context_parallel


SOLVERS: dict[str, Callable[[Job, Limits], Decision]] = {
    "context": max_context, "batch": max_batch, "gpus": gpus_needed,
}  # fmt: skip


def largest(fits: Callable[[int], bool], limit: int = LARGEST_SOLUTION) -> int:
    """The largest number that fits, of a question whose answer turns to no once; 0 if none does.

    >>> largest(lambda n: n <= 1000)
    1000
    """
    low, high = 0, 1
    while high < limit and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
