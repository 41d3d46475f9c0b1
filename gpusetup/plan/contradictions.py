"""Finds contradictions among the options of `gpusetup plan`."""

from __future__ import annotations

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.decide import MachineLimits, sequence_degrees
from gpusetup.plan.forward_memory import LOSSES
from gpusetup.plan.job import TrainingJob, least_tokens
from gpusetup.plan.question import TrainingQuestion
from gpusetup.plan.states import OPTIMIZERS

ANY_MACHINE = MachineLimits(capacity=0)
"""Limits for `sequence_degrees`, which does not read the capacity."""


def check(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError for the first parts of the job that contradict each other; others may follow
    from it."""
    gpus, shape = job.gpus, job.shape
    group = job.tensor_parallel * job.pipeline_parallel * job.context_parallel
    solves = question.solve and getattr(question, question.solve) is not None
    flag = "--gpus-needed" if question.solve == "gpus" else f"--max-{question.solve}"
    contradictions: tuple[tuple[object, str, str | None], ...] = (
        (job.strategy == "single" and gpus > 1,
         f"`--strategy single` uses one GPU, `--gpus {gpus}` names {gpus}", "name ddp or fsdp"),
        (gpus % group > 0,
         f"`--tp` times `--pp` times `--cp` does not divide {gpus} GPUs",
         f"{group} or a multiple of it is needed"),
        (job.expert_parallel > gpus, f"`--ep {job.expert_parallel}` needs as many GPUs", None),
        (shape.heads % job.tensor_parallel > 0,
         f"`--tp` does not divide the {shape.heads} heads of the model", None),
        (job.expert_parallel > 1 and not shape.experts,
         f"{shape.name} has no experts that `--ep` could divide", None),
        (job.stored_bytes is not None and job.trains_layers,
         f"Weights in {job.quantize} are not trained themselves", "add `--lora 16`"),
        (job.loss not in LOSSES, f"No loss is called {job.loss!r}", ", ".join(LOSSES)),
        (job.optimizer not in OPTIMIZERS,
         f"No optimizer {job.optimizer!r}", ", ".join(OPTIMIZERS)),
        (solves, f"`{flag}` looks for what `--{question.solve}` gives: leave one out", None),
    )  # fmt: skip
    for is_so, message, hint in contradictions:
        if is_so:
            raise UsageError(message, hint=hint)
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
    gpus = "1 GPU" if job.data_parallel == 1 else f"{job.data_parallel} GPUs"
    # Tensor parallelism already divides the heads among its GPUs.
    key_value_heads = max(1, job.shape.key_value_heads // job.tensor_parallel)
    needs_sharding = " with `--strategy fsdp`" if job.copies_model and len(degrees) > 1 else ""
    numbers = " or ".join(map(str, degrees))
    options = ", ".join(f"`--sp {degree}`" for degree in degrees)
    raise UsageError(
        f"`--sp {question.sp}` does not work: the number must divide both the {gpus} and the "
        f"{job.shape.heads} heads of attention, and suit the {key_value_heads} heads of keys and "
        "values",
        hint=f"possible here{needs_sharding}: {numbers} ({options})",
    )


def check_budgets(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError if a token budget is smaller than the longest sequence."""
    if question.solve == "gpus":
        return
    sp = question.sp or sequence_degrees(job, ANY_MACHINE)[-1]
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
