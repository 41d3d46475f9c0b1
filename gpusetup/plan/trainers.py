"""The trainers, from `data/plan/trainers.json`: the default settings of each, and a plan as
settings for its config.

`writes` in that file has each trainer's keys, as they are in the versions named there, and the fact
that each key gets. Data, learning rate and the like are left to the user.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpusetup.configs.yaml_text import yaml_text
from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import TrainerSettings
from gpusetup.model.frozen import Frozen
from gpusetup.plan.decide import Decision
from gpusetup.plan.job import (
    JOB_DEFAULTS,
    Recipe,
    TrainingJob,
    samples_per_group,
    tokens_per_gpu,
    yarn_settings,
)
from gpusetup.plan.models import HUB_ID, hub_id, short_name

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "trainers.json"


class TrainerKeys(Frozen):
    """How a plan is written for a trainer."""

    title: str
    """Where to paste the text."""
    format: Literal["yaml", "flags", "overrides"]
    keys: Mapping[str, str]
    """Key -> the fact that it gets (`facts`)."""


class TrainerTable(Frozen):
    as_of: str
    trainers: Mapping[str, Mapping[str, Any]]
    """Trainer -> the job fields that the trainer sets by default, and other facts about it.

    `several` holds the fields that change with several GPUs, and `also` other names of the trainer.
    `masters` tells whether it keeps trained 16-bit weights in 32 bits: `always`, only for `sharded`
    weights (FSDP), or `never`. `kernels` marks trainers with attention kernels of their own.
    `weights` is `as published` if it loads weights in the checkpoint's type. `accumulates`
    tells that a step has several micro-batches by default. `older` names a version or setting that
    people also use and whose loss needs more memory than the one that plan assumes.
    """
    writes: Mapping[str, TrainerKeys]


@lru_cache(maxsize=1)
def trainer_table() -> TrainerTable:
    return from_json(ROWS.read_bytes(), TrainerTable, what=ROWS.name)


def trainer_named(text: str | None) -> str | None:
    """The trainer's name in the table for a name that people use; an unknown name is returned
    unchanged.

    >>> trainer_named("Transformers"), trainer_named("trl")
    ('hf', 'trl')
    """
    word = (text or "").lower().replace("_", "-")
    rows = trainer_table().trainers.items()
    return next((name for name, row in rows if word in row.get("also", ())), text)


def row_of(trainer: str) -> Mapping[str, Any]:
    """A trainer's row in the table; UsageError with the known names if there is none."""
    rows = trainer_table().trainers
    if trainer not in rows:
        raise UsageError(
            f"No trainer is called {trainer!r}",
            hint=f"one of {', '.join(rows)}",
        )
    return rows[trainer]


PUBLISHED_IN_32_BITS = (
    *("bart", "bert", "clip", "dinov2", "distilbert", "gpt2", "modernbert", "roberta", "t5"),
    *("vit", "xlm-roberta"),
)
"""Families whose checkpoints on the hub are in 32 bits; most of them are older than bfloat16."""
TRAINED_EAGERLY = ("gemma2", "gemma3")
"""Families whose attention scores transformers writes to memory: Gemma 2 caps them, and for Gemma 3
it warns against all but eager attention. Some trainers have kernels of their own for them."""


def trainer_defaults(
    trainer: str, kind: str, gpus: int, named: Mapping[str, Any]
) -> dict[str, Any]:
    """The job fields that a trainer sets by default for a model family; fields in `named` take
    precedence.

    With DeepSpeed's ZeRO, the optimizer updates a 32-bit copy of trained 16-bit weights.

    >>> fields = trainer_defaults("hf", "llama", 2, {"strategy": "zero2"})
    >>> fields["dtype"], fields["amp"]
    ('fp32', 'bf16')
    >>> trainer_defaults("trl", "gemma2", 1, {})["attention"]
    'eager'
    """
    row = row_of(trainer)
    fields = {name: value for name, value in row.items() if name in JOB_DEFAULTS}
    if gpus > 1:
        fields |= row.get("several", {})
    if row.get("weights") == "as published" and kind in PUBLISHED_IN_32_BITS:
        fields["dtype"] = "fp32"
    if kind in TRAINED_EAGERLY and "kernels" not in row:
        fields["attention"] = "eager"
    fields |= named
    if fields.get("upcast_rest") and fields.get("quantize") in ("nf4", "nf4-dq", "int8"):
        # PEFT's `prepare_model_for_kbit_training` switches checkpointing on.
        prepared = {"checkpointing": True, "reentrant": fields.get("reentrant", True)}
        fields |= {**prepared, **named}
    # Adapters are in 32 bits in any case, and their frozen base needs no copy.
    if named.get("lora") is None:
        if keeps_32_bit_masters(row, fields, named):
            fields |= {"dtype": "fp32", "amp": fields["dtype"]}
        elif named.get("amp") == "fp16" and "dtype" not in named:
            # torch's GradScaler refuses 16-bit gradients, so the weights must be in 32 bits.
            fields["dtype"] = "fp32"
    return fields


def keeps_32_bit_masters(
    row: Mapping[str, Any], fields: Mapping[str, Any], named: Mapping[str, Any]
) -> bool:
    """Whether the trainer keeps 32-bit master copies of trained 16-bit weights although the
    weights' type is 16 bits.

    `fields`: all job fields, those in `named` included. `named`: the fields that the user set.
    """
    if fields.get("dtype") not in ("bf16", "fp16") or fields.get("amp") == "fp32":
        return False
    masters = row.get("masters")
    if masters == "never":
        return False
    strategy = str(fields.get("strategy"))
    # DeepSpeed's 16-bit optimizers keep a 32-bit copy of all trained weights. With ZeRO this is
    # true even if the trainer is set to train purely in 16 bits (`pure_bf16`).
    if strategy.startswith("zero"):
        return True
    # If the user chose 16-bit weights on purpose, they stay in 16 bits, as in TRL's published run
    # that took 56.2 GB.
    if named.get("amp") == "none" or "dtype" in named:
        return False
    # With mixed precision, accelerate converts FSDP's trained weights to 32 bits; LLaMA-Factory
    # converts all trained weights.
    is_sharded = strategy in ("fsdp", "fsdp1", "hsdp")
    return masters == "always" or (masters == "sharded" and is_sharded)


HF_OPTIMIZERS = {
    "adamw8bit": "adamw_bnb_8bit", "adamw4bit": "adamw_torch_4bit",
    "paged-adamw": "paged_adamw_32bit", "paged-adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor", "lion": "lion_32bit", "lion8bit": "lion_8bit", "sgd": "sgd",
    "adagrad": "adagrad", "rmsprop": "rmsprop",
}  # fmt: skip
"""Optimizers other than AdamW -> their names in `TrainingArguments.optim`."""


def trainer_settings(
    trainer: str | None, decision: Decision, model: str | None
) -> TrainerSettings | None:
    """The plan as settings for a trainer's config, as far as it has keys for them; None if the job
    does not fit or plan does not know the trainer's keys. `model` is the name that the user gave.
    """
    row = trainer_table().writes.get(trainer or "")
    if row is None or trainer is None or not decision.fits:
        return None
    job, recipe = decision.job, decision.recipe
    values, facts_with_key = facts(job, recipe), set(row.keys.values())
    # plan knows variants, such as instruct models, by the name of their base.
    if model and HUB_ID.fullmatch(model):
        values["model"] = model
    # The name may be that of another model with the same shape (`also`).
    elif model and short_name(model) != short_name(values["model"]):
        values["model"] = None
    lacks_key = {
        "CPU offload of the parameters": recipe.offload and "offload" not in facts_with_key,
        f"sequence parallelism over {recipe.sp} GPUs": recipe.sp > 1 and "sp" not in facts_with_key,
        # No trainer in the table has a key for it.
        "CPU offload of the optimizer": job.offload_optimizer,
        "CPU offload of checkpoints": job.offload_checkpoints
        and "offloads checkpoints" not in facts_with_key,
    }
    settings = {key: values[fact] for key, fact in row.keys.items() if values[fact] is not None}
    return TrainerSettings(
        trainer=trainer,
        title=row.title,
        text=config_text(settings, row.format),
        missing=tuple(setting for setting, is_missing in lacks_key.items() if is_missing),
    )


def facts(job: TrainingJob, recipe: Recipe) -> dict[str, Any]:
    """Every fact that a trainer's key may get, by its name in `trainers.json`; None if the key is
    left out."""
    computing_type = job.amp or job.dtype
    has_adapters = job.lora is not None
    four_bits = job.quantize in ("nf4", "nf4-dq")
    quantizes_scales = job.quantize == "nf4-dq"
    budget = tokens_per_gpu(job, recipe) if job.fills_token_budget else None
    stage = job.strategy if job.strategy.startswith("zero") else None
    is_fsdp = job.strategy in ("fsdp", "fsdp1")
    adamw = "adamw_torch_fused" if job.step == "fused" else "adamw_torch"
    is_adamw = job.optimizer in ("adam", "adamw")
    types = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    bits = {"nf4": 4, "nf4-dq": 4, "int8": 8}.get(job.quantize or "")
    switches = {
        "autocast bf16": job.amp == "bf16",
        "autocast fp16": job.amp == "fp16",
        "half bf16": computing_type == "bf16",
        "half fp16": computing_type == "fp16",
        "pure bf16": not has_adapters and job.dtype == "bf16" and not job.amp,
        "compiled": job.compile,
        "fused kernels": job.fused_kernels,
        "fused loss": job.loss == "fused",
        # Liger's kernels include a fused loss.
        "fused kernels or loss": job.fused_kernels or job.loss == "fused",
        "has adapters": has_adapters,
        "four bits": four_bits,
        "double quantized": quantizes_scales,
        "eight bits": job.quantize == "int8",
        "offloads checkpoints": job.offload_checkpoints,
        "flash": job.attention == "flash",
        "sdpa": job.attention == "sdpa",
        "offload": recipe.offload,
        "always": True,
    }
    return {
        # None instead of False, so that a trainer's config gets no key for what is off.
        **{name: is_on or None for name, is_on in switches.items()},
        "model": hub_id(job.shape.name),
        "context": job.context,
        "yarn": yarn_settings(job),
        "samples": samples_per_group(job, recipe),
        "samples without budget": samples_per_group(job, recipe) if budget is None else None,
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
        "quantizes scales": quantizes_scales if four_bits else None,
        "llama-factory attention": {"flash": "fa2", "sdpa": "sdpa"}.get(job.attention, "disabled"),
        # The user has to write DeepSpeed's config.
        "deepspeed config": f"ds_{stage}.json" if stage else None,
        "axolotl deepspeed config": f"deepspeed_configs/{stage}.json" if stage else None,
        "fsdp": "full_shard auto_wrap" if is_fsdp else None,
        "fsdp version": 2 if is_fsdp else None,
        "fsdp2 with offload": "fsdp2" if recipe.offload else None,
        # verl's offload policy needs FSDP2.
        "verl strategy": "fsdp" if job.strategy == "fsdp1" and not recipe.offload else "fsdp2",
        "gpus of a node": min(job.gpus, 8),
    }


def config_text(settings: Mapping[str, Any], form: str) -> str:
    """Settings with dotted keys as block YAML, as flags (`--name value`) or as Hydra's overrides
    (`name=value`)."""
    if form == "yaml":
        maps: dict[str, Any] = {}
        for key, value in settings.items():
            *outer, name = key.split(".")
            inner = maps
            for map_name in outer:
                inner = inner.setdefault(map_name, {})
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
