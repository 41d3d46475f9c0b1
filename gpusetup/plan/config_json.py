"""Any `config.json` -> the shape of its model, by the keys that nearly all configs share.

Widths, layers, heads, vocabulary, experts. What no key tells is in `FAMILIES`. Biases and what
projects images, a hundredth of the parameters at most, are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.mixers import (
    ATTENTION,
    ONLY_MLP,
    is_parallel,
    is_state_space_alone,
    mixer_parameters,
    mixers_of,
)
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
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
    "hidden_act": (
        "activation_function", "hidden_activation", "activation",
    ),
}  # fmt: skip
"""Key of most configs -> what other families call it."""


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
"""What no key of a config tells -> the families that have it (transformers 4.30 to 5)."""
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
        if isinstance(value, list):  # one for each layer: the largest counts
            value = max((part for part in value if isinstance(part, int)), default=value)
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
    if nested_text(values) is not None or isinstance(values.get("vision_config"), Mapping):
        return with_towers(values, what)
    config = ModelConfig(values, what)
    if values.get("is_encoder_decoder") or "model_type" not in values:
        raise unknown_family(values, what)
    if config.has("image_size") and not config.values.get("vocab_size"):
        return image_encoder(config)
    if config.kind in ENCODERS:
        return text_encoder(config)
    says_layers = config.values.get("num_attention_heads") or config.has("state_size")
    # RWKV has no such layers, and Zamba uses the same attention blocks in many places.
    if not says_layers or config.has("rwkv") or config.has("num_mem_blocks"):
        raise unknown_family(values, what)
    return decoder(config)


def unknown_family(values: Mapping[str, Any], what: str) -> UsageError:
    """The error for a config of a family whose layers plan cannot count."""
    return UsageError(
        f"{what}: the family {values.get('model_type')!r} is not known",
        hint="plan knows llama, qwen3, gpt2 and every family with `num_attention_heads`. "
        "`--params` plans a transformer by its size, `--code` traces your own model",
    )


def decoder(config: ModelConfig) -> Shape:
    """A decoder of text."""
    values, family = config.values, config.family
    hidden, mixers = config.need("hidden_size"), mixers_of(config)
    layers = len(mixers)
    heads, query, key_value = attention_widths(config)
    has_rms_norm = config.has("rms") and values.get("rmsnorm", True)
    has_layer_norm_eps = config.has("layer", "norm", "eps")
    layer_norm = ("layer norms" in family or has_layer_norm_eps) and not has_rms_norm
    activation = str(values.get("hidden_act") or "")
    ungated = activation == "relu" or (layer_norm and (not activation or "gelu" in activation))
    gated = "a gate" in family or not ("no gate" in family or ungated)
    mixer_sizes = [mixer_parameters(config, mixer, query, key_value) for mixer in mixers]
    norms = 2 * hidden * (1 + layer_norm)
    vocabulary = config.need("vocab_size")
    tied = bool(values.get("tie_word_embeddings", "a tied head" in family))
    native_context = config.get("max_position_embeddings")
    vocabulary_tables = 1 if tied else 2  # embedding and head
    outside = (vocabulary * vocabulary_tables + 1) * hidden  # and the last norm
    if "learned positions" in family:
        outside += native_context * hidden
    mlp = mlp_of(config, 3 if gated else 2, mixers)
    # Gemma 3n and 4 have a small embedding of every token for each layer.
    per_layer = config.get("vocab_size_per_layer_input") * config.get("hidden_size_per_layer_input")
    if "gemma3n" in config.kind or "gemma4" in config.kind:
        outside += per_layer * layers
    fixed = outside + sum(mixer_sizes) + layers * norms + mlp.dense_layers * mlp.dense
    attention_layers = cached_layers_of(config, mixers)
    return Shape(
        name=model_name(config),
        kind=config.kind,
        parameters=fixed + mlp.expert_layers * mlp.experts,
        active=fixed + mlp.expert_layers * mlp.active,
        largest_unit=max(
            vocabulary * hidden,
            max(mixer_sizes) + norms + max(mlp.dense if mlp.dense_layers else 0, mlp.experts),
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
        latent=latent_width(config),
        roughly=any(mixer != ATTENTION for mixer in mixers),
        cached_layers=attention_layers if attention_layers < layers else None,
        native_context=native_context or None,
    )


def cached_layers_of(config: ModelConfig, mixers: Sequence[str]) -> int:
    """How many layers keep keys and values; a state space or a convolution has a state instead."""
    if is_parallel(config):  # attention and state space side by side in every layer
        return len(mixers)
    return sum(mixer == ATTENTION for mixer in mixers)


def latent_width(config: ModelConfig) -> int:
    """The width of what latent attention caches for a token; 0 for attention of another kind."""
    rank = config.get("kv_lora_rank")
    return rank + config.get("qk_rope_head_dim", 64) if rank else 0


def text_encoder(config: ModelConfig) -> Shape:
    """An encoder of text with a classifier, as it is fine-tuned."""
    hidden, layers = config.need("hidden_size"), config.need("num_hidden_layers")
    width = config.get("intermediate_size", 4 * hidden)
    gated = config.kind == "modernbert"
    layer = 4 * hidden * (hidden + 1) + (3 if gated else 2) * hidden * width + width + 5 * hidden
    positions = 0 if gated else config.get("max_position_embeddings")
    tables = (config.need("vocab_size") + positions + config.get("type_vocab_size") + 2) * hidden
    total = tables + layers * layer + hidden * (hidden + 1)
    largest_unit = max(config.need("vocab_size") * hidden, layer)
    return replace(
        encoder_shape(config, total, largest_unit),
        classes=2,
        gated=gated,
        dropout=True,
        native_context=config.get("max_position_embeddings") or None,
    )


def image_encoder(config: ModelConfig) -> Shape:
    """An encoder of images with a classifier (ViT, DINOv2, SigLIP): its patches are its tokens."""
    hidden, layers = config.need("hidden_size"), config.need("num_hidden_layers")
    width = config.get("intermediate_size") or default_mlp_width(config)
    image, patch = config.need("image_size"), config.get("patch_size", 16)
    patches = (image // patch) ** 2
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * width + width + 5 * hidden
    inputs = hidden * (patch * patch * config.get("num_channels", 3) + 1) + (patches + 2) * hidden
    labels = config.values.get("id2label")
    classes = len(labels) if isinstance(labels, Mapping) else 1000
    total = layers * layer + inputs + classes * (hidden + 1) + 2 * hidden
    return replace(encoder_shape(config, total, layer), classes=classes, tokens=patches + 1)


def encoder_shape(config: ModelConfig, parameters: int, largest_unit: int) -> Shape:
    """What encoders of text and of images share."""
    hidden = config.need("hidden_size")
    return Shape(
        name=model_name(config),
        kind=config.kind,
        parameters=parameters,
        active=parameters,
        largest_unit=largest_unit,
        layers=config.need("num_hidden_layers"),
        hidden=hidden,
        heads=config.need("num_attention_heads"),
        query=hidden,
        key_value=hidden,
        intermediate=config.get("intermediate_size") or default_mlp_width(config),
        gated=False,
        rms_norm=False,
    )


def model_name(config: ModelConfig) -> str:
    """The name that a config has for its model, or its family."""
    name = config.values.get("_name_or_path") or config.values.get("name")
    return name if isinstance(name, str) and name else config.kind


def attention_widths(config: ModelConfig) -> tuple[int, int, int]:
    """Heads, the width of all queries, the width of all keys (mean of keys and values)."""
    values, hidden = config.values, config.need("hidden_size")
    if not values.get("num_attention_heads") or is_state_space_alone(
        config
    ):  # state space alone: its inner width, in one head
        return 1, 2 * hidden, hidden
    heads = config.need("num_attention_heads")
    if config.get("kv_lora_rank"):
        plain = config.get("qk_nope_head_dim", 128)
        keys = plain + config.get("qk_rope_head_dim", 64)
        return heads, heads * keys, heads * (keys + config.get("v_head_dim", 128)) // 2
    has_own_count = values.get("new_decoder_architecture") or values.get("multi_query_group_num")
    multi_query = bool(values.get("multi_query")) and not has_own_count
    key_value_heads = 1 if multi_query else config.get("num_key_value_heads", heads)
    default_width = 256 if "heads of 256" in config.family else hidden // heads
    width = config.get("head_dim", default_width)
    return heads, heads * width, key_value_heads * width


def default_mlp_width(config: ModelConfig) -> int:
    """The width of an MLP if no key says it."""
    ratio = config.values.get("expansion_ratio") or config.values.get("mlp_ratio")
    if not isinstance(ratio, (int, float)) or not 0 < ratio < 1000:
        ratio = 4  # as in the first transformers
    return round(ratio * config.need("hidden_size"))


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


def mlp_of(config: ModelConfig, matrices: int, mixers: Sequence[str]) -> Mlp:
    """`matrices`: of one MLP or expert, three with a gate."""
    layers, experts = layers_with_mlp(config, mixers), config.get("num_experts")
    width = config.get("intermediate_size", default_mlp_width(config))
    if config.values.get("block_auto_adjust_ff_dim"):  # LFM2: two thirds, in whole blocks of 256
        block = config.get("block_multiple_of", 256)
        width = -(-(2 * width // 3) // block) * block
    column = matrices * config.need("hidden_size")
    if not experts:
        return Mlp(layers, column * width, 0, 0, 0, width)
    expert_layers = layers_with_experts(config, layers)
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


def layers_with_mlp(config: ModelConfig, mixers: Sequence[str]) -> int:
    """The layers that have an MLP: all, those that are one (Nemotron-H), or none (Mamba)."""
    if ONLY_MLP in mixers:
        return sum(mixer == ONLY_MLP for mixer in mixers)
    if is_state_space_alone(config) and not config.values.get("intermediate_size"):
        return 0
    return len(mixers)


def layers_with_experts(config: ModelConfig, layers: int) -> int:
    """The layers whose MLP is a mixture of experts; the first or every second may be dense."""
    values = config.values
    dense_layers = config.get("first_k_dense_replace") or config.get("num_dense_layers")
    if isinstance(values.get("mlp_only_layers"), list):
        dense_layers = dense_layers or len(values["mlp_only_layers"])
    period = config.get("expert_layer_period") or config.get("decoder_sparse_step")
    period = period or config.get("interleave_moe_layer_step") or config.get("moe_layer_freq") or 1
    return max(layers - dense_layers, 0) // period


TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which the config of a model of images or sound has that of its text."""
TOWER_PARTS = ("vision_config", "audio_config")


def nested_text(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config of the text within one of text with images or sound; None if there is none."""
    for key in TEXT_PARTS:
        part = values.get(key)
        if isinstance(part, Mapping) and part:
            return part
    return None


def with_towers(values: Mapping[str, Any], what: str) -> Shape:
    """Text with towers of images or sound: the text's shape with the parameters of their layers."""
    text_config = nested_text(values)
    if text_config is None:
        text_config = {key: part for key, part in values.items() if key not in TOWER_PARTS}
    shape = shape_of(text_config, what)
    tower = 0
    for key in TOWER_PARTS:
        tower_config = values.get(key)
        if isinstance(tower_config, Mapping) and tower_config:
            tower += tower_parameters(ModelConfig(tower_config, what))
    name = values.get("_name_or_path") or values.get("name") or values.get("model_type")
    return replace(
        shape,
        name=str(name or shape.name),
        parameters=shape.parameters + tower,
        active=shape.active + tower,
        tower=shape.tower + tower,
    )


def tower_parameters(config: ModelConfig) -> int:
    """The parameters of the layers of an encoder of images or sound."""
    hidden = first_size(config, "embed_dim", "hidden_size", "d_model", "width")
    layers = first_size(config, "depth", "num_hidden_layers", "encoder_layers", "layers")
    width = first_size(config, "intermediate_size", "encoder_ffn_dim")
    matrices = 3 if config.values.get("hidden_act") == "silu" else 2
    mlp_width = width or default_mlp_width(config)
    return layers * hidden * (4 * hidden + matrices * mlp_width)


def first_size(config: ModelConfig, *names: str) -> int:
    """The first of the names that families have for one size; 0 if there is none."""
    for name in names:
        size = config.get(name)
        if size:
            return size
    return 0
