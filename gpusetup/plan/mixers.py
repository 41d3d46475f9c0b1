"""Counts the parameters of each layer's mixer (attention or a replacement for it), from a
`config.json`.

The mixers are attention with keys and values, DeepSeek's latent attention, gated linear attention
(Qwen3-Next), state space (Mamba 1 and 2) and short convolutions (LFM2). The keys `layer_types` and
`layers_block_type`, a pattern of letters, or a period tell which layer has which mixer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.errors import BadInput
from gpusetup.plan.model_keys import ModelConfig

MOST_LAYERS = 10_000
"""More layers than any model has. Without this limit, a malicious config could fill the memory."""
LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern")
"""Keys that list the kind of every layer."""


class AttentionWidths(NamedTuple):
    """The number of attention heads, and the widths of queries and of keys or values in elements
    per token."""

    heads: int
    query: int
    """The width of all query heads together."""
    key_value: int
    """The width of all key heads together, or of all value heads; the mean if they differ."""


ATTENTION, LINEAR, STATE_SPACE, CONVOLUTION, ONLY_MLP = (
    "attention", "linear", "state space", "convolution", "mlp",
)  # fmt: skip
KINDS = {
    "full_attention": ATTENTION, "sliding_attention": ATTENTION, "chunked_attention": ATTENTION,
    "attention": ATTENTION, "hybrid": STATE_SPACE, "linear_attention": LINEAR,
    "mamba": STATE_SPACE, "mamba2": STATE_SPACE, "conv": CONVOLUTION, "mlp": ONLY_MLP,
    "moe": ONLY_MLP, "m": STATE_SPACE, "*": ATTENTION, "-": ONLY_MLP, "e": ONLY_MLP,
}  # fmt: skip
"""The kind of a layer as configs spell it -> its mixer. Nemotron-H has one letter per layer."""


def mixers_of(config: ModelConfig) -> Sequence[str]:
    """The mixer of each layer, in order.

    If the config does not describe its layers, all of them have attention, or state space in a
    Mamba.
    """
    listed_mixers = mixers_listed(config)
    if listed_mixers:
        return listed_mixers
    layers = config.need("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadInput(f"`num_hidden_layers` is {layers:,}: no model has so many")
    attention_layers = attention_layers_listed(config)
    if attention_layers is not None:
        return [attention_layers.mixer(layer) for layer in range(layers)]
    period = config.first("attn_layer_period", "full_attention_interval")
    if period > 1:
        return mixers_of_period(config, period, layers)
    if is_parallel(config) or is_state_space_alone(config):
        return [STATE_SPACE] * layers
    return [ATTENTION] * layers


def mixers_listed(config: ModelConfig) -> Sequence[str]:
    """The mixer of each layer if the config lists the kind of every layer; empty otherwise."""
    for key in LISTS:
        kinds = config.values.get(key)
        # Nemotron-H has a string with one letter per layer.
        if not isinstance(kinds, (list, str)):
            continue
        if 0 < len(kinds) <= MOST_LAYERS:
            words = [str(kind).lower() for kind in kinds]
            return [mixer_named(config, word) for word in words]
    return []


class AttentionLayers(NamedTuple):
    """Which layers have attention, and which mixer the other layers have."""

    indices: Sequence[int]
    """The numbers of the layers with attention, counted from 0."""
    without: str
    """The mixer of the layers that have no attention."""

    def mixer(self, layer: int) -> str:
        """The mixer of one layer, counted from 0."""
        if layer in self.indices:
            return ATTENTION
        return self.without


def attention_layers_listed(config: ModelConfig) -> AttentionLayers | None:
    """The layers with attention, if the config lists them by their numbers; None otherwise."""
    values = config.values
    if "attn_layer_indices" in values:
        indices = values["attn_layer_indices"]
        # An empty list means that no layer has attention (Bamba, Granite 4).
        return AttentionLayers(indices if isinstance(indices, list) else [], STATE_SPACE)
    if values.get("full_attn_idxs"):
        indices = values["full_attn_idxs"]
        return AttentionLayers(indices if isinstance(indices, list) else [], CONVOLUTION)
    counted_from_1 = full_attention_layers(config)
    if counted_from_1:
        return AttentionLayers([layer - 1 for layer in counted_from_1], LINEAR)
    return None


def mixers_of_period(config: ModelConfig, period: int, layers: int) -> Sequence[str]:
    """The mixers of a model in which one layer of every period has attention, by default the
    period's last layer."""
    offset = config.values.get("attn_layer_offset")
    if not isinstance(offset, int):
        offset = period - 1
    first_layer = offset % period
    attention_layers = AttentionLayers(
        indices=range(first_layer, layers, period),
        without=mixer_named(config, "linear_attention"),
    )
    return [attention_layers.mixer(layer) for layer in range(layers)]


def full_attention_layers(config: ModelConfig) -> frozenset[int]:
    """The layers with full attention, counted from 1, of a model whose other layers have Kimi's
    linear attention; empty for any other model."""
    linear_config = config.values.get("linear_attn_config")
    if not isinstance(linear_config, dict):
        return frozenset()
    layers = linear_config.get("full_attn_layers")
    if not isinstance(layers, list):
        return frozenset()
    return frozenset(layers)


def mixer_named(config: ModelConfig, kind: str) -> str:
    """The mixer for a layer kind in the config.

    transformers 5 writes `linear_attention` for state space too, which the model's other keys
    reveal. Linear attention without known keys (MiniMax) is counted like attention.
    """
    mixer = KINDS.get(kind, ATTENTION)
    if mixer == LINEAR and not config.values.get("linear_num_value_heads"):
        return STATE_SPACE if has_state_space(config) else ATTENTION
    return mixer


def has_state_space(config: ModelConfig) -> bool:
    says_mamba = config.has("mamba")
    return says_mamba or config.has("state_size")


def is_state_space_alone(config: ModelConfig) -> bool:
    """Whether the model is a pure Mamba (1 or 2), in which no layer has attention."""
    model_type = str(config.values.get("model_type"))
    return "mamba" in model_type


def mixer_parameters(config: ModelConfig, mixer: str, widths: AttentionWidths) -> int:
    """The number of parameters in one layer's mixer."""
    if mixer == LINEAR:
        return linear_attention(config)
    if mixer == STATE_SPACE:
        size = state_space(config)
        return size + attention(config, widths) if is_parallel(config) else size
    if mixer == CONVOLUTION:
        hidden = config.hidden
        # Three input projections, one output projection, and a kernel for each channel.
        return 4 * hidden * hidden + hidden * config.get("conv_L_cache", 3)
    if mixer == ONLY_MLP:
        return 0
    return attention(config, widths)


def is_parallel(config: ModelConfig) -> bool:
    """Whether each layer has both attention and state space in parallel (Falcon-H1)."""
    model_type = str(config.values.get("model_type"))
    return "falcon_h1" in model_type


def attention(config: ModelConfig, widths: AttentionWidths) -> int:
    """The parameters of one layer's attention: the projections for queries, keys, values and
    output. A gate for the output has as many parameters as the query projection."""
    if config.get("kv_lora_rank"):
        return latent_attention(config)
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
    """The parameters of one layer of linear attention: Kimi's, or Gated DeltaNet of Qwen3-Next and
    Qwen3.5 (projections, two gates, a short convolution)."""
    # Only configs with Kimi's linear attention list these layers.
    if full_attention_layers(config):
        return kimi_linear_attention(config)
    value_heads = config.need("linear_num_value_heads")
    keys = config.need("linear_num_key_heads") * config.need("linear_key_head_dim")
    values = value_heads * config.need("linear_value_head_dim")
    kernel = config.get("linear_conv_kernel_dim", 4)
    convolution = (2 * keys + values) * kernel
    # Values, their gate and the output have the same width; two more gates have one number per
    # head.
    projections = 2 * keys + 3 * values + 2 * value_heads
    return config.hidden * projections + convolution


def kimi_linear_attention(config: ModelConfig) -> int:
    """The parameters of one layer of Kimi Delta Attention: four projections, and two low-rank gates
    whose rank is the width of one head. BadInput if the config lacks the number or the width of its
    heads."""
    hidden = config.hidden
    # `full_attention_layers` already checked that the config has this key.
    linear_config = config.values["linear_attn_config"]
    heads = linear_config.get("num_heads")
    head_width = linear_config.get("head_dim")
    if not isinstance(heads, int) or not isinstance(head_width, int):
        raise BadInput("`linear_attn_config` has no `num_heads` and `head_dim`")
    width = heads * head_width
    gates = 2 * head_width * (hidden + width)
    return 4 * hidden * width + gates


def state_space(config: ModelConfig) -> int:
    """The parameters of one state space layer: Mamba 2 if the config has heads for it, otherwise
    Mamba 1 (arXiv 2405.21060, 2312.00752)."""
    heads, inner = state_space_heads(config)
    state = config.first("mamba_d_state", "ssm_state_size", "state_size") or 16
    kernel = config.first("mamba_d_conv", "conv_kernel") or 4
    in_and_out = 2 * config.hidden * inner
    if heads == 0:
        return in_and_out + mamba_1(config, inner, state, kernel)
    groups = config.first("mamba_n_groups", "mamba_ngroups", "n_groups") or 1
    # Besides the gate (counted in `in_and_out`), the input projection gives the convolution's input
    # and a step for each head.
    mixed = inner + 2 * groups * state
    projection = config.hidden * (mixed + heads)
    return in_and_out + projection + mixed * kernel


def mamba_1(config: ModelConfig, inner: int, state: int, kernel: int) -> int:
    """The parameters of a Mamba 1 layer without its input and output projections: gate,
    convolution and selection."""
    step_rank = config.first("mamba_dt_rank", "time_step_rank")
    if step_rank == 0:
        # `auto` means a sixteenth of the model's width, rounded up.
        step_rank = -(-config.hidden // 16)
    gate = config.hidden * inner
    convolution = inner * kernel
    selection = inner * (step_rank + 2 * state)
    steps_and_decay = inner * (step_rank + state)
    return gate + convolution + selection + steps_and_decay


def state_space_heads(config: ModelConfig) -> tuple[int, int]:
    """The number of Mamba 2 heads and the inner width; with 0 heads, the layers are Mamba 1."""
    heads = config.first("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    head_width = config.first("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if is_state_space_alone(config) and not heads:
        # In a model without attention, `num_heads` counts the heads of the state space.
        heads, head_width = config.get("num_heads"), config.get("head_dim")
    inner = config.get("mamba_d_ssm") or heads * head_width
    if inner == 0:
        expansion = config.first("mamba_expand", "expand") or 2
        inner = expansion * config.hidden
    if head_width == 0:
        heads = 0
    return heads, inner
