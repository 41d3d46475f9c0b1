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
"""On GPUs with at least this many bytes of memory, vLLM and SGLang compute more tokens at once."""


class LargeGpu(Frozen):
    """The settings that an engine uses on a GPU with at least `LARGE_GPU` bytes of memory."""

    capability: Capability
    """The lowest compute capability of GPUs with these settings."""
    tokens: int
    sequences: int


class ServingEngine(Frozen):
    """How an inference engine uses memory in addition to its cache, and how it is started."""

    capability: Capability
    """The lowest compute capability that the engine supports."""
    share: float
    """The share of the GPU's memory that the engine uses by default."""
    tokens: int
    """The number of prompt tokens that one forward pass computes."""
    sequences: int
    """The number of rows of logits that exist at once, in 32 bits."""
    fixed_gib: float
    """The memory for the CUDA context, CUDA graphs and workspaces."""
    large: LargeGpu | None = None
    outside: bool = False
    """Whether the share only covers weights and cache, so that forward passes use the rest of the
    memory."""
    version: str
    """The version of the engine whose memory use plan models."""
    command: str
    """A template for the shell command that starts the server."""
    small_cache: str
    """The option that is added to the command for a cache with fewer than 16 bits."""


class Window(Frozen):
    """Sliding-window layers, which cache only the last tokens of a sequence."""

    tokens: int
    layers: float
    """The share of all layers that have a sliding window."""


class ServeTable(Frozen):
    as_of: str
    sources: Mapping[str, str]
    published: Mapping[str, str]
    """Family -> the format of its published weights; bf16 for families that are not listed."""
    windows: Mapping[str, Window]
    """Model family -> its sliding-window layers."""
    weights: Mapping[str, float]
    """Format -> bits per weight in the layers; embedding and head stay in 16 bits."""
    gguf: Mapping[str, float]
    """Format -> bits per weight, averaged over the whole file."""
    cache: Mapping[str, float]
    """Type -> bytes per element of the cache."""
    engines: Mapping[str, ServingEngine]


@lru_cache(maxsize=1)
def serve_table() -> ServeTable:
    """The table of inference engines and formats, read from the package's data."""
    text = ROWS.read_bytes()
    return from_json(text, ServeTable, what=ROWS.name)
