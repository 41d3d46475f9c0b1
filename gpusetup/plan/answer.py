"""Turns a planning question and the GPUs into the public answer: memory, settings and notes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.catalog.gpus import GpuRow
from gpusetup.errors import BadInput, GpuSetupError, UsageError
from gpusetup.model.documents import Confidence, PlanAnswer, PlanCell, PlanMemory, Way
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.model.units import GIB
from gpusetup.plan.config import FromConfig, RopeScaling
from gpusetup.plan.decide import (
    NO_RECIPE,
    SOLVERS,
    Decision,
    better_with_fewer,
    changes_that_save,
    decide,
    host_holds,
    max_batch,
    max_context,
    near_limit,
    visible_devices,
)
from gpusetup.plan.job import (
    JOB_DEFAULTS,
    Recipe,
    TrainingJob,
    samples_per_group,
    tokens_per_gpu,
    yarn_settings,
)
from gpusetup.plan.memory import NODE, memory, other_gpu_bytes
from gpusetup.plan.models import model_named
from gpusetup.plan.place import FIRST_WITH_BFLOAT16, Place, named_gpu
from gpusetup.plan.question import (
    LARGEST,
    TrainingQuestion,
    describes_training,
    has_adapters,
    job_of,
)
from gpusetup.plan.rl import BY_VERL, GENERATING, SUPERVISED
from gpusetup.plan.trainers import row_of, trainer_settings

ALLOCATOR = "expandable_segments:True"
ENV = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATOR, "PYTORCH_ALLOC_CONF": ALLOCATOR}
"""The allocator's setting under its old name, which all torch versions read, and its new name
(torch 2.9 and later)."""


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
    plan_cell = cell(decision)
    uncounted = tuple(dict.fromkeys(uncounted_parts(request)))
    reasons = tuple(reasons_for_close(request, decision, uncounted))

    def confidence(changed: Decision) -> Confidence:
        """How sure it is that a changed job fits, by the same reasons as for the job itself."""
        if changed.measured:
            return "measured"
        return "close" if any(reasons_for_close(request, changed, uncounted)) else "clear"

    variables = dict(plan_cell.env)
    # Tell a user who has more GPUs than the plan needs (or may have, if the fewest are asked for)
    # how to hide the others. One CUDA_VISIBLE_DEVICES cannot select GPUs on several nodes.
    fewest_are_on_one_node = question.solve == "gpus" and decision.job.gpus <= NODE
    leaves_some_unused = (place.count or 0) > decision.job.gpus
    if decision.fits and (leaves_some_unused or fewest_are_on_one_node):
        variables["CUDA_VISIBLE_DEVICES"] = visible_devices(decision.job.gpus)
    # The answer has all fields of a cell, some with another value, and more.
    values = {field.name: getattr(plan_cell, field.name) for field in fields(PlanCell)}
    values |= {
        "confidence": confidence(decision),
        "close_because": "; ".join(reasons) or None,
        "uncounted": uncounted,
        "env": variables,
        "better": better_with_fewer(decision, question.solve, confidence),
        "trainer_settings": trainer_settings(
            trainer_of_settings(request), decision, question.model
        ),
        "assumed": tuple(assumed(question, decision.job)),
        "helps": changes_that_save(decision, confidence),
        "ways": tuple(usual_ways(request)),
        "advice": tuple(notes(request, decision)),
        "solved": question.solve,
        "config": from_config.read if from_config else None,
    }
    return PlanAnswer(**values)


def reasons_for_close(
    request: PlanRequest, decision: Decision, uncounted: tuple[str, ...]
) -> Iterator[str]:
    """Yields why the answer is only `close`, as phrases; nothing if it is clear."""
    # A job that does not fit stays clear, because uncounted parts usually need more memory.
    if decision.fits and uncounted:
        yield "something that may need memory is not counted"
    if decision.close_because:
        yield decision.close_because
    # All other reasons are about a predicted job that fits.
    if decision.measured or not decision.fits:
        return
    question, job, place = request.question, decision.job, request.place
    if question.params is not None:
        yield "the model's shape is assumed (`--params`)"
    names_training = question.trainer or describes_training(question) or question.method
    # Trainers that fill a budget of tokens are never a plain loop.
    if not names_training and not job.fills_token_budget:
        # A batch may fit only because plan assumed sharding, mixed precision and checkpointing. A
        # plain loop has none of them, and no sequence parallelism (`sp`).
        solved = {"batch": job.sequences, "context": job.context, "gpus": job.gpus}
        in_a_loop = replace(question, trainer="loop", **solved, solve=None, sp=None)
        if not decide(job_of(in_a_loop, job.shape, place), replace(place, sp=None)).fits:
            yield ("a plain training loop in 32 bits would not fit (set yours with `--trainer`)")
    older = older_version(question)
    if older:
        needed = memory(replace(job, loss=older["loss"]), decision.recipe).total
        if needed > place.capacity:
            yield f"{older['name']} needs {needed / GIB:.1f} GiB"
    # Other programs may leave the GPU before the training starts, or keep their memory.
    if decision.memory.total + place.used_bytes > place.capacity:
        yield f"other programs use {place.used_bytes / GIB:.1f} GiB of the GPU's memory"


def uncounted_parts(request: PlanRequest) -> Iterator[str]:
    """Yields what may need memory but is not counted: the unknown shape, additional models, what
    generates answers, and keys of the config."""
    question, job, from_config = request.question, request.job, request.from_config
    setup, shape = job.rl, job.shape
    if shape.assumed:
        yield f"the shape of {shape.name} ({shape.assumed})"
    if setup.has_reward_model:
        yield "a reward model of another size than the policy"
    if question.params is not None and question.context is None and job.context == 1:
        # plan assumed rows of a table (`context_of`), but a convolution keeps a value for every
        # pixel, which a number of parameters does not show.
        yield "the activations of a sample larger than one table row (an image, a text)"
    if from_config:
        # A list appears in the answer once, not once for each of its items (`data.loaders[0]`).
        for key in from_config.read.not_understood:
            yield key.key.partition("[")[0]
    # A config would say whether a server runs on the same GPUs (`rl.generation`).
    elif setup.method in GENERATING and not setup.engine_share:
        yield "an inference server, if the trainer starts one on these GPUs"
    elif setup.method in SUPERVISED and question.trainer in BY_VERL:
        yield "the inference engine and the reference model (`--method grpo`, or the config)"


def trainer_of_settings(request: PlanRequest) -> str | None:
    """The trainer in whose format the settings are printed; None for preference or reinforcement
    learning (except by verl), because the settings for a supervised trainer would start another
    kind of training."""
    trainer = request.question.trainer
    return trainer if trainer == "verl" or request.job.rl.method in SUPERVISED else None


def cell(decision: Decision) -> PlanCell:
    """The plan for a single job as one row of results, without suggestions."""
    job, place, fits = decision.job, decision.place, decision.fits
    predicted: Confidence = "close" if decision.close_because else "clear"
    return PlanCell(
        fits=fits,
        recipe=str(decision.recipe) if fits else NO_RECIPE,
        basis="measured" if decision.measured else "predicted",
        confidence="measured" if decision.measured else predicted,
        near_percent=round(100 * near_limit(job)),
        close_because=decision.close_because,
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
        batch=job.batch,
        strategy=job.strategy,
    )


def memory_gib(decision: Decision) -> PlanMemory:
    """The memory of the fullest GPU, part by part, in GiB."""
    needed, capacity, job = decision.memory, decision.place.capacity, decision.job
    names = ("states", "checkpoints", "logits", "fragmentation", "other", "total", "host",
             "allocated", "reserved")  # fmt: skip
    sizes = {name: getattr(needed, name) for name in names} | {"capacity": capacity}
    if needed.total <= capacity:
        # `reserved` is what torch would reserve on a larger GPU. On one that is just large enough,
        # torch frees cached blocks to leave room for the CUDA context.
        sizes["reserved"] = min(needed.reserved, capacity - needed.runtime)
    if job.strategy == "dp" and job.gpus > 1:
        sizes["other_gpus"] = other_gpu_bytes(job, decision.recipe)
    # Three decimals are about 1 MiB.
    return PlanMemory(**{name: round(size / GIB, 3) for name, size in sizes.items()})


SHOWN_UNLESS_DEFAULT = (
    "quantize", "lora", "accumulate", "step", "loss", "attention", "compile", "selective",
    "fused_kernels", "offload_optimizer", "offload_checkpoints",
)  # fmt: skip
"""Job fields that `settings` lists under their own names if they differ from the default."""


def settings(job: TrainingJob, recipe: Recipe) -> dict[str, Any]:
    """The settings of a plan: the main ones, and others that differ from their default."""
    values: dict[str, Any] = {
        # A job's `fsdp` is FSDP2, as opposed to `fsdp1`.
        "strategy": "fsdp2" if job.strategy == "fsdp" else job.strategy,
        "gpus": job.gpus,
        "cpu_offload": recipe.offload,
        "sequence_parallel_size": recipe.sp,
        "gradient_checkpointing": job.checkpointing,
        "optimizer": job.optimizer,
        "mixed_precision": job.amp or "none",
        "param_dtype": job.dtype,
    }
    others = {name: getattr(job, name) for name in SHOWN_UNLESS_DEFAULT}
    values |= {name: value for name, value in others.items() if value != JOB_DEFAULTS[name]}
    # Without a vocabulary there are no logits, whose loss could need a kernel.
    if not job.shape.vocabulary:
        values.pop("loss", None)
    if job.fills_token_budget:
        values |= {
            "max_model_len": job.context,
            "max_token_len_per_gpu": tokens_per_gpu(job, recipe),
        }
    else:
        values["batch_per_gpu"] = samples_per_group(job, recipe)
    rope = yarn_settings(job)
    return values | {"rope_scaling": rope} if rope else values


FUSED = {"loss": "fused"}
USUAL_WAYS: dict[str, dict[str, Any]] = {
    "full in fp32": {"dtype": "fp32", "amp": "bf16"},
    "full in bf16, 8-bit AdamW": {"dtype": "bf16", "optimizer": "adamw8bit"},
    "LoRA": {"lora": 16}, "LoRA, fused loss": {"lora": 16, **FUSED},
    "QLoRA": {"lora": 16, "quantize": "nf4"},
    "QLoRA, fused loss": {"lora": 16, "quantize": "nf4", **FUSED},
}  # fmt: skip
"""Name of a usual way to train on one GPU -> the job fields that differ from the defaults of
transformers' Trainer."""


def usual_ways(request: PlanRequest) -> Iterator[Way]:
    """Yields whether full fine-tuning, LoRA and QLoRA each fit on one GPU; nothing if the user
    chose a kind of training, a batch or a value to find, or several GPUs, or if the model does not
    write text.

    All of them use checkpointing and no offload. The batch is the largest one at the job's full
    length, and the context is the longest for a single sequence, up to the model's native one.
    """
    question, shape = request.question, request.job.shape
    choices = (question.trainer, question.method, question.job_fields, question.freeze,
               question.tables, question.batch, question.tokens, question.solve)  # fmt: skip
    if request.job.gpus > 1 or any(choices) or not shape.writes_text:
        return
    place = replace(request.place, offload=False)
    usual = replace(question, trainer="hf", context=request.job.context, batch=1)
    for name, changes in USUAL_WAYS.items():
        # On a single GPU memory is usually short, so people switch checkpointing on.
        job_fields = {**changes, "checkpointing": True}
        job = job_of(replace(usual, job_fields=job_fields), shape, place)
        single_sequence = decide(job, place)
        largest, longest = max_batch(job, place), max_context(job, place)
        most_tokens = shape.native_context or longest.job.context
        yield Way(
            name=name,
            fits=single_sequence.fits,
            total_gib=round(single_sequence.memory.total / GIB, 2),
            batch=largest.job.sequences if largest.fits else None,
            context=min(longest.job.context, most_tokens) if longest.fits else None,
        )


def notes(request: PlanRequest, decision: Decision) -> Iterator[str]:
    """All notes of a plan, as sentences."""
    question, job, shape = request.question, decision.job, decision.job.shape
    place, from_config = decision.place, request.from_config
    if place.remark:
        yield place.remark
    rope = from_config.rope if from_config else None
    if rope and (remark := factor_remark(rope, job)):
        yield remark
    yield from notes_on_parts(decision)
    native = shape.native_context
    # If the model fixes the tokens of a sample (`tokens`), the native context is that of its text.
    if shape.tokens is None and native is not None and job.context > native:
        extension = "the model's positions must be extended (RoPE scaling)"
        if yarn_settings(job):
            extension = f"YaRN with factor {job.context / native:g}"
        yield f"{job.context:,} tokens are beyond the native {native:,}: {extension}"
    if not host_holds(job, decision.recipe, place):
        needed = f"{decision.memory.host / GIB:.1f} GiB"
        yield f"the machine's RAM is too small for the {needed} that this job keeps there"
    if question.solve != "gpus" and decision.fits and job.gpus > 1 and one_gpu_is_enough(decision):
        how = "" if job.fills_token_budget else ", with gradient accumulation"
        yield (
            f"one GPU would be enough{how}; {job.gpus} GPUs are up to {job.gpus} times as fast, "
            "minus the time to exchange gradients (short over NVLink, longer over PCIe)"
        )
    if place.count is not None and job.gpus > place.count:
        counted = "1 GPU" if place.count == 1 else f"{place.count} GPUs"
        yield f"this machine has {counted}, but the plan is for {job.gpus}"
    lacks_bfloat16 = place.capability is not None and place.capability < FIRST_WITH_BFLOAT16
    if lacks_bfloat16 and "bf16" in (job.amp, job.dtype):
        yield (
            f"{place.gpu} (compute capability {place.capability}) has no bfloat16 units, so "
            "bfloat16 is slow or refused there: use float16 with a gradient scaler (`--amp fp16`), "
            "which needs the same memory"
        )


def notes_on_parts(decision: Decision) -> Iterator[str]:
    """Notes on frozen parts, and on what DataParallel's GPUs hold."""
    job = decision.job
    # With adapters the whole model is frozen anyway.
    if job.frozen and job.lora is None:
        part = "the model" if job.frozen == 1 else f"{100 * job.frozen:.0f} % of the model"
        yield (
            f"{part} is frozen: it has no gradients and no optimizer states. plan counts its "
            "activations anyway; they are only needed if something before it is trained"
        )
    if job.strategy == "dp" and job.gpus > 1:
        distributed_gib = memory(replace(job, strategy="ddp"), decision.recipe).total / GIB
        yield (
            "DataParallel: the first GPU holds most, with the optimizer's states and the outputs of"
            " the whole batch. With DistributedDataParallel (`--strategy ddp`, started by `torchrun"
            f" --nproc-per-node {job.gpus} train.py`) every GPU needs {distributed_gib:.1f} GiB,"
            " and none waits for the first"
        )


def assumed(question: TrainingQuestion, job: TrainingJob) -> Iterator[str]:
    """What plan assumed because it was not given, as phrases with the option that changes it. The
    screen shows them in its first lines."""
    shape, named_fields = job.shape, question.job_fields.keys()
    if question.params is not None:
        vocabulary = f"{shape.vocabulary:,} tokens" if shape.vocabulary else "no vocabulary"
        size = f"{shape.layers} layers of width {shape.hidden:,} and {vocabulary}"
        yield f"a transformer with {size} (`--model config.json`)"
    # An image model has a fixed number of tokens, and the largest context is not assumed.
    if shape.tokens is None and question.context is None and question.solve != "context":
        # Without a length plan assumes that a sample is a row of a table, not a text.
        is_text = job.context > 1
        length = f"{job.context:,} tokens" if is_text else "samples of one token (a table row)"
        yield f"{length} (`--context`)"
    # With a token budget there is no batch to assume. If the user asks for the largest batch or
    # context or for the fewest GPUs, the batch is another question.
    if question.batch is None and question.solve is None and not job.fills_token_budget:
        sample = "sequence" if shape.tokens is None else f"sample of {shape.tokens:,} tokens"
        yield f"one {sample} per GPU (`--batch`)"
    older = older_version(question)
    if older and shape.vocabulary:
        yield f"{older['assumed']} ({older['name']}: `--loss {older['loss']}`)"
    # A named trainer, or one whose config sets an RL method, has known defaults.
    if question.trainer is not None or question.rl is not None:
        return
    trainer = "a plain training loop"
    if job.fills_token_budget or (job.shards_parameters and "strategy" not in named_fields):
        trainer = "FSDP, which shards the model over the GPUs" if job.gpus > 1 else "FSDP"
    elif has_adapters(question.job_fields):
        trainer = "transformers' Trainer"
    yield f"{trainer} (`--trainer`)"
    if named_fields.isdisjoint(("amp", "dtype")):
        precision = "mixed precision" if job.amp else f"{8 * job.compute_bytes} bits"
        yield f"{precision} (`--amp`)"
    # With one token per sample the kept activations are too small to mention.
    if "checkpointing" not in named_fields and job.context > 1:
        yield f"{'' if job.checkpointing else 'no '}checkpointing (`--checkpointing`)"
    if shape.vocabulary and "loss" not in named_fields:
        yield "a loss that stores the logits (`--loss fused` does not)"


def older_version(question: TrainingQuestion) -> Mapping[str, str] | None:
    """The trainer's older version or other setting whose loss needs more memory than plan assumes
    (`TrainerTable.trainers`); None if there is none, if the question names the loss, or for methods
    other than supervised training, which have a loss of their own."""
    if question.trainer is None or question.method or question.rl or "loss" in question.job_fields:
        return None
    older: Mapping[str, str] | None = row_of(question.trainer).get("older")
    return older


SAME_FACTOR = 0.01
"""Factors that differ by at most this share count as equal, because people write only one or two
decimals (1.25, 3.33)."""


def factor_remark(scaling: RopeScaling, job: TrainingJob) -> str | None:
    """What is wrong with the config's RoPE factor for the job's length, as a sentence; None if
    nothing is.

    The factor must be the job's length divided by the original length. With a smaller one, the
    model reaches positions that it was not trained for, and its text degenerates there; a larger
    one costs quality in short texts (model cards of Qwen2.5 and Qwen3).
    """
    original = scaling.original or job.shape.native_context
    if original is None:
        return None
    needed, factor = max(job.context / original, 1), scaling.factor
    if abs(factor / needed - 1) <= SAME_FACTOR:
        return None
    must_be = f"it must be {needed:g} ({job.context:,} tokens / {original:,})"
    return f"{scaling.key} is wrong: the factor is {factor:g}, but {must_be}"


def one_gpu_is_enough(decision: Decision) -> bool:
    """Whether a single GPU, which allows no sequence parallelism (`sp`), could train one GPU's
    share of the batch without offload; it would process the other shares later, with accumulated
    gradients."""
    job = decision.job
    alone = replace(job, gpus=1)
    if not job.fills_token_budget:
        alone = replace(alone, batch=max(job.sequences // job.gpus, 1))
    on_one = decide(alone, replace(decision.place, sp=None))
    return on_one.fits and not on_one.recipe.offload


NEEDED_COLUMNS = frozenset(("num_gpus", "model", "max_model_len"))


def plans(path: Path, gpus: Sequence[GpuRow], *, predict: bool) -> Iterator[PlanCell]:
    """Yield one plan for each row of the CSV file, in order, with Trinity-RFT's settings, which are
    a job's defaults; a row that cannot be planned gets an `error`. `predict`: use the memory model
    even for jobs that were measured.

    Raises BadInput if a column is missing, because then no row can be planned.
    """
    text = named_file.read_text(path)
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    if not NEEDED_COLUMNS.issubset(reader.fieldnames or ()):
        raise BadInput(f"{path} needs the columns num_gpus, model and max_model_len")
    for row in reader:
        name = (row.get("gpu") or "").strip()
        size = (row.get("gpu_mem_gb") or "").strip()
        try:
            place = named_gpu(f"{name} {size}GB" if size else name, gpus)
            job = TrainingJob(
                shape=model_named((row.get("model") or "").strip()),
                gpus=number_in_column("num_gpus", row.get("num_gpus"), LARGEST["gpus"]),
                context=number_in_column(
                    "max_model_len", row.get("max_model_len"), LARGEST["context"]
                ),
            )
            yield cell(decide(job, replace(place, predict=predict)))
        except GpuSetupError as problem:
            hint = f" ({problem.hint})" if problem.hint else ""
            # All fields but `error`, the model and the GPU are placeholders.
            yield PlanCell(
                error=f"line {reader.line_num}: {problem.message}{hint}",
                fits=False,
                recipe="",
                basis="predicted",
                confidence="close",
                memory_gib=PlanMemory(
                    states=0, checkpoints=0, logits=0, fragmentation=0, other=0, total=0, capacity=0
                ),
                margin_percent=0,
                model=row.get("model") or "",
                parameters=0,
                active_parameters=0,
                gpu=name,
                gpus=0,
                context=0,
            )


def number_in_column(name: str, text: str | None, most: int) -> int:
    """The whole number in a CSV column; UsageError if it is none from 1 to `most`."""
    digits = (text or "").strip()
    # Any limit has at most nine digits.
    value = int(digits) if re.fullmatch(r"\d{1,9}", digits) else 0
    if not 0 < value <= most:
        raise UsageError(f"{name} is {text!r}: a number up to {most:,} is needed")
    return value
