"""The question of `gpusetup plan`, checked, and the job that it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.decide import Limits, sequence_degrees
from gpusetup.plan.frozen_parts import frozen_share
from gpusetup.plan.job import (
    BYTES,
    JOB_DEFAULTS,
    TOKEN_BUDGET,
    Job,
    Quantization,
    least_tokens,
)
from gpusetup.plan.losses import LOSSES, SAME_LOSS
from gpusetup.plan.model_names import format_in_name
from gpusetup.plan.models import (
    is_at_hand,
    model_of_size,
    parameter_count,
    shape_or_relative,
)
from gpusetup.plan.models_beside import RlSetup, models_beside
from gpusetup.plan.rl_methods import SUPERVISED, usual_loss, usual_setup
from gpusetup.plan.shape import DENOISERS, Shape
from gpusetup.plan.states import OPTIMIZERS
from gpusetup.plan.tables import Table
from gpusetup.plan.trainers import trainer_defaults

LARGEST = {
    "context": 10**8, "batch": 10**8, "tokens": 10**9, "gpus": 10**5, "accumulate": 10**6,
    "lora": 10**5, "tensor_parallel": 1024,
    "pipeline_parallel": 1024, "context_parallel": 1024, "expert_parallel": 1024,
    "sp": 1024,
}  # fmt: skip
"""The largest number that means anything; beyond it is a slip of the finger."""
USUAL_CONTEXT = 2048
"""Tokens of a text if nobody says how many."""


class Question(Frozen):
    """The words of `gpusetup plan`; None if nothing was said."""

    model: str | None = None
    params: str | None = None
    context: int | None = None
    batch: int | None = None
    tokens: int | None = None
    log_prob_tokens: int | None = None
    """The budget of tokens of a GPU while log-probabilities are computed, without gradients."""
    accumulate: int | None = None
    gpus: int | None = None
    sp: int | None = None
    trainer: str | None = None
    freeze: str | None = None
    """The part of the model that is not trained, as `frozen_share` reads it."""
    tables: tuple[Table, ...] = ()
    """Embedding tables beside the model."""
    solve: Literal["context", "batch", "gpus"] | None = None
    """What is looked for."""
    method: str | None = None
    """The method of training by its name, if no config says more: `dpo`, `grpo`."""
    rl: RlSetup | None = None
    """What preference or reinforcement learning holds beside the policy."""
    job_fields: Mapping[str, Any] = {}
    """Other fields of the job, by their names."""

    @property
    def group_size(self) -> int:
        """The GPUs that one group of a sharded copy needs."""
        size = self.sp or 1
        for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
            size *= self.job_fields.get(name) or 1
        return size

    @property
    def describes_training(self) -> bool:
        """Whether it names anything that decides how is trained."""
        says_how = self.trainer or self.method or self.job_fields or self.freeze or self.tables
        says_how_much = self.batch or self.tokens or self.solve
        return bool(says_how or says_how_much)


def job_of(question: Question, shape: Shape, limits: Limits) -> Job:
    """The job of a question; UsageError if it contradicts itself.

    What was said comes before what the trainer does by default: one that is not said is a plain
    loop, or the trainer of the measured cells (FSDP2, on Linux). A frozen base of theirs is kept as
    people do, in bf16.
    """
    given, gpus = dict(question.job_fields), question.gpus or 1
    stored = format_in_name(question.model or "")
    if stored in get_args(Quantization) and given.get("lora") is not None:
        given.setdefault("quantize", stored)  # adapters on weights that are quantised already
    by_batch = counts_samples(question, shape)
    samples = gpus if question.trainer or not shape.writes_text else 1
    frozen_in_bits = given.get("quantize") not in (None, "fp8")
    has_adapters = bool(given.get("lora")) or frozen_in_bits
    usual_trainer = "trinity"
    if by_batch:  # adapters are PEFT's, which transformers' Trainer and what builds on it train
        usual_trainer = "hf" if has_adapters else "loop"
    trainer = question.trainer or usual_trainer
    fields = trainer_defaults(trainer, shape.kind, gpus, given)
    if question.trainer is None and has_adapters:
        fields["dtype"] = given.get("dtype", "bf16")
        # Who trains adapters is short of memory: PEFT's `prepare_model_for_kbit_training`, TRL,
        # axolotl, LLaMA-Factory, ms-swift and Unsloth all switch checkpointing on.
        # Scripts for U-Nets (kohya, diffusers) do not.
        fields["checkpointing"] = given.get("checkpointing", shape.kind != "unet")
    if not (by_batch or limits.linux) and "strategy" not in given:
        fields["strategy"] = "ddp" if gpus > 1 else "single"
    if given.get("selective"):
        fields["checkpointing"] = True
    elif "checkpointing" in given:
        fields["selective"] = False
    amp, dtype, loss = (fields.get(name) for name in ("amp", "dtype", "loss"))
    job = Job(**fields | {
        "amp": amp if BYTES.get(amp or "", 4) < BYTES[dtype or "fp32"] else None,
        "loss": SAME_LOSS.get(loss or "", loss or JOB_DEFAULTS["loss"]),
        "shape": shape,
        "gpus": gpus,
        "context": context_of(question, shape),
        "batch": (question.batch or samples) if by_batch else TOKEN_BUDGET,
        "tokens": question.tokens,
        "accumulate": question.accumulate or 1,
        "frozen": frozen_share(question.freeze, shape) if question.freeze else 0.0,
        "tables": sum(table.parameters for table in question.tables),
        "encoder_parameters": encoders_on_gpu(shape, trainer),
    })  # fmt: skip
    setup = rl_setup_of(question, job)
    if setup is not None:
        job = with_models_beside(job, setup, limits)
        # Unsloth's own kernels hold no logits for log-probabilities either.
        if question.rl is None and "loss" not in given and trainer != "unsloth":
            job = replace(job, loss=usual_loss(setup.method))
    check(job, question)
    return job


def rl_setup_of(question: Question, job: Job) -> RlSetup | None:
    """What is held beside the policy: as the config says, or as the named method usually does."""
    if question.rl is not None or question.method is None or question.method in SUPERVISED:
        return question.rl
    sequences = -(-job.sequences // job.data_parallel)
    adapters = job.lora is not None
    return usual_setup(question.method, question.trainer, sequences, adapters=adapters)


def encoders_on_gpu(shape: Shape, trainer: str) -> int:
    """Parameters of the frozen encoders of text and the VAE that are on the GPU while it trains.

    diffusers' and kohya's scripts hold them there unless you encode the data before; finetrainers
    always encodes it before.
    """
    encodes_before = trainer == "finetrainers" or shape.kind not in DENOISERS
    return 0 if encodes_before else shape.encoder_parameters


def with_models_beside(job: Job, setup: RlSetup, limits: Limits) -> Job:
    """The job with what preference or reinforcement learning holds beside the policy."""
    engine_bytes = (setup.engine_share or 0.0) * limits.capacity
    return replace(
        job,
        models_beside=models_beside(setup, job.shape, job.dtype),
        sequences_of_sample=2 if setup.pairs else 1,
        engine_bytes=engine_bytes,
        engine_sleeps=setup.engine_sleeps,
        policy_leaves=setup.policy_leaves,
        generated_at_once=setup.generated_at_once,
    )


def counts_samples(question: Question, shape: Shape) -> bool:
    """Whether a step is a number of samples; else a budget of tokens, as RL trainers fill it.

    Those train decoders of text whole: images, videos, encoders, classifiers and adapters come by
    the batch.
    """
    batch_given = question.batch is not None or question.solve == "batch"
    budget_given = question.tokens is not None or question.trainer == "trinity"
    whole = not {"lora", "quantize"} & question.job_fields.keys()
    usual = question.trainer is None and question.method is None and shape.writes_text and whole
    return batch_given or not (budget_given or usual)


def context_of(question: Question, shape: Shape) -> int:
    """Tokens of a sample: as was said, as the model fixes or reads them, or of a usual text."""
    if question.context is not None or shape.tokens is not None:
        return question.context or shape.tokens or 1
    # A number of samples of a model by its size says that tokens are not counted.
    samples = question.batch or question.solve == "batch"
    if question.solve == "context" or (samples and question.params):
        return 1
    most = shape.native_context or USUAL_CONTEXT
    return most if shape.encoder else min(USUAL_CONTEXT, most)


def shape_of_question(question: Question, fetch: Callable[[str], Shape] | None = None) -> Shape:
    """The model that is meant, by name, file or size; UsageError if it is not said or unknown.

    `fetch`: gets the shape of a model that is not known here; None: nothing may be fetched.
    """
    values = {name: getattr(question, name, question.job_fields.get(name)) for name in LARGEST}
    for name, value in values.items():
        if value is not None and not 1 <= value <= LARGEST[name]:
            flag = f"--{FLAGS.get(name, name)}"
            raise UsageError(f"`{flag} {value}` is out of range", hint=f"1 to {LARGEST[name]:,}")
    if question.model is not None and question.params is not None:
        raise UsageError(
            "`--model` and `--params` both say what is trained", hint="leave one of them out"
        )
    if question.model is not None:
        if fetch is not None and not is_at_hand(question.model):
            return fetch(question.model)
        return shape_or_relative(question.model)
    if question.params is not None:
        has_tokens = question.context is not None or question.solve == "context"
        return model_of_size(parameter_count(question.params), has_tokens=has_tokens)
    raise UsageError(
        "Say what to train: `--model`, `--from-config`, `--params` or `--code`",
        hint='`gpusetup plan --model qwen3-8b --gpu "RTX 4090"`',
    )


FLAGS = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "context_parallel": "cp",
         "expert_parallel": "ep",
         "machine_from": "from"}  # fmt: skip
"""Names whose option is another word."""


def check(job: Job, question: Question) -> None:
    """UsageError if the parts of a job exclude each other."""
    for is_wrong, message, hint in contradictions(job, question):
        if is_wrong:
            raise UsageError(message, hint=hint)
    check_sequence_degree(job, question)
    check_budgets(job, question)


def check_sequence_degree(job: Job, question: Question) -> None:
    """UsageError for an `--sp` that cannot be, with the degrees that can."""
    if not question.sp or question.sp in sequence_degrees(job, Limits(capacity=0)):
        return
    # Degrees are those of a sharded model: a whole copy on each GPU allows none.
    sharded = replace(job, strategy="fsdp") if job.copies_model else job
    degrees = sequence_degrees(sharded, Limits(capacity=0))
    if question.sp in degrees:
        raise UsageError(
            f"`--sp {question.sp}` needs a strategy that shards the model; {job.strategy} keeps a "
            "whole copy on each GPU",
            hint="add `--strategy fsdp`",
        )
    with_strategy = " with `--strategy fsdp`" if job.copies_model and len(degrees) > 1 else ""
    key_value_heads = max(1, job.shape.key_value_heads // job.tensor_parallel)
    possible = " or ".join(map(str, degrees))
    options = ", ".join(f"`--sp {degree}`" for degree in degrees)
    gpus = "1 GPU" if job.data_parallel == 1 else f"{job.data_parallel} GPUs"
    raise UsageError(
        f"`--sp {question.sp}` does not work: the number must divide both the {gpus} and the "
        f"{job.shape.heads} heads of attention, and suit the {key_value_heads} heads of keys and "
        "values",
        hint=f"possible here{with_strategy}: {possible} ({options})",
    )


def check_budgets(job: Job, question: Question) -> None:
    """UsageError for a budget of tokens that the longest sequence does not fit into."""
    if question.solve == "gpus":
        return
    sp = question.sp or sequence_degrees(job, Limits(capacity=0))[-1]
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


def contradictions(job: Job, question: Question) -> tuple[tuple[bool, str, str | None], ...]:
    """(Whether the question contradicts itself like this, the error's message, its hint)."""
    gpus, strategy = job.gpus, job.strategy
    group_size = job.tensor_parallel * job.pipeline_parallel * job.context_parallel
    known_already = getattr(question, question.solve) if question.solve else None
    flag = {"gpus": "--gpus-needed"}.get(question.solve or "", f"--max-{question.solve}")
    return (
        (strategy == "single" and gpus > 1,
         f"`--strategy single` uses one GPU, `--gpus {gpus}` names {gpus}", "name ddp or fsdp"),
        (gpus % group_size > 0, f"`--tp` times `--pp` times `--cp` does not divide {gpus} GPUs",
         f"{group_size} or a multiple of it is needed"),
        (job.expert_parallel > 1 and not job.shape.experts,
         f"{job.shape.name} has no experts that `--ep` could divide", None),
        (job.expert_parallel > gpus, f"`--ep {job.expert_parallel}` needs as many GPUs", None),
        (job.shape.heads % job.tensor_parallel > 0,
         f"`--tp` does not divide the {job.shape.heads} heads of the model", None),
        (job.is_quantized and job.trains_layers,
         f"Weights in {job.quantize} are not trained themselves", "add `--lora 16`"),
        (job.loss not in LOSSES, f"No loss is called {job.loss!r}", ", ".join(LOSSES)),
        (job.optimizer not in OPTIMIZERS, f"No optimizer {job.optimizer!r}", ", ".join(OPTIMIZERS)),
        (known_already is not None,
         f"`{flag}` looks for what `--{question.solve}` gives: leave one out", None),
    )  # fmt: skip
