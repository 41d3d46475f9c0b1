"""What trainers do by default, one row each with its source (`data/plan/trainers.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen

ROWS = Path(__file__).resolve().parents[2] / "data" / "plan" / "trainers.json"


class Trainers(Frozen):
    as_of: str
    trainers: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=1)
def rows() -> Trainers:
    return from_json(ROWS.read_bytes(), Trainers, what=ROWS.name)


def trainer_settings(name: str, gpus: int = 1) -> dict[str, Any]:
    """The fields of a workload that a trainer sets; UsageError with the names for another.

    Started on several GPUs, most trainers copy the model to each (DDP), a few shard it.

    >>> trainer_settings("torchtune")["loss"], trainer_settings("torchtune", 2)["strategy"]
    ('chunked', 'fsdp')
    """
    found = rows().trainers.get(name)
    if found is None:
        raise UsageError(
            f"No trainer is called {name!r}", hint=f"one of {', '.join(rows().trainers)}"
        )
    settings = {field: value for field, value in found.items() if field not in WORDS}
    many = {"strategy": found["several"]} if gpus > 1 and "several" in found else {}
    return settings | many


WITHOUT_MASTERS = ("litgpt",)
"""Trainers whose ZeRO is not DeepSpeed's."""


def with_masters(how: Mapping[str, Any], trainer: str | None) -> dict[str, Any]:
    """ZeRO over 16-bit weights, as DeepSpeed means it: a 32-bit copy of what is trained beside.

    Its fp16 and bf16 engines step such a copy (`FP16_Optimizer`, `BF16_Optimizer`, stages 1 to 3).

    >>> with_masters({"strategy": "zero2", "dtype": "bf16"}, "hf")
    {'strategy': 'zero2', 'dtype': 'fp32', 'amp': 'bf16'}
    """
    sharded = str(how.get("strategy")).startswith("zero") and trainer not in WITHOUT_MASTERS
    half = how.get("dtype") in ("bf16", "fp16") and not how.get("amp")
    return {**how, "dtype": "fp32", "amp": how["dtype"]} if sharded and half else dict(how)


CAPPED = ("gemma2",)
"""Families that cap attention's scores by a tanh, which torch's own attention cannot: transformers
and litgpt write the scores to memory (flash-attn does it since 2.6)."""

WITH_FLASH = ("axolotl", "llama-factory", "unsloth", "megatron", "nemo", "llm-foundry")
"""Trainers that have a kernel for capped scores."""


def attention_of(kind: str, trainer: str | None) -> dict[str, str]:
    """The attention of a family where nobody says which.

    >>> attention_of("gemma2", "hf"), attention_of("llama", "hf")
    ({'attention': 'eager'}, {})
    """
    written = kind in CAPPED and trainer not in WITH_FLASH
    return {"attention": "eager"} if written else {}


def prepared(how: Mapping[str, Any]) -> dict[str, bool]:
    """What PEFT's `prepare_model_for_kbit_training` switches on unless it is told otherwise.

    >>> prepared({"quantize": "nf4", "upcast_rest": True}), prepared({"quantize": None})
    ({'checkpointing': True, 'reentrant': True}, {})
    """
    ready = how.get("upcast_rest") and how.get("quantize") in ("nf4", "nf4-dq", "int8")
    return {"checkpointing": True, "reentrant": True} if ready else {}


WORDS = ("source", "several")
