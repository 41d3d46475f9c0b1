"""Finds contradictions among the options of `gpusetup plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.decide import MachineLimits, sequence_degrees
from gpusetup.plan.job import TrainingJob, least_tokens
from gpusetup.plan.losses import LOSSES
from gpusetup.plan.question import TrainingQuestion
from gpusetup.plan.states import OPTIMIZERS

ANY_MACHINE = MachineLimits(capacity=0)
"""Limits for `sequence_degrees`, which does not read the capacity."""


def check(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError if parts of the job contradict each other."""
    # Report only the first contradiction, because others may follow from it.
    for contradiction in contradictions(job, question):
        raise UsageError(contradiction.message, hint=contradiction.hint)
    check_sequence_degree(job, question)
    check_budgets(job, question)


def check_sequence_degree(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError if the degree in `--sp` is impossible; the hint lists the possible
    degrees."""
    if not question.sp or question.sp in sequence_degrees(job, ANY_MACHINE):
        return
    # If each GPU holds a whole copy of the model, only degree 1 is possible, so the message lists
    # the degrees that sharding would allow.
    sharded_job = replace(job, strategy="fsdp") if job.copies_model else job
    degrees = sequence_degrees(sharded_job, ANY_MACHINE)
    if question.sp in degrees:
        raise UsageError(
            f"`--sp {question.sp}` needs a strategy that shards the model; {job.strategy} keeps a "
            "whole copy on each GPU",
            hint="add `--strategy fsdp`",
        )
    raise UsageError(
        f"`--sp {question.sp}` does not work: {what_divides(job)}",
        hint=possible_degrees(job, degrees),
    )


def what_divides(job: TrainingJob) -> str:
    """A sentence that names the numbers which a degree of sequence parallelism must divide."""
    gpus = "1 GPU" if job.data_parallel == 1 else f"{job.data_parallel} GPUs"
    # Tensor parallelism already divides the heads among its GPUs.
    key_value_heads = max(1, job.shape.key_value_heads // job.tensor_parallel)
    return (
        f"the number must divide both the {gpus} and the {job.shape.heads} heads of attention, "
        f"and suit the {key_value_heads} heads of keys and values"
    )


def possible_degrees(job: TrainingJob, degrees: Sequence[int]) -> str:
    """A hint that lists the possible degrees of sequence parallelism for a job."""
    numbers = " or ".join(map(str, degrees))
    options = ", ".join(f"`--sp {degree}`" for degree in degrees)
    possible = f"{numbers} ({options})"
    needs_sharding = job.copies_model and len(degrees) > 1
    if needs_sharding:
        return f"possible here with `--strategy fsdp`: {possible}"
    return f"possible here: {possible}"


def check_budgets(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError if a token budget is smaller than the longest sequence."""
    if question.solve == "gpus":
        return
    largest_degree = sequence_degrees(job, ANY_MACHINE)[-1]
    sp = question.sp or largest_degree
    least = least_tokens(job, sp)
    for key, budget in (
        ("ppo_max_token_len_per_gpu", job.tokens),
        ("log_prob_max_token_len_per_gpu", question.log_prob_tokens),
    ):
        if budget is not None and budget < least:
            raise UsageError(
                f"{budget:,} tokens a GPU (`{key}`) are too few for a sequence of "
                f"{job.length:,}: the trainer refuses them",
                hint=f"at least {least:,} with SP={sp}",
            )


class Contradiction(NamedTuple):
    """Two options that contradict each other, as an error message with a hint."""

    message: str
    hint: str | None = None


def contradictions(job: TrainingJob, question: TrainingQuestion) -> Iterator[Contradiction]:
    """The contradictions among the options of a question."""
    yield from contradictions_of_gpus(job)
    if job.expert_parallel > 1 and not job.shape.experts:
        yield Contradiction(f"{job.shape.name} has no experts that `--ep` could divide")
    if job.is_quantized and job.trains_layers:
        yield Contradiction(
            f"Weights in {job.quantize} are not trained themselves", "add `--lora 16`"
        )
    if job.loss not in LOSSES:
        yield Contradiction(f"No loss is called {job.loss!r}", ", ".join(LOSSES))
    if job.optimizer not in OPTIMIZERS:
        yield Contradiction(f"No optimizer {job.optimizer!r}", ", ".join(OPTIMIZERS))
    if question.solve and getattr(question, question.solve) is not None:
        flag = "--gpus-needed" if question.solve == "gpus" else f"--max-{question.solve}"
        yield Contradiction(f"`{flag}` looks for what `--{question.solve}` gives: leave one out")


def contradictions_of_gpus(job: TrainingJob) -> Iterator[Contradiction]:
    """The contradictions among the options that divide the work among GPUs."""
    gpus = job.gpus
    if job.strategy == "single" and gpus > 1:
        yield Contradiction(
            f"`--strategy single` uses one GPU, `--gpus {gpus}` names {gpus}",
            "name ddp or fsdp",
        )
    group_size = job.tensor_parallel * job.pipeline_parallel * job.context_parallel
    if gpus % group_size > 0:
        yield Contradiction(
            f"`--tp` times `--pp` times `--cp` does not divide {gpus} GPUs",
            f"{group_size} or a multiple of it is needed",
        )
    if job.expert_parallel > gpus:
        yield Contradiction(f"`--ep {job.expert_parallel}` needs as many GPUs")
    if job.shape.heads % job.tensor_parallel > 0:
        yield Contradiction(f"`--tp` does not divide the {job.shape.heads} heads of the model")
