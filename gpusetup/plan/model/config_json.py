"""Any `config.json` -> the shape of its model: a known family, an encoder, usual keys, or images.

A family that has no row is read by the keys that nearly all configs share: widths, layers, heads,
vocabulary, experts. Biases and norms, a thousandth of the parameters, are left to rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.model.anatomy import family_shape, known_shape
from gpusetup.plan.model.encoders import ENCODER_KINDS, TWO_STACKS, encoder_shape, stacks_shape
from gpusetup.plan.model.families import FAMILIES, Family
from gpusetup.plan.model.images import tower_parameters
from gpusetup.plan.model.shape import Shape
from gpusetup.plan.model.unsaid import UNSAID, Unsaid

SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim", "embed_dim"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "num_heads", "n_heads"),
    "num_key_value_heads": (
        "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups",
    ),
    "intermediate_size": ("ffn_hidden_size", "ffn_dim", "d_ff", "n_inner", "inner_hidden_size"),
    "vocab_size": ("padded_vocab_size",),
    "head_dim": ("kv_channels", "d_kv"),
    "max_position_embeddings": (
        "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx",
    ),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "hidden_act": ("activation_function", "hidden_activation", "activation"),
}  # fmt: skip
"""Key of most configs -> what other families call it."""

STATE_SPACE = ("mamba_d_state", "mamba_d_conv", "conv_L_cache", "ssm_cfg", "state_size", "rwkv")
"""Keys of models whose layers are not all attention."""
WITH_DROPOUT = ("residual_dropout", "resid_dropout", "hidden_dropout", "dropout")

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}
"""What the text part of a model of images leaves out: its class's own defaults."""


def shape_of(values: Mapping[str, Any], what: str = "config.json") -> Shape:
    """The shape of a config's model.

    Raises UsageError for a model that has no layers of attention, BadInput for a needed key that is
    missing.
    """
    if isinstance(values.get("vision_config"), Mapping):
        return _with_images(values, what)
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return known_shape(values, kind, what)
    if "patch_size" in values and "image_size" in values:
        return _patches_shape(values, str(kind), what)
    if kind in ENCODER_KINDS:
        return encoder_shape(values, str(kind), what)
    if kind in TWO_STACKS:
        return stacks_shape(values, str(kind), what)
    return _usual_shape(values, kind, what)


def _with_images(values: Mapping[str, Any], what: str) -> Shape:
    """Text beside a tower of images: the text's shape with the tower's parameters."""
    inner = next((values[key] for key in INNER if isinstance(values.get(key), Mapping)), values)
    kind = inner.get("model_type")
    text: dict[str, Any] = {**DEFAULTS.get(str(kind), {}), **inner}
    text["model_type"] = TEXT_OF.get(str(kind), kind)
    shape = shape_of({key: one for key, one in text.items() if key != "vision_config"}, what)
    tower = tower_parameters(values["vision_config"], shape.hidden)
    name = values.get("_name_or_path") or values.get("name") or values.get("model_type")
    return replace(
        shape,
        name=str(name),
        parameters=shape.parameters + tower,
        active=shape.active + tower,
        tower=tower,
        note="images: the tower's weights are counted, images' tokens are those of `--context`; "
        "what the tower keeps of them is not, which is nothing where it is frozen",
    )


def _patches_shape(values: Mapping[str, Any], kind: str, what: str) -> Shape:
    """A model of an image's patches (DeiT, BEiT, DINOv2, SigLIP's tower), read as a ViT."""
    found = usual(values)
    ratio, hidden = found.get("mlp_ratio"), found.get("hidden_size")
    if "intermediate_size" not in found and isinstance(hidden, int):
        found["intermediate_size"] = round(hidden * float(ratio or 4))
    shape = known_shape(found, "vit", what)
    return replace(shape, note=f"{kind} has no row of its own: read as a ViT")


INNER = ("text_config", "llm_config", "language_config")
TEXT_OF = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3": "gemma3_text", "mllama_text_model": "llama",
}  # fmt: skip
"""The text part of a model of images -> the family whose layers it has."""


def _usual_shape(values: Mapping[str, Any], kind: Any, what: str) -> Shape:
    """A family without a row, by the usual keys."""
    found = usual(values)
    other = any(key in values for key in STATE_SPACE)
    if not isinstance(kind, str) or "num_attention_heads" not in found or other:
        raise UsageError(
            f"{what}: the family {kind!r} is not known",
            hint=f"known: {', '.join(FAMILIES)}, and what has `num_attention_heads`; "
            "`--params` plans a transformer by its size, `--code` any model of your own",
        )
    family = family_of(found, kind)
    found["shared_width"] = _shared_width(found)
    shape = family_shape(found, family, kind, what)
    shape = replace(shape, note=f"{kind} has no row of its own: read by the usual keys")
    if any(found.get(key) for key in WITH_DROPOUT):
        shape = replace(shape, dropout=True)
    return shape


def usual(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config under the usual keys, with its nested parts' beside.

    >>> usual({"d_model": 64, "n_layers": 2, "expansion_ratio": 4})["intermediate_size"]
    256
    """
    found = dict(values)
    for key, others in SYNONYMS.items():
        said = next((values[name] for name in others if values.get(name) is not None), None)
        first = key == "vocab_size" and said is not None
        if said is not None and (first or found.get(key) is None):
            found[key] = said
    ratio = values.get("expansion_ratio")
    hidden = found.get("hidden_size")
    if isinstance(ratio, int) and isinstance(hidden, int):
        found["intermediate_size"] = ratio * hidden
    if _one_key_head(values):
        found["num_key_value_heads"] = 1
    if isinstance(found.get("intermediate_size"), list):
        found["intermediate_size"] = max(found["intermediate_size"])
    if isinstance(found.get("head_dim"), int) and "kv_lora_rank" in values:
        del found["head_dim"]
    return found


def _one_key_head(values: Mapping[str, Any]) -> bool:
    """Whether all queries share one head of keys (Falcon 7B, StarCoder); ChatGLM 2 names groups."""
    newer = values.get("new_decoder_architecture")
    groups = values.get("multi_query_group_num") is not None
    return bool(values.get("multi_query") and not newer and not groups)


def family_of(found: Mapping[str, Any], kind: str) -> Family:
    """How a family without a row is made, by its keys and its name."""
    unsaid = UNSAID.get(kind, Unsaid())
    layer_norm = unsaid.layer_norm
    layer_norm |= any("layer" in key and "norm" in key and "eps" in key for key in found)
    by_rms = any("rms" in key for key in found) and found.get("rmsnorm", True)
    act = str(found.get("hidden_act") or "")
    plain = unsaid.gated is False or act == "relu"
    plain |= "gelu" in act and layer_norm and not by_rms
    plain |= not act and layer_norm and not by_rms and unsaid.gated is None
    return Family(
        model=kind,
        norm_bias=layer_norm and not by_rms,
        norms=unsaid.norms,
        query_key_norm=unsaid.query_key_norm or bool(found.get("use_qk_norm")),
        gated=not plain,
        activation=act or (unsaid.activation or "gelu" if plain else "silu"),
        positions=unsaid.positions,
        tied=unsaid.tied,
        shared_expert=bool(_shared_width(found)),
        keys={"shared_expert_intermediate_size": "shared_width"},
    )


def _shared_width(found: Mapping[str, Any]) -> int:
    """The width of the experts that serve every token (`n_shared_experts`: DeepSeek's, GLM's)."""
    number, width = found.get("n_shared_experts"), found.get("moe_intermediate_size")
    if isinstance(number, int) and isinstance(width, int):
        return number * width
    said = found.get("shared_expert_intermediate_size")
    return said if isinstance(said, int) else 0
