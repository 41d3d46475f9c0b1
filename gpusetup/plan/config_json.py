"""Any `config.json` -> the shape of its model, by the keys that nearly all configs share.

Widths, layers, heads, vocabulary, experts. What no key tells is in `FAMILIES`. Biases and what
projects images, a hundredth of the parameters at most, are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.shape import ENCODERS, Shape

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
    "hidden_act": (
        "activation_function", "hidden_activation", "activation",
    ),
}  # fmt: skip
"""Key of most configs -> what other families call it."""


FAMILIES: dict[str, tuple[str, ...]] = {
    "no gate": (
        "apertus", "arcee", "bloom", "falcon", "gpt2", "gpt_bigcode",
        "gpt_neo", "gpt_neox", "gptj", "mpt", "nanochat", "nemotron", "opt",
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
"""What no key of a config tells -> the families that have it (transformers 4.30 to 5)."""
NOT_ATTENTION = ("mamba_d_state", "mamba_d_conv", "conv_L_cache", "ssm_cfg", "state_size", "rwkv",
              "image_size", "kv_lora_rank")  # fmt: skip
"""Keys of models whose layers are not all attention, or of another kind (DeepSeek's latent one), or
which read images alone."""
DROPOUTS = ("resid_pdrop", "hidden_dropout_prob", "residual_dropout", "resid_dropout",
            "hidden_dropout", "dropout", "dropout_rate")  # fmt: skip


class ModelConfig:
    """A config under the usual keys; a needed key that is missing is `BadInput`."""

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        self.values, self.what = dict(values), what
        # The text part of a model of images is of the family whose layers it has.
        self.kind = re.sub(r"_vl|_5|_text|_model", "", str(values.get("model_type")))
        self.family = {trait for trait, kinds in FAMILIES.items() if self.kind in kinds}
        for key, others in SYNONYMS.items():
            value = next((values[name] for name in others if values.get(name) is not None), None)
            if value is not None and (key == "vocab_size" or values.get(key) is None):
                self.values[key] = value

    def need(self, key: str) -> int:
        """A positive whole number."""
        value = self.values.get(key)
        if value is None:
            raise BadInput(f"{self.what} has no `{key}`", hint="the config.json is incomplete")
        if isinstance(value, list):
            value = max(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**9:
            raise BadInput(f"{self.what}: `{key}` is {value!r}; a positive whole number is needed")
        return value

    def get(self, key: str, default: int = 0) -> int:
        """The same, or a default if the config leaves it out or null."""
        return self.need(key) if self.values.get(key) else default

    def has(self, *parts: str) -> bool:
        """Whether a key has all these parts in its name."""
        return any(all(part in key for part in parts) for key in self.values)


def shape_of(values: Mapping[str, Any], what: str = "config.json") -> Shape:
    """The shape of a config's model.

    Raises UsageError for a model that has no layers of attention, BadInput for a needed key that is
    missing.

    >>> shape_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...     "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5}).parameters
    124356096
    """
    if isinstance(values.get("vision_config"), Mapping):
        return with_images(values, what)
    config = ModelConfig(values, what)
    other = values.get("is_encoder_decoder") or any(key in values for key in NOT_ATTENTION)
    other = other or config.kind in ENCODERS
    if other or "model_type" not in values or "num_attention_heads" not in config.values:
        raise UsageError(
            f"{what}: the family {values.get('model_type')!r} is not known",
            hint="plan knows llama, qwen3, gpt2 and every family with `num_attention_heads`. "
            "`--params` plans a transformer by its size, `--code` traces your own model",
        )
    return decoder(config)


def decoder(config: ModelConfig) -> Shape:
    """A decoder of text."""
    values, family = config.values, config.family
    hidden, layers = config.need("hidden_size"), config.need("num_hidden_layers")
    heads, query, key_value = attention_widths(config)
    has_rms_norm = config.has("rms") and values.get("rmsnorm", True)
    has_layer_norm_eps = config.has("layer", "norm", "eps")
    layer_norm = ("layer norms" in family or has_layer_norm_eps) and not has_rms_norm
    activation = str(values.get("hidden_act") or "")
    ungated = activation == "relu" or (layer_norm and (not activation or "gelu" in activation))
    gated = "a gate" in family or not ("no gate" in family or ungated)
    attention_and_norms = 2 * hidden * (query + key_value + 1 + layer_norm)
    vocabulary = config.need("vocab_size")
    tied = bool(values.get("tie_word_embeddings", "a tied head" in family))
    native_context = config.get("max_position_embeddings")
    vocabulary_tables = 1 if tied else 2  # embedding and head
    outside = (vocabulary * vocabulary_tables + 1) * hidden  # and the last norm
    if "learned positions" in family:
        outside += native_context * hidden
    mlp = mlp_of(config, 3 if gated else 2)
    fixed = outside + layers * attention_and_norms + mlp.dense_layers * mlp.dense
    name = values.get("_name_or_path") or values.get("name")
    return Shape(
        name=name if isinstance(name, str) and name else config.kind,
        kind=config.kind,
        parameters=fixed + mlp.expert_layers * mlp.experts,
        active=fixed + mlp.expert_layers * mlp.active,
        largest_unit=max(
            vocabulary * hidden,
            attention_and_norms + max(mlp.dense * (mlp.dense_layers > 0), mlp.experts),
        ),
        layers=layers,
        hidden=hidden,
        heads=heads,
        query=query,
        key_value=key_value,
        intermediate=mlp.width,
        gated=gated,
        rms_norm=not layer_norm,
        query_key_norm="norms of queries and keys" in family or bool(values.get("use_qk_norm")),
        dropout=any(values.get(key) for key in DROPOUTS),
        tied=tied,
        experts=config.get("num_experts_per_tok"),
        vocabulary=vocabulary,
        native_context=native_context or None,
    )


def attention_widths(config: ModelConfig) -> tuple[int, int, int]:
    """Heads, the width of all queries, the width of all keys."""
    heads, values = config.need("num_attention_heads"), config.values
    has_own_count = values.get("new_decoder_architecture") or values.get("multi_query_group_num")
    multi_query = bool(values.get("multi_query")) and not has_own_count
    key_value_heads = 1 if multi_query else config.get("num_key_value_heads", heads)
    default_width = 256 if "heads of 256" in config.family else config.need("hidden_size") // heads
    width = config.get("head_dim", default_width)
    return heads, heads * width, key_value_heads * width


def default_mlp_width(config: ModelConfig) -> int:
    """The width of an MLP if no key says it."""
    ratio = config.values.get("expansion_ratio") or config.values.get("mlp_ratio") or 4
    return round(float(ratio) * config.need("hidden_size"))


class Mlp(NamedTuple):
    """The MLPs of a model. Counts are parameters of one layer."""

    dense_layers: int
    dense: int
    expert_layers: int
    experts: int
    """All experts of a layer and their router."""
    active: int
    """The experts that one token passes, and the router."""
    width: int
    """Elements that one token passes at once."""


def mlp_of(config: ModelConfig, matrices: int) -> Mlp:
    """`matrices`: of one MLP or expert, three with a gate."""
    layers, experts = config.need("num_hidden_layers"), config.get("num_experts")
    width = config.get("intermediate_size", default_mlp_width(config))
    column = matrices * config.need("hidden_size")
    if not experts:
        return Mlp(layers, column * width, 0, 0, 0, width)
    expert_layers = layers - config.get("first_k_dense_replace")
    used, expert = config.need("num_experts_per_tok"), config.get("moe_intermediate_size", width)
    shared = config.get("n_shared_experts") * expert
    shared = shared or config.get("shared_expert_intermediate_size")
    router, passed = config.need("hidden_size") * experts, used * expert + shared
    return Mlp(
        dense_layers=layers - expert_layers,
        dense=column * width,
        expert_layers=expert_layers,
        experts=router + column * (experts * expert + shared),
        active=router + column * passed,
        width=max(passed, width) if expert_layers < layers else passed,
    )


def with_images(values: Mapping[str, Any], what: str) -> Shape:
    """Text with a tower of images: the text's shape with the parameters of the tower's layers."""
    candidates = (values.get(key) for key in ("text_config", "llm_config", "language_config"))
    text_config = next((part for part in candidates if isinstance(part, Mapping)), values)
    shape = shape_of({key: one for key, one in text_config.items() if key != "vision_config"}, what)
    vision = ModelConfig(values["vision_config"], what)

    def size(*names: str) -> int:
        return next((found for name in names if (found := vision.get(name))), 0)

    hidden = size("embed_dim", "hidden_size", "width")
    mlp_width = size("intermediate_size") or default_mlp_width(vision)
    matrices = 3 if vision.values.get("hidden_act") == "silu" else 2
    tower = (
        size("depth", "num_hidden_layers", "layers") * hidden * (4 * hidden + matrices * mlp_width)
    )
    name = values.get("_name_or_path") or values.get("name") or values.get("model_type")
    return replace(shape, name=str(name), parameters=shape.parameters + tower,
                   active=shape.active + tower, tower=tower)  # fmt: skip
