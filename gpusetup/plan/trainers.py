"""The default settings of each trainer, from `data/plan/trainers.json`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import JOB_DEFAULTS

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "trainers.json"


class TrainerKeys(Frozen):
    """How a plan is written for a trainer."""

    title: str
    """Where to paste the text."""
    format: Literal["yaml", "flags", "overrides"]
    keys: Mapping[str, str]
    """Key -> the fact that it gets (`trainer_settings.facts`)."""
    fields: tuple[str, ...]
    """The job fields that these keys set."""


class TrainerTable(Frozen):
    as_of: str
    trainers: Mapping[str, Mapping[str, Any]]
    """Trainer -> the job fields that the trainer sets by default, and other facts about it.

    `several` holds the fields that change with several GPUs, and `also` other names of the trainer.
    `masters` tells whether it keeps trained 16-bit weights in 32 bits: `always`, only for `sharded`
    weights (FSDP), or `never`. `kernels` marks trainers whose attention kernels support capped
    scores. `weights` is `as published` if it loads weights in the checkpoint's type. `accumulates`
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


def usual_batch(trainer: str | None) -> int:
    """The trainer's default number of sequences per GPU; 1 if it is unknown.

    >>> usual_batch("trl"), usual_batch("axolotl"), usual_batch(None)
    (8, 1, 1)
    """
    return int(trainer_table().trainers.get(trainer or "", {}).get("usual_batch", 1))


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
SOFTCAPPED = ("gemma2",)
"""Families that cap attention scores with a tanh, so that transformers must write the scores to
memory; trainers with their own kernels have one that supports capped scores."""
TRAINED_EAGERLY = ("gemma3",)
"""Families that are trained with eager attention, because transformers warns against anything else.
Unsloth does so too: a published run of the 4B model with 16,384 tokens took 67 GB, while flash
attention would need 34."""
ON_TRANSFORMERS = (
    "accelerate", "axolotl", "hf", "llama-factory", "ms-swift", "trl", "unsloth",
)  # fmt: skip
"""Trainers that use transformers' own layers."""


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
    has_own_scores = kind in SOFTCAPPED and "kernels" not in row
    if has_own_scores or (kind in TRAINED_EAGERLY and trainer in ON_TRANSFORMERS):
        fields["attention"] = "eager"
    fields |= named
    if fields.get("upcast_rest") and fields.get("quantize") in ("nf4", "nf4-dq", "int8"):
        # PEFT's `prepare_model_for_kbit_training` switches checkpointing on.
        prepared = {"checkpointing": True, "reentrant": fields.get("reentrant", True)}
        fields |= {**prepared, **named}
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
