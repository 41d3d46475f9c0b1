"""Turns a planning question and the GPUs into the public answer: memory in GiB, settings, savings
and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
from gpusetup.plan.decide import (
    SOLVERS,
    MachineLimits,
    RecipeDecision,
    decide,
    max_batch,
    max_context,
    near_limit,
)
from gpusetup.plan.fewer_gpus import better_with_fewer, visible_devices
from gpusetup.plan.job import (
    BESIDE_FIELDS,
    JOB_DEFAULTS,
    Recipe,
    TrainingJob,
    samples,
    tokens,
    yarn,
)
from gpusetup.plan.job_of_question import job_of, rl_setup_of
from gpusetup.plan.measured import NONE, is_standard
from gpusetup.plan.memory import memory, other_gpu_bytes
from gpusetup.plan.notes import assumed_settings, needs_memory_of_others, notes, older_version
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion
from gpusetup.plan.rl import GENERATING, uncounted_models
from gpusetup.plan.rope import RopeScaling, factor_remark
from gpusetup.plan.savings import helps
from gpusetup.plan.speed import speed_of_several
from gpusetup.plan.trainer_settings import trainer_settings

ALLOCATOR = "expandable_segments:True"
ENV = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATOR, "PYTORCH_ALLOC_CONF": ALLOCATOR}
"""The allocator's setting under its old name, which all torch versions read, and its new name
(torch 2.9 and later)."""
SET_BEFORE_START = (
    "set both PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF (the name since torch 2.9) before "
    "Python starts, because a running process keeps its allocator; with Ray, set them before Ray "
    "and the workers start"
)
SOURCES = {
    "measured": "measured, from Trinity-RFT's GPU configuration guide",
    "fitted": "predicted by the memory model, which was fitted to measured jobs of this kind",
    "model": "predicted by the memory model",
}


class PlanRequest(Frozen):
    """One training job to plan, with everything that the answer needs: the question, the GPU, the
    machine's limits, and the training config if there is one."""

    question: TrainingQuestion
    hardware: Place
    limits: MachineLimits
    job: TrainingJob
    config: ConfigRead | None = None
    """The settings that were read from a training config; None without a config."""
    notes: tuple[str, ...] = ()
    """Remarks on settings in the config that the memory model cannot count."""
    rope: RopeScaling | None = None
    """The config's RoPE scaling, which extends the model's context; None if it sets none."""
    gpu_rows: tuple[GpuRow, ...] = ()
    """The catalog's GPUs, which give the card's speed."""


def answer(request: PlanRequest) -> PlanAnswer:
    """The complete answer for one job: memory, settings, alternatives and advice.

    If the question asks for a value, such as the largest batch, the plan uses the best value that
    fits.
    """
    question, hardware, rows = request.question, request.hardware, request.gpu_rows
    solver = SOLVERS[question.solve] if question.solve else decide
    decision = solver(request.job, request.limits)
    plain = cell(decision, hardware.gpu)
    uncounted = uncounted_parts(request)
    reasons = tuple(reasons_for_close(request, decision, uncounted))
    # A user who asks for the fewest GPUs does not need the speed-up over one GPU.
    speed = None if question.solve == "gpus" else speed_of_several(decision, hardware.gpu, rows)
    answered = {field.name: getattr(plain, field.name) for field in fields(plain)}
    answered |= {
        "confidence": "close" if reasons else plain.confidence,
        "close_because": "; ".join(reasons) or None,
        "uncounted": uncounted,
        "env": environment(decision, request),
        "better": better_with_fewer(decision, question.solve),
        "speed": speed,
        "trainer_settings": trainer_settings(trainer_in_words(request), decision),
        "assumed": tuple(assumed_settings(question, decision.job)),
        "helps": helps(decision),
        "ways": tuple(ways(request)),
        "advice": tuple(advice(request, decision)),
        "solved": question.solve,
        "config": request.config,
    }
    return PlanAnswer(**answered)


def reasons_for_close(
    request: PlanRequest, decision: RecipeDecision, uncounted: Sequence[str]
) -> Iterator[str]:
    """Yields why the answer is only `close`, as phrases; nothing if it is measured or clear."""
    # A job that does not fit stays clear, because uncounted parts can only need more memory.
    if decision.fits and uncounted:
        yield "something that may take memory is not counted"
    if decision.close_because and not decision.measured:
        yield decision.close_because
    if not decision.fits:
        return
    # An answer cannot be clear if the question or the config leaves something open.
    if request.notes:
        yield "a setting in the config is not counted (see the notes)"
    if decision.measured:
        return
    question, job = request.question, decision.job
    if question.params is not None:
        yield "the model's shape is assumed (`--params`)"
    names_training = question.trainer or question.job_fields or question.method
    if not names_training and not job.fills_token_budget:
        # A batch may fit only because plan assumed sharding, mixed precision and checkpointing. The
        # other usual assumption needs more memory.
        in_a_loop = replace(
            question,
            trainer="loop",
            batch=job.sequences,
            context=job.context,
            gpus=job.gpus,
            solve=None,
        )
        if not decide(job_of(in_a_loop, job.shape, request.limits), request.limits).fits:
            yield "a plain loop in 32 bits would not fit (`--trainer` names yours)"
    older = older_version(question)
    if older:
        older_job = replace(job, loss=older["loss"])
        needed = memory(older_job, decision.shown.recipe).total
        if needed > request.limits.capacity:
            yield f"{older['name']} needs {needed / GIB:.1f} GiB"
    if needs_memory_of_others(decision, request.hardware):
        yield "other programs use some of the GPU's memory"


ALWAYS_RL = ("verl", "openrlhf")
"""Trainers whose runs always generate answers on the training's GPUs. Trinity-RFT is not listed,
because it generates on other GPUs and plan has measurements of its training."""


def uncounted_parts(request: PlanRequest) -> tuple[str, ...]:
    """The config keys and additional models that may need memory but are not counted in the plan;
    models come first."""
    question, shape, config = request.question, request.job.shape, request.config
    setup = rl_setup_of(question, request.job)
    uncounted = [f"the shape of {shape.name} ({shape.assumed})"] if shape.assumed else []
    uncounted += uncounted_models(setup, shape) if setup else ()
    if question.params is not None and question.context is None and request.job.context == 1:
        # A convolution keeps a value for every pixel, which a number of parameters does not show.
        uncounted.append("what a sample keeps beyond one row of a table (an image, a text)")
    generates = setup is not None and setup.method in GENERATING
    if setup is not None and generates and not setup.engine_share and not config:
        uncounted.append("an inference server, if the trainer starts one on these GPUs")
    if setup is None and config is None and question.trainer in ALWAYS_RL:
        uncounted.append(
            "the inference engine and the reference model (`--method grpo`, or the config)"
        )
    # A list appears in the answer once, not once for each of its items.
    keys = [key.key.partition("[")[0] for key in config.not_understood] if config else []
    return tuple(dict.fromkeys((*uncounted, *keys)))


def trainer_in_words(request: PlanRequest) -> str | None:
    """The trainer in whose format the settings are printed; None for preference or reinforcement
    learning, because the settings for a supervised trainer would start another kind of training.

    Trinity-RFT trains with verl, so plan counts both in the same way. But verl's own config has the
    top-level key `actor_rollout_ref` and needs verl's setting names.
    """
    keys = request.config.read if request.config else ()
    if any(key.key.startswith("actor_rollout_ref.") for key in keys):
        return "verl"
    is_supervised = rl_setup_of(request.question, request.job) is None
    return request.question.trainer if is_supervised else None


GPUS_IN_A_MACHINE = 8
"""A job with more GPUs than this uses several machines, and one CUDA_VISIBLE_DEVICES cannot select
GPUs on all of them."""


def environment(decision: RecipeDecision, request: PlanRequest) -> dict[str, str]:
    """The environment variables to export for this plan: the allocator's setting and, if some GPUs
    remain unused, CUDA_VISIBLE_DEVICES. Empty if the job does not fit."""
    if not decision.fits:
        return {}
    variables = dict(ENV) if decision.shown.recipe.env else {}
    gpus = decision.job.gpus
    # A user who asks for the fewest GPUs must hide the other GPUs from the training.
    asks_for_fewest = request.question.solve == "gpus" and gpus <= GPUS_IN_A_MACHINE
    if (request.hardware.count or 0) > gpus or asks_for_fewest:
        variables["CUDA_VISIBLE_DEVICES"] = visible_devices(gpus)
    return variables


def advice(request: PlanRequest, decision: RecipeDecision) -> Iterator[str]:
    """Yields the advice in the answer as sentences: errors in the config, steps to take before the
    start, and uncertain facts. The machine comes first, then the config, then the result."""
    if request.hardware.remark:
        yield request.hardware.remark
    # The config may set a RoPE scaling factor that is too small for the job's length.
    wrong_rope_factor = factor_remark(request.rope, decision.job)
    if wrong_rope_factor:
        yield wrong_rope_factor
    if decision.fits and decision.shown.recipe.env:
        yield SET_BEFORE_START
    yield from request.notes
    yield from notes(request.question, decision, request.hardware)


def cell(decision: RecipeDecision, gpu: str) -> PlanCell:
    """The plan for a single job as one row of results, without suggestions."""
    job, shown, limits = decision.job, decision.shown, decision.limits
    close_because = None if decision.measured else decision.close_because
    confidence: Literal["measured", "clear", "close"] = "close" if close_because else "clear"
    source = SOURCES["fitted" if is_standard(job) else "model"]
    if decision.measured:
        confidence, source = "measured", SOURCES["measured"]
    return PlanCell(
        fits=decision.fits,
        recipe=str(shown.recipe) if decision.fits else NONE,
        basis="measured" if decision.measured else "predicted",
        confidence=confidence,
        near_percent=round(100 * near_limit(job)),
        close_because=close_because,
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
        batch=None if job.fills_token_budget else job.sequences,
        strategy=job.strategy,
        source=source,
    )


def memory_gib(decision: RecipeDecision) -> PlanMemory:
    """The memory of the fullest GPU, part by part, in GiB."""
    memory, capacity = decision.shown.memory, decision.limits.capacity
    job = decision.job
    # `memory.reserved` is what torch would reserve on a larger GPU. If the job fits on this GPU,
    # torch frees cached blocks to stay below the capacity minus the CUDA context, so cap the value
    # there. If the job does not fit, show the value for the larger GPU.
    reserved = memory.reserved
    if memory.total <= capacity:
        reserved = min(reserved, capacity - memory.runtime)
    names = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
             "allocated")  # fmt: skip
    sizes = {name: getattr(memory, name) for name in names}
    sizes |= {"capacity": capacity, "reserved": reserved}
    if job.strategy == "dp" and job.gpus > 1:
        sizes["other_gpus"] = other_gpu_bytes(job, decision.shown.recipe)
    # Three decimals are about 1 MiB.
    return PlanMemory(**{name: round(size / GIB, 3) for name, size in sizes.items()})


# --- settings ----------------------------------------------------------------------------------

NAMED_OTHERWISE = ("shape", "gpus", "context", "batch", "tokens", "strategy", "optimizer",
               "amp", "dtype", "checkpointing", "frozen", "tables", *BESIDE_FIELDS)  # fmt: skip


def settings(job: TrainingJob, recipe: Recipe) -> dict[str, Any]:
    """The settings for the trainer's config, without those that equal the default."""
    values: dict[str, Any] = {
        "strategy": "fsdp2" if job.strategy == "fsdp" else job.strategy,
        "gpus": job.gpus,
        "cpu_offload": recipe.offload,
        "sequence_parallel_size": recipe.sp,
        "gradient_checkpointing": job.checkpointing,
        "optimizer": job.optimizer,
        "mixed_precision": job.amp or "none",
        "param_dtype": job.dtype,
    }
    others = {name: getattr(job, name) for name in JOB_DEFAULTS if name not in NAMED_OTHERWISE}
    values |= {name: value for name, value in others.items() if value != JOB_DEFAULTS[name]}
    if not job.shape.vocabulary:
        values.pop("loss", None)
    if job.fills_token_budget:
        values |= {"max_model_len": job.context, "max_token_len_per_gpu": tokens(job, recipe)}
    else:
        values["batch_per_gpu"] = samples(job, recipe)
    rope = yarn(job)
    return values | {"rope_scaling": rope} if rope else values


# --- the usual ways to train on one GPU -----------------------------------------------------------

FUSED = {"loss": "fused"}
WAYS: dict[str, dict[str, Any]] = {
    "full in fp32": {"dtype": "fp32", "amp": "bf16"},
    "full in bf16, 8-bit AdamW": {"dtype": "bf16", "optimizer": "adamw8bit"},
    "LoRA": {"lora": 16}, "LoRA, fused loss": {"lora": 16, **FUSED},
    "QLoRA": {"lora": 16, "quantize": "nf4"},
    "QLoRA, fused loss": {"lora": 16, "quantize": "nf4", **FUSED},
}  # fmt: skip
"""Name of a usual way to train on one GPU -> the job fields that differ from the defaults of
transformers' Trainer."""


def ways(request: PlanRequest) -> Iterator[Way]:
    """Yields whether full fine-tuning, LoRA and QLoRA each fit on one GPU, if the user did not
    choose a kind of training.

    All of them use checkpointing and no offload. The batch is the largest one at the job's full
    length, and the context is the longest for a single sequence.
    """
    question, shape = request.question, request.job.shape
    if request.job.gpus > 1 or question.describes_training or not shape.writes_text:
        return
    limits = replace(request.limits, offload=False)
    usual = replace(question, trainer="hf", context=request.job.context, batch=1)
    for name, changes in WAYS.items():
        # On a single GPU memory is usually short, so people switch checkpointing on.
        way = replace(usual, job_fields={**changes, "checkpointing": True})
        job = job_of(way, shape, limits)
        one = decide(job, limits)
        largest, longest = max_batch(job, limits), max_context(job, limits)
        most_tokens = shape.native_context or longest.job.context
        yield Way(
            name=name,
            fits=one.fits,
            total_gib=round(one.shown.memory.total / GIB, 2),
            batch=largest.job.sequences if largest.fits else None,
            context=min(longest.job.context, most_tokens) if longest.fits else None,
        )
