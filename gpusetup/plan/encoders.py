"""The shapes of encoders for text, images and audio, from the keys of a `config.json`."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import replace
from gpusetup.plan.mlps import default_mlp_width
from gpusetup.plan.model_keys import ModelConfig
from gpusetup.plan.shape import Shape

USUAL_PATCH = 16
USUAL_CLASSES = 1000
"""The number of classes if the config names none: that of ImageNet."""


def text_encoder(config: ModelConfig) -> Shape:
    """The shape of a text encoder with a classifier of two classes, as in fine-tuning."""
    hidden = config.hidden
    # ModernBERT has gated MLPs. It uses rotary embeddings, so it has no position table.
    is_modern = config.kind == "modernbert"
    layer = encoder_layer(config, matrices=3 if is_modern else 2)
    rows = config.need("vocab_size") + config.get("type_vocab_size") + 2
    if not is_modern:
        rows += config.get("max_position_embeddings")
    classifier = hidden * (hidden + 1)
    shape = encoder_shape(
        config,
        parameters=rows * hidden + config.need("num_hidden_layers") * layer + classifier,
        largest_unit=max(config.need("vocab_size") * hidden, layer),
    )
    return replace(
        shape,
        classes=2,
        gated=is_modern,
        dropout=True,
        native_context=config.get("max_position_embeddings") or None,
    )


def image_encoder(config: ModelConfig) -> Shape:
    """The shape of an image encoder with a classifier (ViT, DINOv2, SigLIP); its patches count as
    tokens."""
    hidden = config.hidden
    patch = config.get("patch_size", USUAL_PATCH)
    patches = (config.need("image_size") // patch) ** 2
    patch_values = patch * patch * config.get("num_channels", 3)
    # The patch projection with its bias, and a vector for each patch position, the class token and
    # the mask token.
    inputs = hidden * (patch_values + 1) + (patches + 2) * hidden
    labels = config.values.get("id2label")
    classes = len(labels) if isinstance(labels, Mapping) else USUAL_CLASSES
    classifier = classes * (hidden + 1)
    last_norm = 2 * hidden
    layer = encoder_layer(config, matrices=2)
    layers = config.need("num_hidden_layers") * layer
    shape = encoder_shape(
        config,
        parameters=layers + inputs + classifier + last_norm,
        largest_unit=layer,
    )
    return replace(shape, classes=classes, tokens=patches + 1)


def encoder_layer(config: ModelConfig, matrices: int) -> int:
    """The number of parameters of one encoder layer, with biases; `matrices` is the number of
    weight matrices in its MLP."""
    hidden = config.hidden
    width = config.get("intermediate_size") or default_mlp_width(config)
    # Attention has four matrices: queries, keys, values and output.
    attention = 4 * hidden * (hidden + 1)
    mlp = matrices * hidden * width
    biases_and_norms = width + 5 * hidden
    return attention + mlp + biases_and_norms


def encoder_shape(config: ModelConfig, parameters: int, largest_unit: int) -> Shape:
    """A shape with the fields that text and image encoders have in common."""
    hidden = config.hidden
    return Shape(
        name=config.name,
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


def tower_parameters(config: ModelConfig) -> int:
    """The number of parameters in the layers of an image or audio encoder."""
    hidden = config.first("embed_dim", "hidden_size", "d_model", "width")
    layers = config.first("depth", "num_hidden_layers", "encoder_layers", "layers")
    width = config.first("intermediate_size", "encoder_ffn_dim") or default_mlp_width(config)
    # An encoder with SiLU has gated MLPs (Qwen2.5-VL).
    has_gate = config.values.get("hidden_act") == "silu"
    matrices = 3 if has_gate else 2
    columns = 4 * hidden + matrices * width
    return layers * hidden * columns
