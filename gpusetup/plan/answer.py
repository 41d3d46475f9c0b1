"""A question and a place -> the public answer: memory in GiB, settings, savings, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.model.documents import (
    ConfigRead,
    FewerGpus,
    PlanAnswer,
    PlanCell,
    PlanMemory,
    RunnerUp,
    Way,
)
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    SOLVERS,
    Decision,
    Limits,
    decide,
    fewer_gpus,
    max_batch,
    max_context,
    near_limit,
)
from gpusetup.plan.job import FIELDS, Job, Recipe, samples, tokens, yarn
from gpusetup.plan.measured import NONE, is_standard
from gpusetup.plan.models import model_of_size
from gpusetup.plan.notes import first_gpus, left_open, notes, use_fewer
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, job_of
from gpusetup.plan.savings import helps, ladder

ALLOCATOR = "expandable_segments:True"
ENV = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATOR, "PYTORCH_ALLOC_CONF": ALLOCATOR}
"""The variable's old name, which every torch reads, and the new one (torch 2.9 and later)."""
SOURCES = {
    "measured": "measured: Trinity-RFT's GPU configuration guide",
    "fitted": "predicted by the memory model, which was fitted to measured jobs of this kind",
    "model": "predicted by the memory model",
}


class Asked(Frozen):
    """What an answer is made from."""

    question: Question
    place: Place
    limits: Limits
    job: Job
    config: ConfigRead | None = None
    """What was read of a training config."""
    notes: tuple[str, ...] = ()
    """What the config says that cannot be counted."""


def decided(asked: Asked) -> Decision:
    """The decision, at the best value of the unknown if there is one."""
    solve = SOLVERS[asked.question.solve] if asked.question.solve else decide
    return solve(asked.job, asked.limits)


def answer(asked: Asked, decision: Decision) -> PlanCell:
    """The plan of one job, with all that helps a person."""
    question, place = asked.question, asked.place
    fewer = fewer_gpus(decision)
    said = [*asked.notes, *notes(question, decision, place)]
    said += [use_fewer(fewer, decision.job.gpus, place)] if fewer else []
    unsure = any(left_open(question, decision, place))
    plain = cell(decision, place.gpu)
    return replace(
        plain,
        confidence="close" if unsure and plain.confidence == "clear" else plain.confidence,
        better=FewerGpus(gpus=fewer.job.gpus, recipe=str(fewer.recipe)) if fewer else None,
        env={**plain.env, **visible(decision.job, place)} if decision.fits else {},
        ladder=ladder(decision),
        helps=helps(decision),
        ways=tuple(ways(asked)),
        advice=tuple(said),
        solved=question.solve,
        config=asked.config,
    )


def as_document(found: PlanCell) -> PlanAnswer:
    return PlanAnswer(**{field.name: getattr(found, field.name) for field in fields(found)})


def cell(decision: Decision, gpu: str) -> PlanCell:
    """The plan of one job of many, without what would help."""
    job, shown, limits = decision.job, decision.shown, decision.limits
    sure = "clear" if decision.clear else "close"
    kind = "measured" if decision.measured else "fitted" if is_standard(job) else "model"
    return PlanCell(
        fits=decision.fits,
        recipe=str(shown.recipe) if decision.fits else NONE,
        basis="measured" if decision.measured else "predicted",
        confidence="measured" if decision.measured else sure,  # type: ignore[arg-type]
        near_percent=round(100 * near_limit(job)),
        memory_gib=memory_gib(decision),
        margin_percent=round(-100 * shown.over(limits) / limits.capacity, 2),
        runner_up=runner_up(decision),
        env=ENV if decision.fits and shown.recipe.env else {},
        settings=settings(job, shown.recipe) if decision.fits else {},
        model=job.shape.name,
        parameters=job.shape.parameters,
        active_parameters=job.shape.active,
        gpu=gpu,
        gpus=job.gpus,
        context=job.context,
        batch=job.batch,
        strategy=job.strategy,
        source=SOURCES[kind],
    )


def visible(job: Job, place: Place) -> dict[str, str]:
    """Which GPUs to show the trainer, if the machine has more than the plan uses."""
    more = place.count is not None and place.count > job.gpus
    return {"CUDA_VISIBLE_DEVICES": first_gpus(job.gpus)} if more else {}


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
         "allocated", "reserved")  # fmt: skip


def memory_gib(decision: Decision) -> PlanMemory:
    found, capacity = decision.shown.memory, decision.limits.capacity
    values = {name: getattr(found, name) for name in PARTS} | {"capacity": capacity}
    if found.total <= capacity:  # the allocator gives back what it only keeps for later
        values["reserved"] = min(found.reserved, capacity - found.runtime)
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


def runner_up(decision: Decision) -> RunnerUp | None:
    """The recipe before the chosen one, or the one that lacks least if none fits."""
    before = [one for one in decision.tried if one.recipe.rank < decision.shown.recipe.rank]
    if not decision.fits:
        before = [decision.shown]
    near = min(before, key=lambda one: one.memory.total, default=None)
    if near is None:
        return None
    lacks = near.over(decision.limits)
    return RunnerUp(recipe=str(near.recipe), short_gib=round(lacks / GIB, 3) if lacks > 0 else None)


# --- settings ----------------------------------------------------------------------------------

NAMED_APART = ("shape", "gpus", "context", "batch", "tokens", "linked", "strategy", "optimizer",
               "amp", "dtype", "checkpointing", "expandable", "autocast")  # fmt: skip
PLAIN = Job(shape=model_of_size(10**9, text=True), context=1)


def settings(job: Job, recipe: Recipe) -> dict[str, Any]:
    """What to write into the trainer's configuration; what is usual is left out."""
    half = job.dtype if job.autocast and job.compute_bytes < 4 else "none"
    found: dict[str, Any] = {
        "strategy": "fsdp2" if job.strategy == "fsdp" else job.strategy,
        "gpus": job.gpus,
        "cpu_offload": recipe.offload,
        "sequence_parallel_size": recipe.sp,
        "gradient_checkpointing": job.checkpointing,
        "optimizer": job.optimizer,
        "mixed_precision": job.amp or half,
        "param_dtype": job.dtype,
    }
    for name in FIELDS:
        value = getattr(job, name)
        if name not in NAMED_APART and value != getattr(PLAIN, name):
            found[name] = value
    if not job.shape.vocabulary:
        found.pop("loss", None)
    if job.batch is None:
        found |= {"max_model_len": job.context, "max_token_len_per_gpu": tokens(job, recipe)}
    else:
        found["batch_per_gpu"] = samples(job, recipe)
    rope = yarn(job)
    return found | ({"rope_scaling": rope} if rope else {})


# --- one GPU, nothing said ------------------------------------------------------------------------

FULL = {"dtype": "fp32", "amp": "bf16"}
FUSED = {"loss": "fused"}
WAYS: dict[str, dict[str, Any]] = {
    "full": FULL, "full, 8-bit AdamW": {**FULL, "optimizer": "adamw8bit"},
    "LoRA": {"lora": 16}, "LoRA, fused loss": {"lora": 16, **FUSED},
    "QLoRA": {"lora": 16, "quantize": "nf4"},
    "QLoRA, fused loss": {"lora": 16, "quantize": "nf4", **FUSED},
}  # fmt: skip
"""What people do on one GPU -> how, with what transformers' Trainer does by default."""


def ways(asked: Asked) -> Iterator[Way]:
    """Whether full training, LoRA and QLoRA fit on one GPU, if nobody said which is meant.

    Each with checkpointing, for the whole length; the batch is the largest of that length, the
    context the longest of one sequence. Nothing is offloaded.
    """
    question, shape = asked.question, asked.job.shape
    if asked.job.gpus > 1 or question.says_how or not shape.writes_text:
        return
    limits = replace(asked.limits, offload=False, measured=None)
    for name, how in WAYS.items():
        each = {**how, "checkpointing": True}
        said = replace(question, trainer="hf", how=each, context=asked.job.context, batch=1)
        job = job_of(said, shape, limits)
        one, most, longest = (solve(job, limits) for solve in (decide, max_batch, max_context))
        native = shape.native_context or longest.job.context
        yield Way(
            name=name,
            fits=one.fits,
            total_gib=round(one.shown.memory.total / GIB, 2),
            batch=most.job.batch if most.fits else None,
            context=min(longest.job.context, native) if longest.fits else None,
        )


# --- many at once ---------------------------------------------------------------------------------

LENGTHS = (*range(4096, 40961, 4096), *range(51200, 133121, 10240), 163840, 196608, 262144)
COUNTS = (1, 2, 4, 6, 8)


class Grid(Frozen):
    """Plans by length (rows) and number of GPUs (columns)."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    plans: tuple[tuple[PlanCell, ...], ...]


def grid(asked: Asked, most: int | None) -> Grid:
    """Every count up to `most` (and `most` itself), every length until none fits any more."""
    job, rows = asked.job, list[tuple[PlanCell, ...]]()
    counts = counts_up_to(most, job.tensor_parallel * job.pipeline_parallel)
    said = {asked.question.context} - {None}
    lengths = tuple(sorted({*LENGTHS, *(n for n in said if n)}))
    for length in lengths:
        jobs = (replace(job, context=length, gpus=gpus) for gpus in counts)
        rows.append(tuple(cell(decide(one, asked.limits), asked.place.gpu) for one in jobs))
        if not any(plan.fits for plan in rows[-1]):
            break
    return Grid(lengths=lengths[: len(rows)], counts=counts, plans=tuple(rows))


def counts_up_to(most: int | None, unit: int = 1) -> tuple[int, ...]:
    """
    >>> counts_up_to(None), counts_up_to(5), counts_up_to(16, 2)
    ((1, 2, 4, 6, 8), (1, 2, 4, 5), (2, 4, 6, 8, 16))
    """
    usual = {n for n in COUNTS if most is None or n <= most} | {most or 1}
    return tuple(n for n in sorted(usual) if n % unit == 0) or (unit,)
