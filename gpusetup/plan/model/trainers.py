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

    Started on several GPUs, most trainers copy the model to each (DDP), a few shard it; some change
    more (`several`).

    >>> trainer_settings("torchtune")["loss"], trainer_settings("torchtune", 2)["strategy"]
    ('chunked', 'fsdp')
    """
    found = rows().trainers.get(name)
    if found is None:
        raise UsageError(
            f"No trainer is called {name!r}", hint=f"one of {', '.join(rows().trainers)}"
        )
    settings = {field: value for field, value in found.items() if field not in WORDS}
    return settings | (found.get("several", {}) if gpus > 1 else {})


SAME_AS = {
    "transformers": "hf", "huggingface": "hf", "sentence-transformers": "hf", "peft": "hf",
    "pytorch": "loop", "torch": "loop", "fabric": "lightning", "pytorch-lightning": "lightning",
    "llamafactory": "llama-factory", "swift": "ms-swift", "megatron-lm": "megatron",
    "megatron-core": "megatron", "composer": "llm-foundry", "deepspeed-chat": "deepspeed",
    "trinity-rft": "trinity",
    "cogvideox-factory": "finetrainers", "llama-cookbook": "llama-recipes",
}  # fmt: skip
"""The names that people give trainers."""


def trainer_named(text: str | None) -> str | None:
    """A trainer's name in the table for one that people give it.

    >>> trainer_named("Transformers"), trainer_named("trl")
    ('hf', 'trl')
    """
    return None if text is None else SAME_AS.get(text.lower().replace("_", "-"), text)


WITHOUT_MASTERS = ("litgpt",)
"""Trainers whose ZeRO is not DeepSpeed's."""

WIDENS = ("llama-factory",)
"""Trainers that make all trained weights 32-bit under autocast, unless told not to: LLaMA-Factory's
`init_adapter` but for `pure_bf16` (0.9.5)."""

WIDENS_SHARDED = (*WIDENS, "hf", "trl", "accelerate", "ms-swift")
"""Trainers whose FSDP is accelerate's, which makes the shards that are trained 32-bit where mixed
precision is on (`Accelerator.prepare_model` since 0.27, `fsdp2_prepare_model`; 1.15.0). axolotl has
an FSDP2 of its own, which does not."""


def with_masters(
    how: Mapping[str, Any], trainer: str | None, *, said: bool = True
) -> dict[str, Any]:
    """Trained 16-bit weights that are stepped in 32 bits; `said`: whether their dtype was named.

    ZeRO, as DeepSpeed means it, has a 32-bit copy beside: its fp16 and bf16 engines step such a
    copy (`FP16_Optimizer`, `BF16_Optimizer`, stages 1 to 3).

    >>> with_masters({"strategy": "zero2", "dtype": "bf16"}, "hf")
    {'strategy': 'zero2', 'dtype': 'fp32', 'amp': 'bf16'}
    >>> with_masters({"strategy": "fsdp", "dtype": "bf16"}, "hf", said=False)
    {'strategy': 'fsdp', 'dtype': 'fp32', 'amp': 'bf16'}
    """
    strategy = str(how.get("strategy"))
    wide = strategy.startswith("zero") and trainer not in WITHOUT_MASTERS
    if not said:
        wide |= trainer in WIDENS
        wide |= trainer in WIDENS_SHARDED and strategy in ("fsdp", "fsdp1", "hsdp")
    half = how.get("dtype") in ("bf16", "fp16") and not how.get("amp")
    return {**how, "dtype": "fp32", "amp": how["dtype"]} if wide and half else dict(how)


CAPPED = ("gemma2",)
"""Families that cap attention's scores by a tanh, which torch's own attention cannot: transformers
and litgpt write the scores to memory (flash-attn does it since 2.6)."""

WITH_FLASH = ("axolotl", "llama-factory", "unsloth", "megatron", "nemo", "llm-foundry")
"""Trainers that have a kernel for capped scores."""


WITHOUT_SDPA = (
    "bloom", "codegen", "deberta", "deberta-v2", "gpt_neo", "gptj", "mpnet", "mpt",
    "openai-gpt", "xglm",
)  # fmt: skip
"""Families whose class in transformers (5.23.0) does not say `_supports_sdpa`: they write scores to
memory unless somebody asks for a flash kernel. gpt-oss is none of them: whoever trains it does
(its long contexts would not fit otherwise)."""

OWN_CLASSES = (
    *WITH_FLASH, "litgpt", "torchtune", "torchtitan", "nanogpt", "nanotron", "gpt-neox", "timm",
    "diffusers", "finetrainers",
)  # fmt: skip
"""Trainers that do not run transformers' classes, or ask for flash attention."""


def attention_of(kind: str, trainer: str | None) -> dict[str, str]:
    """The attention of a family where nobody says which.

    >>> attention_of("gemma2", "hf"), attention_of("llama", "hf"), attention_of("gptj", "trl")
    ({'attention': 'eager'}, {}, {'attention': 'eager'})
    """
    written = kind in CAPPED and trainer not in WITH_FLASH
    written |= kind in WITHOUT_SDPA and trainer not in OWN_CLASSES
    return {"attention": "eager"} if written else {}


def prepared(how: Mapping[str, Any]) -> dict[str, bool]:
    """What PEFT's `prepare_model_for_kbit_training` switches on unless it is told otherwise.

    >>> prepared({"quantize": "nf4", "upcast_rest": True}), prepared({"quantize": None})
    ({'checkpointing': True, 'reentrant': True}, {})
    """
    ready = how.get("upcast_rest") and quantized(how)
    return {"checkpointing": True, "reentrant": how.get("reentrant", True)} if ready else {}


def base_of(how: Mapping[str, Any], trainer: str | None) -> dict[str, Any]:
    """What the frozen base of a LoRA is kept in, where that differs from the trainer's row.

    diffusers' scripts keep what is not trained in what is computed in (`weight_dtype`), under
    autocast (`train_dreambooth_lora_*`, `train_cogvideox_lora`).

    >>> base_of({"lora": 4, "amp": "bf16"}, "diffusers")
    {'dtype': 'bf16', 'autocast': True}
    >>> base_of({"lora": None, "amp": "bf16"}, "diffusers")
    {}
    """
    half = how.get("amp") in ("bf16", "fp16") and how.get("lora") is not None
    return {"dtype": how["amp"], "autocast": True} if trainer == "diffusers" and half else {}


def quantized(how: Mapping[str, Any]) -> bool:
    """Whether the base is stored in fewer than 16 bits."""
    return how.get("quantize") in ("nf4", "nf4-dq", "int8")


WORDS = ("source", "several")
