"""A question and a place -> the public answer: memory in GiB, settings, savings, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.catalog.gpus import GpuRow
from gpusetup.model.documents import (
    ConfigRead,
    PlanAnswer,
    PlanCell,
    PlanMemory,
    Way,
)
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.model.units import GIB
from gpusetup.plan.data_parallel import data_parallel_notes, other_gpu_bytes
from gpusetup.plan.decide import (
    SOLVERS,
    Decision,
    Limits,
    decide,
    doubt,
    fewest_gpus,
    max_batch,
    max_context,
    near_limit,
)
from gpusetup.plan.fewer_gpus import better_with_fewer, visible_devices
from gpusetup.plan.job import BYTES, JOB_DEFAULTS, Job, Recipe, samples, tokens, yarn
from gpusetup.plan.measured import NONE, is_standard
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, job_of
from gpusetup.plan.rope import RopeScaling, factor_remark
from gpusetup.plan.savings import helps
from gpusetup.plan.speed import speed_of_several
from gpusetup.plan.trainer_settings import trainer_settings


def notes(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """What a person should know beside the plan, the model's own notes first."""
    job = decision.job
    if job.shape.beside:
        yield (
            f"{job.context:,} tokens a sample; for another resolution give its number of tokens "
            "by `--context`"
        )
        encoders = f"{2 * job.shape.beside / GIB:.1f} GiB"
        yield (
            f"The text encoders and the VAE ({encoders}) are not counted: encode the data before "
            "the training, or load these models on another GPU"
        )
    yield from parts_beside(question, decision)
    if job.strategy == "dp" and job.gpus > 1:
        yield from data_parallel_notes(job, decision.shown.recipe)
    yield from assumptions(question, decision)
    if question.solve == "gpus":
        yield from offload_notes(decision)
    yield from machine_notes(decision, place)
    if decision.fits and not decision.measured and (reason := doubt(job, decision.shown.recipe)):
        yield reason
    yield from uncertainties(question, decision, place)


def parts_beside(question: Question, decision: Decision) -> Iterator[str]:
    """What is trained beside the model, and what of the model is not trained."""
    job = decision.job
    if job.tables:
        weight_bytes = job.tables * BYTES[job.dtype]
        names = " and ".join(map(str, question.tables))
        yield (
            f"embedding tables: {names} are {size_text(weight_bytes)} of weights; trained, they "
            "have gradients of the same size and the optimizer's states as well"
        )
    if job.frozen and job.lora is None:
        part = "the model" if job.frozen == 1 else f"{100 * job.frozen:.0f} % of the model"
        yield (
            f"{part} is frozen: it has no gradients and no optimizer states. plan counts its "
            "activations all the same; they are only needed if something before it is trained"
        )
        if not job.trained_parameters:
            yield (
                "plan knows of nothing that is trained: add the parts around the model "
                "(`--embedding ROWSxWIDTH`, `--lora 16`), or trace your code with `--code`"
            )


def size_text(size_bytes: float) -> str:
    """
    >>> size_text(1546240), size_text(5120000000)
    ('1.5 MiB', '4.8 GiB')
    """
    gib = size_bytes / GIB
    return f"{gib:.1f} GiB" if gib >= 1 else f"{1024 * gib:.1f} MiB"


def assumptions(question: Question, decision: Decision) -> Iterator[str]:
    """What was assumed because the question leaves it open."""
    job, s, native = decision.job, decision.job.shape, decision.job.shape.native_context
    if question.context is None and question.solve != "context" and s.tokens is None:
        yield f"no `--context`: {job.context:,} token{'s' * (job.context > 1)} of text"
    if native is not None and s.tokens is None and job.context > native:
        extended = "the model's positions must be extended (RoPE scaling)"
        how = f"YaRN with factor {job.context / native:g}" if yarn(job) else extended
        yield f"{job.context:,} tokens are beyond the native {native:,}: {how}"
    if job.batch is None:
        return
    if question.batch is None and question.solve is None:
        largest = max_batch(job, decision.limits)
        larger = f"; {largest.job.batch:,} would fit (`--max-batch`)" if largest.fits else ""
        sample = "sequence" if s.tokens is None else f"sample of {s.tokens:,} tokens"
        yield f"no `--batch`: one {sample} a GPU{larger}"
    if question.trainer is None:
        if job.compute_bytes == 4 and not {"amp", "dtype"} & question.job_fields.keys():
            yield "in 32 bits, as plain loops run; `--amp bf16` changes that"
        if not job.checkpointing and job.context > 1 and "checkpointing" not in question.job_fields:
            yield "without checkpointing, as plain loops run; `--checkpointing` changes that"


def offload_notes(decision: Decision) -> Iterator[str]:
    """How few GPUs would do with offload, which the number of GPUs needed leaves aside."""
    if decision.shown.recipe.offload:
        if decision.fits:
            yield "no number of these GPUs fits without offload, which is slow"
        return
    fewest = fewest_gpus(decision.job, decision.limits)
    if fewest is not None and fewest.job.gpus < decision.job.gpus:
        counted = "1 GPU would do" if fewest.job.gpus == 1 else f"{fewest.job.gpus} GPUs would do"
        host = fewest.shown.memory.host / GIB
        yield (
            f"{counted} with offload ({fewest.shown.recipe}), many times slower, and with "
            f"{host:,.0f} GiB of RAM"
        )


def machine_notes(decision: Decision, place: Place) -> Iterator[str]:
    """How the machine differs from what the plan is for."""
    job, count = decision.job, place.count
    if count is not None and job.gpus > count:
        counted = "1 GPU" if count == 1 else f"{count} GPUs"
        yield f"this machine has {counted}, the plan is for {job.gpus}"
    if count is not None and count > job.gpus and decision.fits:
        times = count / job.gpus
        yield (
            f"this machine has {count} GPUs, the plan uses {job.gpus}: with all of them the "
            f"training is up to {times:g} times as fast (`--gpus {count}`)"
        )
    if place.unified:
        yield (
            "the GPU shares the machine's memory, so Offload gains nothing, and other programs "
            "need memory too"
        )


def uncertainties(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """What the question leaves open although the fit depends on it; then no answer is clear."""
    job, total = decision.job, decision.shown.memory.total
    capacity = decision.limits.capacity
    if not decision.fits or decision.measured:
        return
    if question.params is not None:
        yield assumed_shape(question, job)
    if total + place.used_bytes > capacity:
        yield f"it fits only if other programs free {place.used_bytes / GIB:.1f} GiB"
    encoder_bytes = 2.0 * job.shape.beside
    with_encoders = total + encoder_bytes
    if encoder_bytes and question.trainer != "finetrainers" and with_encoders > 0.8 * capacity:
        yield (
            f"with the encoders of text and the VAE on the GPU {with_encoders / GIB:.1f} GiB are "
            "needed: encode the data before, or load them on another GPU"
        )


def assumed_shape(question: Question, job: Job) -> str:
    """The model that a number of parameters is taken for; its real shape decides the memory."""
    s = job.shape
    vocabulary = "no vocabulary"
    if s.vocabulary:
        vocabulary = f"GPT-2's vocabulary of {s.vocabulary:,}"
    samples_are = ""
    if question.context is None and job.context == 1:
        samples_are = (
            ". A sample is one token, as a row of a table is: memory grows with the tokens, so "
            "give `--context` for sequences"
        )
    layers = "1 layer" if s.layers == 1 else f"{s.layers} layers"
    return (
        f"`--params` says nothing of the model's shape. Assumed: a transformer of {layers} of "
        f"width {s.hidden:,}, {vocabulary}. For your own give `--model config.json` or "
        f"`--code FILE:NAME`{samples_are}"
    )


ALLOCATOR = "expandable_segments:True"
ENV = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATOR, "PYTORCH_ALLOC_CONF": ALLOCATOR}
"""The variable's old name, which every torch reads, and the new one (torch 2.9 and later)."""
SET_BEFORE_START = (
    "set PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF (its name since torch 2.9) before Ray and "
    "the workers start: a process that already runs keeps its allocator"
)
SOURCES = {
    "measured": "measured: Trinity-RFT's GPU configuration guide",
    "fitted": "predicted by the memory model, which was fitted to measured jobs of this kind",
    "model": "predicted by the memory model",
}


class PlanRequest(Frozen):
    """One job to plan, and what its answer shows beside the plan."""

    question: Question
    place: Place
    limits: Limits
    job: Job
    config: ConfigRead | None = None
    """What was read of a training config."""
    notes: tuple[str, ...] = ()
    """What the config says that cannot be counted."""
    rope: RopeScaling | None = None
    """How far the config extends the model's positions."""
    gpu_rows: tuple[GpuRow, ...] = ()
    """The catalog's GPUs, for the speed of the place's card."""


def answer(request: PlanRequest) -> PlanAnswer:
    """The plan of one job, at the best value of the unknown if there is one, with all that helps a
    person."""
    question, place = request.question, request.place
    decision = (SOLVERS[question.solve] if question.solve else decide)(request.job, request.limits)
    wrong_factor = factor_remark(request.rope, decision.job)
    remarks = (wrong_factor,) if wrong_factor else ()
    if decision.fits and decision.shown.recipe.env:
        remarks = (*remarks, SET_BEFORE_START)
    advice = [*remarks, *request.notes, *notes(question, decision, place)]
    is_open = request.notes or any(uncertainties(question, decision, place))
    plain, gpus = cell(decision, place.gpu), decision.job.gpus
    uses_some = (place.count or 0) > gpus
    shown_gpus = {"CUDA_VISIBLE_DEVICES": visible_devices(gpus)} if uses_some else {}
    return PlanAnswer(**{field.name: getattr(plain, field.name) for field in fields(plain)} | {
        "confidence": "close" if is_open and plain.confidence == "clear" else plain.confidence,
        "env": {**plain.env, **shown_gpus} if decision.fits else {},
        "better": better_with_fewer(decision, question.solve),
        "speed": speed_of_several(decision, place.gpu, request.gpu_rows),
        "trainer_settings": trainer_settings(question.trainer, decision),
        "helps": helps(decision),
        "ways": tuple(ways(request)),
        "advice": tuple(advice),
        "solved": question.solve,
        "config": request.config,
    })  # fmt: skip


def cell(decision: Decision, gpu: str) -> PlanCell:
    """The plan of one job of many, without what would help."""
    job, shown, limits = decision.job, decision.shown, decision.limits
    confidence = "clear" if decision.clear else "close"
    source = "measured" if decision.measured else "fitted" if is_standard(job) else "model"
    return PlanCell(
        fits=decision.fits,
        recipe=str(shown.recipe) if decision.fits else NONE,
        basis="measured" if decision.measured else "predicted",
        confidence="measured" if decision.measured else confidence,  # type: ignore[arg-type]
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
        source=SOURCES[source],
    )


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
         "allocated", "reserved")  # fmt: skip


def memory_gib(decision: Decision) -> PlanMemory:
    """The memory of the fullest GPU, part by part, in GiB."""
    memory, capacity = decision.shown.memory, decision.limits.capacity
    values = {name: getattr(memory, name) for name in PARTS} | {"capacity": capacity}
    if decision.job.strategy == "dp" and decision.job.gpus > 1:
        values["other_gpus"] = other_gpu_bytes(decision.job, decision.shown.recipe)
    if memory.total <= capacity:  # the allocator gives back what it only keeps for later
        values["reserved"] = min(memory.reserved, capacity - memory.runtime)
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


# --- settings ----------------------------------------------------------------------------------

NAMED_OTHERWISE = ("shape", "gpus", "context", "batch", "tokens", "strategy", "optimizer",
               "amp", "dtype", "checkpointing", "frozen", "tables")  # fmt: skip


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
    for name, default in JOB_DEFAULTS.items():
        value = getattr(job, name)
        if name not in NAMED_OTHERWISE and value != default:
            found[name] = value
    if not job.shape.vocabulary:
        found.pop("loss", None)
    if job.batch is None:
        found |= {"max_model_len": job.context, "max_token_len_per_gpu": tokens(job, recipe)}
    else:
        found["batch_per_gpu"] = samples(job, recipe)
    rope = yarn(job)
    return found | ({"rope_scaling": rope} if rope else {})


# --- the usual ways to train on one GPU -----------------------------------------------------------

FUSED = {"loss": "fused"}
WAYS: dict[str, dict[str, Any]] = {
    "full in fp32": {"dtype": "fp32", "amp": "bf16"},
    "full in bf16, 8-bit AdamW": {"dtype": "bf16", "optimizer": "adamw8bit"},
    "LoRA": {"lora": 16}, "LoRA, fused loss": {"lora": 16, **FUSED},
    "QLoRA": {"lora": 16, "quantize": "nf4"},
    "QLoRA, fused loss": {"lora": 16, "quantize": "nf4", **FUSED},
}  # fmt: skip
"""Name of a usual way to train on one GPU -> the fields of its job that differ from transformers'
Trainer."""


def ways(request: PlanRequest) -> Iterator[Way]:
    """Whether full training, LoRA and QLoRA fit on one GPU, if nobody said which is meant.

    Each with checkpointing, for the whole length; the batch is the largest of that length, the
    context the longest of one sequence. Nothing is offloaded.
    """
    question, shape = request.question, request.job.shape
    if request.job.gpus > 1 or question.describes_training or not shape.writes_text:
        return
    limits = replace(request.limits, offload=False, measured_gpu=None)
    usual = replace(question, trainer="hf", context=request.job.context, batch=1)
    for name, changes in WAYS.items():
        way = replace(usual, job_fields={**changes, "checkpointing": True})
        job = job_of(way, shape, limits)
        one, largest, longest = (solve(job, limits) for solve in (decide, max_batch, max_context))
        native = shape.native_context or longest.job.context
        yield Way(
            name=name,
            fits=one.fits,
            total_gib=round(one.shown.memory.total / GIB, 2),
            batch=largest.job.batch if largest.fits else None,
            context=min(longest.job.context, native) if longest.fits else None,
        )
