"""Reads a model's shape from any `config.json`, by four formulas of layers: dense, mixture of
experts, linear attention and encoder.

It uses the keys that nearly all configs have in common. Biases, a decoder's norms and positions,
and image projectors are not counted, since they are at most 1 % of the parameters. Layers of any
other kind are refused by name, because a wrong count is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.job import ENCODERS, Shape

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
    "hidden_act": ("activation_function", "hidden_activation", "activation"),
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
UNCOUNTED_KEYS = (
    "hybrid_override_pattern", "full_attn_idxs", "linear_attn_config", "attn_layer_indices",
)  # fmt: skip
"""Keys of configs whose layers plan does not count: Nemotron-H, LFM2, Kimi Linear and Bamba."""
UNCOUNTED_FAMILIES = ("falcon_h1", "mamba", "lfm2", "jamba")
"""Families whose layers plan does not count (state space, convolutions)."""
PERIODS = (
    "expert_layer_period", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq",
)  # fmt: skip
"""Keys for the period of layers with experts: one in this many layers has experts."""
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which the config of an image or audio model contains the config of its text model."""
TOWER_PARTS = ("vision_config", "audio_config")
MEASURE_HINT = "`gpusetup tune --batch-size --code train:build` measures your own model on the GPU"
LARGEST_SIZE = 10**9
"""A number from this size on is a mistake, or an attack by the config's author."""
MOST_LAYERS = 10_000
"""More layers than any model has. Without this limit, a malicious config could fill the memory."""
USUAL_CLASSES = 1000
"""The number of classes of an image encoder: that of ImageNet."""


class ModelConfig:
    """A model's config under common key names; BadInput if a required key is missing."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = dict(values)
        self.source = source
        for key, synonyms in SYNONYMS.items():
            # If a config gives two vocabulary sizes, the padded one is the size of the tables.
            if key == "vocab_size" or values.get(key) is None:
                named = [values[name] for name in synonyms if values.get(name) is not None]
                if named:
                    self.values[key] = named[0]
        # The text part of a multimodal model has the layers of its text family: `qwen2_5_vl_text`
        # those of `qwen2`.
        self.kind = re.sub(r"_vl|_5|_text|_model", "", str(values.get("model_type")))
        self.family = {trait for trait, kinds in FAMILIES.items() if self.kind in kinds}
        self.name = str(values.get("_name_or_path") or values.get("name") or self.kind)

    def need(self, key: str) -> int:
        """The positive whole number under a required key, or the largest in a list with one number
        for each layer; BadInput if it is missing or invalid."""
        value = self.values.get(key)
        if value is None:
            raise BadInput(f"{self.source} has no `{key}`", hint="the config.json is incomplete")
        if isinstance(value, list):
            value = max((size for size in value if isinstance(size, int)), default=value)
        # Python's bool is a subclass of int.
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < LARGEST_SIZE:
            raise BadInput(
                f"{self.source}: `{key}` is {value!r}; a positive whole number is needed"
            )
        return value

    def get(self, *keys: str, default: int = 0) -> int:
        """The number under the first of these keys that is set and not 0; otherwise the default."""
        key = next((key for key in keys if self.values.get(key)), None)
        return default if key is None else self.need(key)

    def has(self, *parts: str) -> bool:
        """Whether the config has a key whose name contains all these parts."""
        return any(all(part in key for part in parts) for key in self.values)

    @property
    def hidden(self) -> int:
        """The width of the model."""
        return self.need("hidden_size")

    @property
    def mlp_width(self) -> int:
        """The width of a dense MLP; four times the model's if the config names none."""
        return self.get("intermediate_size", default=4 * self.hidden)

    def uncounted(self, kind: str) -> UsageError:
        """The error for a model with layers of a kind that plan does not count."""
        return UsageError(
            f"{self.source}: plan cannot estimate layers of the kind {kind!r}",
            hint=f"if plan knows the model, give its hub id with `--model`; {MEASURE_HINT}",
        )


def shape_of(values: Mapping[str, Any], source: str = "config.json") -> Shape:
    """The shape of the model that a `config.json` describes.

    Raises UsageError if plan cannot count the model's family, and BadInput if a required key is
    missing.

    >>> shape_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    ...     "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5}).parameters
    123532032
    """
    text = next((values[key] for key in TEXT_PARTS if isinstance(values.get(key), Mapping)), None)
    if text or isinstance(values.get("vision_config"), Mapping):
        return with_towers(values, text, source)
    config = ModelConfig(values, source)
    is_of_images = config.has("image_size") and not config.values.get("vocab_size")
    if is_of_images or config.kind in ENCODERS:
        return encoder(config)
    # RWKV's layers, Zamba's attention blocks that several layers share, and the two stacks of a
    # translator cannot be counted.
    is_uncounted = config.has("rwkv") or config.has("num_mem_blocks")
    is_uncounted = is_uncounted or bool(values.get("is_encoder_decoder"))
    has_heads = config.values.get("num_attention_heads")
    if is_uncounted or "model_type" not in values or not has_heads:
        raise UsageError(
            f"{source}: plan does not know the family {values.get('model_type')!r}",
            hint="plan knows llama, qwen3, gpt2 and every family with `num_attention_heads`. For a "
            f"transformer, you can give only its size with `--params`; {MEASURE_HINT}",
        )
    return decoder(config)


def with_towers(values: Mapping[str, Any], text: Mapping[str, Any] | None, source: str) -> Shape:
    """The shape of a text model with image or audio encoders, which count as parameters. `text`:
    the config's part about the text model."""
    # Some configs keep the text model's keys at the top level, next to the encoders' sections.
    without_towers = {key: part for key, part in values.items() if key not in TOWER_PARTS}
    shape = shape_of(text or without_towers, source)
    towers = 0
    for part in map(values.get, TOWER_PARTS):
        if not isinstance(part, Mapping):
            continue
        config = ModelConfig(part, source)
        # Qwen2-VL's `hidden_size` is the text model's width, its `embed_dim` the encoder's.
        hidden = config.get("embed_dim", "hidden_size", "d_model", "width")
        layers = config.get("depth", "num_hidden_layers", "encoder_layers", "layers")
        width = config.get("intermediate_size", "encoder_ffn_dim") or config.mlp_width
        # An encoder with SiLU has gated MLPs (Qwen2.5-VL).
        matrices = 3 if config.values.get("hidden_act") == "silu" else 2
        # 4: the matrices for queries, keys, values and the output.
        towers += layers * hidden * (4 * hidden + matrices * width)
    return replace(
        shape,
        name=ModelConfig(values, source).name,
        parameters=shape.parameters + towers,
        active=shape.active + towers,
        tower=shape.tower + towers,
    )


ATTENTION, LINEAR = "attention", "linear"


def decoder(config: ModelConfig) -> Shape:
    """The shape of a text decoder, such as Llama or GPT-2."""
    values, family, hidden = config.values, config.family, config.hidden
    mixers = mixers_of(config)
    attention = attention_of(config)
    counts = {ATTENTION: attention.parameters}
    if LINEAR in mixers:
        counts[LINEAR] = linear_attention(config)
    # LayerNorm rather than RMSNorm, by the family or the key of its epsilon (`layer_norm_eps`, but
    # `rms_norm_eps`). ChatGLM has a switch `rmsnorm`.
    says_rms = config.has("rms") and values.get("rmsnorm", True)
    layer_norms = not says_rms and ("layer norms" in family or config.has("layer", "norm", "eps"))
    # Nearly all MLPs since Llama are gated (SwiGLU); those with ReLU, or with LayerNorm and GELU as
    # in GPT-2's time, are not. The family's trait, if it has one, counts more.
    activation = str(values.get("hidden_act") or "gelu")
    gated = activation != "relu" and not (layer_norms and "gelu" in activation)
    gated = "a gate" in family or (gated and "no gate" not in family)
    mlp = mlp_of(config, 3 if gated else 2, len(mixers))
    # The family's default applies where configs leave the key out.
    tied = bool(values.get("tie_word_embeddings", "a tied head" in family))
    vocabulary = config.need("vocab_size")
    # Outside the layers: the embedding, and perhaps a head of its own.
    outside = vocabulary * (1 if tied else 2) * hidden
    if "gemma3n" in config.kind or "gemma4" in config.kind:
        # Gemma 3n and 4 also have a small token embedding for each layer.
        width = config.get("hidden_size_per_layer_input")
        outside += config.get("vocab_size_per_layer_input") * width * len(mixers)
    # All parameters but those of the experts.
    fixed = outside + sum(counts[mixer] for mixer in mixers) + mlp.dense_layers * mlp.dense
    # FSDP gathers a whole layer, or the embedding if that is larger.
    largest_mlp = max(mlp.experts, mlp.dense if mlp.dense_layers else 0)
    largest_layer = max(counts[mixer] for mixer in mixers) + largest_mlp
    return Shape(
        name=config.name,
        kind=config.kind,
        parameters=fixed + mlp.expert_layers * mlp.experts,
        active=fixed + mlp.expert_layers * mlp.active,
        largest_unit=max(vocabulary * hidden, largest_layer),
        layers=len(mixers),
        hidden=hidden,
        heads=attention.heads,
        query=attention.query,
        key_value=attention.key_value,
        intermediate=mlp.width,
        gated=gated,
        rms_norm=not layer_norms,
        query_key_norm="norms of queries and keys" in family or bool(values.get("use_qk_norm")),
        dropout=any(values.get(key) for key in DROPOUTS),
        tied=tied,
        experts=config.get("num_experts_per_tok"),
        vocabulary=vocabulary,
        roughly=LINEAR in mixers,
        native_context=config.get("max_position_embeddings") or None,
    )


class Attention(NamedTuple):
    """The attention of a layer; widths are those of all heads together."""

    heads: int
    query: int
    key_value: int
    """The width of keys or values; the mean if they differ."""
    parameters: int


def attention_of(config: ModelConfig) -> Attention:
    """The attention of a layer."""
    hidden, values = config.hidden, config.values
    heads = config.need("num_attention_heads")
    rank = config.get("kv_lora_rank")
    if rank:
        # DeepSeek's latent attention (arXiv 2405.04434): keys and values come from this rank.
        rotated = config.get("qk_rope_head_dim", default=64)
        plain = config.get("qk_nope_head_dim", default=128)
        value = config.get("v_head_dim", default=128)
        query = heads * (plain + rotated)
        # If there is a query rank, the queries come from a narrow tensor too.
        query_rank = config.get("q_lora_rank")
        parameters = query_rank * (hidden + query) if query_rank else hidden * query
        parameters += hidden * (rank + rotated) + rank * heads * (plain + value)
        parameters += heads * value * hidden
        return Attention(heads, query, heads * (plain + rotated + value) // 2, parameters)
    width = config.get(
        "head_dim", default=256 if "heads of 256" in config.family else hidden // heads
    )
    key_value_heads = config.get("num_key_value_heads", default=heads)
    query, key_value = heads * width, key_value_heads * width
    # A gate for the output has as many parameters as the query projection.
    queries = 3 if values.get("attn_output_gate") else 2
    return Attention(heads, query, key_value, hidden * (queries * query + 2 * key_value))


def linear_attention(config: ModelConfig) -> int:
    """The parameters of one layer of Gated DeltaNet (Qwen3-Next, Qwen3.5): its projections and two
    gates. The short convolution does not matter."""
    value_heads = config.need("linear_num_value_heads")
    keys = config.need("linear_num_key_heads") * config.need("linear_key_head_dim")
    values = value_heads * config.need("linear_value_head_dim")
    # Values, their gate and the output have one width; two more gates, one number per head.
    return config.hidden * (2 * keys + 3 * values + 2 * value_heads)


def mixers_of(config: ModelConfig) -> Sequence[str]:
    """The mixer of each layer, in order. UsageError for kinds of layers that plan does not count.

    If the config does not describe its layers, all of them have attention.
    """
    values = config.values
    uncounted = [key for key in UNCOUNTED_KEYS if values.get(key) is not None]
    uncounted += [family for family in UNCOUNTED_FAMILIES if family in config.kind]
    if uncounted:
        raise config.uncounted(uncounted[0])
    for key in ("layer_types", "layers_block_type"):
        kinds = values.get(key)
        # A list that is empty, or longer than any model's, does not describe the layers.
        if isinstance(kinds, list) and 0 < len(kinds) <= MOST_LAYERS:
            return [mixer_named(config, str(kind).lower()) for kind in kinds]
    layers = config.need("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise BadInput(f"`num_hidden_layers` is {layers:,}: no model has so many")
    period = config.get("full_attention_interval")
    if period > 1:
        # The last layer of every period has attention.
        other = mixer_named(config, "linear_attention")
        return [other if layer % period else ATTENTION for layer in range(1, layers + 1)]
    return [ATTENTION] * layers


def mixer_named(config: ModelConfig, kind: str) -> str:
    """The mixer for a layer kind in the config; UsageError for one that plan does not count.

    transformers 5 writes `linear_attention` for state space too, which the model's other keys
    reveal. Linear attention without known keys (MiniMax) is counted like attention.
    """
    if "attention" not in kind:
        raise config.uncounted(kind)
    if kind == "linear_attention":
        if config.values.get("linear_num_value_heads"):
            return LINEAR
        if config.has("mamba") or config.has("state_size"):
            raise config.uncounted("state space")
    return ATTENTION


class Mlp(NamedTuple):
    """The MLPs of a model: how many layers have which kind, and their parameters in a layer."""

    dense_layers: int
    dense: int
    width: int
    """The inner width that one token uses: of the dense MLP, or of all its experts together."""
    expert_layers: int = 0
    experts: int = 0
    """The parameters of all experts in a layer and of their router."""
    active: int = 0
    """The parameters of the experts that one token uses, and of the router."""


def mlp_of(config: ModelConfig, matrices: int, layers: int) -> Mlp:
    """The MLPs of a model, each expert or dense MLP with this number of weight matrices."""
    width = config.mlp_width
    # The parameters for one element of an inner width: one column or row in each matrix.
    unit = matrices * config.hidden
    number = config.get("num_experts")
    if not number:
        return Mlp(layers, unit * width, width)
    # Some models have dense layers first or in between.
    first_dense = config.get("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    expert_layers = max(layers - first_dense, 0) // config.get(*PERIODS, default=1)
    expert = config.get("moe_intermediate_size", default=width)
    # Qwen configs give the width of the shared expert, others the number of shared experts.
    shared = config.get("n_shared_experts") * expert
    shared = shared or config.get("shared_expert_intermediate_size")
    active = config.need("num_experts_per_tok") * expert + shared
    router = config.hidden * number
    return Mlp(
        dense_layers=layers - expert_layers,
        dense=unit * width,
        # A dense layer may be wider than the experts that a token uses.
        width=max(active, width) if expert_layers < layers else active,
        expert_layers=expert_layers,
        experts=router + unit * (number * expert + shared),
        active=router + unit * active,
    )


def encoder(config: ModelConfig) -> Shape:
    """The shape of an encoder of texts (with a classifier, as in fine-tuning) or of images (ViT,
    DINOv2, SigLIP), whose patches count as tokens."""
    hidden, width = config.hidden, config.mlp_width
    # ModernBERT has gated MLPs, and rotary embeddings instead of a position table.
    is_modern = config.kind == "modernbert"
    matrices = 3 if is_modern else 2
    # Queries, keys, values and output have biases. The rest are the MLP's biases (width + hidden),
    # and two norms, each with a weight and a bias.
    layer = 4 * hidden * (hidden + 1) + matrices * hidden * width + width + 5 * hidden
    largest_unit, tokens, positions = layer, None, None
    if config.kind in ENCODERS:
        table, positions = config.need("vocab_size"), config.get("max_position_embeddings")
        largest_unit = max(table * hidden, layer)
        # The weight and the bias of the norm after the embeddings are two more rows.
        rows = table + config.get("type_vocab_size") + 2 + (0 if is_modern else positions)
        # The dense layer before the classes, whose own few weights do not matter.
        outside = rows * hidden + hidden * (hidden + 1)
    else:
        patch = config.need("patch_size")
        patches = (config.need("image_size") // patch) ** 2
        tokens = patches + 1
        # The patch projection and the classifier with their biases, the last norm, and a vector for
        # each patch position, the class token and the mask token.
        inputs = patch * patch * config.get("num_channels", default=3) + 1
        outside = hidden * (inputs + patches + 2 + 2) + USUAL_CLASSES * (hidden + 1)
    layers = config.need("num_hidden_layers")
    parameters = outside + layers * layer
    return Shape(
        name=config.name,
        kind=config.kind,
        parameters=parameters,
        active=parameters,
        largest_unit=largest_unit,
        layers=layers,
        hidden=hidden,
        heads=config.need("num_attention_heads"),
        query=hidden,
        key_value=hidden,
        intermediate=width,
        gated=is_modern,
        rms_norm=False,
        dropout=config.kind in ENCODERS,
        tokens=tokens,
        native_context=positions,
    )
