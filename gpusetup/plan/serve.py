"""Serving a model: weights, cache of keys and values, what a pass takes, and what fits. Pure.

Weights are parameters times bits; the cache is two tensors of the key-value heads' width for every
token and layer (one compressed one in DeepSeek's latent attention, arXiv 2405.04434; nothing in
layers of linear attention or state space).
"""

from __future__ import annotations

import re
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
from gpusetup.plan.memory import NCCL
from gpusetup.plan.model_names import format_in_name
from gpusetup.plan.place import Place
from gpusetup.plan.question import Question, shape_of_question
from gpusetup.plan.shape import Shape

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"


Fetch = Callable[[str], Shape] | None
"""How the shape of an unknown model is fetched; None: nothing may be fetched."""


LARGE_GPU = 70 * GIB
"""Bytes from which on vLLM and SGLang compute more tokens at once."""


class LargeGpu(Frozen):
    """What an engine does otherwise on a GPU of at least `LARGE_GPU`."""

    capability: Capability
    """The oldest GPUs on which it does so."""
    tokens: int
    sequences: int


class Engine(Frozen):
    """The memory that an engine uses beside its cache, and how it is started."""

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
    engine_version: str = ""
    """The engine's version if one was named; "" for the modelled one."""
    share: float
    """The share of the GPU's memory that it may use."""
    weights: str
    weight_bits: float
    """Bits a weight of the layers."""
    cache: str
    cache_element_bytes: float
    context: int
    sequences: int
    gpus: int
    hardware: Place

    @property
    def tokens_at_once(self) -> int:
        """Tokens of a prompt that one pass computes on this GPU."""
        return self.engine.tokens if self.large_gpu is None else self.large_gpu.tokens

    @property
    def rows_at_once(self) -> int:
        """Rows of logits that one pass computes on this GPU."""
        rows = self.engine.sequences if self.large_gpu is None else self.large_gpu.sequences
        return max(rows, self.sequences)

    @property
    def large_gpu(self) -> LargeGpu | None:
        """What the engine does otherwise because the GPU is large; None if it is not."""
        large, hardware = self.engine.large, self.hardware
        if large is None or hardware.capacity < LARGE_GPU:
            return None
        # A GPU that was named by its memory alone may be of any age.
        is_new_enough = hardware.capability is None or hardware.capability >= large.capability
        return large if is_new_enough else None

    @property
    def reads_gguf(self) -> bool:
        """Whether its weights are one GGUF file, in which embedding and head are quantised too."""
        return self.engine_name == "llama.cpp"

    @property
    def computes_whole_prompts(self) -> bool:
        """Whether the named version computes a whole prompt in one pass."""
        before = self.engine.whole_context_before
        return bool(before and self.engine_version) and is_older(self.engine_version, before)


# --- the question ---------------------------------------------------------------------------------


def server_of(options: Mapping[str, Any], hardware: Place, fetch: Fetch) -> Server:
    """The server that the options describe; UsageError for what cannot be."""
    table = serve_table()
    engine_name, _, engine_version = str(options["serve"]).partition("==")
    check_word(engine_name, "engine", table.engines)
    if engine_version and not VERSION.fullmatch(engine_version):
        raise UsageError(
            f"{engine_version!r} is no version of {engine_name}",
            hint=f"write it as `--serve {engine_name}==0.6.3`",
        )
    engine = table.engines[engine_name]
    context = options["context"] or USUAL_CONTEXT
    model_options = {name: options[name] for name in ("model", "params", "batch")}
    shape = shape_of_question(Question(context=context, **model_options), fetch)
    weights = options["weights"] or usual_weights(engine_name, options["model"], shape)
    formats = table.gguf if engine_name == "llama.cpp" else table.weights
    check_word(weights, f"format of {engine_name}'s weights", formats)
    cache = options["cache"] or ("fp16" if engine_name == "llama.cpp" else "bf16")
    check_word(cache, "type of a cache", table.cache)
    return Server(
        shape=shape,
        engine_name=engine_name,
        engine=engine,
        engine_version=engine_version,
        share=share_of_memory(options.get("gpu_memory_utilization"), engine),
        weights=weights,
        weight_bits=formats[weights],
        cache=cache,
        cache_element_bytes=table.cache[cache],
        context=context,
        sequences=options["batch"] or 1,
        gpus=options["gpus"] or hardware.count or 1,
        hardware=hardware,
    )


VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,3}")
GGUF_FORMAT = re.compile(r"(?i)(?<![a-z0-9])(q\d_(?:k_[sml]|k|0)|iq4_xs|f16)(?![a-z0-9])")


def check_word(word: str, meaning: str, possible_words: Mapping[str, object]) -> None:
    """UsageError for a word that is not in a table, with those that are."""
    if word not in possible_words:
        raise UsageError(f"{word!r} is no {meaning}", hint=f"one of: {', '.join(possible_words)}")


def usual_weights(engine_name: str, model: str | None, shape: Shape) -> str:
    """The format of the weights if nobody says it: by the model's name, else as it is published."""
    name = model or ""
    if engine_name == "llama.cpp":
        in_name = GGUF_FORMAT.search(name)
        return in_name[1].lower() if in_name else "q4_k_m"
    return format_in_name(name) or serve_table().published.get(shape.kind, "bf16")


def share_of_memory(share: float | None, engine: Engine) -> float:
    """The share of the GPU's memory that a server may use; UsageError for what is no share."""
    if share is None:
        return engine.share
    if not 0 < share <= 1:
        raise UsageError(
            f"`--gpu-memory-utilization {share:g}` is no share of a GPU's memory",
            hint="a number up to 1, for example 0.95",
        )
    return share


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another.

    >>> is_older("0.6.3", "0.8"), is_older("0.10", "0.8")
    (True, False)
    """
    return version_numbers(version) < version_numbers(than)


def version_numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def check_server(server: Server) -> None:
    """UsageError for a model that this many GPUs cannot serve, Unsatisfiable for too old a GPU."""
    shape, hardware, engine = server.shape, server.hardware, server.engine
    if shape.heads % server.gpus:
        raise UsageError(f"{server.gpus} GPUs do not divide the {shape.heads} heads of the model")
    if not shape.vocabulary:
        raise UsageError(f"{shape.name} does not generate text: `--serve` is for models that do")
    if hardware.capability and hardware.capability < engine.capability:
        raise Unsatisfiable(
            f"{server.engine_name} needs a GPU of compute capability {engine.capability} or newer; "
            f"{hardware.gpu} has {hardware.capability}",
            hint="`--serve llama.cpp` plans for a server that runs on older GPUs",
        )


# --- bytes of one GPU -----------------------------------------------------------------------------


def weight_bytes_of(server: Server) -> float:
    """Bytes of the weights on one GPU; embedding and head stay in 16 bits, but in a GGUF file."""
    shape, bits = server.shape, server.weight_bits
    unquantised = 0 if server.reads_gguf else shape.outside
    quantised_bits = (shape.parameters - unquantised) * bits
    unquantised_bits = unquantised * max(bits, 16)
    return (quantised_bits + unquantised_bits) / 8 / server.gpus


def token_bytes_of(server: Server) -> float:
    """Bytes of the cache for one token in all layers; a head of keys and values is never cut."""
    shape = server.shape
    shards = min(server.gpus, shape.key_value_heads)
    latent_width = shape.latent or LATENT.get(shape.kind, 0)
    width = latent_width or 2 * shape.key_value / shards
    layers = shape.layers if shape.cached_layers is None else shape.cached_layers
    return server.cache_element_bytes * layers * width


def pass_bytes_of(server: Server, pass_tokens: int | None = None) -> float:
    """Bytes of one pass: the widest tensors of a layer in 16 bits, and logits in 32 bits.

    `pass_tokens`: tokens of a prompt that it computes; None: as the modelled version does.
    """
    shape = server.shape
    tokens = pass_tokens or server.tokens_at_once
    elements_per_token = 4 * shape.hidden + 3 * shape.intermediate / server.gpus
    # Each expert of a token gives an output of its own, before they are summed.
    elements_per_token += shape.experts * shape.hidden
    # The sampler gathers the logits of the whole vocabulary on each GPU.
    logit_bytes = server.rows_at_once * shape.vocabulary * 4
    return tokens * elements_per_token * 2 + logit_bytes


def sequence_bytes(server: Server, tokens: int) -> float:
    """Bytes of the cache for one sequence; layers with a window keep its last tokens alone."""
    window = serve_table().windows.get(server.shape.kind, Window(tokens=0, layers=0))
    in_windows = min(tokens, window.tokens) * window.layers
    in_full_layers = tokens * (1 - window.layers)
    return token_bytes_of(server) * (in_full_layers + in_windows)


def cache_room(server: Server, pass_tokens: int | None = None) -> float:
    """Bytes that are left for the cache beside weights, CUDA's context and, if counted, a pass."""
    engine = server.engine
    fixed_bytes = engine.fixed_gib * GIB
    if server.gpus > 1:  # NCCL's buffers, as in a training
        fixed_bytes += NCCL
    room = server.hardware.capacity * server.share - weight_bytes_of(server) - fixed_bytes
    if engine.outside:  # SGLang's share is of weights and cache; a pass takes of the rest
        return room
    return room - pass_bytes_of(server, pass_tokens)


def whole_context_fits(server: Server) -> bool:
    """Whether a version that computes a whole prompt at its start serves one whole context.

    It tried a pass over the whole context, and kept what was left for the cache, which had to take
    one whole context as well.
    """
    room = cache_room(server, max(server.context, server.tokens_at_once))
    return sequence_bytes(server, server.context) <= room


# --- the answer -----------------------------------------------------------------------------------


def modelled_version(server: Server) -> str:
    """The engine and the version whose memory is counted."""
    version = server.engine_version or server.engine.version
    return f"counted as {server.engine_name} {version} runs"


def version_note(server: Server) -> str:
    """The version that is modelled, and whether older ones refuse what this one serves."""
    engine = server.engine
    if server.engine_version or not engine.whole_context_before:
        return modelled_version(server)
    older = f"{server.engine_name} before {engine.whole_context_before}"
    if whole_context_fits(server):
        return f"{modelled_version(server)}; {older} starts too"
    whole_pass = pass_bytes_of(server, max(server.context, server.tokens_at_once)) / GIB
    return (
        f"{modelled_version(server)}; {older} computes a whole prompt of {server.context:,} "
        f"tokens at its start ({whole_pass:.1f} GiB) and refuses to start: lower "
        "`--max-model-len` there, or add `--enable-chunked-prefill`"
    )


def uncounted_by_serving(server: Server, fits: bool) -> tuple[str, ...]:
    """Why a server that fits may not start all the same, as its first line says it."""
    if not fits:
        return ()
    reasons: list[str] = []
    if server.shape.assumed:
        reasons.append(f"the shape of {server.shape.name} ({server.shape.assumed})")
    older_refuse = server.engine.whole_context_before and not server.engine_version
    if older_refuse and not whole_context_fits(server):
        before = server.engine.whole_context_before
        reasons.append(f"{server.engine_name} before {before} refuses this context")
    return tuple(reasons)


def command_of(server: Server) -> str:
    """The command that starts the server."""
    command = server.engine.command.format(
        context=server.context,
        sequences=server.sequences,
        gpus=server.gpus,
        tokens=server.context * server.sequences,
        share=f"{server.share:g}",
    )
    if server.cache not in ("bf16", "fp16"):
        command += server.engine.small_cache.format(cache=server.cache)
    return command


def serve_plan(options: Mapping[str, Any], hardware: Place, fetch: Fetch = None) -> ServePlan:
    """The answer of one server: does it fit, the longest context and the most requests that do."""
    server = server_of(options, hardware, fetch)
    check_server(server)
    shape, native = server.shape, server.shape.native_context

    def room_for(tokens: int) -> float:
        """Bytes for the cache of a server whose context is so long."""
        if server.computes_whole_prompts:
            return cache_room(server, max(tokens, server.tokens_at_once))
        return cache_room(server)

    def fits_with(tokens: int) -> bool:
        return server.sequences * sequence_bytes(server, tokens) <= room_for(tokens)

    cache_bytes = room_for(server.context)
    bytes_of_sequence = sequence_bytes(server, server.context)
    used_bytes = server.sequences * bytes_of_sequence
    most_sequences = max(0, int(cache_bytes // bytes_of_sequence))
    fits = most_sequences >= server.sequences
    is_beyond = native is not None and server.context > native
    notes = [version_note(server) if fits else modelled_version(server)]
    if shape.base:
        notes.append(f"{shape.name} has the shape of {shape.base}, which is in its name")
    if is_beyond:
        notes.append(BEYOND.format(context=server.context, native=native))
    if hardware.remark:
        notes.append(hardware.remark)
    return ServePlan(
        fits=fits,
        uncounted=uncounted_by_serving(server, fits),
        model=shape.name,
        parameters=shape.parameters,
        engine=server.engine_name,
        gpu=hardware.gpu,
        gpus=server.gpus,
        weights=server.weights,
        cache=server.cache,
        context=server.context,
        sequences=server.sequences,
        weights_gib=round(weight_bytes_of(server) / GIB, 3),
        cache_gib=round(used_bytes / GIB, 3),
        pass_gib=round(pass_bytes_of(server) / GIB, 3),
        free_gib=round((cache_bytes - used_bytes) / GIB, 3),
        capacity_gib=round(hardware.capacity / GIB, 3),
        token_kib=round(token_bytes_of(server) / 1024, 2),
        largest_context=min(largest(fits_with), native or LARGEST_SOLUTION),
        largest_sequences=most_sequences,
        command=command_of(server) if fits and not is_beyond else None,
        notes=tuple(notes),
    )
