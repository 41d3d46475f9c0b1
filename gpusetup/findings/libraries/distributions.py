"""Compiled extensions of torch: which distribution a module belongs to."""

from __future__ import annotations

from gpusetup.catalog.facts import extension_modules


def distribution_of(module: str) -> str | None:
    """The distribution that a compiled module belongs to; None for a name that says nothing.

    >>> [distribution_of(name) for name in ("flash_attn_2_cuda", "torch_scatter", "_C")]
    ['flash-attn', 'torch-scatter', None]
    """
    top = module.partition(".")[0]
    if known := extension_modules().get(top):
        return known
    return None if top.startswith("_") else top.replace("_", "-")
