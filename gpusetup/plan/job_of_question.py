"""Builds the training job from the options of `gpusetup plan` and the trainer's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from gpusetup.model.frozen import replace
from gpusetup.plan.contradictions import check
from gpusetup.plan.decide import MachineLimits
from gpusetup.plan.forward_memory import SAME_LOSS
from gpusetup.plan.frozen_parts import frozen_share
from gpusetup.plan.job import (
    BYTES,
    JOB_DEFAULTS,
    TOKEN_BUDGET,
    Quantization,
    TokenBudget,
    TrainingJob,
)
from gpusetup.plan.model_names import format_in_name
from gpusetup.plan.question import TrainingQuestion, context_of, counts_samples
from gpusetup.plan.rl import SUPERVISED, RlSetup, models_beside, usual_loss, usual_setup
from gpusetup.plan.shape import DENOISERS, Shape
from gpusetup.plan.trainers import row_of, trainer_defaults


def job_of(question: TrainingQuestion, shape: Shape, limits: MachineLimits) -> TrainingJob:
    """The training job that a question describes; UsageError if the question contradicts itself.

    The question's settings take precedence over the trainer's defaults. If no trainer is named,
    `usual_trainer` chooses one.
    """
    named = named_fields(question)
    trainer = question.trainer or usual_trainer(question, shape, named)
    fields = job_fields(question, shape, named, trainer)
    # Trinity-RFT shards with FSDP2, which needs Linux.
    is_measured_trainer = not counts_samples(question, shape)
    names_strategy = "strategy" in named
    if is_measured_trainer and not limits.linux and not names_strategy:
        fields["strategy"] = "ddp" if gpus_of(question) > 1 else "single"
    job = TrainingJob(
        **fields
        | {
            "shape": shape,
            "gpus": gpus_of(question),
            "context": context_of(question, shape),
            "batch": batch_of(question, shape),
            "tokens": question.tokens,
            "accumulate": question.accumulate or 1,
            "frozen": frozen_share(question.freeze, shape) if question.freeze else 0.0,
            "tables": sum(table.parameters for table in question.tables),
            "encoder_parameters": encoders_on_gpu(question, shape, trainer),
        }
    )
    setup = rl_setup_of(question, job)
    if setup is not None:
        job = with_models_beside(job, setup, limits)
        says_loss = question.rl is not None or "loss" in named
        # Keep the loss for Unsloth, whose kernels compute log-probabilities without storing logits.
        if not says_loss and trainer != "unsloth":
            job = replace(job, loss=usual_loss(setup.method))
    check(job, question)
    return job


def gpus_of(question: TrainingQuestion) -> int:
    return question.gpus or 1


def named_fields(question: TrainingQuestion) -> dict[str, Any]:
    """The job fields that the question sets, including the weight format in the model's name."""
    named = dict(question.job_fields)
    storage = format_in_name(question.model or "")
    if storage in get_args(Quantization) and named.get("lora") is not None:
        # The model is already quantised, and the adapters are trained on top of it.
        named.setdefault("quantize", storage)
    return named


def has_adapters(named: Mapping[str, Any]) -> bool:
    """Whether these job fields describe adapter training: LoRA, or a quantised base other than FP8
    (which can be trained itself)."""
    if named.get("lora"):
        return True
    storage = named.get("quantize")
    return storage not in (None, "fp8")


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
    fields = trainer_defaults(trainer, shape.kind, gpus_of(question), named)
    if question.trainer is None and has_adapters(named):
        fields["dtype"] = named.get("dtype", "bf16")
        # Most tools that train adapters switch checkpointing on: PEFT's
        # `prepare_model_for_kbit_training`, TRL, axolotl, LLaMA-Factory, ms-swift and Unsloth.
        # Scripts for U-Nets (kohya, diffusers) do not.
        fields["checkpointing"] = named.get("checkpointing", shape.kind != "unet")
    if named.get("selective"):
        fields["checkpointing"] = True
    elif "checkpointing" in named:
        fields["selective"] = False
    # Autocast has no effect on memory if its type is as wide as that of the weights.
    weight_bytes = BYTES[fields.get("dtype") or "fp32"]
    amp_bytes = BYTES.get(fields.get("amp") or "", weight_bytes)
    if amp_bytes >= weight_bytes:
        fields["amp"] = None
    loss = fields.get("loss") or JOB_DEFAULTS["loss"]
    fields["loss"] = SAME_LOSS.get(loss, loss)
    return fields


def batch_of(question: TrainingQuestion, shape: Shape) -> int | TokenBudget:
    """The number of samples in a step over all GPUs, or the marker for a token budget."""
    if not counts_samples(question, shape):
        return TOKEN_BUDGET
    if question.batch is not None:
        return question.batch
    # A trainer needs at least one sample per GPU, and so does training on images.
    is_per_gpu = question.trainer is not None or not shape.writes_text
    return gpus_of(question) if is_per_gpu else 1


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


def encoders_on_gpu(question: TrainingQuestion, shape: Shape, trainer: str) -> int:
    """The number of parameters in the frozen text encoders and the VAE that stay on the GPU during
    the training.

    It is 0 if the data is encoded before the training, because the question says so or because the
    trainer always does this.
    """
    if shape.kind not in DENOISERS or question.encoded_before:
        return 0
    if row_of(trainer).get("encodes_before"):
        return 0
    return shape.encoder_parameters


def with_models_beside(job: TrainingJob, setup: RlSetup, limits: MachineLimits) -> TrainingJob:
    """The job with the additional models and the engine of a preference or RL setup."""
    engine_bytes = (setup.engine_share or 0.0) * limits.capacity
    return replace(
        job,
        models_beside=models_beside(setup, job),
        sequences_of_sample=2 if setup.pairs else 1,
        engine_bytes=engine_bytes,
        engine_sleeps=setup.engine_sleeps,
        policy_leaves=setup.policy_leaves,
        generated_at_once=setup.generated_at_once,
    )
