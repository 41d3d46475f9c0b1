"""Towers of images beside a model of text, and denoisers that are transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.plan.model.shape import Sample, Shape


def tower_parameters(vision: Mapping[str, Any], out: int) -> int:
    """The parameters of a tower of images, with its projection to the text's width.

    Qwen's towers call their width `embed_dim` where `hidden_size` is the text's, merge two by two
    patches and project them by two matrices.

    >>> tower_parameters({"hidden_size": 1280, "depth": 32, "intermediate_size": 3420,
    ...     "hidden_act": "silu", "out_hidden_size": 3584, "spatial_merge_size": 2}, 3584) // 10**6
    675
    """
    hidden = _first(vision, "embed_dim", "hidden_size", "width") or 0
    layers = _first(vision, "depth", "num_hidden_layers", "layers") or 0
    layers += _first(vision, "num_global_layers") or 0
    inner = _first(vision, "intermediate_size") or round(hidden * float(vision.get("mlp_ratio", 4)))
    gated = str(vision.get("hidden_act", "")) == "silu"
    merged = hidden * (_first(vision, "spatial_merge_size") or 1) ** 2
    projection = merged * (merged + out) if merged > hidden else out * (hidden + out)
    patches = 3 * (_first(vision, "patch_size") or 14) ** 2 * hidden
    return layers * (4 * hidden**2 + (2 + gated) * hidden * inner) + projection + patches


def _first(values: Mapping[str, Any], *keys: str) -> int | None:
    found = (values.get(key) for key in keys)
    return next((one for one in found if isinstance(one, int) and not isinstance(one, bool)), None)


STREAMS: dict[str, tuple[float, float]] = {
    "SD3Transformer2DModel": (36, 0),
    "FluxTransformer2DModel": (36, 15),
    "PixArtTransformer2DModel": (16, 0),
    "DiTTransformer2DModel": (18, 0),
    "AuraFlowTransformer2DModel": (36, 15),
    "QwenImageTransformer2DModel": (36, 0),
}
"""Class of diffusers -> squares of the width that a layer has, and one of its single layers.

Attention has four, an MLP of four times the width eight, the modulation of a norm by time six; a
layer of two streams (text and image) has each twice (Esser et al., arXiv 2403.03206), a single one
of Flux fifteen; PixArt's layers look at the text by four more and share the modulation.
"""
DENOISER_CLASSES = frozenset(STREAMS)

FLUX: dict[str, Any] = {
    "trained": (90.8, 53.4, 62.8),
    "frozen": (49.4, 32.8, 39.4),
    "encoder": 4_762_310_656 + 123_060_480,
    "vae": 83_819_683,
}
"""What the mean layer of Flux keeps (`Sample.trained`), and what stands beside it: T5 1.1 XXL,
CLIP-L's text part, the VAE. 19 layers of two streams and 38 of one, made as HunyuanVideo's are:
those of diffusers' `FluxTransformer2DModel` keep 96.5 and 84.4 bytes in 32 bits, 56.4 and 50.4 in
16, with LoRA beside attention 52.8 and 48.6 (autograd's saved tensors, 0.42.1)."""


def denoiser_shape(values: Mapping[str, Any], what: str) -> Shape:
    """A denoiser by diffusers' own `config.json`; `--size` says its tokens.

    >>> sd3 = {"_class_name": "SD3Transformer2DModel", "num_attention_heads": 24,
    ...     "attention_head_dim": 64, "num_layers": 24, "sample_size": 128, "patch_size": 2}
    >>> round(denoiser_shape(sd3, "config.json").parameters / 1e9, 2)
    2.06
    """
    heads, width = _first(values, "num_attention_heads"), _first(values, "attention_head_dim")
    layers, single = _first(values, "num_layers"), _first(values, "num_single_layers") or 0
    if not (heads and width and layers):
        raise BadInput(f"{what} has no `num_layers` or heads", hint="it is not a whole config.json")
    hidden, kind = heads * width, str(values["_class_name"])
    double, alone = STREAMS[kind]
    squares = layers * double + single * alone
    side, patch = _first(values, "sample_size") or 64, _first(values, "patch_size") or 1
    text = 333 * (double == 36)
    beside = FLUX if kind == "FluxTransformer2DModel" else {}
    sample = Sample(pixels=8 * patch, text=text, usual=(1, 8 * side, 8 * side), **beside)
    total = round(squares * hidden**2) + 8 * hidden**2
    return Shape(
        name=str(values.get("_name_or_path") or values.get("name") or kind),
        kind="flux",
        parameters=total,
        active=total,
        largest_unit=round(max(double, alone) * hidden**2),
        layers=layers + single,
        hidden=hidden,
        heads=heads,
        query=hidden,
        key_value=hidden,
        intermediate=4 * hidden,
        gated=False,
        activation="gelu",
        rms_norm=False,
        tokens=sample.tokens(*sample.usual),
        sample=sample,
        classes=64,
        note=f"{kind} is read by its layers and width; `--size` or `--context` names its tokens",
    )
