"""Builds the training job from the options of `gpusetup plan` and the trainer's defaults, and
refuses options that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.decide import sequence_degrees
from gpusetup.plan.forward_memory import LOSSES, SAME_LOSS
from gpusetup.plan.job import (
    BYTES,
    JOB_DEFAULTS,
    TOKEN_BUDGET,
    Quantization,
    TrainingJob,
    least_tokens,
)
from gpusetup.plan.models import format_in_name
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion, context_of, counts_samples
from gpusetup.plan.rl import PAIRED, SUPERVISED, RlSetup, models_beside, usual_loss, usual_setup
from gpusetup.plan.shape import Shape
from gpusetup.plan.states import OPTIMIZERS
from gpusetup.plan.trained_parts import frozen_share
from gpusetup.plan.trainers import row_of, trainer_defaults


def job_of(question: TrainingQuestion, shape: Shape, place: Place) -> TrainingJob:
    """The training job that a question describes; UsageError if the question contradicts itself.

    The question's settings take precedence over the trainer's defaults. If no trainer is named,
    `usual_trainer` chooses one.
    """
    named = dict(question.job_fields)
    storage = format_in_name(question.model or "")
    if storage in get_args(Quantization) and named.get("lora") is not None:
        # The model is already quantised, and the adapters are trained on top of it.
        named.setdefault("quantize", storage)
    trainer = question.trainer or usual_trainer(question, shape, named)
    gpus = question.gpus or 1
    fields = job_fields(question, shape, named, trainer)
    in_samples = counts_samples(question, shape)
    # Trinity-RFT shards with FSDP2, which needs Linux.
    if not in_samples and not place.linux and "strategy" not in named:
        fields["strategy"] = "ddp" if gpus > 1 else "single"
    # A trainer needs at least one sample per GPU, and so does training on images.
    is_per_gpu = question.trainer is not None or not shape.writes_text
    samples = question.batch if question.batch is not None else (gpus if is_per_gpu else 1)
    fields |= {
        "shape": shape,
        "gpus": gpus,
        "context": context_of(question, shape),
        "batch": samples if in_samples else TOKEN_BUDGET,
        "tokens": question.tokens,
        # Two micro-batches stand for any number, because gradients are kept between all of them.
        "accumulate": question.accumulate or (2 if row_of(trainer).get("accumulates") else 1),
        "frozen": frozen_share(question.freeze, shape) if question.freeze else 0.0,
        "tables": sum(table.parameters for table in question.tables),
    }
    job = TrainingJob(**fields)
    setup = rl_setup_of(question, job)
    if setup is not None:
        says_loss = question.rl is not None or "loss" in named
        # Keep the loss for Unsloth, whose kernels compute log-probabilities without storing logits.
        loss = job.loss if says_loss or trainer == "unsloth" else usual_loss(setup.method)
        job = with_setup(replace(job, loss=loss), setup, place)
    check(job, question)
    return job


def with_setup(job: TrainingJob, setup: RlSetup, place: Place) -> TrainingJob:
    """A job of reinforcement learning or preferences: with the models beside the trained one, and
    with the engine that generates."""
    return replace(
        job,
        models_beside=tuple(models_beside(setup, job)),
        sequences_of_sample=2 if setup.method in PAIRED else 1,
        engine_bytes=(setup.engine_share or 0.0) * place.capacity,
        engine_sleeps=setup.engine_sleeps,
        policy_leaves=setup.policy_leaves,
        generated_at_once=setup.generated_at_once,
    )


def has_adapters(named: Mapping[str, Any]) -> bool:
    """Whether these job fields describe adapter training: LoRA, or a quantised base other than FP8
    (which can be trained itself)."""
    return bool(named.get("lora")) or named.get("quantize") not in (None, "fp8")


def usual_trainer(question: TrainingQuestion, shape: Shape, named: Mapping[str, Any]) -> str:
    """The trainer to assume if none is named: `trinity` for a whole text model without
    other settings, `hf` for adapters, otherwise a plain `loop`."""
    if not counts_samples(question, shape):
        return "trinity"
    # A batch alone says nothing about the trainer, so that `--batch` and `--max-batch` are planned
    # as the same question without them. A number of parameters may be of any network.
    without_batch = replace(question, batch=None, solve=None)
    says_how = question.job_fields or question.freeze or question.tables or question.params
    if not says_how and not counts_samples(without_batch, shape):
        return "trinity"
    # Adapters are usually trained with PEFT in transformers' Trainer or a framework based on it.
    return "hf" if has_adapters(named) else "loop"


def job_fields(
    question: TrainingQuestion, shape: Shape, named: Mapping[str, Any], trainer: str
) -> dict[str, Any]:
    """The job fields that describe the training, from the question or otherwise from the trainer's
    defaults."""
    fields = trainer_defaults(trainer, shape.kind, question.gpus or 1, named)
    if question.trainer is None and has_adapters(named):
        fields["dtype"] = named.get("dtype", "bf16")
        # Most tools that train adapters switch checkpointing on: PEFT's
        # `prepare_model_for_kbit_training`, TRL, axolotl, LLaMA-Factory, ms-swift and Unsloth.
        fields["checkpointing"] = named.get("checkpointing", True)
    if named.get("selective"):
        fields["checkpointing"] = True
    elif "checkpointing" in named:
        fields["selective"] = False
    # Autocast has no effect on memory if its type is as wide as that of the weights.
    weight_bytes = BYTES[fields.get("dtype") or "fp32"]
    if BYTES.get(fields.get("amp") or "", weight_bytes) >= weight_bytes:
        fields["amp"] = None
    loss = fields.get("loss") or JOB_DEFAULTS["loss"]
    fields["loss"] = SAME_LOSS.get(loss, loss)
    return fields


def rl_setup_of(question: TrainingQuestion, job: TrainingJob) -> RlSetup | None:
    """The preference or RL setup: from the config, or the method's default; None for supervised
    training."""
    if question.rl is not None:
        return question.rl
    if question.method is None or question.method in SUPERVISED:
        return None
    sequences_of_gpu = -(-job.sequences // job.data_parallel)
    return usual_setup(
        question.method,
        question.trainer,
        sequences_of_gpu,
        adapters=job.lora is not None,
    )


# --- contradictions -------------------------------------------------------------------------------


def check(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError for the first parts of the job that contradict each other; others may follow
    from it."""
    gpus, shape = job.gpus, job.shape
    solves = question.solve and getattr(question, question.solve) is not None
    flag = "--gpus-needed" if question.solve == "gpus" else f"--max-{question.solve}"
    contradictions: tuple[tuple[object, str, str | None], ...] = (
        (job.strategy == "single" and gpus > 1,
         f"`--strategy single` uses one GPU, `--gpus {gpus}` names {gpus}", "name ddp or fsdp"),
        (gpus % job.group_size > 0,
         f"`--tp` times `--pp` times `--cp` does not divide {gpus} GPUs",
         f"{job.group_size} or a multiple of it is needed"),
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
    if question.sp and question.sp not in sequence_degrees(job):
        raise impossible_degree(job, question.sp)
    if question.solve == "gpus":
        return
    sp = question.sp or sequence_degrees(job)[-1]
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


def impossible_degree(job: TrainingJob, sp: int) -> UsageError:
    """The error for a degree of sequence parallelism that is impossible; its hint lists the
    possible degrees."""
    # If each GPU holds a whole copy of the model, only degree 1 is possible, so the message lists
    # the degrees that sharding would allow.
    sharded_job = replace(job, strategy="fsdp") if job.copies_model else job
    degrees = sequence_degrees(sharded_job)
    if sp in degrees:
        return UsageError(
            f"`--sp {sp}` needs a strategy that shards the model; {job.strategy} keeps a "
            "whole copy on each GPU",
            hint="add `--strategy fsdp`",
        )
    gpus = "1 GPU" if job.data_parallel == 1 else f"{job.data_parallel} GPUs"
    # Tensor parallelism already divides the heads among its GPUs.
    key_value_heads = max(1, job.shape.key_value_heads // job.tensor_parallel)
    needs_sharding = " with `--strategy fsdp`" if job.copies_model and len(degrees) > 1 else ""
    numbers = " or ".join(map(str, degrees))
    options = ", ".join(f"`--sp {degree}`" for degree in degrees)
    return UsageError(
        f"`--sp {sp}` does not work: the number must divide both the {gpus} and the "
        f"{job.shape.heads} heads of attention, and suit the {key_value_heads} heads of keys and "
        "values",
        hint=f"possible here{needs_sharding}: {numbers} ({options})",
    )
