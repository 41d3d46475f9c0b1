"""Reads a model's shape from any `config.json`, using the keys that nearly all configs have in
common.

It reads widths, layers, heads, vocabulary and experts. Biases and image projectors are not counted,
since they are at most 1 % of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.encoders import image_encoder, text_encoder, tower_parameters
from gpusetup.plan.mixers import (
    ATTENTION,
    AttentionWidths,
    is_state_space_alone,
    mixer_parameters,
    mixers_of,
)
from gpusetup.plan.mlps import mlp_of
from gpusetup.plan.model_keys import MEASURE_HINT, ModelConfig
from gpusetup.plan.shape import ENCODERS, Shape

DROPOUTS = ("resid_pdrop", "hidden_dropout_prob", "residual_dropout", "resid_dropout",
            "hidden_dropout", "dropout", "dropout_rate")  # fmt: skip


def shape_of(values: Mapping[str, Any], source: str = "config.json") -> Shape:
    """The shape of the model that a `config.json` describes.

    Raises UsageError if plan cannot count the model's family, and BadInput if a required key is
    missing.

    >>> shape_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...     "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5}).parameters
    124356096
    """
    has_images = isinstance(values.get("vision_config"), Mapping)
    if has_images or nested_text(values) is not None:
        return with_towers(values, source)
    config = ModelConfig(values, source)
    if values.get("is_encoder_decoder") or "model_type" not in values:
        raise unknown_family(values, source)
    if config.has("image_size") and not config.values.get("vocab_size"):
        return image_encoder(config)
    if config.kind in ENCODERS:
        return text_encoder(config)
    if not has_layers(config):
        raise unknown_family(values, source)
    return decoder(config)


def has_layers(config: ModelConfig) -> bool:
    """Whether a decoder has layers of a kind that plan can count."""
    # plan cannot count RWKV's layers, or Zamba's attention blocks, which several layers share.
    if config.has("rwkv") or config.has("num_mem_blocks"):
        return False
    has_heads = bool(config.values.get("num_attention_heads"))
    # A pure state space model has a state size instead of attention heads.
    return has_heads or config.has("state_size")


def unknown_family(values: Mapping[str, Any], source: str) -> UsageError:
    """The error for a config whose model family plan cannot count."""
    return UsageError(
        f"{source}: the family {values.get('model_type')!r} is not known",
        hint="plan knows llama, qwen3, gpt2 and every family with `num_attention_heads`. "
        f"`--params` plans a transformer by its size; {MEASURE_HINT}",
    )


def decoder(config: ModelConfig) -> Shape:
    """The shape of a text decoder, such as Llama or GPT-2."""
    values, family = config.values, config.family
    sizes = decoder_sizes(config)
    widths = attention_widths(config)
    mixers = mixers_of(config)
    # Other layers keep a state of a fixed size instead of keys and values.
    attention_layers = mixers.count(ATTENTION)
    return Shape(
        name=config.name,
        kind=config.kind,
        parameters=sizes.parameters,
        active=sizes.active,
        largest_unit=sizes.largest_unit,
        layers=len(mixers),
        hidden=config.hidden,
        heads=widths.heads,
        query=widths.query,
        key_value=widths.key_value,
        intermediate=sizes.mlp_width,
        gated=has_gate(config),
        rms_norm=not has_layer_norms(config),
        query_key_norm="norms of queries and keys" in family or bool(values.get("use_qk_norm")),
        dropout=any(values.get(key) for key in DROPOUTS),
        tied=is_tied(config),
        experts=config.get("num_experts_per_tok"),
        vocabulary=config.need("vocab_size"),
        latent=latent_width(config),
        roughly=any(mixer != ATTENTION for mixer in mixers),
        cached_layers=attention_layers if attention_layers < len(mixers) else None,
        native_context=config.get("max_position_embeddings") or None,
    )


class DecoderSizes(NamedTuple):
    """The parameter counts of a decoder, and the width of its MLPs."""

    parameters: int
    active: int
    """The parameters that one token uses."""
    largest_unit: int
    """The parameters of the embedding or of the largest layer, whichever has more."""
    mlp_width: int


def decoder_sizes(config: ModelConfig) -> DecoderSizes:
    """The parameter counts of a text decoder, summed over its parts."""
    mixers = mixers_of(config)
    widths = attention_widths(config)
    mixer_sizes = [mixer_parameters(config, mixer, widths) for mixer in mixers]
    matrices = 3 if has_gate(config) else 2
    mlp = mlp_of(config, matrices, mixers)
    # A layer norm has a weight and a bias, and each layer has two norms.
    norms = (4 if has_layer_norms(config) else 2) * config.hidden
    fixed = tables_of(config, len(mixers)) + sum(mixer_sizes)
    fixed += len(mixers) * norms + mlp.dense_layers * mlp.dense
    embedding = config.need("vocab_size") * config.hidden
    largest_layer = max(mixer_sizes) + norms + mlp.largest
    return DecoderSizes(
        parameters=fixed + mlp.expert_layers * mlp.experts,
        active=fixed + mlp.expert_layers * mlp.active,
        largest_unit=max(embedding, largest_layer),
        mlp_width=mlp.width,
    )


def tables_of(config: ModelConfig, layers: int) -> int:
    """The number of parameters outside the layers: token embedding, output head, learned positions
    and the last norm."""
    # An untied output head is a second table of the embedding's size.
    tables = 1 if is_tied(config) else 2
    rows = config.need("vocab_size") * tables
    last_norm = 1
    size = (rows + last_norm) * config.hidden
    if "learned positions" in config.family:
        size += config.get("max_position_embeddings") * config.hidden
    if "gemma3n" in config.kind or "gemma4" in config.kind:
        # Gemma 3n and 4 also have a small token embedding for each layer.
        width = config.get("hidden_size_per_layer_input")
        size += config.get("vocab_size_per_layer_input") * width * layers
    return size


def is_tied(config: ModelConfig) -> bool:
    """Whether the output head shares the embedding's weights; if the config does not say so, the
    default of the family applies."""
    # Without the key the family's default applies, because configs then leave it out.
    is_usual = "a tied head" in config.family
    says_tied = config.values.get("tie_word_embeddings", is_usual)
    return bool(says_tied)


def has_layer_norms(config: ModelConfig) -> bool:
    """Whether the norms are LayerNorm rather than RMSNorm, judged by the family or by the name of
    the epsilon key."""
    if config.has("rms") and config.values.get("rmsnorm", True):
        return False
    if "layer norms" in config.family:
        return True
    return config.has("layer", "norm", "eps")


def has_gate(config: ModelConfig) -> bool:
    """Whether the MLPs have a gate (as in SwiGLU), which nearly all models since Llama have."""
    if "a gate" in config.family:
        return True
    if "no gate" in config.family:
        return False
    activation = str(config.values.get("hidden_act") or "gelu")
    if activation == "relu":
        return False
    # Models with LayerNorm and GELU, as in GPT-2's time, have no gate.
    is_as_gpt2 = has_layer_norms(config) and "gelu" in activation
    return not is_as_gpt2


def latent_width(config: ModelConfig) -> int:
    """The elements that latent attention caches per token; 0 for other kinds of attention."""
    rank = config.get("kv_lora_rank")
    if rank == 0:
        return 0
    rotated = config.get("qk_rope_head_dim", 64)
    return rank + rotated


def attention_widths(config: ModelConfig) -> AttentionWidths:
    """The number of attention heads and the widths of queries, keys and values. A pure state space
    model counts as one head of its inner width."""
    hidden = config.hidden
    has_heads = bool(config.values.get("num_attention_heads"))
    if not has_heads or is_state_space_alone(config):
        return AttentionWidths(heads=1, query=2 * hidden, key_value=hidden)
    heads = config.need("num_attention_heads")
    if config.get("kv_lora_rank"):
        return latent_widths(config, heads)
    default_width = 256 if "heads of 256" in config.family else hidden // heads
    width = config.get("head_dim", default_width)
    key_value_heads = key_value_heads_of(config, heads)
    return AttentionWidths(heads, query=heads * width, key_value=key_value_heads * width)


def latent_widths(config: ModelConfig, heads: int) -> AttentionWidths:
    """The heads and widths of DeepSeek's latent attention, in which every head has separate keys
    and values."""
    rotated = config.get("qk_rope_head_dim", 64)
    key = config.get("qk_nope_head_dim", 128) + rotated
    value = config.get("v_head_dim", 128)
    # Keys are wider than values, so use the mean width for both.
    keys_and_values = heads * (key + value)
    return AttentionWidths(
        heads=heads,
        query=heads * key,
        key_value=keys_and_values // 2,
    )


def key_value_heads_of(config: ModelConfig, heads: int) -> int:
    """The number of key-value heads; equal to the number of query heads unless the config sets
    fewer."""
    values = config.values
    # Falcon's newer models also set `multi_query`, but have several key-value heads.
    says_count = values.get("new_decoder_architecture") or values.get("multi_query_group_num")
    if values.get("multi_query") and not says_count:
        return 1
    return config.get("num_key_value_heads", heads)


# --- multimodal models ----------------------------------------------------------------------------

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which the config of an image or audio model contains the config of its text model."""
TOWER_PARTS = ("vision_config", "audio_config")


def nested_text(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The text model's section inside the config of a multimodal model; None if there is none."""
    for key in TEXT_PARTS:
        part = values.get(key)
        if isinstance(part, Mapping) and part:
            return part
    return None


def with_towers(values: Mapping[str, Any], source: str) -> Shape:
    """The shape of a text model with image or audio encoders, whose layers are included in the
    parameters."""
    text_config = nested_text(values)
    if text_config is None:
        # Some configs keep the text model's keys at the top level, next to the encoders' sections.
        text_config = {key: part for key, part in values.items() if key not in TOWER_PARTS}
    shape = shape_of(text_config, source)
    towers = 0
    for key in TOWER_PARTS:
        tower_config = values.get(key)
        if isinstance(tower_config, Mapping) and tower_config:
            towers += tower_parameters(ModelConfig(tower_config, source))
    name = values.get("_name_or_path") or values.get("name") or values.get("model_type")
    return replace(
        shape,
        name=str(name or shape.name),
        parameters=shape.parameters + towers,
        active=shape.active + towers,
        tower=shape.tower + towers,
    )
