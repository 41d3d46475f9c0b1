"""A question and a place -> the public answer: memory in GiB, settings, savings, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.model.documents import (
    ConfigRead,
    PlanAnswer,
    PlanCell,
    PlanMemory,
    Way,
)
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import (
    SOLVERS,
    Decision,
    Limits,
    decide,
    doubt,
    max_batch,
    max_context,
    near_limit,
)
from gpusetup.plan.job import JOB_DEFAULTS, Job, Recipe, samples, tokens, yarn
from gpusetup.plan.measured import NONE, is_standard
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, job_of
from gpusetup.plan.savings import helps


def notes(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """All of it, the model's own first."""
    job = decision.job
    if job.shape.beside:
        yield f"{job.context:,} tokens a sample; `--context` takes those of another resolution"
        beside = f"{2 * job.shape.beside / GIB:.1f} GiB"
        yield (
            f"The text encoders and the VAE ({beside}) are not counted: encode the data before the "
            "training, or load these models on another GPU"
        )
    yield from assumed(question, decision)
    yield from of_machine(decision, place)
    if decision.fits and not decision.measured and (kind := doubt(job, decision.shown.recipe)):
        yield kind
    yield from left_open(question, decision, place)


def assumed(question: Question, decision: Decision) -> Iterator[str]:
    """What was taken because nobody said it."""
    job, s, native = decision.job, decision.job.shape, decision.job.shape.native_context
    if question.context is None and question.solve != "context" and s.tokens is None:
        yield f"no `--context`: {job.context:,} token{'s' * (job.context > 1)} of text"
    if native is not None and s.tokens is None and job.context > native:
        extended = "the model needs its positions extended"
        how = f"YaRN with factor {job.context / native:g}" if yarn(job) else extended
        yield f"{job.context:,} tokens are beyond the native {native:,}: {how}"
    if job.batch is None:
        return
    if question.batch is None and question.solve is None:
        most = max_batch(job, decision.limits)
        more = f"; {most.job.batch:,} would fit (`--max-batch`)" if most.fits else ""
        one = "sequence" if s.tokens is None else f"sample of {s.tokens:,} tokens"
        yield f"no `--batch`: one {one} a GPU{more}"
    if question.trainer is None:
        if job.compute_bytes == 4 and not {"amp", "dtype"} & question.job_fields.keys():
            yield "in 32 bits, as plain loops run; `--amp bf16` changes that"
        if not job.checkpointing and job.context > 1 and "checkpointing" not in question.job_fields:
            yield "without checkpointing, as plain loops run; `--checkpointing` changes that"


def of_machine(decision: Decision, place: Place) -> Iterator[str]:
    """What the machine has, lacks and holds already."""
    job, count = decision.job, place.count
    if count is not None and job.gpus > count:
        yield f"this machine has {count} GPU{'s' * (count > 1)}, the plan is for {job.gpus}"
    if place.unified:
        yield "the GPU shares the machine's memory: Offload gains nothing, other programs count"


def left_open(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """What nobody said and a fit hangs on: then it is not clear."""
    job, total = decision.job, decision.shown.memory.total
    capacity = decision.limits.capacity
    if not decision.fits or decision.measured:
        return
    if question.params is not None and question.context is None and job.context == 1:
        yield (
            "memory grows with a sample's tokens: give `--context` (1: a row), or measure one step"
        )
    if total + place.used_bytes > capacity:
        yield f"it fits only if other programs give back {place.used_bytes / GIB:.1f} GiB"
    more = 2.0 * job.shape.beside
    if more and question.trainer != "finetrainers" and total + more > 0.8 * capacity:
        yield (
            f"with the encoders of text and the VAE on the GPU {(total + more) / GIB:.1f} GiB are "
            "needed: encode the data before, or load them on another GPU"
        )


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


def answer(asked: Asked) -> PlanAnswer:
    """The plan of one job, at the best value of the unknown if there is one, with all that helps a
    person."""
    question, place = asked.question, asked.place
    decision = (SOLVERS[question.solve] if question.solve else decide)(asked.job, asked.limits)
    said = [*asked.notes, *notes(question, decision, place)]
    unsure = asked.notes or any(left_open(question, decision, place))
    plain, gpus = cell(decision, place.gpu), decision.job.gpus
    first = ",".join(map(str, range(gpus)))
    shown = {"CUDA_VISIBLE_DEVICES": first} if (place.count or 0) > gpus else {}
    return PlanAnswer(**{field.name: getattr(plain, field.name) for field in fields(plain)} | {
        "confidence": "close" if unsure and plain.confidence == "clear" else plain.confidence,
        "env": {**plain.env, **shown} if decision.fits else {},
        "helps": helps(decision),
        "ways": tuple(ways(asked)),
        "advice": tuple(said),
        "solved": question.solve,
        "config": asked.config,
    })  # fmt: skip


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


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
         "allocated", "reserved")  # fmt: skip


def memory_gib(decision: Decision) -> PlanMemory:
    found, capacity = decision.shown.memory, decision.limits.capacity
    values = {name: getattr(found, name) for name in PARTS} | {"capacity": capacity}
    if found.total <= capacity:  # the allocator gives back what it only keeps for later
        values["reserved"] = min(found.reserved, capacity - found.runtime)
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


# --- settings ----------------------------------------------------------------------------------

NAMED_APART = ("shape", "gpus", "context", "batch", "tokens", "strategy", "optimizer",
               "amp", "dtype", "checkpointing")  # fmt: skip


def settings(job: Job, recipe: Recipe) -> dict[str, Any]:
    """What to write into the trainer's configuration; what is usual is left out."""
    found: dict[str, Any] = {
        "strategy": "fsdp2" if job.strategy == "fsdp" else job.strategy,
        "gpus": job.gpus,
        "cpu_offload": recipe.offload,
        "sequence_parallel_size": recipe.sp,
        "gradient_checkpointing": job.checkpointing,
        "optimizer": job.optimizer,
        "mixed_precision": job.amp or "none",
        "param_dtype": job.dtype,
    }
    for name, usual in JOB_DEFAULTS.items():
        value = getattr(job, name)
        if name not in NAMED_APART and value != usual:
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

FUSED = {"loss": "fused"}
WAYS: dict[str, dict[str, Any]] = {
    "full in fp32": {"dtype": "fp32", "amp": "bf16"},
    "full in bf16, 8-bit AdamW": {"dtype": "bf16", "optimizer": "adamw8bit"},
    "LoRA": {"lora": 16}, "LoRA, fused loss": {"lora": 16, **FUSED},
    "QLoRA": {"lora": 16, "quantize": "nf4"},
    "QLoRA, fused loss": {"lora": 16, "quantize": "nf4", **FUSED},
}  # fmt: skip
"""What people do on one GPU -> how; the rest is what transformers' Trainer does by default."""


def ways(asked: Asked) -> Iterator[Way]:
    """Whether full training, LoRA and QLoRA fit on one GPU, if nobody said which is meant.

    Each with checkpointing, for the whole length; the batch is the largest of that length, the
    context the longest of one sequence. Nothing is offloaded.
    """
    question, shape = asked.question, asked.job.shape
    if asked.job.gpus > 1 or question.describes_training or not shape.writes_text:
        return
    limits = replace(asked.limits, offload=False, measured_gpu=None)
    for name, how in WAYS.items():
        each = {**how, "checkpointing": True}
        said = replace(question, trainer="hf", job_fields=each, context=asked.job.context, batch=1)
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
