"""Plans an inference server: whether it fits, its longest context, and its start command.

The weights need the number of parameters times the bits per weight. For every token and layer, the
cache has two 16-bit tensors of the key-value heads' width (with DeepSeek's latent attention one
compressed tensor, arXiv 2405.04434). Layers with linear attention or a state space have no cache.
An engine also profiles a forward pass at its start. The engines, each in one version, and the
formats are in `data/plan/serve.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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
from gpusetup.plan.models import format_in_name
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion, shape_of_question
from gpusetup.plan.shape import Shape

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "serve.json"
LARGE_GPU = 70 * GIB
"""On GPUs with at least this many bytes of memory, vLLM and SGLang compute more tokens at once."""
USUAL_CONTEXT = 8192
"""The default length of a request, in tokens."""
LLAMA_CPP = "llama.cpp"
"""The engine that reads its weights from a GGUF file."""
WITHIN_ERROR = 0.02
"""The error of estimates for servers, as a share of the GPU's memory: CUDA graphs and NCCL's
buffers differ between versions."""
CACHE_BYTES = 2
"""Bytes per element of the cache, which every engine keeps in 16 bits by default."""


class LargeGpu(Frozen):
    """The settings that an engine uses on a GPU with at least `LARGE_GPU` bytes of memory and this
    compute capability."""

    capability: Capability
    tokens: int
    sequences: int


class ServingEngine(Frozen):
    """How an inference engine uses memory in addition to its cache, and how it is started."""

    version: str
    """The version whose memory use plan models."""
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
    command: str
    """A template for the shell command that starts the server."""


class ServeTable(Frozen):
    as_of: str
    sources: Mapping[str, str]
    published: Mapping[str, str]
    """Family -> the format of its published weights; bf16 for families that are not listed."""
    windows: Mapping[str, Mapping[str, float]]
    """Model family -> the `tokens` that its sliding-window layers cache, and the share of its
    `layers` that are such layers."""
    weights: Mapping[str, float]
    """Format -> bits per weight in the layers; embedding and head stay in 16 bits."""
    gguf: Mapping[str, float]
    """Format -> bits per weight, averaged over the whole file."""
    engines: Mapping[str, ServingEngine]


@lru_cache(maxsize=1)
def serve_table() -> ServeTable:
    return from_json(ROWS.read_bytes(), ServeTable, what=ROWS.name)


class Server(Frozen):
    """An inference server to plan; amounts are bytes on each of its GPUs."""

    shape: Shape
    engine_name: str
    engine: ServingEngine
    share: float
    """The share of the GPU's memory that the server may use."""
    weights: str
    sequences: int
    gpus: int
    place: Place

    @property
    def weight_bytes(self) -> float:
        shape, table = self.shape, serve_table()
        if self.engine_name == LLAMA_CPP:
            return shape.parameters * table.gguf[self.weights] / 8 / self.gpus
        bits = table.weights[self.weights]
        # Embedding and head are not quantised; in a 32-bit model they have 32 bits too.
        all_bits = (shape.parameters - shape.outside) * bits + shape.outside * max(bits, 16)
        return all_bits / 8 / self.gpus

    @property
    def token_bytes(self) -> float:
        """The bytes that the cache needs for one token, over all layers."""
        shape = self.shape
        # The other layers of a hybrid model keep a state that does not grow with the context.
        layers = shape.layers if shape.cached_layers is None else shape.cached_layers
        # A key-value head is never split, and neither is latent attention's tensor: if there are
        # more GPUs than heads, some hold copies.
        width = shape.latent or 2 * shape.key_value / min(self.gpus, shape.key_value_heads)
        return CACHE_BYTES * layers * width

    def sequence_bytes(self, tokens: int) -> float:
        """The cache's bytes for one sequence; sliding-window layers keep only the last tokens."""
        window = serve_table().windows.get(self.shape.kind, {"tokens": 0, "layers": 0})
        in_windows = min(tokens, window["tokens"]) * window["layers"]
        return self.token_bytes * (tokens * (1 - window["layers"]) + in_windows)

    @property
    def pass_bytes(self) -> float:
        """The bytes that one forward pass needs: the widest tensors of a layer in 16 bits, and the
        logits in 32 bits."""
        shape, profile = self.shape, self.engine.large
        capability = self.place.capability
        tokens, rows = self.engine.tokens, self.engine.sequences
        # The capability is unknown if the user only gave the memory size: assume a new GPU.
        is_new = profile and (capability is None or capability >= profile.capability)
        if profile and is_new and self.place.capacity >= LARGE_GPU:
            tokens, rows = profile.tokens, profile.sequences
        # The MLP is divided among the GPUs; gate, up projection and their product exist at once.
        # Each of a token's experts has a separate output before the outputs are summed.
        elements = 4 * shape.hidden + 3 * shape.intermediate / self.gpus
        elements += shape.experts * shape.hidden
        # All requests may need logits in the same pass, and the sampler gathers the logits of the
        # whole vocabulary on each GPU.
        return 2 * tokens * elements + 4 * max(rows, self.sequences) * shape.vocabulary

    @property
    def free_bytes(self) -> float:
        """The bytes that remain for the cache."""
        used = self.weight_bytes + self.engine.fixed_gib * GIB + (NCCL if self.gpus > 1 else 0)
        if not self.engine.outside:
            used += self.pass_bytes
        return self.place.capacity * self.share - used


def server_of(options: Mapping[str, Any], engine_name: str, shape: Shape, place: Place) -> Server:
    """The server that the options describe. Raises UsageError if a format or a number is invalid or
    these GPUs cannot serve the model, Unsatisfiable if the GPU is too old."""
    table, engine = serve_table(), serve_table().engines[engine_name]
    # If the question names no format, it is that in the model's name, or the one in which such
    # models are published. Most GGUF files on the hub have llama.cpp's default, q4_k_m.
    formats, usual = table.weights, format_in_name(options["model"] or "")
    if engine_name == LLAMA_CPP:
        formats = table.gguf
        in_name = re.search(
            r"(?<![a-z0-9])(q\d_(?:k_[sml]|k|0)|iq4_xs|f16)(?![a-z0-9])",
            (options["model"] or "").lower(),
        )
        usual = in_name[1] if in_name else "q4_k_m"
    weights = options["weights"] or usual or table.published.get(shape.kind, "bf16")
    check_word(weights, f"format of {engine_name}'s weights", formats)
    share = options.get("gpu_memory_utilization")
    if share is not None and not 0 < share <= 1:
        raise UsageError(
            f"`--gpu-memory-utilization {share:g}` is not a share of a GPU's memory",
            hint="a number up to 1, for example 0.95",
        )
    gpus = options["gpus"] or place.count or 1
    if shape.heads % gpus:
        raise UsageError(f"{gpus} GPUs do not divide the {shape.heads} heads of the model")
    if not shape.vocabulary:
        raise UsageError(f"{shape.name} does not generate text: `--serve` is for models that do")
    if place.capability and place.capability < engine.capability:
        raise Unsatisfiable(
            f"{engine_name} needs a GPU of compute capability {engine.capability} or newer; "
            f"{place.gpu} has {place.capability}",
            hint="`--serve llama.cpp` plans for a server that runs on older GPUs",
        )
    return Server(
        shape=shape,
        engine_name=engine_name,
        engine=engine,
        share=engine.share if share is None else share,
        weights=weights,
        sequences=options["batch"] or 1,
        gpus=gpus,
        place=place,
    )


def check_word(word: str, meaning: str, possible_words: Mapping[str, object]) -> None:
    """Raise UsageError with the possible words if `word` is not among them."""
    if word not in possible_words:
        raise UsageError(
            f"{word!r} is not a valid {meaning}", hint=f"one of: {', '.join(possible_words)}"
        )


def serve_plan(
    options: Mapping[str, Any], place: Place, fetch: Callable[[str], Shape] | None = None
) -> ServePlan:
    """The answer for one server: whether it fits, the longest context that fits, and the largest
    number of requests that fit. `fetch`: see `shape_of_question`."""
    name, _, version = str(options["serve"]).partition("==")
    check_word(name, "engine", serve_table().engines)
    if version and not re.fullmatch(r"\d{1,4}(?:\.\d{1,4}){0,3}", version):
        raise UsageError(
            f"{version!r} is not a version of {name}",
            hint=f"write it as `--serve {name}==0.6.3`",
        )
    context = options["context"] or USUAL_CONTEXT
    model, params, batch = options["model"], options["params"], options["batch"]
    question = TrainingQuestion(model=model, params=params, context=context, batch=batch)
    shape = shape_of_question(question, fetch)
    server = server_of(options, name, shape, place)
    free, requests = server.free_bytes, server.sequences
    left = free - requests * server.sequence_bytes(context)
    most_sequences = max(0, int(free // server.sequence_bytes(context)))
    fits = most_sequences >= requests
    most_tokens = shape.native_context or LARGEST_SOLUTION
    longest = largest(lambda tokens: requests * server.sequence_bytes(tokens) <= free)
    command = None
    # An engine would refuse a context beyond the model's own.
    if fits and context <= most_tokens:
        command = server.engine.command.format(
            context=context,
            sequences=requests,
            gpus=server.gpus,
            tokens=context * requests,
            share=f"{server.share:g}",
        )
    return ServePlan(
        fits=fits,
        uncounted=tuple(uncounted_by_serving(server, version, left)) if fits else (),
        model=shape.name,
        parameters=shape.parameters,
        engine=name,
        gpu=place.gpu,
        gpus=server.gpus,
        weights=server.weights,
        context=context,
        sequences=requests,
        weights_gib=round(server.weight_bytes / GIB, 3),
        cache_gib=round((free - left) / GIB, 3),
        pass_gib=round(server.pass_bytes / GIB, 3),
        free_gib=round(left / GIB, 3),
        capacity_gib=round(place.capacity / GIB, 3),
        token_kib=round(server.token_bytes / 1024, 2),
        largest_context=min(longest, most_tokens),
        largest_sequences=most_sequences,
        command=command,
        notes=tuple(serve_notes(server, context)),
    )


def uncounted_by_serving(server: Server, version: str, left: float) -> Iterator[str]:
    """The reasons why a server that should fit, with `left` bytes to spare, may still not start.
    `version`: the engine's version that the user named; "" means the modelled one."""
    shape, counted = server.shape, server.engine.version
    if shape.assumed:
        yield f"the shape of {shape.name} ({shape.assumed})"
    if shape.tower and server.engine_name != LLAMA_CPP:
        yield "the largest image, which the engine tries at its start, is not counted"
    if left < WITHIN_ERROR * server.place.capacity:
        yield f"{left / GIB:.1f} GiB are left, which is within the estimate's error"
    # A patch release (0.11.2) uses memory as its minor release does.
    if version and not f"{version}.".startswith(f"{counted.split()[0]}."):
        yield f"plan counts {server.engine_name} {counted}, and {version} differs"


def serve_notes(server: Server, context: int) -> Iterator[str]:
    """Notes about the engine's version, the model's shape and context, and the machine."""
    shape = server.shape
    yield f"planned for {server.engine_name} {server.engine.version}"
    if shape.base:
        yield f"{shape.name} has the shape of {shape.base}, which is in its name"
    if shape.native_context and context > shape.native_context:
        yield (
            f"{context:,} tokens are beyond the native {shape.native_context:,}: a server "
            "refuses them unless the model's positions are extended (rope scaling)"
        )
    if server.place.remark:
        yield server.place.remark
