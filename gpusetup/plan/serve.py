"""Serving a model: weights, cache of keys and values, what a pass takes, and what fits. Pure.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from gpusetup.plan.shape import Shape

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"


Fetch = Callable[[str], Shape] | None
"""How the shape of an unknown model is fetched; None: nothing may be fetched."""


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


USUAL_CONTEXT = 8192
"""Tokens of a request if nobody says how many."""


class Server(Frozen):
    """One server to plan: what it holds, and on how many of which GPU."""

    shape: Shape
    engine_name: str
    engine: Engine
    weights: str
    weight_bits: float
    """Bits a weight of the layers."""
    cache: str
    cache_element_bytes: float
    context: int
    sequences: int
    gpus: int
    place: Place

    @property
    def reads_gguf(self) -> bool:
        """Whether its weights are one GGUF file, in which embedding and head are quantised too."""
        return self.engine_name == "llama.cpp"


def server_of(options: Mapping[str, Any], place: Place, fetch: Fetch) -> Server:
    """The server that the options describe; UsageError for what cannot be."""
    table, engine_name = serve_table(), str(options["serve"])
    reads_gguf = engine_name == "llama.cpp"
    context = options["context"] or USUAL_CONTEXT
    model_options = {name: options[name] for name in ("model", "params", "batch")}
    shape = shape_of_question(Question(context=context, **model_options), fetch)
    published = "q4_k_m" if reads_gguf else table.published.get(shape.kind, "bf16")
    weights = options["weights"] or published
    cache = options["cache"] or ("fp16" if reads_gguf else "bf16")
    formats = table.gguf if reads_gguf else table.weights
    for word, what, known_words in (
        (engine_name, "engine", table.engines),
        (weights, f"format of {engine_name}'s weights", formats),
        (cache, "type of a cache", table.cache),
    ):  # fmt: skip
        if word not in known_words:
            raise UsageError(f"{word!r} is no {what}", hint=f"one of: {', '.join(known_words)}")
    return Server(
        shape=shape,
        engine_name=engine_name,
        engine=table.engines[engine_name],
        weights=weights,
        weight_bits=formats[weights],
        cache=cache,
        cache_element_bytes=table.cache[cache],
        context=context,
        sequences=options["batch"] or 1,
        gpus=options["gpus"] or place.count or 1,
        place=place,
    )


def check_server(server: Server) -> None:
    """UsageError for a model that this many GPUs cannot serve, Unsatisfiable for too old a GPU."""
    shape, place, engine = server.shape, server.place, server.engine
    if shape.heads % server.gpus:
        raise UsageError(f"{server.gpus} GPUs do not divide the {shape.heads} heads of the model")
    if not shape.vocabulary:
        raise UsageError(f"{shape.name} does not generate text: `--serve` is for models that do")
    if place.capability and place.capability < engine.capability:
        raise Unsatisfiable(
            f"{server.engine_name} needs a GPU of compute capability {engine.capability} or newer; "
            f"{place.gpu} has {place.capability}",
            hint="`--serve llama.cpp` plans for a server that runs on older GPUs",
        )


def weight_bytes_of(server: Server) -> float:
    """Bytes of the weights on one GPU; embedding and head stay in 16 bits, but in a GGUF file."""
    shape, bits = server.shape, server.weight_bits
    unquantised = 0 if server.reads_gguf else shape.outside
    all_bits = (shape.parameters - unquantised) * bits + unquantised * max(bits, 16)
    return all_bits / 8 / server.gpus


def token_bytes_of(server: Server) -> float:
    """Bytes of the cache for one token in all layers; a head of keys and values is never cut."""
    shape = server.shape
    shards = min(server.gpus, shape.key_value_heads)
    latent_width = shape.latent or LATENT.get(shape.kind, 0)
    width = latent_width or 2 * shape.key_value / shards
    return server.cache_element_bytes * shape.layers * width


def pass_bytes_of(server: Server, pass_tokens: int | None = None) -> float:
    """Bytes of one pass: the widest tensors of a layer in 16 bits, and logits in 32 bits.

    `pass_tokens`: tokens of a prompt that it computes; None: as the modelled version does.
    """
    shape, engine = server.shape, server.engine
    tokens = pass_tokens or engine.tokens
    layer_bytes = tokens * (4 * shape.hidden + 3 * shape.intermediate / server.gpus) * 2
    rows = max(engine.sequences, server.sequences)
    return layer_bytes + rows * shape.vocabulary * 4 / server.gpus


def sequence_bytes(server: Server, tokens: int) -> float:
    """Bytes of the cache for one sequence; layers with a window keep its last tokens alone."""
    window = serve_table().windows.get(server.shape.kind, Window(tokens=0, layers=0))
    in_windows = min(tokens, window.tokens) * window.layers
    in_full_layers = tokens * (1 - window.layers)
    return token_bytes_of(server) * (in_full_layers + in_windows)


def modelled_version(server: Server) -> str:
    """The engine and the version whose memory is counted."""
    return f"counted as {server.engine_name} {server.engine.version} runs"


def version_note(server: Server, weight_bytes: float) -> str:
    """The version that is modelled, and whether older ones refuse what this one serves.

    Before chunked prefill was the default an engine tried a pass over the whole context at its
    start, and kept what was left for the cache, which had to take one whole context as well.
    """
    engine = server.engine
    if not engine.whole_context_before:
        return modelled_version(server)
    whole_pass = pass_bytes_of(server, max(server.context, engine.tokens))
    room = server.place.capacity * engine.share - weight_bytes - engine.fixed_gib * GIB - whole_pass
    older = f"{server.engine_name} before {engine.whole_context_before}"
    if sequence_bytes(server, server.context) > room:
        return (
            f"{modelled_version(server)}; {older} computes a whole prompt of {server.context:,} "
            f"tokens at its start ({whole_pass / GIB:.1f} GiB) and refuses to start: lower "
            "`--max-model-len` there, or add `--enable-chunked-prefill`"
        )
    return f"{modelled_version(server)}; {older} starts too"


def command_of(server: Server) -> str:
    """The command that starts the server."""
    command = server.engine.command.format(
        context=server.context,
        sequences=server.sequences,
        gpus=server.gpus,
        tokens=server.context * server.sequences,
    )
    if server.cache not in ("bf16", "fp16"):
        command += server.engine.small_cache.format(cache=server.cache)
    return command


def serve_plan(options: Mapping[str, Any], place: Place, fetch: Fetch = None) -> ServePlan:
    """The answer of one server: does it fit, the longest context and the most requests that do."""
    server = server_of(options, place, fetch)
    check_server(server)
    engine, shape, native = server.engine, server.shape, server.shape.native_context
    weight_bytes, pass_bytes = weight_bytes_of(server), pass_bytes_of(server)
    cache_bytes = place.capacity * engine.share - weight_bytes - engine.fixed_gib * GIB
    if not engine.outside:  # the engine's share has room for the passes too
        cache_bytes -= pass_bytes

    def fits_with(tokens: int) -> bool:
        return server.sequences * sequence_bytes(server, tokens) <= cache_bytes

    longest = min(largest(fits_with), native or LARGEST_SOLUTION)
    used = server.sequences * sequence_bytes(server, server.context)
    most_sequences = max(0, int(cache_bytes // sequence_bytes(server, server.context)))
    fits = most_sequences >= server.sequences
    is_beyond = native is not None and server.context > native
    notes = [version_note(server, weight_bytes) if fits else modelled_version(server)]
    if is_beyond:
        notes.append(BEYOND.format(context=server.context, native=native))
    if place.remark:
        notes.append(place.remark)
    return ServePlan(
        fits=fits,
        model=shape.name,
        parameters=shape.parameters,
        engine=server.engine_name,
        gpu=place.gpu,
        gpus=server.gpus,
        weights=server.weights,
        cache=server.cache,
        context=server.context,
        sequences=server.sequences,
        weights_gib=round(weight_bytes / GIB, 3),
        cache_gib=round(used / GIB, 3),
        pass_gib=round(pass_bytes / GIB, 3),
        free_gib=round((cache_bytes - used) / GIB, 3),
        capacity_gib=round(place.capacity / GIB, 3),
        token_kib=round(token_bytes_of(server) / 1024, 2),
        largest_context=longest,
        largest_sequences=most_sequences,
        command=command_of(server) if fits and not is_beyond else None,
        notes=tuple(notes),
    )
