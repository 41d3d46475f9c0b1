"""Serving a model: weights, cache of keys and values, what a pass takes, and what fits. Pure.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import ServePlan
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability
from gpusetup.plan.decide import LARGEST_SOLUTION, largest
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, shape_of_question

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"


class Engine(Frozen):
    """The memory that an engine uses beside its cache, and how it is started."""

    capability: Capability
    """The oldest GPUs that it computes on."""
    share: float
    """The share of the GPU's memory that it uses."""
    tokens: int
    """Tokens of a prompt that one pass computes."""
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


class Window(Frozen):
    """Layers that keep no more than the last tokens."""

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
    engines: Mapping[str, Engine]


@lru_cache(maxsize=1)
def serve_table() -> ServeTable:
    """The formats and engines, dated."""
    return from_json(ROWS.read_bytes(), ServeTable, what=ROWS.name)


LATENT = {"deepseek_v2": 576, "deepseek_v3": 576}
"""Family -> width of the one tensor that latent attention keeps (512 and 64 of rotated keys)."""

BEYOND = (
    "{context:,} tokens are beyond the native {native:,}: a server refuses them unless the "
    "model's positions are extended (rope scaling)"
)


def serve_plan(options: Mapping[str, Any], place: Place) -> ServePlan:
    """The answer of one server: does it fit, the longest context and the most requests that do.

    In a GGUF file embedding and head are quantised, too; a key-value head is never cut. A pass
    takes the widest tensors of a layer, and logits in 32 bits. UsageError for what cannot be.
    """
    engine_name, gguf, table = options["serve"], options["serve"] == "llama.cpp", serve_table()
    context, sequences = options["context"] or 8192, options["batch"] or 1
    gpus = options["gpus"] or place.count or 1
    model_options = {word: options[word] for word in ("model", "params", "batch")}
    shape = shape_of_question(Question(context=context, **model_options))
    published = "q4_k_m" if gguf else table.published.get(shape.kind, "bf16")
    weights = options["weights"] or published
    cache = options["cache"] or ("fp16" if gguf else "bf16")
    formats = table.gguf if gguf else table.weights
    for word, what, all_of in (
        (engine_name, "engine", table.engines),
        (weights, f"format of {engine_name}'s weights", formats),
        (cache, "type of a cache", table.cache),
    ):  # fmt: skip
        if word not in all_of:
            raise UsageError(f"{word!r} is no {what}", hint=f"one of: {', '.join(all_of)}")
    if shape.heads % gpus:
        raise UsageError(f"{gpus} GPUs do not divide the {shape.heads} heads of the model")
    if not shape.vocabulary:
        raise UsageError(f"{shape.name} does not generate text: `--serve` is for models that do")

    engine, bits, native = table.engines[engine_name], formats[weights], shape.native_context
    if place.capability and place.capability < engine.capability:
        raise Unsatisfiable(
            f"{engine_name} needs a GPU of compute capability {engine.capability} or newer; "
            f"{place.gpu} has {place.capability}",
            hint="`--serve llama.cpp` plans for a server that runs on older GPUs",
        )
    unquantised = 0 if gguf else shape.outside
    weight_bytes = (
        ((shape.parameters - unquantised) * bits + unquantised * max(bits, 16)) / 8 / gpus
    )
    width = LATENT.get(shape.kind, 2 * shape.key_value / min(gpus, shape.key_value_heads))
    token_bytes = table.cache[cache] * shape.layers * width
    pass_bytes = engine.tokens * (4 * shape.hidden + 3 * shape.intermediate / gpus) * 2
    pass_bytes += max(engine.sequences, sequences) * shape.vocabulary * 4 / gpus
    cache_bytes = place.capacity * engine.share - weight_bytes - engine.fixed_gib * GIB
    cache_bytes -= pass_bytes * (not engine.outside)
    window = table.windows.get(shape.kind, Window(tokens=0, layers=0))

    def cached_bytes(tokens: int) -> float:
        """Of one sequence of so many tokens."""
        in_windows = min(tokens, window.tokens) * window.layers
        return token_bytes * (tokens * (1 - window.layers) + in_windows)

    longest = largest(lambda tokens: sequences * cached_bytes(tokens) <= cache_bytes)
    most_sequences = max(0, int(cache_bytes // cached_bytes(context)))
    command = engine.command.format(
        context=context, sequences=sequences, gpus=gpus, tokens=context * sequences
    )
    if cache not in ("bf16", "fp16"):
        command += engine.small_cache.format(cache=cache)
    used = sequences * cached_bytes(context)
    sizes = {"weights_gib": weight_bytes, "cache_gib": used, "pass_gib": pass_bytes,
             "free_gib": cache_bytes - used, "capacity_gib": place.capacity}  # fmt: skip
    fits, beyond = most_sequences >= sequences, native is not None and context > native
    return ServePlan(
        fits=fits,
        model=shape.name,
        parameters=shape.parameters,
        engine=engine_name,
        gpu=place.gpu,
        gpus=gpus,
        weights=weights,
        cache=cache,
        context=context,
        sequences=sequences,
        token_kib=round(token_bytes / 1024, 2),
        largest_context=min(longest, native or LARGEST_SOLUTION),
        largest_sequences=most_sequences,
        command=command if fits and not beyond else None,
        notes=(BEYOND.format(context=context, native=native),) * beyond,
        **{field: round(size / GIB, 3) for field, size in sizes.items()},  # type: ignore[arg-type]
    )
