"""Counts the parameters of each layer's mixer (attention or a replacement for it), from a
`config.json`.

The mixers are attention with keys and values, DeepSeek's latent attention, Gated DeltaNet
(Qwen3-Next, Qwen3.5) and Mamba 2. Any other kind of layer is refused by name, because a wrong
count is worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.errors import BadInput, UsageError
from gpusetup.plan.model_keys import MEASURE_HINT, ModelConfig

MOST_LAYERS = 10_000
"""More layers than any model has. Without this limit, a malicious config could fill the memory."""


class AttentionWidths(NamedTuple):
    """The number of attention heads, and the widths of queries and of keys or values in elements
    per token."""

    heads: int
    query: int
    """The width of all query heads together."""
    key_value: int
    """The width of all key heads together, or of all value heads; the mean if they differ."""


ATTENTION, LINEAR, STATE_SPACE = "attention", "linear", "state space"
UNCOUNTED_KEYS = ("hybrid_override_pattern", "full_attn_idxs", "linear_attn_config")
"""Keys of configs whose layers plan does not count: Nemotron-H, LFM2 and Kimi Linear."""
UNCOUNTED_FAMILIES = ("falcon_h1", "falcon_mamba", "lfm2", "jamba")
"""Families whose layers plan does not count: attention and a state space in parallel, Mamba 1 and
convolutions."""


def uncounted_layers(config: ModelConfig, kind: str) -> UsageError:
    """The error for a model with layers of a kind that plan does not count."""
    return UsageError(
        f"{config.source}: plan does not count layers of the kind {kind!r}",
        hint=f"`--model` with the model's name on the hub, if plan knows it; {MEASURE_HINT}",
    )


def mixers_of(config: ModelConfig) -> Sequence[str]:
    """The mixer of each layer, in order. UsageError for kinds of layers that plan does not count.

    If the config does not describe its layers, all of them have attention, or state space in a
    Mamba.
    """
    values = config.values
    for key in UNCOUNTED_KEYS:
        if values.get(key):
            raise uncounted_layers(config, key)
    for family in UNCOUNTED_FAMILIES:
        if family in config.kind:
            raise uncounted_layers(config, family)
    for key in ("layer_types", "layers_block_type"):
        kinds = values.get(key)
        if isinstance(kinds, list) and 0 < len(kinds) <= MOST_LAYERS:
            return [mixer_named(config, str(kind).lower()) for kind in kinds]
    layers = config.need("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadInput(f"`num_hidden_layers` is {layers:,}: no model has so many")
    if "attn_layer_indices" in values:
        # An empty list means that no layer has attention (Bamba, Granite 4).
        listed = values["attn_layer_indices"]
        with_attention = frozenset(
            index for index in (listed if isinstance(listed, list) else ()) if type(index) is int
        )
        return [ATTENTION if layer in with_attention else STATE_SPACE for layer in range(layers)]
    period = config.first("attn_layer_period", "full_attention_interval")
    if period > 1:
        offset = values.get("attn_layer_offset")
        # Without an offset, the last layer of every period has attention.
        first = (offset if isinstance(offset, int) else period - 1) % period
        without = mixer_named(config, "linear_attention")
        return [ATTENTION if layer % period == first else without for layer in range(layers)]
    return [STATE_SPACE if is_state_space_alone(config) else ATTENTION] * layers


def mixer_named(config: ModelConfig, kind: str) -> str:
    """The mixer for a layer kind in the config; UsageError for one that plan does not count.

    transformers 5 writes `linear_attention` for state space too, which the model's other keys
    reveal. Linear attention without known keys (MiniMax) is counted like attention.
    """
    if kind in ("mamba", "mamba2", "hybrid"):
        return STATE_SPACE
    if "attention" not in kind:
        raise uncounted_layers(config, kind)
    if kind != "linear_attention":
        return ATTENTION
    if config.values.get("linear_num_value_heads"):
        return LINEAR
    return STATE_SPACE if config.has("mamba") or config.has("state_size") else ATTENTION


def is_state_space_alone(config: ModelConfig) -> bool:
    """Whether the model is a pure Mamba, in which no layer has attention."""
    return "mamba" in str(config.values.get("model_type"))


def mixer_parameters(config: ModelConfig, mixer: str, widths: AttentionWidths) -> int:
    """The number of parameters in one layer's mixer."""
    if mixer == LINEAR:
        return linear_attention(config)
    if mixer == STATE_SPACE:
        return state_space(config)
    if config.get("kv_lora_rank"):
        return latent_attention(config)
    # The projections for queries, keys, values and output; a gate for the output has as many
    # parameters as the query projection.
    rows = 2 * widths.query + 2 * widths.key_value
    if config.values.get("attn_output_gate"):
        rows += widths.query
    return config.hidden * rows


def latent_attention(config: ModelConfig) -> int:
    """The parameters of one layer of DeepSeek's latent attention (arXiv 2405.04434), whose keys and
    values come from one narrow tensor."""
    hidden = config.hidden
    heads = config.need("num_attention_heads")
    rank = config.need("kv_lora_rank")
    rotated = config.get("qk_rope_head_dim", 64)
    plain = config.get("qk_nope_head_dim", 128)
    value = config.get("v_head_dim", 128)
    query_width = heads * (plain + rotated)
    query_rank = config.get("q_lora_rank")
    queries = hidden * query_width
    if query_rank:
        # If there is a query rank, the queries come from a narrow tensor too.
        queries = query_rank * (hidden + query_width)
    compression = hidden * (rank + rotated)
    expansion = rank * heads * (plain + value)
    output = heads * value * hidden
    return queries + compression + expansion + output


def linear_attention(config: ModelConfig) -> int:
    """The parameters of one layer of Gated DeltaNet (Qwen3-Next, Qwen3.5): projections, two gates
    and a short convolution."""
    value_heads = config.need("linear_num_value_heads")
    keys = config.need("linear_num_key_heads") * config.need("linear_key_head_dim")
    values = value_heads * config.need("linear_value_head_dim")
    kernel = config.get("linear_conv_kernel_dim", 4)
    convolution = (2 * keys + values) * kernel
    # Values, their gate and the output have the same width; two more gates have one number per
    # head.
    projections = 2 * keys + 3 * values + 2 * value_heads
    return config.hidden * projections + convolution


def state_space(config: ModelConfig) -> int:
    """The parameters of one Mamba 2 layer (arXiv 2405.21060); UsageError for Mamba 1, which has no
    heads."""
    heads = config.first("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    head_width = config.first("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if is_state_space_alone(config) and not heads:
        # In a model without attention, `num_heads` counts the heads of the state space.
        heads, head_width = config.get("num_heads"), config.get("head_dim")
    if not heads or not head_width:
        raise uncounted_layers(config, "mamba (1)")
    inner = config.get("mamba_d_ssm") or heads * head_width
    state = config.first("mamba_d_state", "ssm_state_size", "state_size") or 16
    kernel = config.first("mamba_d_conv", "conv_kernel") or 4
    groups = config.first("mamba_n_groups", "mamba_ngroups", "n_groups") or 1
    # The input projection gives the gate, the convolution's input and a step for each head.
    mixed = inner + 2 * groups * state
    return config.hidden * (2 * inner + mixed + heads) + mixed * kernel
