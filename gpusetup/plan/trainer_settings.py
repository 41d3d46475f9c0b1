"""Writes a plan as settings for a trainer's config, and lists the settings for which the trainer
has no key.

`writes` in `data/plan/trainers.json` has each trainer's keys, as they are in the versions named
there, and the fact that each key gets. Data, learning rate and the like are left to the user.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.configs.yaml_text import yaml_text
from gpusetup.model.documents import TrainerSettings
from gpusetup.plan.decide import Decision
from gpusetup.plan.job import (
    BESIDE_FIELDS,
    JOB_DEFAULTS,
    Recipe,
    TrainingJob,
    samples,
    tokens,
    yarn,
)
from gpusetup.plan.models import hub_id
from gpusetup.plan.trainers import TrainerKeys, trainer_defaults, trainer_table

HF_OPTIMIZERS = {
    "adamw8bit": "adamw_bnb_8bit", "adamw4bit": "adamw_torch_4bit",
    "paged-adamw": "paged_adamw_32bit", "paged-adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor", "lion": "lion_32bit", "lion8bit": "lion_8bit", "sgd": "sgd",
    "adagrad": "adagrad", "rmsprop": "rmsprop",
}  # fmt: skip
"""Optimizers other than AdamW -> their names in `TrainingArguments.optim`."""
NEVER_MISSING = {
    "batch", "tokens", "step", "lora", "reentrant", "accumulate", "gpus", "context", "frozen",
    "tables", "shape", "gradient_dtype", "sequence_parallel", "upcast_rest", *BESIDE_FIELDS,
}  # fmt: skip
"""Job fields that need no key: the trainer derives them itself, or they depend on the user's model
and the additional models."""
SHARDS_ITSELF = ("trinity", "verl")
"""Trainers with keys for CPU offload and sequence parallelism."""


def trainer_settings(trainer: str | None, decision: Decision) -> TrainerSettings | None:
    """The plan as settings for a trainer's config; None if the job does not fit or plan does not
    know the trainer's keys."""
    row = trainer_table().writes.get(trainer or "")
    if row is None or trainer is None or not decision.fits:
        return None
    values = facts(decision.job, decision.recipe)
    # None leaves a key out.
    settings = {key: values[fact] for key, fact in row.keys.items() if values[fact] is not None}
    return TrainerSettings(
        trainer=trainer,
        title=row.title,
        text=written(settings, row.format),
        missing=tuple(missing(trainer, row, decision)),
    )


def missing(trainer: str, row: TrainerKeys, decision: Decision) -> Iterator[str]:
    """The parts of the plan that differ from the trainer's defaults and have no key, so that the
    user must set them in another way."""
    job, recipe = decision.job, decision.recipe
    usual = JOB_DEFAULTS | trainer_defaults(trainer, job.shape.kind, job.gpus, {"lora": job.lora})
    for name in sorted(JOB_DEFAULTS.keys() - NEVER_MISSING - set(row.fields)):
        planned = getattr(job, name)
        # Liger's kernels bring their loss.
        brings_loss = name == "loss" and job.fused_kernels
        if planned != usual[name] and not brings_loss:
            yield f"{name.replace('_', ' ')}: {planned}"
    if trainer not in SHARDS_ITSELF:
        if recipe.offload:
            yield "CPU offload of the parameters"
        if recipe.sp > 1:
            yield f"sequence parallelism over {recipe.sp} GPUs"


def facts(job: TrainingJob, recipe: Recipe) -> dict[str, Any]:
    """Every fact that a trainer's key may get, by its name in `trainers.json`; None for one that
    does not hold."""
    half = job.amp or job.dtype
    has_adapters = job.lora is not None
    four_bits = job.quantize in ("nf4", "nf4-dq")
    scales = job.quantize == "nf4-dq"
    budget = tokens(job, recipe) if job.fills_token_budget else None
    stage = job.strategy if job.strategy.startswith("zero") else None
    is_fsdp = job.strategy in ("fsdp", "fsdp1")
    adamw = "adamw_torch_fused" if job.step == "fused" else "adamw_torch"
    is_adamw = job.optimizer in ("adam", "adamw")
    types = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    bits = {"nf4": 4, "nf4-dq": 4, "int8": 8}.get(job.quantize or "")
    switches = {
        "autocast bf16": job.amp == "bf16",
        "autocast fp16": job.amp == "fp16",
        "half bf16": half == "bf16",
        "half fp16": half == "fp16",
        "pure bf16": not has_adapters and job.dtype == "bf16" and not job.amp,
        "compiled": job.compile,
        "fused kernels": job.fused_kernels,
        "fused loss": job.loss == "fused",
        "has adapters": has_adapters,
        "four bits": four_bits,
        "double quantized": scales,
        "eight bits": job.quantize == "int8",
        "offloads checkpoints": job.offload_checkpoints,
        "flash": job.attention == "flash",
        "sdpa": job.attention == "sdpa",
        "offload": recipe.offload,
        "always": True,
    }
    return {
        **{name: is_on or None for name, is_on in switches.items()},
        "model": hub_id(job.shape.name),
        "context": job.context,
        "yarn": yarn(job),
        "samples": samples(job, recipe),
        "samples without budget": samples(job, recipe) if budget is None else None,
        "budget": budget,
        "fills a budget": budget is not None,
        "sp": recipe.sp,
        "accumulate": job.accumulate,
        "checkpointing": job.checkpointing,
        "no checkpointing": not job.checkpointing,
        "hf optimizer": adamw if is_adamw else HF_OPTIMIZERS.get(job.optimizer),
        "torch dtype": types[job.dtype],
        "lora": job.lora,
        "adapts all-linear": "all-linear" if has_adapters else None,
        "adapts all": "all" if has_adapters else None,
        "finetuning type": "lora" if has_adapters else "full",
        "adapter": ("qlora" if four_bits else "lora") if has_adapters else None,
        "quantized bits": bits,
        "quantizes scales": scales if four_bits else None,
        "llama-factory attention": {"flash": "fa2", "sdpa": "sdpa"}.get(job.attention, "disabled"),
        "tensor parallel": job.tensor_parallel if job.tensor_parallel > 1 else None,
        "context parallel": job.context_parallel if job.context_parallel > 1 else None,
        # The user has to write DeepSpeed's config.
        "deepspeed config": f"ds_{stage}.json" if stage else None,
        "axolotl deepspeed config": f"deepspeed_configs/{stage}.json" if stage else None,
        "fsdp": "full_shard auto_wrap" if is_fsdp else None,
        "fsdp version": 2 if is_fsdp else None,
        "fsdp2 with offload": "fsdp2" if recipe.offload else None,
        "verl strategy": "fsdp" if job.strategy == "fsdp1" and not recipe.offload else "fsdp2",
        "gpus of a node": min(job.gpus, 8),
    }


# --- the text to paste ----------------------------------------------------------------------------


def written(settings: Mapping[str, Any], form: str) -> str:
    """Settings with dotted keys as block YAML, as flags (`--name value`) or as Hydra's overrides
    (`name=value`)."""
    if form == "yaml":
        maps: dict[str, Any] = {}
        for key, value in settings.items():
            *outer, name = key.split(".")
            inner = maps
            for word in outer:
                inner = inner.setdefault(word, {})
            inner[name] = value
        return yaml_text(maps)
    lines = []
    for name, value in settings.items():
        word = shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))
        line = f"{name}={word}"
        if form == "flags":
            # A switch that is on is written without a value.
            line = f"--{name}" if value is True else f"--{name} {word}"
        lines.append(line)
    # A backslash at the end of a line continues a shell command.
    return " \\\n".join(lines) + "\n"
