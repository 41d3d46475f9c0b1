"""The notes of a plan: sentences about what plan assumed, what is uncertain, and what else the user
should consider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB, MIB
from gpusetup.model.versions import Capability
from gpusetup.plan.config import RopeScaling
from gpusetup.plan.decide import Decision, decide, doubt, fewest_gpus, gpus_needed, max_batch
from gpusetup.plan.job import BYTES, TrainingJob, samples, yarn
from gpusetup.plan.memory import memory, other_gpu_bytes
from gpusetup.plan.question import TrainingQuestion
from gpusetup.plan.trainers import row_of


def notes(question: TrainingQuestion, decision: Decision) -> Iterator[str]:
    """All notes of a plan, with those about the model first."""
    job, shape = decision.job, decision.job.shape
    if shape.assumed:
        yield f"the shape of {shape.name} is not known: {shape.assumed}"
    yield from notes_on_parts(question, job)
    if job.strategy == "dp" and job.gpus > 1:
        yield from data_parallel_notes(decision)
    yield from assumed_sizes(question, decision)
    if question.solve == "gpus":
        yield from number_notes(decision)
    elif decision.fits and job.gpus > 1 and one_gpu_is_enough(decision):
        how = "" if job.fills_token_budget else ", by accumulating"
        yield (
            f"one GPU would be enough{how}; {job.gpus} GPUs are up to {job.gpus} times as fast, "
            "less the time in which they exchange gradients (short over NVLink, longer over PCIe)"
        )
    yield from machine_notes(decision)
    # A measured result is not in doubt, and a job that does not fit needs no warning.
    if not decision.fits or decision.measured:
        return
    reason = doubt(job, decision.recipe)
    if reason:
        yield reason
    if question.params is not None:
        yield assumed_shape(question, job)
    if needs_memory_of_others(decision):
        yield f"it fits only if other programs free {decision.place.used_bytes / GIB:.1f} GiB"


def notes_on_parts(question: TrainingQuestion, job: TrainingJob) -> Iterator[str]:
    """Notes on what is trained in addition to the model, and on what part of it is frozen."""
    if job.tables:
        size = job.tables * BYTES[job.dtype]
        written = f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
        names = " and ".join(map(str, question.tables))
        yield (
            f"embedding tables: {names} are {written} of weights; trained, they "
            "have gradients of the same size and the optimizer's states as well"
        )
    # With adapters the whole model is frozen anyway.
    if not job.frozen or job.lora is not None:
        return
    part = "the model" if job.frozen == 1 else f"{100 * job.frozen:.0f} % of the model"
    yield (
        f"{part} is frozen: it has no gradients and no optimizer states. plan counts its "
        "activations anyway; they are only needed if something before it is trained"
    )
    if not job.trained_parameters:
        yield (
            "plan knows of nothing that is trained: add the parts around the model (`--lora 16`, "
            "or `n_users` and `embedding_dim` in a config)"
        )


def data_parallel_notes(decision: Decision) -> Iterator[str]:
    """Advice for a user of DataParallel: what each GPU holds, and why DistributedDataParallel is
    better."""
    job, recipe = decision.job, decision.recipe
    distributed_gib = memory(replace(job, strategy="ddp"), recipe).total / GIB
    yield (
        f"DataParallel: the first GPU holds most, {decision.memory.total / GIB:.1f} GiB (weights, "
        f"gradients, the optimizer's states and the outputs of the whole batch); each other GPU "
        f"holds {other_gpu_bytes(job, recipe) / GIB:.1f} GiB (a copy of the weights, its gradients "
        "and activations)"
    )
    yield (
        f"use DistributedDataParallel instead (`--strategy ddp`): every GPU then needs "
        f"{distributed_gib:.1f} GiB, each has its own process, and none waits for the first. "
        f"Start it with `torchrun --nproc-per-node {job.gpus} train.py`"
    )
    # A data loader cannot be given a token budget as its batch size.
    if not job.fills_token_budget:
        yield (
            f"give DataParallel's loader the whole batch of {job.sequences:,}: it divides the "
            f"batch among the GPUs itself ({samples(job, recipe):,} each)"
        )


# --- assumptions ----------------------------------------------------------------------------------


def assumed_sizes(question: TrainingQuestion, decision: Decision) -> Iterator[str]:
    """Notes on the sequence length and the batch that were assumed, and on a length beyond the
    model's native context."""
    job, shape = decision.job, decision.job.shape
    # An image model has a fixed number of tokens.
    if shape.tokens is None and question.context is None and question.solve != "context":
        length = "1 token" if job.context == 1 else f"{job.context:,} tokens"
        yield f"plan assumes {length} of text, because `--context` is not given"
    native = shape.native_context
    if shape.tokens is None and native is not None and job.context > native:
        extension = "the model's positions must be extended (RoPE scaling)"
        if yarn(job):
            extension = f"YaRN with factor {job.context / native:g}"
        yield f"{job.context:,} tokens are beyond the native {native:,}: {extension}"
    # With a token budget there is no batch to assume.
    if question.batch is None and question.solve is None and not job.fills_token_budget:
        sample = "sequence" if shape.tokens is None else f"sample of {shape.tokens:,} tokens"
        largest = max_batch(job, decision.place)
        larger = f"; {largest.job.sequences:,} would fit (`--max-batch`)" if largest.fits else ""
        yield f"plan assumes one {sample} per GPU, because `--batch` is not given{larger}"


def assumed_settings(question: TrainingQuestion, job: TrainingJob) -> Iterator[str]:
    """How plan assumes that the model is trained, because no trainer is named, or which version of
    the trainer it assumes; the screen says it in its first lines."""
    named_fields = question.job_fields.keys()
    older = older_version(question)
    if older and job.shape.vocabulary:
        yield f"plan assumes {older['assumed']} ({older['name']}: `--loss {older['loss']}`)"
    if question.trainer is not None or question.rl is not None:
        return
    if not named_fields and job.shards_parameters:
        yield (
            "plan assumes FSDP, mixed precision and checkpointing; a plain loop in 32 bits needs "
            "more memory: `--trainer loop`"
        )
        return
    if job.fills_token_budget:
        return
    names_checkpointing = not named_fields.isdisjoint(("checkpointing", "selective"))
    if job.lora is not None and job.checkpointing and not names_checkpointing:
        yield (
            "plan assumes checkpointing, because trainers use it for adapters; `--checkpointing "
            "none` turns it off"
        )
    if job.compute_bytes == 4 and named_fields.isdisjoint(("amp", "dtype")):
        yield "plan assumes 32 bits, as in a plain training loop; `--amp bf16` changes that"
    # With one token per sample the kept activations are too small to mention.
    if not job.checkpointing and job.context > 1 and not names_checkpointing:
        yield (
            "plan assumes no checkpointing, as in a plain training loop; `--checkpointing` turns "
            "it on"
        )


def older_version(question: TrainingQuestion) -> Mapping[str, str] | None:
    """The trainer's older version or other setting whose loss needs more memory than plan assumes
    (`TrainerTable.trainers`); None if there is none, or if the question names the loss."""
    if question.trainer is None or question.method or question.rl or "loss" in question.job_fields:
        return None
    older: Mapping[str, str] | None = row_of(question.trainer).get("older")
    return older


def assumed_shape(question: TrainingQuestion, job: TrainingJob) -> str:
    """A note on the shape that plan assumed for a number of parameters."""
    shape = job.shape
    vocabulary = "no vocabulary"
    if shape.vocabulary:
        vocabulary = f"GPT-2's vocabulary of {shape.vocabulary:,}"
    about_samples = ""
    # Without a length plan assumes that a sample is a row of a table, not a text.
    if question.context is None and job.context == 1:
        about_samples = (
            ". A sample is one token, like a row of a table. For sequences, give `--context`, "
            "because memory grows with the tokens"
        )
    layers = "1 layer" if shape.layers == 1 else f"{shape.layers} layers"
    return (
        f"`--params` does not tell the model's shape, so plan assumes a transformer with {layers} "
        f"of width {shape.hidden:,} and {vocabulary}. For your own model, use `--model "
        f"config.json`{about_samples}"
    )


# --- RoPE scaling -------------------------------------------------------------------------------

SAME_FACTOR = 0.01
"""Factors that differ by at most this share count as equal, because people write only one or two
decimals (1.25, 3.33)."""


def factor_remark(scaling: RopeScaling, job: TrainingJob) -> str | None:
    """What is wrong with the config's RoPE factor for the job's length, as a sentence; None if
    nothing is.

    The factor must be at least the job's length divided by the original length; with a smaller
    factor, the model reaches positions that it was not trained for, and its text degenerates there.
    A larger factor costs quality in short texts (model cards of Qwen2.5 and Qwen3).
    """
    original = scaling.original or job.shape.native_context
    if original is None:
        return None
    needed = max(job.context / original, 1)
    reckoning = f"{job.context:,} tokens / {original:,}"
    if scaling.factor < needed * (1 - SAME_FACTOR):
        return (
            f"{scaling.key} is wrong: a factor of {scaling.factor:g} is too small for "
            f"{job.context:,} tokens, it must be {needed:g} ({reckoning})"
        )
    if scaling.factor > needed * (1 + SAME_FACTOR):
        leave_out = "; leave `rope_scaling` out" if needed == 1 else ""
        return (
            f"{scaling.key}: {reckoning} needs a factor of {needed:g}; {scaling.factor:g} works, "
            f"but makes short texts worse{leave_out}"
        )
    return None


# --- the number of GPUs, and the machine ----------------------------------------------------------


def one_gpu_is_enough(decision: Decision) -> bool:
    """Whether a single GPU could train one GPU's share of the batch without offload; it would
    process the other shares later, with accumulated gradients."""
    job = decision.job
    alone = replace(job, gpus=1)
    if not job.fills_token_budget:
        alone = replace(alone, batch=max(job.sequences // job.gpus, 1))
    on_one = decide(alone, replace(decision.place, sp=None))
    return on_one.fits and not on_one.recipe.offload


def number_notes(decision: Decision) -> Iterator[str]:
    """Notes for a user who asked how many GPUs are needed."""
    job, place = decision.job, decision.place
    if not decision.fits:
        sharded = gpus_needed(replace(job, strategy="fsdp"), place)
        # FSDP2 needs Linux.
        if job.copies_model and place.linux and sharded.fits:
            yield (
                f"`--strategy fsdp` divides the model among the GPUs: then "
                f"{sharded.job.gpus} of them are enough"
            )
        return
    if decision.recipe.offload:
        yield "no number of these GPUs fits without offload, which is slow"
        return
    fewest = fewest_gpus(job, place)
    if fewest is not None and fewest.job.gpus < job.gpus:
        gpus = fewest.job.gpus
        counted = "1 GPU would be enough" if gpus == 1 else f"{gpus} GPUs would be enough"
        yield (
            f"{counted} with offload ({fewest.recipe}) and {fewest.memory.host / GIB:,.0f} GiB of "
            "RAM, but the training would be many times slower"
        )


FIRST_WITH_BFLOAT16 = Capability(8, 0)
"""The compute capability of Ampere, the first GPUs with bfloat16 units."""


def machine_notes(decision: Decision) -> Iterator[str]:
    """Notes on how this machine differs from the plan, on a GPU without bfloat16, and on memory
    shared with the GPU."""
    job, place = decision.job, decision.place
    count, capability = place.count, place.capability
    if count is not None and job.gpus > count:
        counted = "1 GPU" if count == 1 else f"{count} GPUs"
        yield f"this machine has {counted}, but the plan is for {job.gpus}"
    if count is not None and count > job.gpus and decision.fits:
        yield (
            f"this machine has {count} GPUs, but the plan uses {job.gpus}: with all of them the "
            f"training is up to {count / job.gpus:g} times as fast (`--gpus {count}`)"
        )
    lacks_bfloat16 = capability is not None and capability < FIRST_WITH_BFLOAT16
    if lacks_bfloat16 and "bf16" in (job.amp, job.dtype):
        yield (
            f"{place.gpu} (compute capability {capability}) has no bfloat16 units, so bfloat16 "
            "is slow or refused there: use float16 with a gradient scaler (`--amp fp16`), which "
            "needs the same memory"
        )
    if place.unified:
        yield (
            "the GPU shares the machine's memory, so Offload gains nothing, and other programs "
            "need memory too"
        )


def needs_memory_of_others(decision: Decision) -> bool:
    """Whether the job only fits if other programs free the memory that they use now. They may leave
    the GPU before the training starts, or keep their memory."""
    return decision.memory.total + decision.place.used_bytes > decision.place.capacity
