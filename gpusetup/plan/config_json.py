"""Any `config.json` -> the shape of its model, by the keys that nearly all configs share.

Widths, layers, heads, vocabulary, experts. What no key tells stands in a family's row. Biases, a
thousandth of the parameters, are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.shape import BERTS, Shape

SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim", "embed_dim"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers", "encoder_layers"),
    "num_attention_heads": ("n_head", "num_heads", "n_heads", "encoder_attention_heads"),
    "num_key_value_heads": (
        "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups",
    ),
    "intermediate_size": (
        "ffn_hidden_size", "ffn_dim", "d_ff", "n_inner", "inner_hidden_size", "hidden_dim",
        "encoder_ffn_dim",
    ),
    "vocab_size": ("padded_vocab_size",),
    "head_dim": ("kv_channels", "d_kv"),
    "max_position_embeddings": (
        "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx",
    ),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "hidden_act": (
        "activation_function", "hidden_activation", "activation", "feed_forward_proj",
    ),
    "decoder_layers": ("num_decoder_layers",),
}  # fmt: skip
"""Key of most configs -> what other families call it."""


class Family(Frozen):
    """What no key of a family's config tells."""

    gated: bool | None = None
    """Whether its MLP has a gate; None: as its activation and its norms let one expect."""
    layer_norm: bool = False
    """Whether its norms are layer norms, if no key with an epsilon tells."""
    norms: int = 2
    """Norms of a layer; 1 if attention and MLP read the same."""
    query_key_norm: bool = False
    positions: bool = False
    """Whether positions are learned parameters."""
    activation: str | None = None
    """Of an MLP without a gate, if no key says it."""
    tied: bool = False
    """Whether the head is the embedding if the config does not say."""
    head_dim: int | None = None
    """The width of a head if the config does not say; None: hidden over heads."""


PLAIN = Family(gated=False)
ONE_NORM = Family(gated=False, norms=1)
QUERY_KEY = Family(query_key_norm=True)
READS = Family(gated=False, layer_norm=True)
"""What reads a text whole, or an image."""
FAMILIES: dict[str, Family] = {
    "apertus": Family(gated=False, query_key_norm=True),
    "arcee": PLAIN,
    "biogpt": Family(gated=False, positions=True, tied=True),
    "bloom": Family(gated=False, tied=True),
    "chatglm": Family(activation="gelu_fast"),
    "codegen": ONE_NORM,
    "cohere": Family(gated=True, norms=1, tied=True),
    "cohere2": Family(gated=True, norms=1, tied=True),
    "dots1": QUERY_KEY,
    "exaone4": Family(tied=True),
    "falcon": Family(gated=False, norms=1, tied=True),
    "flex_olmo": QUERY_KEY,
    "gemma": Family(tied=True, head_dim=256),
    "gemma2": Family(norms=4, tied=True, head_dim=256),
    "gemma3_text": Family(norms=4, tied=True, query_key_norm=True, head_dim=256),
    "gemma3n_text": Family(norms=4, tied=True),
    "glm4": Family(norms=4),
    "gpt2": Family(gated=False, layer_norm=True, positions=True, tied=True, activation="gelu_new"),
    "gpt_bigcode": Family(gated=False, positions=True, tied=True),
    "gpt_neo": Family(gated=False, positions=True, tied=True),
    "gpt_neox": Family(gated=False, layer_norm=True),
    "gptj": ONE_NORM,
    "hunyuan_v1_dense": Family(query_key_norm=True, tied=True),
    "mpt": Family(gated=False, tied=True),
    "nanochat": PLAIN,
    "nemotron": Family(gated=False, layer_norm=True),
    "olmo": Family(gated=True, layer_norm=True),
    "olmo2": QUERY_KEY,
    "olmo3": QUERY_KEY,
    "olmoe": QUERY_KEY,
    "openai-gpt": Family(gated=False, positions=True, tied=True),
    "opt": Family(gated=False, layer_norm=True, positions=True, tied=True),
    "persimmon": PLAIN,
    "phi": Family(gated=False, layer_norm=True, norms=1, activation="gelu_new"),
    "phimoe": Family(gated=True, layer_norm=True),
    "qwen3": Family(query_key_norm=True, head_dim=128),
    "qwen3_moe": QUERY_KEY,
    "smollm3": Family(tied=True),
    "stablelm": Family(gated=True),
    "starcoder2": Family(gated=False, layer_norm=True, tied=True),
    "xglm": Family(gated=False, tied=True),
}
"""By the `model_type` of the config (transformers 4.30 to 5)."""
T5S = ("t5", "mt5", "umt5", "longt5")
TWO_STACKS = (*T5S, "bart", "mbart", "pegasus", "m2m_100", "marian")
"""Models of an encoder and a decoder whose layers look at it, too."""
STATE_SPACE = ("mamba_d_state", "mamba_d_conv", "conv_L_cache", "ssm_cfg", "state_size", "rwkv")
"""Keys of models whose layers are not all attention."""
DROPOUTS = ("resid_pdrop", "hidden_dropout_prob", "residual_dropout", "resid_dropout",
            "hidden_dropout", "dropout", "dropout_rate")  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
                    "head_dim": 256},
    "llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
              "num_hidden_layers": 32, "num_attention_heads": 32},
    "mistral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip
"""What the text part of a model of images leaves out: its class's own defaults."""
INNER = ("text_config", "llm_config", "language_config")
TEXT_OF = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3": "gemma3_text", "mllama_text_model": "llama",
}  # fmt: skip
"""The text part of a model of images -> the family whose layers it has."""


class Config:
    """A config under the usual keys; a needed key that is missing is `BadInput`."""

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        self.values, self.what = dict(values), what
        for key, others in SYNONYMS.items():
            said = next((values[name] for name in others if values.get(name) is not None), None)
            if said is not None and (key == "vocab_size" or values.get(key) is None):
                self.values[key] = said

    def need(self, key: str) -> int:
        """A positive whole number."""
        found = self.values.get(key)
        if found is None:
            raise BadInput(f"{self.what} has no `{key}`", hint="it is not a whole config.json")
        if isinstance(found, list):
            found = max(found)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 10**9:
            raise BadInput(f"{self.what}: `{key}` is {found!r}; a positive whole number is needed")
        return found

    def get(self, key: str, default: int) -> int:
        """The same, or a default if the config leaves it out or null."""
        return self.need(key) if self.values.get(key) else default

    def has(self, *parts: str) -> bool:
        """Whether a key has all these parts in its name."""
        return any(all(part in key for part in parts) for key in self.values)


def shape_of(values: Mapping[str, Any], what: str = "config.json") -> Shape:
    """The shape of a config's model.

    Raises UsageError for a model that has no layers of attention, BadInput for a needed key that is
    missing.
    """
    if isinstance(values.get("vision_config"), Mapping):
        return with_images(values, what)
    config, kind = Config(values, what), str(values.get("model_type"))
    is_image = "patch_size" in values and "image_size" in values
    other = any(key in values for key in STATE_SPACE)
    if other or "model_type" not in values or "num_attention_heads" not in config.values:
        raise UsageError(
            f"{what}: the family {kind!r} is not known",
            hint="known are llama, qwen3, gpt2 and all that have `num_attention_heads`; "
            "`--params` plans a transformer by its size, `--code` any model of your own",
        )
    shape = layers_of(config, kind)
    if is_image:
        return of_patches(config, shape)
    if kind in BERTS:
        return encoder(config, shape)
    return two_stacks(config, shape) if kind in TWO_STACKS else shape


def layers_of(config: Config, kind: str) -> Shape:
    """A decoder of text, or the layers of another."""
    values, images = config.values, "patch_size" in config.values
    family = FAMILIES.get(kind) or (READS if images or kind in BERTS else Family())
    hidden, layers = config.need("hidden_size"), config.need("num_hidden_layers")
    heads, query, key_value = heads_of(config, family)
    by_rms = config.has("rms") and values.get("rmsnorm", True)
    layer_norm = (family.layer_norm or config.has("layer", "norm", "eps")) and not by_rms
    act = str(values.get("hidden_act") or "")
    gated = family.gated
    if gated is None:
        gated = not (act == "relu" or (layer_norm and (not act or "gelu" in act)))
    ups = 2 if gated else 1
    attention = latent(config) or 2 * hidden * (query + key_value)
    norms = family.norms * (1 + layer_norm) * hidden
    sizes = [mlp(config, index, ups) for index in range(layers)]
    vocabulary = 0 if images else config.need("vocab_size")
    tied = bool(values.get("tie_word_embeddings", family.tied))
    table = vocabulary * hidden
    native = 0 if images else config.get("max_position_embeddings", 0)
    outside = table * (1 if tied else 2) + native * hidden * family.positions + hidden
    name = values.get("_name_or_path") or values.get("name")
    usual = family.activation or "gelu"
    return Shape(
        name=name if isinstance(name, str) and name else kind,
        kind=kind,
        parameters=outside + sum(attention + norms + every for every, _, _ in sizes),
        active=outside + sum(attention + norms + used for _, used, _ in sizes),
        largest_unit=max(table, *(attention + norms + every for every, _, _ in sizes)),
        layers=layers,
        hidden=hidden,
        heads=heads,
        query=query,
        key_value=key_value,
        intermediate=max(width for _, _, width in sizes),
        gated=gated,
        activation=act or ("silu" if gated else usual),
        rms_norm=not layer_norm,
        norms=family.norms,
        query_key_norm=family.query_key_norm or bool(values.get("use_qk_norm")),
        dropout=any(values.get(key) for key in DROPOUTS),
        tied=tied,
        experts=config.get("num_experts_per_tok", 0),
        vocabulary=vocabulary,
        native_context=native or None,
    )


def heads_of(config: Config, family: Family) -> tuple[int, int, int]:
    """Heads, the width of all queries, the width of all keys."""
    heads, hidden, values = (
        config.need("num_attention_heads"),
        config.need("hidden_size"),
        config.values,
    )
    if values.get("kv_lora_rank"):
        width = config.need("qk_nope_head_dim") + config.need("qk_rope_head_dim")
        return heads, heads * width, heads * (width + config.need("v_head_dim")) // 2
    newer = values.get("new_decoder_architecture") or values.get("multi_query_group_num")
    one = bool(values.get("multi_query")) and not newer
    shared = 1 if one else config.get("num_key_value_heads", heads)
    width = config.get("head_dim", family.head_dim or hidden // heads)
    return heads, heads * width, shared * width


def latent(config: Config) -> int:
    """The parameters of latent attention (DeepSeek-V2, arXiv 2405.04434); 0 if it has none."""
    rank = config.get("kv_lora_rank", 0)
    if not rank:
        return 0
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    plain, rotated = config.need("qk_nope_head_dim"), config.need("qk_rope_head_dim")
    value, through = config.need("v_head_dim"), config.get("q_lora_rank", 0)
    query = heads * (plain + rotated)
    queries = through * (hidden + query) if through else hidden * query
    keys = hidden * (rank + rotated) + rank * heads * (plain + value)
    return queries + keys + heads * value * hidden


def mlp(config: Config, index: int, ups: int) -> tuple[int, int, int]:
    """The MLP of one layer: all its parameters, those a token uses, the width a token passes."""
    hidden, values = config.need("hidden_size"), config.values
    ratio = float(values.get("expansion_ratio") or values.get("mlp_ratio") or 4)
    width = config.get("intermediate_size", round(ratio * hidden))
    every = (index + 1) % config.get("decoder_sparse_step", 1) == 0
    dense = index in (values.get("mlp_only_layers") or ()) or not every
    experts = config.get("num_experts", 0)
    if not experts or dense or index < config.get("first_k_dense_replace", 0):
        size = (ups + 1) * hidden * width
        return size, size, width
    used, own = config.need("num_experts_per_tok"), config.get("moe_intermediate_size", width)
    shared = config.get("n_shared_experts", 0) * own
    shared = shared or config.get("shared_expert_intermediate_size", 0)
    one = (ups + 1) * hidden
    always = hidden * experts + one * shared
    return always + experts * one * own, always + used * one * own, used * own + shared


# --- what is no decoder of text -------------------------------------------------------------------


def of_patches(config: Config, shape: Shape) -> Shape:
    """A vision transformer with a classifier: patches, a class token, positions."""
    patch, classes = config.need("patch_size"), classes_of(config)
    tokens = (config.need("image_size") // patch) ** 2 + 1
    table = (config.get("num_channels", 3) * patch**2 + tokens + 1) * shape.hidden
    total = shape.parameters + table + classes * shape.hidden
    return replace(shape, parameters=total, active=total, classes=classes, tokens=tokens)


def classes_of(config: Config) -> int:
    labels = config.values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else config.get("num_labels", 2)


def encoder(config: Config, shape: Shape) -> Shape:
    """An encoder with its classifier, as it is fine-tuned.

    >>> shape_of({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
    ...     "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522,
    ...     "max_position_embeddings": 512, "layer_norm_eps": 1e-12}).parameters // 10**6
    109
    """
    length = config.get("max_position_embeddings", 512)
    head = 0 if shape.kind == "distilbert" else shape.hidden**2
    total = shape.parameters - shape.vocabulary * shape.hidden * (not shape.tied)
    total += length * shape.hidden + head
    dropout = any(config.values.get(key, 0.1) for key in ("hidden_dropout_prob", "dropout"))
    return replace(shape, parameters=total, active=total, vocabulary=0, tied=False, dropout=dropout,
                   classes=classes_of(config), native_context=length)  # fmt: skip


def two_stacks(config: Config, shape: Shape) -> Shape:
    """An encoder and a decoder: layers of both count as one kind."""
    s, t5 = shape, shape.kind in T5S
    decoder = config.get("decoder_layers", s.layers)
    act = str(config.values.get("hidden_act") or "relu")
    gated = t5 and act.startswith("gated")
    attention, table = 4 * s.hidden * s.query, s.vocabulary * s.hidden
    inner = (2 + gated) * s.hidden * s.intermediate
    tied = bool(config.values.get("tie_word_embeddings", True))
    blocks = (s.layers + decoder) * (attention + inner) + decoder * attention
    total = table * (1 if tied else 2) + blocks
    dropout = bool(config.values.get("dropout_rate", config.values.get("dropout", 0.1)))
    return replace(
        shape, kind="t5" if t5 else "bart", parameters=total, active=total,
        largest_unit=max(table, 2 * attention + inner), layers=s.layers + decoder, gated=gated,
        key_value=s.query, activation="gelu" if "gelu" in act else act, rms_norm=t5, norms=3,
        dropout=dropout, tied=tied, native_context=s.native_context or 512,
        note=f"layers of both stacks of {s.kind} count as one kind",
    )  # fmt: skip


def with_images(values: Mapping[str, Any], what: str) -> Shape:
    """Text with a tower of images: the text's shape with the tower's parameters.

    Qwen's towers call their width `embed_dim`, merge two by two patches and project them by two
    matrices.
    """
    inner = next((values[key] for key in INNER if isinstance(values.get(key), Mapping)), values)
    kind = str(inner.get("model_type"))
    text = {**DEFAULTS.get(kind, {}), **inner, "model_type": TEXT_OF.get(kind, kind)}
    shape = shape_of({key: one for key, one in text.items() if key != "vision_config"}, what)

    def size(*names: str) -> int:
        found = (values["vision_config"].get(name) for name in names)
        return next((one for one in found if isinstance(one, int)), 0)

    hidden = size("embed_dim", "hidden_size", "width")
    layers = size("depth", "num_hidden_layers", "layers") + size("num_global_layers")
    wide = size("intermediate_size") or round(
        hidden * float(values["vision_config"].get("mlp_ratio", 4))
    )
    ups = 2 + (values["vision_config"].get("hidden_act") == "silu")
    merged, out = hidden * (size("spatial_merge_size") or 1) ** 2, shape.hidden
    projection = merged * (merged + out) if merged > hidden else out * (hidden + out)
    patches = 3 * (size("patch_size") or 14) ** 2 * hidden
    tower = layers * (4 * hidden**2 + ups * hidden * wide) + projection + patches
    name = values.get("_name_or_path") or values.get("name") or values.get("model_type")
    return replace(shape, name=str(name), parameters=shape.parameters + tower,
                   active=shape.active + tower, tower=tower)  # fmt: skip
