"""The question that `gpusetup plan` is asked, the shape of the model that it names, and the job
that follows from it and from the trainer's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.config_json import MEASURE_HINT
from gpusetup.plan.decide import sequence_degrees
from gpusetup.plan.job import BYTES, Quantization, Shape, TrainingJob, least_tokens
from gpusetup.plan.models import (
    format_in_name,
    model_named,
    model_of_size,
    parameter_count,
    refuse_uncounted,
)
from gpusetup.plan.place import Place
from gpusetup.plan.rl import SUPERVISED, SUPERVISED_SETUP, RlSetup, usual_loss, usual_setup
from gpusetup.plan.trainers import row_of, trainer_defaults

LARGEST = {
    "context": 10**8, "batch": 10**8, "tokens": 10**9, "gpus": 10**5, "accumulate": 10**6,
    "lora": 10**5, "sp": 1024,
}  # fmt: skip
"""Option -> the largest number that makes sense; a larger one must be a typo."""
USUAL_CONTEXT = 2048
"""The default sequence length in tokens."""


class TrainingQuestion(Frozen):
    """The options of `gpusetup plan`; None for an option that was not given."""

    model: str | None = None
    params: str | None = None
    context: int | None = None
    batch: int | None = None
    tokens: int | None = None
    log_prob_tokens: int | None = None
    """The token budget of one GPU while log-probabilities are computed, without gradients."""
    accumulate: int | None = None
    gpus: int | None = None
    sp: int | None = None
    trainer: str | None = None
    freeze: str | None = None
    """The part of the model that is not trained, as `frozen_share` reads it."""
    tables: int = 0
    """The number of parameters in embedding tables that are trained in addition to the model."""
    solve: Literal["context", "batch", "gpus"] | None = None
    """The value to find: the longest context, the largest batch or the fewest GPUs."""
    method: str | None = None
    """The name of the training method (`dpo`, `grpo`), used if there is no `rl` from a config."""
    rl: RlSetup | None = None
    """The additional models of preference or reinforcement learning, as read from a config."""
    job_fields: Mapping[str, Any] = {}
    """Name -> value of other job fields that the user set."""


def shape_of_question(question: TrainingQuestion) -> Shape:
    """The shape of the model in the question, by name, file or size; UsageError if the question
    names no model, or an unknown one, or if a number is absurd."""
    for name, largest in LARGEST.items():
        # Most options are fields of the question, others (`lora`) of the job.
        value = getattr(question, name, question.job_fields.get(name))
        if value is not None and not 1 <= value <= largest:
            raise UsageError(f"`--{name} {value}` is out of range", hint=f"1 to {largest:,}")
    if question.model is not None and question.params is not None:
        # If plan cannot count the model, say so before the user leaves out one of the two.
        refuse_uncounted(question.model)
        raise UsageError("`--model` and `--params` exclude each other", hint="use only one")
    if question.model is not None:
        return model_named(question.model, assume=True)
    if question.params is not None:
        parameters = parameter_count(question.params)
        if question.solve == "batch" and question.context is None:
            # A convolution keeps a value for every pixel, so its batch may be a thousandth of that
            # of a network for rows of a table with as many parameters.
            raise UsageError(
                "The largest batch depends on the size of a sample, which `--params` does not tell",
                hint="for texts, add their tokens: `--context 1024`; for rows of a table: "
                f"`--context 1`\nfor images and anything else, {MEASURE_HINT}",
            )
        # Without a length, a sample is a row of a table and the network has no vocabulary.
        has_tokens = question.context is not None or question.solve == "context"
        return model_of_size(parameters) if has_tokens else model_of_size(parameters, vocabulary=0)
    raise UsageError(
        "Say what to train: `--model`, `--from-config` or `--params`",
        hint='`gpusetup plan --model qwen3-8b --gpu "RTX 4090"`',
    )


def job_of(question: TrainingQuestion, shape: Shape, place: Place) -> TrainingJob:
    """The training job that a question describes; UsageError if the question contradicts itself.

    The question's settings take precedence over the trainer's defaults. If no trainer is named,
    `usual_trainer` chooses one.
    """
    named = dict(question.job_fields)
    storage = format_in_name(question.model or "")
    if storage in get_args(Quantization) and named.get("lora") is not None:
        # The model is already quantised, in a format that plan knows (unlike `nvfp4`), and the
        # adapters are trained on top of it.
        named.setdefault("quantize", storage)
    trainer = question.trainer or usual_trainer(question, shape, named)
    gpus = question.gpus or 1
    fields = job_fields(question, shape, named, trainer)
    in_samples = counts_samples(question, shape)
    # Trinity-RFT shards with FSDP2, which needs Linux.
    if not in_samples and not place.linux and "strategy" not in named:
        fields["strategy"] = "ddp" if gpus > 1 else "single"
    # Each GPU needs at least one sample.
    samples = gpus if question.batch is None else question.batch
    fields |= {
        "shape": shape,
        "gpus": gpus,
        "context": context_of(question, shape),
        "batch": samples if in_samples else None,
        "tokens": question.tokens,
        # Two micro-batches stand for any number, because gradients are kept between all of them.
        "accumulate": question.accumulate or (2 if row_of(trainer).get("accumulates") else 1),
        "frozen": frozen_share(question.freeze, shape) if question.freeze else 0.0,
        "tables": question.tables,
    }
    job = TrainingJob(**fields)
    setup = question.rl or SUPERVISED_SETUP
    if question.rl is None and question.method and question.method not in SUPERVISED:
        setup = usual_setup(question.method, question.trainer, adapters=job.lora is not None)
    says_loss = question.rl is not None or "loss" in named
    # Keep the loss for Unsloth, whose kernels compute log-probabilities without storing logits.
    if setup.method not in SUPERVISED and not says_loss and trainer != "unsloth":
        job = replace(job, loss=usual_loss(setup.method))
    job = replace(job, rl=setup, engine_bytes=(setup.engine_share or 0.0) * place.capacity)
    refuse_contradictions(job, question)
    return job


ALL, EMBEDDINGS = "all", "embeddings"


def frozen_share(part: str, shape: Shape) -> float:
    """The share of a model's parameters that is frozen, from 0 to 1, for a part as `config.frozen`
    gives it: `all`, `embeddings`, or a number of first layers (the embedding is then frozen too).
    Raises UsageError if the model has fewer layers.

    >>> from gpusetup.plan.models import model_named
    >>> gpt2 = model_named("gpt2")
    >>> [round(frozen_share(part, gpt2), 2) for part in ("all", "embeddings", "6")]
    [1.0, 0.31, 0.66]
    """
    embeddings = shape.outside / shape.parameters
    if part in (ALL, EMBEDDINGS):
        return 1.0 if part == ALL else embeddings
    if int(part) > shape.layers:
        raise UsageError(f"{shape.name} has {shape.layers} layers, not {part} to freeze")
    return embeddings + (1 - embeddings) * int(part) / shape.layers


def has_adapters(named: Mapping[str, Any]) -> bool:
    """Whether these job fields describe adapter training: LoRA, or a quantised base other than FP8
    (which can be trained itself)."""
    return bool(named.get("lora")) or named.get("quantize") not in (None, "fp8")


def describes_training(question: TrainingQuestion) -> bool:
    """Whether the question has settings that decide how the model is trained. The loss and the
    optimizer do not: plan itself proposes others, for the trainer that it assumed."""
    return not question.job_fields.keys() <= {"loss", "optimizer"}


SMALLEST_LANGUAGE_MODEL = 1e9
"""From this number of parameters on, a model given by its size alone is taken as a text decoder
that is trained on all GPUs together, because a plain loop in 32 bits would need 16 GB and more."""


def usual_trainer(question: TrainingQuestion, shape: Shape, named: Mapping[str, Any]) -> str:
    """The trainer to assume if none is named: `trinity` for a whole text model without
    other settings, `hf` for adapters, otherwise a plain `loop`."""
    # Only RL trainers fill a token budget.
    if not counts_samples(question, shape):
        return "trinity"
    # A batch alone says nothing about the trainer, so assume the one for the same question without
    # `--batch` or `--max-batch`.
    without_batch = replace(question, batch=None, solve=None)
    # A number of parameters below a billion may be of any network.
    may_be_any = question.params is not None and shape.parameters < SMALLEST_LANGUAGE_MODEL
    says_how = describes_training(question) or question.freeze or question.tables
    if not (says_how or may_be_any) and not counts_samples(without_batch, shape):
        return "trinity"
    # Adapters are usually trained with PEFT in transformers' Trainer or a framework based on it.
    return "hf" if has_adapters(named) else "loop"


def job_fields(
    question: TrainingQuestion, shape: Shape, named: Mapping[str, Any], trainer: str
) -> dict[str, Any]:
    """The job fields of the training, from the question or else from the trainer's defaults."""
    fields = trainer_defaults(trainer, shape.kind, question.gpus or 1, named)
    if question.trainer is None and has_adapters(named):
        fields["dtype"] = named.get("dtype", "bf16")
        # Most tools that train adapters switch checkpointing on: PEFT's
        # `prepare_model_for_kbit_training`, TRL, axolotl, LLaMA-Factory, ms-swift and Unsloth.
        fields["checkpointing"] = named.get("checkpointing", True)
    # Autocast has no effect on memory if its type (which may be `none`) is as wide as that of the
    # weights.
    weight_bytes = BYTES[fields.get("dtype") or "fp32"]
    if BYTES.get(fields.get("amp") or "", weight_bytes) >= weight_bytes:
        fields["amp"] = None
    return fields


def counts_samples(question: TrainingQuestion, shape: Shape) -> bool:
    """Whether the batch is a number of samples, as opposed to a token budget that RL trainers fill.

    RL trainers train whole text decoders, so images, videos, encoders, classifiers and adapters are
    counted in samples.
    """
    if question.batch is not None or question.solve == "batch":
        return True
    # Without a batch, Trinity-RFT fills a token budget.
    if question.tokens is not None or question.trainer == "trinity":
        return False
    if question.trainer is not None or question.method is not None:
        return True
    trains_whole = question.job_fields.keys().isdisjoint(("lora", "quantize"))
    return not (shape.writes_text and trains_whole)


def context_of(question: TrainingQuestion, shape: Shape) -> int:
    """The number of tokens in a sample: from the question, but at least those that the model fixes;
    without either, 1 if a sample is no text or the length is searched, otherwise the default."""
    if question.context is not None or shape.tokens is not None:
        return max(question.context or 1, shape.tokens or 1)
    # The search for the longest context replaces any length.
    if question.solve == "context":
        return 1
    # If the user gives a model's size and a number of samples, the samples are probably not texts.
    if question.params and question.batch:
        return 1
    longest = shape.native_context or USUAL_CONTEXT
    # A decoder's longest texts would be far longer than what people train on.
    return longest if shape.encoder else min(USUAL_CONTEXT, longest)


def refuse_contradictions(job: TrainingJob, question: TrainingQuestion) -> None:
    """Raise UsageError if settings of the job contradict each other; it names the first
    contradiction, from which others may follow."""
    gpus, solve = job.gpus, question.solve
    if job.strategy == "single" and gpus > 1:
        message = f"`--strategy single` uses one GPU, but `--gpus` is {gpus}"
        raise UsageError(message, hint="use `--strategy ddp` or `--strategy fsdp`")
    if job.stored_bytes is not None and job.trains_layers:
        message = f"Weights in {job.quantize} cannot be trained directly"
        raise UsageError(message, hint="add `--lora 16`")
    if solve and getattr(question, solve) is not None:
        flag = "--gpus-needed" if solve == "gpus" else f"--max-{solve}"
        raise UsageError(f"`{flag}` searches for what `--{solve}` sets: leave one of them out")
    degrees = sequence_degrees(job)
    if question.sp and question.sp not in degrees:
        raise UsageError(
            f"`--sp {question.sp}` does not work: a strategy that shards the model needs a number "
            f"that divides both the {gpus} GPUs and the {job.shape.heads} heads of attention, and "
            f"suits the {job.shape.key_value_heads} heads of keys and values",
            hint=f"possible here: {' or '.join(map(str, degrees))}",
        )
    # A larger number of GPUs may share a sequence, so that a smaller budget is enough.
    if solve == "gpus":
        return
    sp = question.sp or degrees[-1]
    least = least_tokens(job, sp)
    for key, budget in (
        ("ppo_max_token_len_per_gpu", job.tokens),
        ("log_prob_max_token_len_per_gpu", question.log_prob_tokens),
    ):
        if budget is not None and budget < least:
            raise UsageError(
                f"{budget:,} tokens per GPU (`{key}`) are too few for a sequence of "
                f"{job.context:,}: the trainer refuses them",
                hint=f"set at least {least:,} with SP={sp}",
            )
