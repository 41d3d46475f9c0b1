"""A Hugging Face `config.json` -> the shape of its model, by one row a family.

The counts are those of the class on the meta device (`tests/test_plan_models.py` compares each
family with transformers). Keys are those of transformers 4.30 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.shape import Shape

GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}


class Family(Frozen):
    """How the layers of a family are made. A key's name stands where the config decides."""

    model: str
    """Its class in transformers."""
    norm_bias: bool = False
    """LayerNorm has a weight and a bias, RMSNorm a weight."""
    norms: int = 2
    """Norms of a layer."""
    query_key_norm: bool | str = False
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    head_bias: bool = False
    gated: bool = True
    activation: str = "silu"
    """Its activation where the config does not say."""
    dropout: bool = False
    """Whether its class drops out where the config does not say."""
    positions: bool = False
    """Whether positions are learned parameters."""
    tied: bool = False
    """Whether the head is the embedding where the config does not say."""
    head_dim: int | None = None
    """The width of a head where the config does not say; None: hidden over heads."""
    free_heads: bool = True
    """Whether a `head_dim` may differ from hidden over heads."""
    shared_expert: bool = False
    """Whether one expert beside the others serves every token."""
    keys: Mapping[str, str] = {}
    """The family's own names of the common keys."""


FAMILIES: dict[str, Family] = {
    "llama": Family(
        model="LlamaForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    "mistral": Family(model="MistralForCausalLM"),
    "qwen2": Family(model="Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Family(
        model="Qwen3ForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
        head_dim=128,
    ),
    "gemma": Family(
        model="GemmaForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        tied=True,
        head_dim=256,
    ),
    "gemma2": Family(
        model="Gemma2ForCausalLM",
        norms=4,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        tied=True,
        head_dim=256,
    ),
    "gemma3_text": Family(
        model="Gemma3ForCausalLM",
        norms=4,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
        tied=True,
        head_dim=256,
    ),
    "gpt2": Family(
        model="GPT2LMHeadModel",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu_new",
        dropout=True,
        positions=True,
        tied=True,
        free_heads=False,
        keys=GPT2_KEYS,
    ),
    "phi": Family(
        model="PhiForCausalLM",
        norm_bias=True,
        norms=1,
        query_key_norm="qk_layernorm",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        gated=False,
        activation="gelu_new",
    ),
    "gpt_neox": Family(
        model="GPTNeoXForCausalLM",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu",
        free_heads=False,
    ),
    "phi3": Family(model="Phi3ForCausalLM"),
    "mixtral": Family(model="MixtralForCausalLM"),
    "qwen2_moe": Family(model="Qwen2MoeForCausalLM", qkv_bias="qkv_bias", shared_expert=True),
    "qwen3_moe": Family(
        model="Qwen3MoeForCausalLM",
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        query_key_norm=True,
    ),
    "vit": Family(
        model="ViTForImageClassification",
        norm_bias=True,
        qkv_bias="qkv_bias",
        output_bias=True,
        mlp_bias=True,
        gated=False,
        activation="gelu",
        free_heads=False,
    ),
}
"""model_type -> how it is made."""

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
        return default if self.values.get(name) is None else self.need(key)

    def says(self, rule: bool | str) -> bool:
        """Whether a row's rule holds: as the row says, or as the key that it names says."""
        if isinstance(rule, bool):
            return rule
        return bool(self.values.get(rule, SAID_BY_DEFAULT.get(rule, False)))


def shape_of(values: Mapping[str, Any], what: str = "config.json") -> Shape:
    """The shape of a config's model.

    Raises UsageError for a family that is not known, BadInput for a needed key that is missing.
    """
    inner = values.get("text_config")
    if isinstance(inner, Mapping) and "model_type" in inner and "hidden_size" not in values:
        raise UsageError(
            f"{what} is a model of text and images ({values.get('model_type')})",
            hint="`--params` plans it by its size; or give the config of its text part alone",
        )
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UsageError(
            f"{what}: the family {kind!r} is not known",
            hint=f"known: {', '.join(FAMILIES)}; `--params` plans any model by its size",
        )
    config = Config(values, FAMILIES[kind], what)
    return _image_shape(config, kind) if kind == "vit" else _text_shape(config, kind)


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
        name=_named(config, kind),
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
    classes = _classes(config)
    tokens = (image // patch) ** 2 + 1
    patches = config.get("num_channels", 3) * patch**2 * hidden + hidden
    block = _attention(config) + _norms(config) + _mlp(config, 0)[0]
    head = classes * (hidden + 1) if classes else 0
    total = layers * block + patches + hidden + tokens * hidden + _norm(config) + head
    return Shape(
        name=_named(config, kind),
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


def _classes(config: Config) -> int:
    labels = config.values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else config.get("num_labels", 2)


def _named(config: Config, kind: str) -> str:
    name = config.values.get("_name_or_path") or config.values.get("name")
    return name if isinstance(name, str) and name else kind


def _heads(config: Config) -> tuple[int, int, int]:
    """Heads, the width of all queries, the width of all keys."""
    heads, hidden = config.need("num_attention_heads"), config.need("hidden_size")
    shared = config.get("num_key_value_heads", heads)
    width = config.family.head_dim or hidden // heads
    width = config.get("head_dim", width) if config.family.free_heads else width
    return heads, heads * width, shared * width


def _attention(config: Config) -> int:
    """Query, key, value and output projections, their biases, and the norms of query and key."""
    hidden = config.need("hidden_size")
    heads, query, key_value = _heads(config)
    weights = hidden * (2 * query + 2 * key_value)
    biases = config.says(config.family.qkv_bias) * (query + 2 * key_value)
    biases += config.says(config.family.output_bias) * hidden
    norm = (2 if config.family.norm_bias else 1) * 2 * (query // heads)
    return weights + biases + config.says(config.family.query_key_norm) * norm


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
    return bool((index + 1) % config.get("decoder_sparse_step", 1) == 0)


def _mixture(config: Config, experts: int) -> tuple[int, int, int]:
    """A router, experts, and where there is one the shared expert with its gate."""
    hidden, used = config.need("hidden_size"), config.need("num_experts_per_tok")
    width = config.get("moe_intermediate_size", config.get("intermediate_size", 4 * hidden))
    shared = config.get("shared_expert_intermediate_size", 0) if config.family.shared_expert else 0
    always = hidden * experts + (_dense(config, shared) + hidden if shared else 0)
    one = _dense(config, width)
    return always + experts * one, always + used * one, used * width + shared
