"""Turns a training config into a question for `plan`, and records what was read, what was assumed
and which keys were not understood.

Each known key has a role, such as `batch` or `optimizer` (`data/plan/keys.json`), and the functions
look up settings by role. For job fields that neither an option nor a trainer's key can set, the
file may contain a map `plan:` (`plan: {loss: eager, step: loop}`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpusetup.configs.config import Config
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.documents import ConfigRead
from gpusetup.model.frozen import Frozen, defaults, replace
from gpusetup.plan.config_length import batch, length, rope_scaling
from gpusetup.plan.config_model import adapters, frozen, model, quantised, tables
from gpusetup.plan.config_reader import OTHER_MODELS, Fields, Reader
from gpusetup.plan.config_rl import reinforcement
from gpusetup.plan.config_training import (
    checkpointing,
    kernels,
    offload,
    optimizer,
    parallel,
    plan_map,
    precision,
    strategy,
)
from gpusetup.plan.job import JOB_DEFAULTS
from gpusetup.plan.question import LARGEST, TrainingQuestion
from gpusetup.plan.rope import RopeScaling

NUMBERS = {
    "tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel",
    "sp": "sp", "ep": "expert_parallel", "accumulation": "accumulate",
}  # fmt: skip
SWITCHES = {"tp-sp": "sequence_parallel", "compile": "compile"}
"""Role of a key that is a switch -> the field of the job or question that it sets."""


class FromConfig(Frozen):
    """A planning question that was read from a config. Its batch is not final, because it depends
    on the number of GPUs."""

    question: TrainingQuestion
    per_gpu: int | None
    """The number of sequences in one micro-batch of a GPU group (see
    `TrainingQuestion.group_size`)."""
    total: int | None
    """The number of sequences in one optimizer step over all GPUs, gradient accumulation
    included."""
    gpus: int | None
    read: ConfigRead
    notes: tuple[str, ...] = ()
    """Sentences that name what the plan cannot count."""
    rope: RopeScaling | None = None
    """The RoPE scaling that the config sets to extend the context; None if there is none."""
    rank: int | None = None
    """The LoRA rank in the config, even if the config does not switch LoRA on."""


def question_of(
    config: Config, trainer: str | None = None, variables: Mapping[str, str] | None = None
) -> FromConfig:
    """The planning question that a config describes; BadInput with the line number if a value is
    impossible.

    `trainer`: the trainer that the config is for, if known. `variables`: the environment variables.
    """
    reader = Reader(config, variables or {})
    trainer = trainer or trainer_of(config)
    fields: Fields = {"trainer": trainer, "notes": [], "per_gpu": None, "total": None}
    fields |= {field: reader.number(role, LARGEST[field]) for role, field in NUMBERS.items()}
    fields |= {field: reader.switch(role) for role, field in SWITCHES.items()}
    for part in PARTS:
        fields |= part(reader, fields)
    if trainer is None:
        reader.assumed.append(assumed_trainer(fields))
    return FromConfig(
        question=question_of_fields(fields),
        per_gpu=fields["per_gpu"],
        total=fields["total"],
        gpus=fields["devices"],
        notes=tuple(fields["notes"]),
        rope=rope_scaling(reader),
        rank=reader.number("rank", LARGEST["lora"]),
        # Build the report last, because it lists all keys that were read.
        read=read_of(reader, fields),
    )


def assumed_trainer(fields: Fields) -> str:
    """The sentence that names the trainer which plan assumes if the config does not show it."""
    usual = "a plain loop in 32 bits"
    if fields.get("lora") is not None:
        usual = "transformers' Trainer with PEFT"
    return f"the trainer is unknown: plan assumes {usual}, unless the config says otherwise"


def question_of_fields(fields: Fields) -> TrainingQuestion:
    """The planning question with the values that the config sets; all others are left to the
    trainer's defaults."""
    question_fields: Fields = {}
    job_fields: Fields = {}
    for name in dict(defaults(TrainingQuestion)):
        if name in fields:
            question_fields[name] = fields[name]
    # Leave out fields that the config does not set, so that the trainer's defaults apply.
    for name in JOB_DEFAULTS.keys() - question_fields:
        if fields.get(name) is not None:
            job_fields[name] = fields[name]
    return TrainingQuestion(**question_fields, job_fields=job_fields)


def read_of(reader: Reader, fields: Fields) -> ConfigRead:
    """The answer's report about the config: the keys that were read, the assumptions, and the keys
    that plan does not understand although they may need memory."""
    keys_by_line = sorted(reader.used.values(), key=lambda key: key.line)
    # Plan counts the additional models in these maps as a whole, so it need not understand their
    # keys.
    not_understood = reader.not_understood(counted_maps(fields))
    return ConfigRead(
        file=reader.config.name,
        trainer=fields["trainer"],
        read=tuple(keys_by_line),
        assumed=tuple(dict.fromkeys(reader.assumed)),
        not_understood=tuple(not_understood),
    )


def counted_maps(fields: Fields) -> frozenset[str]:
    """The maps about additional models (rollout, critic) whose keys plan need not understand.
    Either plan counts these models as a whole, or they use no memory of this training run.

    Trinity-RFT's additional models run on other GPUs or were part of the measured runs. The map of
    a teacher model is not among them, because plan does not count teachers.
    """
    counts_models = fields["trainer"] == "trinity" or fields.get("rl")
    if counts_models:
        return OTHER_MODELS - {"teacher"}
    # In supervised training, a section about sampling or serving belongs to another program.
    return frozenset(("rollout", "explorer", "inference"))


def for_gpus(from_config: FromConfig, gpus: int) -> TrainingQuestion:
    """The question for this number of GPUs, with the batch of all GPUs together."""
    question = replace(from_config.question, gpus=gpus)
    if from_config.per_gpu is None and from_config.total is None:
        return question
    gpu_groups = max(gpus // question.group_size, 1)
    if from_config.per_gpu is None:
        # The config gives the total batch of an optimizer step, so divide it among the
        # micro-batches.
        batch = (from_config.total or 0) // (question.accumulate or 1)
        return replace(question, batch=max(batch, gpu_groups))
    batch = from_config.per_gpu * gpu_groups
    accumulate = question.accumulate
    if accumulate is None and from_config.total:
        accumulate = max(from_config.total // batch, 1)
    return replace(question, batch=batch, accumulate=accumulate)


def read_for_gpus(from_config: FromConfig, gpus: int) -> ConfigRead:
    """The report about a config, with a note about how the batch is counted if several GPUs run an
    unknown trainer.

    In a plain loop, DDP gives each GPU the full `batch_size`, while DataParallel divides it among
    the GPUs.
    """
    read = from_config.read
    # For a known trainer it is clear whether the batch is per GPU.
    if gpus == 1 or from_config.per_gpu is None or read.trainer is not None:
        return read
    assumption = (
        f"each GPU has a batch of {from_config.per_gpu:,}; if that is the batch of all {gpus} GPUs "
        f"together, add `--batch {from_config.per_gpu}`"
    )
    return replace(read, assumed=(*read.assumed, assumption))


PARTS: tuple[Callable[[Reader, Fields], Fields], ...] = (
    model, adapters, frozen, tables, quantised, length, batch, checkpointing, optimizer, precision,
    kernels, parallel, strategy, offload, reinforcement, plan_map,
)  # fmt: skip
