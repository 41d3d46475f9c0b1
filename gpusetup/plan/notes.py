"""What a person should know of a plan, as sentences: what was assumed, what is not counted."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.shell import setting, shell_for
from gpusetup.model.units import GIB
from gpusetup.plan.decide import Decision, candidates, doubt, host_holds, max_batch
from gpusetup.plan.job import yarn
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question
from gpusetup.plan.sample import said_of_sample
from gpusetup.plan.states import encoders, host_bytes


def notes(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """All of it, the model's own first."""
    job = decision.job
    yield from (job.shape.note,) if job.shape.note else ()
    yield from said_of_sample(job, question.size)
    yield from assumed(question, decision)
    yield from of_machine(decision, place)
    if decision.shown.memory.moment == "loading":
        yield "the highest moment is before the first step: every GPU holds the whole model"
    if decision.fits and not decision.measured and (kind := doubt(job, decision.shown.recipe)):
        yield kind
    yield from left_open(question, decision, place)


def assumed(question: Question, decision: Decision) -> Iterator[str]:
    """What was taken because nobody said it."""
    job, s, native = decision.job, decision.job.shape, decision.job.shape.native_context
    if question.context is None and question.solve != "context" and s.tokens is None:
        rows = "; activations are those of one row a sample" * (job.context == 1)
        yield f"no `--context`: {job.context:,} token{'s' * (job.context > 1)} of text{rows}"
    if s.tower:
        yield "the tokens of images are among those of `--context`"
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
        if job.compute_bytes == 4 and not {"amp", "dtype"} & question.how.keys():
            yield "in 32 bits, as plain loops run; `--amp bf16` changes that"
        if not job.checkpointing and job.context > 1 and "checkpointing" not in question.how:
            yield "without checkpointing, as plain loops run; `--checkpointing` changes that"


def of_machine(decision: Decision, place: Place) -> Iterator[str]:
    """What the machine has, lacks and holds already."""
    job, limits, count = decision.job, decision.limits, place.count
    if count is not None and job.gpus > count:
        yield f"this machine has {count} GPU{'s' * (count > 1)}, the plan is for {job.gpus}"
    if place.unified:
        yield "the GPU has no memory of its own: Offload gains nothing, other programs count"
    if place.used_bytes > 0.5 * GIB:
        held = place.used_bytes / GIB
        yield f"other programs hold {held:.1f} GiB of the GPU now; the plan counts it as free"
    every = candidates(job, limits)
    missed = next((one for one in every if not host_holds(job, one, limits)), None)
    on_gpu = decision.fits and not decision.shown.recipe.offload
    if missed and limits.host is not None and not on_gpu:
        need, have = host_bytes(job, missed) / GIB, limits.host / GIB
        yield f"Offload would need {need:.0f} GiB of the machine's own memory, there are {have:.0f}"


def use_fewer(fewer: Decision, of: int, place: Place) -> str:
    """That fewer of the GPUs do, and how a shell is told."""
    few, recipe = fewer.job.gpus, fewer.shown.recipe
    shell = shell_for("windows" if place.system == "windows" else "linux")
    shown = setting("CUDA_VISIBLE_DEVICES", first_gpus(few), shell)
    return f"use {few} of your {of} GPUs: there `{recipe}` does (`{shown}`)"


def first_gpus(count: int) -> str:
    """
    >>> first_gpus(3)
    '0,1,2'
    """
    return ",".join(map(str, range(count)))


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
    more = encoders(job) if job.encoders == "none" and "encoders" not in question.how else 0
    if more and question.trainer != "finetrainers" and total + more > 0.8 * capacity:
        yield (
            f"with the encoders of text and the VAE on the GPU {(total + more) / GIB:.1f} GiB are "
            "needed: encode the data before, or load them on another GPU"
        )
