"""The inference engines that `plan --serve` supports, and the formats of weights and caches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"

LARGE_GPU = 70 * GIB
"""Bytes from which on vLLM and SGLang compute more tokens at once."""


class LargeGpu(Frozen):
    """The settings that an engine uses on a GPU with at least `LARGE_GPU` bytes of memory."""

    capability: Capability
    """The oldest GPUs on which it does so."""
    tokens: int
    sequences: int


class ServingEngine(Frozen):
    """How an inference engine uses memory in addition to its cache, and how it is started."""

    capability: Capability
    """The oldest GPUs that it computes on."""
    share: float
    """The share of the GPU's memory that it uses unless another is said."""
    tokens: int
    """Tokens of a prompt that one pass computes."""
    sequences: int
    """Rows of logits at once, in 32 bits."""
    fixed_gib: float
    """CUDA's context, graphs and workspaces."""
    large: LargeGpu | None = None
    outside: bool = False
    """Whether the share is of weights and cache alone, and passes take of the rest."""
    version: str
    """The version that is modelled."""
    whole_context_before: str = ""
    """Versions before this one compute a whole prompt in one pass, and refuse a context whose pass
    does not fit; "" if there are none."""
    command: str
    """How the server is started."""
    small_cache: str
    """What is added for a cache of fewer than 16 bits."""


class Window(Frozen):
    """Sliding-window layers, which cache only the last tokens of a sequence."""

    tokens: int
    layers: float
    """Their share of all layers."""


class ServeTable(Frozen):
    as_of: str
    sources: Mapping[str, str]
    published: Mapping[str, str]
    """Family -> format of the weights that its files have; of others bf16."""
    windows: Mapping[str, Window]
    """By family."""
    weights: Mapping[str, float]
    """Format -> bits a weight of the layers; embedding and head stay in 16 bits."""
    gguf: Mapping[str, float]
    """Format -> bits a weight of the whole file."""
    cache: Mapping[str, float]
    """Type -> bytes an element."""
    engines: Mapping[str, ServingEngine]


@lru_cache(maxsize=1)
def serve_table() -> ServeTable:
    """The table of inference engines and formats, read from the package's data."""
    text = ROWS.read_bytes()
    return from_json(text, ServeTable, what=ROWS.name)
