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
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.decide import MOST, largest
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, shape_of_question
from gpusetup.plan.shape import Shape

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"


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
    command: str | None = None
    """How the server is started; None if a program does it itself."""


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
    each = rows().cache[s.cache] * s.shape.layers
    if s.shape.kind in LATENT:
        return each * LATENT[s.shape.kind]
    return each * 2 * s.shape.key_value / min(s.gpus, s.shape.key_value_heads)


def pass_bytes(s: Serving) -> float:
    """What one pass takes: the widest tensors of a layer, and logits in 32 bits."""
    engine = rows().engines[s.engine]
    tokens = engine.tokens or s.context * s.sequences
    layer = tokens * (4 * s.shape.hidden + 3 * s.shape.intermediate / s.gpus) * 2
    return layer + max(engine.sequences, s.sequences) * s.shape.vocabulary * 4 / s.gpus


def for_cache(s: Serving) -> float:
    """Bytes that are left for the cache; negative if the weights alone are too much."""
    engine = rows().engines[s.engine]
    taken = weight_bytes(s) + (0.0 if engine.outside else pass_bytes(s))
    return s.capacity * engine.share - taken - engine.fixed_gib * GIB


def tokens_within(s: Serving) -> int:
    """Tokens of all requests together that the cache has room for."""
    return max(0, int(for_cache(s) // token_bytes(s)))


def serve_plan(s: Serving, gpu: str) -> ServePlan:
    """The answer of one server: does it fit, the longest context and the most requests that do."""

    def holds(context: int) -> bool:
        return tokens_within(replace(s, context=context)) >= context * s.sequences

    native, fits = s.shape.native_context, holds(s.context)
    wanted = token_bytes(s) * s.context * s.sequences
    start = rows().engines[s.engine].command
    sizes: dict[str, Any] = {
        "weights_gib": weight_bytes(s), "cache_gib": wanted, "pass_gib": pass_bytes(s),
        "free_gib": for_cache(s) - wanted, "capacity_gib": s.capacity,
    }  # fmt: skip
    same = ("engine", "gpus", "weights", "cache", "context", "sequences")
    beyond = native is not None and s.context > native
    return ServePlan(
        fits=fits,
        model=s.shape.name,
        parameters=s.shape.parameters,
        gpu=gpu,
        token_kib=round(token_bytes(s) / 1024, 2),
        largest_context=min(largest(holds), native or MOST),
        largest_sequences=tokens_within(s) // s.context,
        command=command(s, start) if fits and start else None,
        notes=(f"{s.context:,} tokens are beyond the native {native:,}",) * beyond,
        **{name: getattr(s, name) for name in same},
        **{name: round(size / GIB, 3) for name, size in sizes.items()},
    )


def command(s: Serving, start: str) -> str:
    """How the server is started so that the answer holds."""
    small = s.cache not in ("bf16", "fp16")
    flags = {
        "vllm": f" --kv-cache-dtype {s.cache}", "sglang": " --kv-cache-dtype fp8_e5m2",
        "llama.cpp": f" -ctk {s.cache} -ctv {s.cache} -fa on",
    }  # fmt: skip
    all_of = s.context * s.sequences
    line = start.format(context=s.context, sequences=s.sequences, gpus=s.gpus, tokens=all_of)
    return line + flags.get(s.engine, "") * small
