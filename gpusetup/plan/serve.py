"""Serving a model: weights, cache of keys and values, what a pass takes, and what fits. Pure.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import ServePlan
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan.decide import MOST
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, shape_of_question
from gpusetup.plan.shape import Shape

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"


class Engine(Frozen):
    """What an engine takes before its cache."""

    share: float
    """The share of the GPU's memory that it uses."""
    tokens: int
    """Tokens of one pass of a prompt."""
    sequences: int
    """Rows of logits at once, in 32 bits."""
    fixed_gib: float
    """CUDA's context, graphs and workspaces."""
    outside: bool = False
    """Whether the share is of weights and cache alone, and passes take of the rest."""
    command: str
    """How the server is started."""
    small_cache: str
    """What is added for a cache of fewer than 16 bits."""


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


def serving(said: Mapping[str, Any], place: Place) -> Serving:
    """The words of the command line as a server; UsageError for what it cannot be."""
    context, known = said["context"] or 8192, rows()
    gguf = said["serve"] == "llama.cpp"
    asked = {name: said[name] for name in ("model", "params", "batch")}
    s = Serving(
        shape=shape_of_question(Question(context=context, **asked)),
        engine=said["serve"],
        weights=said["weights"] or ("q4_k_m" if gguf else "bf16"),
        cache=said["cache"] or ("fp16" if gguf else "bf16"),
        gpus=said["gpus"] or place.count or 1,
        capacity=place.capacity,
        context=context,
        sequences=said["batch"] or 1,
    )
    for word, what, all_of in (
        (s.engine, "engine", known.engines),
        (s.weights, f"format of {s.engine}'s weights", known.gguf if gguf else known.weights),
        (s.cache, "type of a cache", known.cache),
    ):
        if word not in all_of:
            raise UsageError(f"{word!r} is no {what}", hint=f"one of: {', '.join(all_of)}")
    if s.shape.heads % s.gpus:
        raise UsageError(f"{s.gpus} GPUs do not divide the {s.shape.heads} heads of the model")
    if not s.shape.vocabulary:
        raise UsageError(f"{s.shape.name} does not generate text: `--serve` is for models that do")
    return s


def weight_bytes(s: Serving) -> float:
    """The weights on one GPU; in a GGUF file all of them, else not embedding and head."""
    known, shape = rows(), s.shape
    if s.weights in known.gguf:
        return shape.parameters * known.gguf[s.weights] / 8 / s.gpus
    bits = known.weights[s.weights]
    plain = shape.outside * max(bits, 16)
    return ((shape.parameters - shape.outside) * bits + plain) / 8 / s.gpus


LATENT = {"deepseek_v2": 576, "deepseek_v3": 576}
"""Family -> width of the one tensor that latent attention keeps (512 and 64 of rotated keys)."""


def token_bytes(s: Serving) -> float:
    """The cache of one token on one GPU; a key-value head is never cut."""
    width = 2 * s.shape.key_value / min(s.gpus, s.shape.key_value_heads)
    return rows().cache[s.cache] * s.shape.layers * LATENT.get(s.shape.kind, width)


def pass_bytes(s: Serving) -> float:
    """What one pass takes: the widest tensors of a layer, and logits in 32 bits."""
    engine = rows().engines[s.engine]
    layer = engine.tokens * (4 * s.shape.hidden + 3 * s.shape.intermediate / s.gpus) * 2
    return layer + max(engine.sequences, s.sequences) * s.shape.vocabulary * 4 / s.gpus


def serve_plan(s: Serving, gpu: str) -> ServePlan:
    """The answer of one server: does it fit, the longest context and the most requests that do."""
    engine, native = rows().engines[s.engine], s.shape.native_context
    weights, token, passing = weight_bytes(s), token_bytes(s), pass_bytes(s)
    room = s.capacity * engine.share - weights - engine.fixed_gib * GIB
    room -= passing * (not engine.outside)
    most = max(0, int(room // token))
    wanted = s.context * s.sequences
    start = engine.command.format(
        context=s.context, sequences=s.sequences, gpus=s.gpus, tokens=wanted
    )
    if s.cache not in ("bf16", "fp16"):
        start += engine.small_cache.format(cache=s.cache)
    sizes: dict[str, Any] = {
        "weights_gib": weights, "cache_gib": wanted * token, "pass_gib": passing,
        "free_gib": room - wanted * token, "capacity_gib": s.capacity,
    }  # fmt: skip
    same = ("engine", "gpus", "weights", "cache", "context", "sequences")
    beyond = native is not None and s.context > native
    return ServePlan(
        fits=most >= wanted,
        model=s.shape.name,
        parameters=s.shape.parameters,
        gpu=gpu,
        token_kib=round(token / 1024, 2),
        largest_context=min(most // s.sequences, native or MOST),
        largest_sequences=most // s.context,
        command=start if most >= wanted else None,
        notes=(f"{s.context:,} tokens are beyond the native {native:,}",) * beyond,
        **{name: getattr(s, name) for name in same},
        **{name: round(size / GIB, 3) for name, size in sizes.items()},
    )
