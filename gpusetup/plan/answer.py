"""Turns a planning question and the GPUs into the public answer: memory in GiB, settings, savings
and notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusetup.model.documents import PlanAnswer, PlanCell, PlanMemory, Way
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, read_for_gpus
from gpusetup.plan.decide import SOLVERS, Decision, decide, max_batch, max_context, near_limit
from gpusetup.plan.job import (
    BESIDE_FIELDS,
    JOB_DEFAULTS,
    Recipe,
    TrainingJob,
    samples,
    tokens,
    yarn,
)
from gpusetup.plan.measured import NONE, is_standard
from gpusetup.plan.memory import memory, other_gpu_bytes
from gpusetup.plan.notes import (
    assumed_settings,
    factor_remark,
    needs_memory_of_others,
    notes,
    older_version,
)
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion, job_of, parameters_of
from gpusetup.plan.rl import GENERATING, SUPERVISED
from gpusetup.plan.savings import better_with_fewer, helps, visible_devices
from gpusetup.plan.trainers import trainer_settings

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
GPUS_IN_A_MACHINE = 8
"""A job with more GPUs than this uses several machines, and one CUDA_VISIBLE_DEVICES cannot select
GPUs on all of them."""


class PlanRequest(Frozen):
    """One training job to plan, with everything that the answer needs."""

    question: TrainingQuestion
    place: Place
    job: TrainingJob
    from_config: FromConfig | None = None
    """What was read from a training config; None without a config."""


def answer(request: PlanRequest) -> PlanAnswer:
    """The complete answer for one job: memory, settings, alternatives and advice.

    If the question asks for a value, such as the largest batch, the plan uses the best value that
    fits.
    """
    question, job, place = request.question, request.job, request.place
    from_config = request.from_config
    decision = (SOLVERS[question.solve] if question.solve else decide)(job, place)
    plain = cell(decision)
    config = read_for_gpus(from_config, job.gpus) if from_config else None
    uncounted = tuple(dict.fromkeys(uncounted_parts(request)))
    reasons = tuple(reasons_for_close(request, decision, uncounted))
    variables = dict(plain.env)
    # Tell a user who has more GPUs than the plan needs how to hide the others from the training.
    asks_for_fewest = question.solve == "gpus" and decision.job.gpus <= GPUS_IN_A_MACHINE
    has_more = (place.count or 0) > decision.job.gpus
    if decision.fits and (has_more or asks_for_fewest):
        variables["CUDA_VISIBLE_DEVICES"] = visible_devices(decision.job.gpus)
    answered = {field.name: getattr(plain, field.name) for field in fields(plain)}
    answered |= {
        "confidence": "close" if reasons else plain.confidence,
        "close_because": "; ".join(reasons) or None,
        "uncounted": uncounted,
        "env": variables,
        "better": better_with_fewer(decision, question.solve),
        "trainer_settings": trainer_settings(trainer_of_settings(request), decision),
        "assumed": tuple(assumed_settings(question, decision.job)),
        "helps": helps(decision),
        "ways": tuple(ways(request)),
        "advice": tuple(advice(request, decision)),
        "solved": question.solve,
        "config": config,
    }
    return PlanAnswer(**answered)


def reasons_for_close(
    request: PlanRequest, decision: Decision, uncounted: tuple[str, ...]
) -> Iterator[str]:
    """Yields why the answer is only `close`, as phrases; nothing if it is measured or clear."""
    # A job that does not fit stays clear, because uncounted parts usually need more memory.
    if decision.fits and uncounted:
        yield "something that may take memory is not counted"
    if decision.close_because:
        yield decision.close_because
    # The notes also name ways to divide a model that plan does not count.
    if request.from_config and request.from_config.notes:
        yield "a setting in the config is not counted (see the notes)"
    if decision.measured or not decision.fits:
        return
    question, job, place = request.question, decision.job, request.place
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
        if not decide(job_of(in_a_loop, job.shape, place), place).fits:
            yield "a plain loop in 32 bits would not fit (`--trainer` names yours)"
    older = older_version(question)
    if older:
        needed = memory(replace(job, loss=older["loss"]), decision.recipe).total
        if needed > place.capacity:
            yield f"{older['name']} needs {needed / GIB:.1f} GiB"
    if needs_memory_of_others(decision):
        yield "other programs use some of the GPU's memory"


ALWAYS_RL = ("verl", "openrlhf")
"""Trainers whose runs always generate answers on the training's GPUs. Trinity-RFT is not listed,
because it generates on other GPUs and plan has measurements of its training."""


def uncounted_parts(request: PlanRequest) -> Iterator[str]:
    """Yields what may need memory but is not counted: the unknown shape, additional models, what
    generates answers, and keys of the config."""
    question, job, from_config = request.question, request.job, request.from_config
    setup, shape = job.rl, job.shape
    if shape.assumed:
        yield f"the shape of {shape.name} ({shape.assumed})"
    for name in setup.reward_models:
        if parameters_of(name, shape) is None:
            yield f"the reward model {name}"
    if question.params is not None and question.context is None and job.context == 1:
        # A convolution keeps a value for every pixel, which a number of parameters does not show.
        yield "what a sample keeps beyond one row of a table (an image, a text)"
    if from_config:
        # A config says whether a server runs on the same GPUs (`rl.generation`). A list appears in
        # the answer once, not once for each of its items.
        for key in from_config.read.not_understood:
            yield key.key.partition("[")[0]
    elif setup.method in GENERATING and not setup.engine_share:
        yield "an inference server, if the trainer starts one on these GPUs"
    elif setup.method in SUPERVISED and question.trainer in ALWAYS_RL:
        yield "the inference engine and the reference model (`--method grpo`, or the config)"


def trainer_of_settings(request: PlanRequest) -> str | None:
    """The trainer in whose format the settings are printed; None for preference or reinforcement
    learning, because the settings for a supervised trainer would start another kind of training.

    Trinity-RFT trains with verl, so plan counts both in the same way. But verl's own config has the
    top-level key `actor_rollout_ref` and needs verl's setting names.
    """
    read = request.from_config.read.read if request.from_config else ()
    if any(key.key.startswith("actor_rollout_ref.") for key in read):
        return "verl"
    return request.question.trainer if request.job.rl.method in SUPERVISED else None


def advice(request: PlanRequest, decision: Decision) -> Iterator[str]:
    """Yields the advice in the answer as sentences, in this order: the assumed machine, a wrong
    RoPE factor in the config, what to set before the start, what the config says but plan does not
    count, and the notes on the result."""
    if request.place.remark:
        yield request.place.remark
    from_config = request.from_config
    rope = from_config.rope if from_config else None
    if rope and (remark := factor_remark(rope, decision.job)):
        yield remark
    if decision.fits and decision.recipe.env:
        yield SET_BEFORE_START
    yield from from_config.notes if from_config else ()
    yield from notes(request.question, decision)


def cell(decision: Decision) -> PlanCell:
    """The plan for a single job as one row of results, without suggestions."""
    job, place, fits = decision.job, decision.place, decision.fits
    source = SOURCES["fitted" if is_standard(job) else "model"]
    close_because = decision.close_because
    return PlanCell(
        fits=fits,
        recipe=str(decision.recipe) if fits else NONE,
        basis="measured" if decision.measured else "predicted",
        confidence="measured" if decision.measured else "close" if close_because else "clear",
        near_percent=round(100 * near_limit(job)),
        close_because=close_because,
        memory_gib=memory_gib(decision),
        margin_percent=round(100 * (1 - decision.memory.total / place.capacity), 2),
        env=ENV if fits and decision.recipe.env else {},
        settings=settings(job, decision.recipe) if fits else {},
        model=job.shape.name,
        parameters=job.shape.parameters,
        active_parameters=job.shape.active,
        gpu=place.gpu,
        gpus=job.gpus,
        context=job.context,
        batch=None if job.fills_token_budget else job.sequences,
        strategy=job.strategy,
        source=SOURCES["measured"] if decision.measured else source,
    )


def memory_gib(decision: Decision) -> PlanMemory:
    """The memory of the fullest GPU, part by part, in GiB."""
    needed, capacity, job = decision.memory, decision.place.capacity, decision.job
    names = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
             "allocated", "reserved")  # fmt: skip
    sizes = {name: getattr(needed, name) for name in names} | {"capacity": capacity}
    if needed.total <= capacity:
        # `reserved` is what torch would reserve on a larger GPU. On this one it frees cached blocks
        # to leave room for the CUDA context.
        sizes["reserved"] = min(needed.reserved, capacity - needed.runtime)
    if job.strategy == "dp" and job.gpus > 1:
        sizes["other_gpus"] = other_gpu_bytes(job, decision.recipe)
    # Three decimals are about 1 MiB.
    return PlanMemory(**{name: round(size / GIB, 3) for name, size in sizes.items()})


NAMED_OTHERWISE = ("shape", "gpus", "context", "batch", "tokens", "strategy", "optimizer",
                   "amp", "dtype", "checkpointing", "frozen", "tables", *BESIDE_FIELDS)  # fmt: skip
"""Job fields that `settings` writes under another name or not at all."""


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
    place = replace(request.place, offload=False)
    usual = replace(question, trainer="hf", context=request.job.context, batch=1)
    for name, changes in WAYS.items():
        # On a single GPU memory is usually short, so people switch checkpointing on.
        way = replace(usual, job_fields={**changes, "checkpointing": True})
        job = job_of(way, shape, place)
        one = decide(job, place)
        largest, longest = max_batch(job, place), max_context(job, place)
        most_tokens = shape.native_context or longest.job.context
        yield Way(
            name=name,
            fits=one.fits,
            total_gib=round(one.memory.total / GIB, 2),
            batch=largest.job.sequences if largest.fits else None,
            context=min(longest.job.context, most_tokens) if longest.fits else None,
        )
