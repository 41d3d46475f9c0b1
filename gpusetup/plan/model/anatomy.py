"""A `config.json` of a known family -> the shape of its model (`config_json` reads any)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.plan.model.families import FAMILIES, Family
from gpusetup.plan.model.shape import Shape

SAID_BY_DEFAULT = {"qkv_bias": True}
"""What a key that decides means where the config leaves it out; False otherwise."""


class Config:
    """A config with the family's own names of keys; a needed key that is missing is `BadInput`."""

    def __init__(self, values: Mapping[str, Any], family: Family, what: str) -> None:
        self.values, self.family, self.what = values, family, what

    def need(self, key: str) -> int:
        """A positive whole number."""
        name = self.family.keys.get(key, key)
        found = self.values.get(name)
        if found is None:
            raise BadInput(f"{self.what} has no `{name}`", hint="it is not a whole config.json")
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 10**9:
            raise BadInput(f"{self.what}: `{name}` is {found!r}; a positive whole number is needed")
        return found

    def get(self, key: str, default: int) -> int:
        """The same, or a default where the config leaves it out or null."""
        name = self.family.keys.get(key, key)
        return self.need(key) if self.values.get(name) else default

    def says(self, rule: bool | str) -> bool:
        """Whether a row's rule holds: as the row says, or as the key that it names says."""
        if isinstance(rule, bool):
            return rule
        return bool(self.values.get(rule, SAID_BY_DEFAULT.get(rule, False)))


def family_shape(values: Mapping[str, Any], family: Family, kind: str, what: str) -> Shape:
    """The shape of a config whose family is known; BadInput for a needed key that is missing."""
    config = Config(values, family, what)
    return _image_shape(config, kind) if kind == "vit" else _text_shape(config, kind)


def known_shape(values: Mapping[str, Any], kind: str, what: str) -> Shape:
    """The same by the family's name, which must be one of `FAMILIES`."""
    return family_shape(values, FAMILIES[kind], kind, what)


# --- counting -----------------------------------------------------------------------------------


def _text_shape(config: Config, kind: str) -> Shape:
    hidden, layers, vocabulary = map(
        config.need, ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    heads, query, key_value = _heads(config)
    outside = _attention(config) + _norms(config)
    sizes = [_mlp(config, index) for index in range(layers)]
    table = vocabulary * hidden
    tied = config.values.get("tie_word_embeddings", config.family.tied)
    head = (0 if tied else table) + (vocabulary if config.family.head_bias else 0)
    positions = config.need("max_position_embeddings") * hidden if config.family.positions else 0
    rest = table + head + positions + _norm(config)
    return Shape(
        name=named(config, kind),
        kind=kind,
        parameters=rest + sum(outside + all_of for all_of, _, _ in sizes),
        active=rest + sum(outside + used for _, used, _ in sizes),
        largest_unit=max(table, *(outside + all_of for all_of, _, _ in sizes)),
        layers=layers,
        hidden=hidden,
        heads=heads,
        query=query,
        key_value=key_value,
        intermediate=max(width for _, _, width in sizes),
        **_kept(config),
        vocabulary=vocabulary,
        tied=bool(tied),
        native_context=config.get("max_position_embeddings", 0) or None,
    )


def _image_shape(config: Config, kind: str) -> Shape:
    """A vision transformer with a classifier: patches, a class token, positions."""
    hidden, layers = config.need("hidden_size"), config.need("num_hidden_layers")
    patch, image = config.need("patch_size"), config.need("image_size")
    heads, query, key_value = _heads(config)
    classes = classes_of(config)
    tokens = (image // patch) ** 2 + 1
    patches = config.get("num_channels", 3) * patch**2 * hidden + hidden
    block = _attention(config) + _norms(config) + _mlp(config, 0)[0]
    head = classes * (hidden + 1) if classes else 0
    total = layers * block + patches + hidden + tokens * hidden + _norm(config) + head
    return Shape(
        name=named(config, kind),
        kind=kind,
        parameters=total,
        active=total,
        largest_unit=max(block, patches + hidden + tokens * hidden),
        layers=layers,
        hidden=hidden,
        heads=heads,
        query=query,
        key_value=key_value,
        intermediate=config.need("intermediate_size"),
        **_kept(config),
        classes=classes,
        tokens=tokens,
    )


def _kept(config: Config) -> dict[str, Any]:
    """What decides how much of a layer the backward pass needs."""
    family = config.family
    activation = config.values.get("activation_function") or config.values.get("hidden_act")
    keys = ("resid_pdrop", "hidden_dropout_prob")
    said = [config.values[key] for key in keys if key in config.values]
    return {
        "gated": family.gated,
        "activation": activation or family.activation,
        "rms_norm": not family.norm_bias,
        "norms": family.norms,
        "query_key_norm": config.says(family.query_key_norm),
        "dropout": any(said) if said else family.dropout,
        "experts": config.get("num_experts_per_tok", 0),
    }


def classes_of(config: Config) -> int:
    labels = config.values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else config.get("num_labels", 2)


def named(config: Config, kind: str) -> str:
    name = config.values.get("_name_or_path") or config.values.get("name")
    return name if isinstance(name, str) and name else kind


def _heads(config: Config) -> tuple[int, int, int]:
    """Heads, the width of all queries, the width of all keys."""
    heads, hidden = config.need("num_attention_heads"), config.need("hidden_size")
    if config.values.get("kv_lora_rank"):
        return heads, heads * _latent_width(config), heads * _latent_mean(config)
    shared = config.get("num_key_value_heads", heads)
    width = config.family.head_dim or hidden // heads
    width = config.get("head_dim", width) if config.family.free_heads else width
    return heads, heads * width, shared * width


def _attention(config: Config) -> int:
    """Query, key, value and output projections, their biases, and the norms of query and key."""
    if config.values.get("kv_lora_rank"):
        return _latent_attention(config)
    hidden = config.need("hidden_size")
    heads, query, key_value = _heads(config)
    weights = hidden * (2 * query + 2 * key_value)
    biases = config.says(config.family.qkv_bias) * (query + 2 * key_value)
    biases += config.says(config.family.output_bias) * hidden
    norm = (2 if config.family.norm_bias else 1) * 2 * (query // heads)
    return weights + biases + config.says(config.family.query_key_norm) * norm


def _latent_width(config: Config) -> int:
    """A query's width in latent attention (DeepSeek-V2, arXiv 2405.04434): plain, and rotated."""
    return config.need("qk_nope_head_dim") + config.need("qk_rope_head_dim")


def _latent_mean(config: Config) -> int:
    """The mean width of a key and a value of latent attention."""
    return (_latent_width(config) + config.need("v_head_dim")) // 2


def _latent_attention(config: Config) -> int:
    """Its projections: queries (through a rank, or whole), the shared rank, keys, values, out."""
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    rank, rotated = config.need("kv_lora_rank"), config.need("qk_rope_head_dim")
    plain, value = config.need("qk_nope_head_dim"), config.need("v_head_dim")
    query, through = heads * (plain + rotated), config.get("q_lora_rank", 0)
    queries = through * (hidden + query + 1) if through else hidden * query
    return (
        queries
        + hidden * (rank + rotated)
        + rank * (1 + heads * (plain + value))
        + heads * value * hidden
    )


def _norm(config: Config) -> int:
    return (2 if config.family.norm_bias else 1) * config.need("hidden_size")


def _norms(config: Config) -> int:
    return config.family.norms * _norm(config)


def _mlp(config: Config, index: int) -> tuple[int, int, int]:
    """The MLP of one layer: all its parameters, those a token uses, the width a token passes."""
    experts = config.values.get("num_local_experts") or config.values.get("num_experts")
    if not experts or not _is_sparse(config, index):
        width = config.get("intermediate_size", 4 * config.need("hidden_size"))
        size = _dense(config, width)
        return size, size, width
    return _mixture(config, int(experts))


def _dense(config: Config, width: int) -> int:
    hidden = config.need("hidden_size")
    ups = 2 if config.family.gated else 1
    bias = config.says(config.family.mlp_bias) * (ups * width + hidden)
    return (ups + 1) * hidden * width + bias


def _is_sparse(config: Config, index: int) -> bool:
    """Whether a layer has experts (Qwen's MoE models may have dense layers between)."""
    if index in (config.values.get("mlp_only_layers") or ()):
        return False
    if index < config.get("first_k_dense_replace", 0):
        return False
    return bool((index + 1) % config.get("decoder_sparse_step", 1) == 0)


def _mixture(config: Config, experts: int) -> tuple[int, int, int]:
    """A router, experts, and where there is one the shared expert with its gate."""
    hidden, used = config.need("hidden_size"), config.need("num_experts_per_tok")
    width = config.get("moe_intermediate_size", config.get("intermediate_size", 4 * hidden))
    shared = config.get("shared_expert_intermediate_size", 0) if config.family.shared_expert else 0
    always = hidden * experts + (_dense(config, shared) + hidden if shared else 0)
    one = _dense(config, width)
    return always + experts * one, always + used * one, used * width + shared
