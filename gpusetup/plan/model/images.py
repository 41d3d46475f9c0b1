"""Towers of images beside a model of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
