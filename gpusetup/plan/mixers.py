"""The parameters of a layer's mixer, by the keys of a `config.json`: what stands before the MLP.

Attention with keys and values, DeepSeek's latent attention, gated linear attention (Qwen3-Next),
state space (Mamba 1 and 2), short convolutions (LFM2). Which layer has which is read from
`layer_types`, `layers_block_type`, a pattern of letters, or a period.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gpusetup.errors import BadInput

MOST_LAYERS = 10_000
"""More layers than any model has; a config from a stranger must not fill the memory."""
LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern")
"""Keys that list the kind of every layer."""


class Keys(Protocol):
    """A model's config under its usual keys (`config_json.ModelConfig`)."""

    values: dict[str, Any]

    def need(self, key: str) -> int: ...

    def get(self, key: str, default: int = 0) -> int: ...


ATTENTION, LINEAR, STATE_SPACE, CONVOLUTION, ONLY_MLP = (
    "attention", "linear", "state space", "convolution", "mlp",
)  # fmt: skip
KINDS = {
    "full_attention": ATTENTION, "sliding_attention": ATTENTION, "chunked_attention": ATTENTION,
    "attention": ATTENTION, "hybrid": STATE_SPACE, "linear_attention": LINEAR,
    "mamba": STATE_SPACE, "mamba2": STATE_SPACE, "conv": CONVOLUTION, "mlp": ONLY_MLP,
    "moe": ONLY_MLP, "m": STATE_SPACE, "*": ATTENTION, "-": ONLY_MLP, "e": ONLY_MLP,
}  # fmt: skip
"""A layer's kind as configs spell it (Nemotron-H has one letter a layer) -> its mixer."""


def mixers_of(config: Keys) -> Sequence[str]:
    """The mixer of each layer, in order.

    A config that says nothing of its layers has attention in all of them, or state space in all if
    it is a Mamba.
    """
    values = config.values
    for key in LISTS:
        listed = values.get(key)
        if isinstance(listed, (list, str)) and 0 < len(listed) <= MOST_LAYERS:
            return [mixer_named(config, str(kind).lower()) for kind in listed]
    layers = config.need("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadInput(f"`num_hidden_layers` is {layers:,}: no model has so many")
    for key, other in (("attn_layer_indices", STATE_SPACE), ("full_attn_idxs", CONVOLUTION)):
        if key in values and (values[key] or key == "attn_layer_indices"):
            attention_layers = values[key] if isinstance(values[key], list) else []
            return [ATTENTION if layer in attention_layers else other for layer in range(layers)]
    listed_attention = full_attention_layers(config)
    if listed_attention:
        return [ATTENTION if layer + 1 in listed_attention else LINEAR for layer in range(layers)]
    period = config.get("attn_layer_period") or config.get("full_attention_interval")
    if period > 1:
        offset = period - 1
        if isinstance(values.get("attn_layer_offset"), int):
            offset = values["attn_layer_offset"]
        other = mixer_named(config, "linear_attention")
        return [
            ATTENTION if layer % period == offset % period else other for layer in range(layers)
        ]
    if is_parallel(config) or is_state_space_alone(config):
        return [STATE_SPACE] * layers
    return [ATTENTION] * layers


def full_attention_layers(config: Keys) -> frozenset[int]:
    """Layers of full attention where the others have Kimi's linear attention, counted from 1."""
    linear_config = config.values.get("linear_attn_config")
    if not isinstance(linear_config, dict):
        return frozenset()
    layers = linear_config.get("full_attn_layers")
    return frozenset(layers) if isinstance(layers, list) and layers else frozenset()


def mixer_named(config: Keys, kind: str) -> str:
    """The mixer of a layer's kind.

    transformers 5 says `linear_attention` of state space too, which has keys of its own; a kind of
    linear attention that has no keys here (MiniMax) is as large as attention.
    """
    mixer = KINDS.get(kind, ATTENTION)
    if mixer == LINEAR and not config.values.get("linear_num_value_heads"):
        return STATE_SPACE if has_state_space(config) else ATTENTION
    return mixer


def has_state_space(config: Keys) -> bool:
    return any("mamba" in key or key in ("ssm_state_size", "state_size") for key in config.values)


def is_state_space_alone(config: Keys) -> bool:
    """Whether no layer has attention, whatever `num_heads` says (Mamba 1 and 2)."""
    return "mamba" in str(config.values.get("model_type"))


def mixer_parameters(config: Keys, mixer: str, query: int, key_value: int) -> int:
    """The parameters of one mixer. `query`, `key_value`: widths of attention in this model."""
    if mixer == LINEAR:
        return linear_attention(config)
    if mixer == STATE_SPACE:
        beside = attention(config, query, key_value) if is_parallel(config) else 0
        return state_space(config) + beside
    if mixer == CONVOLUTION:
        hidden = config.need("hidden_size")
        return 4 * hidden * hidden + hidden * config.get("conv_L_cache", 3)
    if mixer == ONLY_MLP:
        return 0
    return attention(config, query, key_value)


def is_parallel(config: Keys) -> bool:
    """Whether attention and state space stand side by side in each layer (Falcon-H1)."""
    return "falcon_h1" in str(config.values.get("model_type"))


def attention(config: Keys, query: int, key_value: int) -> int:
    """Projections of queries, keys, values and output; a gate of the output doubles the queries."""
    hidden = config.need("hidden_size")
    if config.get("kv_lora_rank"):
        return latent_attention(config)
    gate = query if config.values.get("attn_output_gate") else 0
    return hidden * (2 * query + 2 * key_value + gate)


def latent_attention(config: Keys) -> int:
    """DeepSeek's latent attention (arXiv 2405.04434): keys and values from one narrow tensor."""
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    rank, rotated = config.need("kv_lora_rank"), config.get("qk_rope_head_dim", 64)
    plain, value = config.get("qk_nope_head_dim", 128), config.get("v_head_dim", 128)
    query_width = heads * (plain + rotated)
    query_rank = config.get("q_lora_rank")
    queries = query_rank * (hidden + query_width) if query_rank else hidden * query_width
    keys_and_values = hidden * (rank + rotated) + rank * heads * (plain + value)
    return queries + keys_and_values + heads * value * hidden


def linear_attention(config: Keys) -> int:
    """Gated DeltaNet of Qwen3-Next and Qwen3.5: projections, two gates, a short convolution."""
    hidden = config.need("hidden_size")
    if full_attention_layers(config):
        return kimi_linear_attention(config)
    value_heads = config.need("linear_num_value_heads")
    keys = config.need("linear_num_key_heads") * config.need("linear_key_head_dim")
    values = value_heads * config.need("linear_value_head_dim")
    convolution = (2 * keys + values) * config.get("linear_conv_kernel_dim", 4)
    return hidden * (2 * keys + 3 * values + 2 * value_heads) + convolution


def kimi_linear_attention(config: Keys) -> int:
    """Kimi Delta Attention: four projections, and two gates through the width of one head."""
    hidden = config.need("hidden_size")
    linear_config = config.values["linear_attn_config"]
    heads, head_width = linear_config.get("num_heads"), linear_config.get("head_dim")
    if not isinstance(heads, int) or not isinstance(head_width, int):
        raise BadInput("`linear_attn_config` has no `num_heads` and `head_dim`")
    width = heads * head_width
    gates = 2 * head_width * (hidden + width)
    return 4 * hidden * width + gates


def state_space(config: Keys) -> int:
    """Mamba 2 if the config has heads of it, else Mamba 1 (arXiv 2405.21060, 2312.00752)."""

    def first(*names: str) -> int:
        """The first of the names that families have for one size; 0 if there is none."""
        return next((config.get(name) for name in names if config.get(name)), 0)

    hidden = config.need("hidden_size")
    state = first("mamba_d_state", "ssm_state_size", "state_size") or 16
    kernel = first("mamba_d_conv", "conv_kernel") or 4
    heads = first("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    head_width = first("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if is_state_space_alone(config) and not heads:
        heads, head_width = first("num_heads"), first("head_dim")
    expansion = first("mamba_expand", "expand") or 2
    inner = first("mamba_d_ssm") or heads * head_width or expansion * hidden
    if heads and head_width:
        groups = first("mamba_n_groups", "mamba_ngroups", "n_groups") or 1
        mixed = inner + 2 * groups * state
        return hidden * (inner + mixed + heads) + mixed * kernel + inner * hidden
    step_rank = first("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
    selection = inner * (step_rank + 2 * state) + step_rank * inner + inner * state
    return 2 * hidden * inner + inner * kernel + selection + inner * hidden
