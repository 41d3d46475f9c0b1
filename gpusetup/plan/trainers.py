"""What trainers do by default, and whose a config is: one row each (`data/plan/trainers.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.settings import names_in, unquoted
from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import JOB_DEFAULTS

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "trainers.json"


class Table(Frozen):
    as_of: str
    trainers: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=1)
def rows() -> Mapping[str, Mapping[str, Any]]:
    """Trainer -> fields of a job as it sets them, and what else is known of it.

    `several`: what it changes on several GPUs. `also`: other names. `masters`: whether it makes
    trained 16-bit weights 32-bit (`always`, under FSDP's `sharded` weights, `never`). `kernels`:
    that they take capped scores.
    """
    return from_json(ROWS.read_bytes(), Table, what=ROWS.name).trainers


def trainer_named(text: str | None) -> str | None:
    """A trainer's name in the table for one that people give it.

    >>> trainer_named("Transformers"), trainer_named("trl")
    ('hf', 'trl')
    """
    word = (text or "").lower().replace("_", "-")
    return next((name for name, row in rows().items() if word in row.get("also", ())), text)


CAPPED = ("gemma2",)
"""Families that cap attention's scores by a tanh, for which transformers writes them to memory."""


def defaults(trainer: str, kind: str, gpus: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that a trainer sets for a family, under what was said.

    ZeRO, as DeepSpeed means it, steps a 32-bit copy of trained 16-bit weights.

    >>> found = defaults("hf", "llama", 2, {"strategy": "zero2"})
    >>> found["dtype"], found["amp"]
    ('fp32', 'bf16')
    >>> defaults("trl", "gemma2", 1, {})["attention"]
    'eager'
    """
    row = rows().get(trainer)
    if row is None:
        raise UsageError(f"No trainer is called {trainer!r}", hint=f"one of {', '.join(rows())}")
    found = {name: value for name, value in row.items() if name in JOB_DEFAULTS}
    found |= row.get("several", {}) if gpus > 1 else {}
    if kind in CAPPED and "kernels" not in row:
        found["attention"] = "eager"
    if trainer == "diffusers" and said.get("lora") is not None:  # `weight_dtype` of its scripts
        found["dtype"] = said.get("amp") or found["amp"]
    both = found | dict(said)
    if both.get("upcast_rest") and both.get("quantize") in ("nf4", "nf4-dq", "int8"):
        # PEFT's `prepare_model_for_kbit_training`
        found |= {"checkpointing": True, "reentrant": found.get("reentrant", True)}
    both = found | dict(said)
    if "amp" not in said and said.get("lora") is None and is_widened(row, both, "dtype" in said):
        both |= {"dtype": "fp32", "amp": both["dtype"]}
    return both


def is_widened(row: Mapping[str, Any], how: Mapping[str, Any], said: bool) -> bool:
    """Whether trained 16-bit weights are stepped in 32 bits; `said`: their dtype was named."""
    strategy, masters = str(how.get("strategy")), row.get("masters")
    wide = strategy.startswith("zero") and masters != "never"
    sharded = masters == "sharded" and strategy in ("fsdp", "fsdp1", "hsdp")
    wide |= not said and (masters == "always" or sharded)
    return wide and how.get("dtype") in ("bf16", "fp16") and not how.get("amp")


# --- whose a config is ----------------------------------------------------------------------------

FAMILIES = (
    ("trinity", "actor_rollout_ref trainer_type algorithm_type explorer use_dynamic_bsz"),
    ("trinity", "max_model_len+rope_scaling"),
    ("torchtitan", "activation_checkpoint local_batch_size flavor tensor_parallel_degree "
                   "data_parallel_shard_degree pipeline_parallel_degree"),
    ("llama-factory", "finetuning_type cutoff_len"),
    ("axolotl", "base_model sequence_len"),
    ("unsloth", "use_gradient_checkpointing use_rslora"),
    ("litgpt", "checkpoint_dir lora_query lora_mlp"),
    ("megatron", "tensor_model_parallel_size pipeline_model_parallel_size"),
    ("hf", "do_train mlm_probability preprocessing_num_workers dataset_config_name "
           "max_train_samples max_source_length validation_split_percentage"),
    ("trl", "use_peft dataset_name max_length packing lora_r"),
    ("hf", "per_device_train_batch_size train_micro_batch_size_per_gpu zero_optimization "
           "model_name_or_path"),
)  # fmt: skip
"""Trainer -> names of which one says that a config is its own (`+`: both); in order."""


def trainer_of(config: Config) -> str | None:
    """The trainer's name as `--trainer` takes it; None for a plain loop."""
    for one in config.settings:
        if one.path[-1:] == ("_component_",) and unquoted(one.text).startswith("torchtune."):
            return "torchtune"
    there = names_in(config.settings)
    own = ((name, word.split("+")) for name, words in FAMILIES for word in words.split())
    return next((name for name, words in own if there.issuperset(words)), None)
