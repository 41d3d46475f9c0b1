"""Reads a model's `config.json` under the most common key names, and adds facts about families that
no key contains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput

SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim", "embed_dim"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "num_heads", "n_heads"),
    "num_key_value_heads": (
        "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups",
    ),
    "intermediate_size": (
        "ffn_hidden_size", "ffn_dim", "d_ff", "n_inner", "inner_hidden_size", "hidden_dim",
    ),
    "vocab_size": ("padded_vocab_size",),
    "head_dim": ("kv_channels",),
    "max_position_embeddings": (
        "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx",
    ),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
    "hidden_act": (
        "activation_function", "hidden_activation", "activation",
    ),
}  # fmt: skip
"""The most common key -> the names of this key in other model families."""


FAMILIES: dict[str, tuple[str, ...]] = {
    "no gate": (
        "apertus", "arcee", "bloom", "falcon", "gpt2", "gpt_bigcode",
        "gpt_neo", "gpt_neox", "gptj", "mpt", "nanochat", "nemotron", "nemotron_h", "opt",
        "phi", "starcoder2",
    ),
    "a gate": ("cohere", "cohere2", "olmo", "phimoe", "stablelm"),
    "layer norms": ("gpt2", "gpt_neox", "nemotron", "olmo", "opt", "phi", "phimoe", "starcoder2"),
    "norms of queries and keys": (
        "apertus", "dots1", "flex_olmo", "gemma3", "hunyuan_v1_dense", "olmo2", "olmo3", "olmoe",
        "qwen3", "qwen3_moe",
    ),
    "learned positions": ("gpt2", "gpt_bigcode", "gpt_neo", "opt"),
    "a tied head": (
        "bloom", "cohere", "cohere2", "exaone4", "falcon", "gemma", "gemma2", "gemma3",
        "gemma3n", "gpt2", "gpt_bigcode", "gpt_neo", "hunyuan_v1_dense", "mpt",
        "opt", "smollm3", "starcoder2",
    ),
    "heads of 256": ("gemma", "gemma2", "gemma3"),
}  # fmt: skip
"""A trait that no config key shows -> the families that have the trait (transformers 4.30 to 5)."""
DROPOUTS = ("resid_pdrop", "hidden_dropout_prob", "residual_dropout", "resid_dropout",
            "hidden_dropout", "dropout", "dropout_rate")  # fmt: skip


MEASURE_HINT = "`gpusetup tune --batch-size --code train:build` measures your own model on the GPU"
LARGEST_SIZE = 10**9
"""A number from this size on is a mistake, or an attack by the config's author."""


class ModelConfig:
    """A model's config under common key names; reading a required key that is missing raises
    BadInput."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = with_usual_keys(values)
        self.source = source
        # Remove suffixes such as `_text`, because the text part of a multimodal model has the
        # layers of its text family.
        model_type = str(values.get("model_type"))
        self.kind = re.sub(r"_vl|_5|_text|_model", "", model_type)
        self.family = traits_of(self.kind)

    def need(self, key: str) -> int:
        """The positive whole number under a required key; BadInput if it is missing or invalid."""
        value = self.values.get(key)
        if value is None:
            raise BadInput(
                f"{self.source} has no `{key}`",
                hint="the config.json is incomplete",
            )
        if isinstance(value, list):
            value = largest_of(value)
        # Exclude booleans, because Python's bool is a subclass of int.
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < LARGEST_SIZE:
            raise BadInput(
                f"{self.source}: `{key}` is {value!r}; a positive whole number is needed"
            )
        return value

    def get(self, key: str, default: int = 0) -> int:
        """The positive whole number under a key; the default if the key is missing, null or 0."""
        if not self.values.get(key):
            return default
        return self.need(key)

    def first(self, *keys: str) -> int:
        """The number under the first of these keys that is set; 0 if none is set."""
        for key in keys:
            size = self.get(key)
            if size:
                return size
        return 0

    def has(self, *parts: str) -> bool:
        """Whether the config has a key whose name contains all these parts."""
        keys = list(self.values)
        for part in parts:
            keys = [key for key in keys if part in key]
        return bool(keys)

    @property
    def hidden(self) -> int:
        """The width of the model."""
        return self.need("hidden_size")

    @property
    def name(self) -> str:
        """The name that the config gives to the model, otherwise its family."""
        for key in ("_name_or_path", "name"):
            name = self.values.get(key)
            if name:
                return str(name)
        return self.kind


def traits_of(kind: str) -> frozenset[str]:
    """The traits of a model family that no key of a config contains, such as `no gate`."""
    traits = [trait for trait, kinds in FAMILIES.items() if kind in kinds]
    return frozenset(traits)


def with_usual_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config's values, with the value of each family-specific key also under the common
    name."""
    usual_values = dict(values)
    for key, synonyms in SYNONYMS.items():
        # If a config gives two vocabulary sizes, the padded one is the size of the embedding
        # tables.
        if key != "vocab_size" and values.get(key) is not None:
            continue
        for name in synonyms:
            if values.get(name) is not None:
                usual_values[key] = values[name]
                break
    return usual_values


def largest_of(sizes: list[Any]) -> Any:
    """The largest number in a list with one size per layer; the list itself if it contains no
    number."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return max(numbers) if numbers else sizes
