"""The memory of serving a model: weights, cache of keys and values, what a pass takes. Pure.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan.model.shape import Shape

ROWS = Path(__file__).resolve().parents[2] / "data" / "plan" / "serve.json"


class Engine(Frozen):
    """What an engine takes before its cache."""

    share: float
    """The share of the GPU's memory that it uses."""
    tokens: int
    """Tokens of one pass of a prompt; 0: the whole prompt at once."""
    sequences: int
    """Rows of logits at once, in 32 bits."""
    fixed_gib: float
    """CUDA's context, graphs and workspaces."""
    outside: bool = False
    """Whether the share is of weights and cache alone, and passes take of the rest."""


class Rows(Frozen):
    as_of: str
    sources: Mapping[str, str]
    weights: Mapping[str, float]
    """Format -> bits a weight of the layers; embedding and head stay in 16 bits."""
    gguf: Mapping[str, float]
    """Format -> bits a weight of the whole file."""
    cache: Mapping[str, float]
    """Type -> bytes an element."""
    engines: Mapping[str, Engine]


@lru_cache(maxsize=1)
def rows() -> Rows:
    """The formats and engines, dated."""
    return from_json(ROWS.read_bytes(), Rows, what=ROWS.name)


class Serving(Frozen):
    """One server. Sizes are bytes of one of its GPUs."""

    shape: Shape
    engine: str
    weights: str
    cache: str
    gpus: int
    """GPUs that share every layer (tensor parallelism)."""
    capacity: float
    context: int
    sequences: int
    """Requests at once, each of the whole context."""


def weight_bytes(s: Serving) -> float:
    """The weights on one GPU.

    >>> from gpusetup.plan.model.named import model_named
    >>> s = Serving(shape=model_named("llama-3.1-8b"), engine="llama.cpp", weights="q4_k_m",
    ...     cache="fp16", gpus=1, capacity=0, context=1, sequences=1)
    >>> round(weight_bytes(s) / GIB, 2)  # the file has 4.58 GiB
    4.57
    """
    known, shape = rows(), s.shape
    if s.weights in known.gguf:
        return shape.parameters * known.gguf[s.weights] / 8 / s.gpus
    bits = known.weights[s.weights]
    outside = shape.outside * max(bits, 16)
    return ((shape.parameters - shape.outside) * bits + outside) / 8 / s.gpus


LATENT = {"deepseek_v2": 576, "deepseek_v3": 576}
"""Family -> width of the one tensor that latent attention keeps (512 and 64 of rotated keys)."""


def token_bytes(s: Serving) -> float:
    """The cache of one token on one GPU; a key-value head is never cut."""
    shape = s.shape
    each = rows().cache[s.cache]
    if shape.kind in LATENT:
        return shape.layers * LATENT[shape.kind] * each
    return shape.layers * 2 * shape.key_value * each / min(s.gpus, shape.key_value_heads)


def pass_bytes(s: Serving) -> float:
    """What one pass takes: the widest tensors of a layer, and logits in 32 bits."""
    engine = rows().engines[s.engine]
    tokens = engine.tokens or s.context * s.sequences
    layer = tokens * (4 * s.shape.hidden + 3 * s.shape.intermediate / s.gpus) * 2
    return layer + max(engine.sequences, s.sequences) * s.shape.vocabulary * 4 / s.gpus


def for_cache(s: Serving) -> float:
    """Bytes that are left for the cache; negative where the weights alone are too much."""
    engine = rows().engines[s.engine]
    taken = weight_bytes(s) + (0.0 if engine.outside else pass_bytes(s))
    return s.capacity * engine.share - taken - engine.fixed_gib * GIB


def tokens_within(s: Serving) -> int:
    """Tokens of all requests together that the cache has room for."""
    return max(0, int(for_cache(s) // token_bytes(s)))
