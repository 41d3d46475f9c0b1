"""What a person should know of a plan, as sentences: what was assumed, what is not counted."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.shell import setting, shell_for
from gpusetup.model.units import GIB
from gpusetup.plan.decide import Decision, candidates, doubt, host_holds, max_batch
from gpusetup.plan.job import Job, yarn
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question
from gpusetup.plan.sample import said_of_sample
from gpusetup.plan.states import encoders, host_bytes


def notes(question: Question, decision: Decision, place: Place) -> Iterator[str]:
    """All of it, the model's own first."""
    if decision.job.shape.note:
        yield decision.job.shape.note
    yield from said_of_sample(decision.job, question.frames, question.size)
    yield from assumed(question, decision)
    yield from positions(decision.job)
    yield from of_machine(decision, place)
    yield from of_answer(decision)
    if open_question := left_open(question, decision):
        yield open_question


def assumed(question: Question, decision: Decision) -> Iterator[str]:
    """What was taken because nobody said it."""
    job, s = decision.job, decision.job.shape
    if question.context is None and question.solve != "context" and s.fixed_tokens is None:
        if job.context == 1:
            yield "no `--context`: activations are those of one token (one row) a sample"
        elif s.tokens is None:
            yield f"no `--context`: {job.context:,} tokens of text"
    if s.tower:
        yield "the tokens of images are among those of `--context`"
    if job.batch is None:
        return
    if question.trainer == "trinity":
        yield "Trinity-RFT fills batches to a budget of tokens unless `use_dynamic_bsz: false`"
    elif question.batch is None and question.solve is None:
        most = max_batch(job, decision.limits)
        more = f"; {most.job.batch:,} would fit (`--max-batch`)" if most.fits else ""
        one = "sequence" if s.tokens is None else f"sample of {s.tokens:,} tokens"
        yield f"no `--batch`: one {one} a GPU{more}"
    if question.trainer is None:
        wide = job.compute_bytes == 4 and not {"amp", "dtype"} & question.how.keys()
        kept = not job.checkpointing and job.context > 1 and "checkpointing" not in question.how
        flags = ["`--amp bf16`"] * wide + ["`--checkpointing`"] * kept
        what = ["in 32 bits"] * wide + ["without checkpointing"] * kept
        if flags:
            yield f"{' and '.join(what)}, as plain loops run; {' and '.join(flags)} changes that"


def positions(job: Job) -> Iterator[str]:
    """Whether positions reach the length."""
    native = job.shape.native_context
    if native is not None and job.shape.tokens is None and job.context > native:
        how = f"YaRN with factor {job.context / native:g}" if yarn(job) else (
            "the model needs its positions extended")  # fmt: skip
        yield f"{job.context:,} tokens are beyond the native {native:,}: {how}"


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


def of_answer(decision: Decision) -> Iterator[str]:
    """What would be needed, and why an answer is not sure."""
    job, shown = decision.job, decision.shown
    if not decision.fits:
        need = shown.memory.total / GIB
        yield f"as it is, {need:.1f} GiB a GPU are needed, with `{shown.recipe}`"
    if shown.memory.moment == "loading":
        yield "the highest moment is before the first step: every GPU holds the whole model"
    if job.reference is not None and job.lora is not None:
        yield "a LoRA needs no reference model: it is the base without adapters; one is counted"
    if decision.fits and not decision.measured and (kind := doubt(job, shown.recipe)):
        yield kind


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


def left_open(question: Question, decision: Decision) -> str | None:
    """What nobody said and a fit hangs on: then it is not clear."""
    job, limits = decision.job, decision.limits
    if not decision.fits or decision.measured:
        return None
    if question.params is not None and question.context is None and job.context == 1:
        return (
            "memory grows with a sample's tokens: give `--context` (1: a row), or measure one step"
        )
    more, unsaid = encoders(job), "encoders" not in question.how
    precomputes = question.trainer == "finetrainers" or job.encoders != "none"
    total = decision.shown.memory.total + more
    if more and unsaid and not precomputes and total > 0.8 * limits.capacity:
        return (
            f"with the encoders of text and the VAE on the GPU {total / GIB:.1f} GiB are needed: "
            "encode the data before, or load them on another GPU"
        )
    return None
