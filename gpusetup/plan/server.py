"""Builds the server that the options of `plan --serve` describe: model, engine, formats and
GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.model_names import format_in_name
from gpusetup.plan.place import Place
from gpusetup.plan.question import TrainingQuestion, shape_of_question
from gpusetup.plan.serve_table import LARGE_GPU, LargeGpu, ServingEngine, serve_table
from gpusetup.plan.shape import Shape

Fetch = Callable[[str], Shape] | None
"""A function that downloads the shape of an unknown model; None if downloads are not allowed."""
USUAL_CONTEXT = 8192
"""The default length of a request, in tokens."""
LLAMA_CPP = "llama.cpp"
"""The engine that reads its weights from a GGUF file."""


class Server(Frozen):
    """An inference server to plan: its model and formats, and the GPUs that it runs on."""

    shape: Shape
    engine_name: str
    engine: ServingEngine
    engine_version: str = ""
    """The version that the user named; "" means the modelled version."""
    share: float
    """The share of the GPU's memory that the server may use."""
    weights: str
    weight_bits: float
    """Bits per weight in the layers."""
    cache: str
    cache_element_bytes: float
    context: int
    sequences: int
    gpus: int
    hardware: Place

    @property
    def tokens_at_once(self) -> int:
        """The number of prompt tokens that one forward pass processes on this GPU."""
        profile = self.large_gpu or self.engine
        return profile.tokens

    @property
    def rows_at_once(self) -> int:
        """The number of rows of logits that one forward pass computes on this GPU, at least one per
        request."""
        profile = self.large_gpu or self.engine
        # Count at least one row per request, because all requests may need logits in the same pass.
        return max(profile.sequences, self.sequences)

    @property
    def large_gpu(self) -> LargeGpu | None:
        """The engine's settings for large GPUs; None if the engine has none, or if this GPU is too
        small or too old for them."""
        large = self.engine.large
        is_large = self.hardware.capacity >= LARGE_GPU
        if large is None or not is_large:
            return None
        capability = self.hardware.capability
        # The capability is unknown if the user only gave the memory size, so assume a new GPU.
        is_new_enough = capability is None or capability >= large.capability
        return large if is_new_enough else None

    @property
    def reads_gguf(self) -> bool:
        """Whether the engine reads a GGUF file, in which embedding and head are quantised too."""
        return self.engine_name == LLAMA_CPP


def server_of(options: Mapping[str, Any], hardware: Place, fetch: Fetch) -> Server:
    """The server that the options describe; UsageError if an engine, a format or a number is
    invalid."""
    table = serve_table()
    engine_name, engine_version = engine_of(str(options["serve"]))
    engine = table.engines[engine_name]
    context = options["context"] or USUAL_CONTEXT
    question = TrainingQuestion(
        model=options["model"],
        params=options["params"],
        context=context,
        batch=options["batch"],
    )
    shape = shape_of_question(question, fetch)
    reads_gguf = engine_name == LLAMA_CPP
    weights = options["weights"] or usual_weights(engine_name, options["model"], shape)
    formats = table.gguf if reads_gguf else table.weights
    check_word(weights, f"format of {engine_name}'s weights", formats)
    cache = options["cache"] or ("fp16" if reads_gguf else "bf16")
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


def engine_of(text: str) -> tuple[str, str]:
    """The engine and its version in a text such as `vllm==0.6.3`; the version is "" if there is
    none."""
    name, _, version = text.partition("==")
    check_word(name, "engine", serve_table().engines)
    if version and not VERSION.fullmatch(version):
        raise UsageError(
            f"{version!r} is not a version of {name}",
            hint=f"write it as `--serve {name}==0.6.3`",
        )
    return name, version


def check_word(word: str, meaning: str, possible_words: Mapping[str, object]) -> None:
    """Raise UsageError with the possible words if `word` is not among them; `meaning` names the
    kind of word in the message."""
    if word not in possible_words:
        raise UsageError(
            f"{word!r} is not a valid {meaning}",
            hint=f"one of: {', '.join(possible_words)}",
        )


def usual_weights(engine_name: str, model: str | None, shape: Shape) -> str:
    """The weight format to assume: from the model's name, otherwise the format in which the family
    is published."""
    name = model or ""
    if engine_name == LLAMA_CPP:
        in_name = GGUF_FORMAT.search(name)
        # The default of llama.cpp's tools is Q4_K_M, and most files on the hub have this format.
        return in_name[1].lower() if in_name else "q4_k_m"
    storage = format_in_name(name)
    if storage is not None:
        return storage
    published = serve_table().published
    return published.get(shape.kind, "bf16")


def share_of_memory(share: float | None, engine: ServingEngine) -> float:
    """The share of the GPU's memory that the server may use, from 0 to 1: the option's value or the
    engine's default. UsageError if the option's value is invalid."""
    if share is None:
        return engine.share
    if not 0 < share <= 1:
        raise UsageError(
            f"`--gpu-memory-utilization {share:g}` is not a share of a GPU's memory",
            hint="a number up to 1, for example 0.95",
        )
    return share


def check_server(server: Server) -> None:
    """Raise UsageError if these GPUs cannot serve the model, Unsatisfiable if the GPU is too old
    for the engine."""
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
