"""What a person should know beside a plan, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.data_parallel import data_parallel_notes
from gpusetup.plan.decide import Decision, doubt, fewest_gpus, gpus_needed, max_batch
from gpusetup.plan.job import BYTES, Job, yarn
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question
from gpusetup.plan.states import FROZEN_ENCODER_BYTES


def notes(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """What a person should know beside the plan, the model's own notes first."""
    job = decision.job
    if job.shape.base:
        yield f"{job.shape.name} has the shape of {job.shape.base}, which is in its name"
    if job.shape.assumed:
        yield f"the shape of {job.shape.name} is not known: {job.shape.assumed}"
    if job.shape.encoder_parameters:
        yield (
            f"{job.context:,} tokens a sample; for another resolution give its number of tokens "
            "by `--context`"
        )
        if job.encoder_parameters:
            yield encoders_note(job)
    yield from parts_beside(question, decision)
    if job.strategy == "dp" and job.gpus > 1:
        yield from data_parallel_notes(job, decision.shown.recipe)
    yield from assumptions(question, decision)
    if question.solve == "gpus":
        yield from number_notes(decision)
    yield from machine_notes(decision, place)
    reason = doubt(job, decision.shown.recipe)
    if reason and decision.fits and not decision.measured:
        yield reason
    yield from uncertainties(question, decision, place)


def encoders_note(job: Job) -> str:
    """What the frozen text encoders and the VAE of a denoiser take, and how to be without them."""
    encoder_bytes = FROZEN_ENCODER_BYTES * job.encoder_parameters
    return (
        f"the text encoders and the VAE are counted on the GPU ({encoder_bytes / GIB:.1f} GiB): "
        "encode texts and images before the training, and they take nothing"
    )


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
    job, shape = decision.job, decision.job.shape
    native = shape.native_context
    if question.context is None and question.solve != "context" and shape.tokens is None:
        length = "1 token" if job.context == 1 else f"{job.context:,} tokens"
        yield f"no `--context`: {length} of text"
    if native is not None and shape.tokens is None and job.context > native:
        extension = "the model's positions must be extended (RoPE scaling)"
        if yarn(job):
            extension = f"YaRN with factor {job.context / native:g}"
        yield f"{job.context:,} tokens are beyond the native {native:,}: {extension}"
    if job.fills_token_budget:
        return
    if question.batch is None and question.solve is None:
        largest = max_batch(job, decision.limits)
        larger = f"; {largest.job.sequences:,} would fit (`--max-batch`)" if largest.fits else ""
        sample = "sequence"
        if shape.tokens is not None:
            sample = f"sample of {shape.tokens:,} tokens"
        yield f"no `--batch`: one {sample} a GPU{larger}"
    is_said = {"checkpointing", "selective"} & question.job_fields.keys()
    if question.trainer is None and job.lora is not None and job.checkpointing and not is_said:
        yield "with checkpointing, as trainers of adapters run; `--checkpointing none` changes that"
    if question.trainer is None:
        if job.compute_bytes == 4 and not {"amp", "dtype"} & question.job_fields.keys():
            yield "in 32 bits, as plain loops run; `--amp bf16` changes that"
        if not job.checkpointing and job.context > 1 and "checkpointing" not in question.job_fields:
            yield "without checkpointing, as plain loops run; `--checkpointing` changes that"


def number_notes(decision: Decision) -> Iterator[str]:
    """What else a person should know who asks how many GPUs are needed."""
    job, limits = decision.job, decision.limits
    if not decision.fits:
        if job.copies_model and limits.linux:
            sharded = gpus_needed(replace(job, strategy="fsdp"), limits)
            if sharded.fits:
                yield (
                    f"`--strategy fsdp` divides the model among the GPUs: then "
                    f"{sharded.job.gpus} of them are enough"
                )
        return
    if decision.shown.recipe.offload:
        yield "no number of these GPUs fits without offload, which is slow"
        return
    fewest = fewest_gpus(job, limits)
    if fewest is not None and fewest.job.gpus < job.gpus:
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


def assumed_shape(question: Question, job: Job) -> str:
    """The model that a number of parameters is taken for; its real shape decides the memory."""
    shape = job.shape
    vocabulary = "no vocabulary"
    if shape.vocabulary:
        vocabulary = f"GPT-2's vocabulary of {shape.vocabulary:,}"
    samples_are = ""
    if question.context is None and job.context == 1:
        samples_are = (
            ". A sample is one token, as a row of a table is: memory grows with the tokens, so "
            "give `--context` for sequences"
        )
    layers = "1 layer" if shape.layers == 1 else f"{shape.layers} layers"
    return (
        f"`--params` says nothing of the model's shape. Assumed: a transformer of {layers} of "
        f"width {shape.hidden:,}, {vocabulary}. For your own give `--model config.json` or "
        f"`--code FILE:NAME`{samples_are}"
    )
