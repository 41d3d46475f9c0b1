"""Builds the answer of `plan --serve`: whether an inference server fits, its longest context, and
its start command. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.model.documents import ServePlan
from gpusetup.model.units import GIB
from gpusetup.plan.decide import LARGEST_SOLUTION, largest
from gpusetup.plan.place import Place
from gpusetup.plan.server import LLAMA_CPP, Fetch, Server, check_server, server_of
from gpusetup.plan.server_memory import (
    free_for_cache,
    pass_bytes_of,
    sequence_bytes,
    token_bytes_of,
    weight_bytes_of,
    whole_context_fits,
)

BEYOND = (
    "{context:,} tokens are beyond the native {native:,}: a server refuses them unless the "
    "model's positions are extended (rope scaling)"
)


def modelled_version(server: Server) -> str:
    """A note that names the engine and the version whose memory use was counted."""
    version = server.engine_version
    if not version:
        version = server.engine.version
    name = server.engine_name
    return f"planned for {name} {version}"


def version_note(server: Server) -> str:
    """A note on the modelled engine version, and whether older versions start with this context."""
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


def uncounted_by_serving(server: Server) -> tuple[str, ...]:
    """The reasons why a server that should fit may still not start."""
    reasons: list[str] = []
    shape = server.shape
    if shape.assumed:
        reasons.append(f"the shape of {shape.name} ({shape.assumed})")
    # When it starts, a server tries the largest image that the model accepts.
    free = free_beside_requests(server)
    reads_images = shape.tower > 0 and server.engine_name != LLAMA_CPP
    if reads_images and free < LARGEST_IMAGE:
        reasons.append("the images that the engine tries at its start are not counted")
    is_tight = free < WITHIN_ERROR * server.hardware.capacity
    if is_tight:
        reasons.append(f"{free / GIB:.1f} GiB are left, which is within the estimate's error")
    before = server.engine.whole_context_before
    # If the user names no version, the installed engine may be an older one.
    may_be_older = before and not server.engine_version
    if may_be_older and not whole_context_fits(server):
        reasons.append(f"{server.engine_name} before {before} refuses this context")
    return tuple(reasons)


LARGEST_IMAGE = 2.5 * GIB
"""The bytes that a server's trial run with the largest image needs on a GPU, from vLLM 0.8.4's log
for Qwen2.5-VL."""
WITHIN_ERROR = 0.02
"""The error of estimates for servers, as a share of the GPU's memory: CUDA graphs and NCCL's
buffers differ between versions."""


def free_beside_requests(server: Server) -> float:
    """The bytes that remain on each GPU after the cache of all requests at full length."""
    needed = server.sequences * sequence_bytes(server, server.context)
    return free_with_context(server, server.context) - needed


def command_of(server: Server) -> str:
    """The shell command that starts the server."""
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
    """The answer for one server: whether it fits, the longest context that fits, and the largest
    number of requests that fit."""
    server = server_of(options, hardware, fetch)
    check_server(server)
    shape = server.shape
    # The memory that remains for the cache depends on the context, because an engine that computes
    # whole prompts at once needs more memory for a longer prompt.
    free = free_with_context(server, server.context)
    bytes_of_sequence = sequence_bytes(server, server.context)
    used = server.sequences * bytes_of_sequence
    most_sequences = max(0, int(free // bytes_of_sequence))
    fits = most_sequences >= server.sequences
    return ServePlan(
        fits=fits,
        uncounted=uncounted_by_serving(server) if fits else (),
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
        cache_gib=round(used / GIB, 3),
        pass_gib=round(pass_bytes_of(server) / GIB, 3),
        free_gib=round((free - used) / GIB, 3),
        capacity_gib=round(hardware.capacity / GIB, 3),
        token_kib=round(token_bytes_of(server) / 1024, 2),
        largest_context=largest_context(server),
        largest_sequences=most_sequences,
        # Show no command for a context longer than the model's native one, because the engine would
        # refuse it.
        command=command_of(server) if fits and not is_beyond(server) else None,
        notes=tuple(serve_notes(server, fits)),
    )


def free_with_context(server: Server, tokens: int) -> float:
    """The bytes that remain for the cache after the weights and a forward pass, at this context
    length."""
    if not server.computes_whole_prompts:
        return free_for_cache(server)
    pass_tokens = max(tokens, server.tokens_at_once)
    return free_for_cache(server, pass_tokens)


def largest_context(server: Server) -> int:
    """The longest context, in tokens, that all requests can have at once, within the model's
    limit."""

    def fits(tokens: int) -> bool:
        one_sequence = sequence_bytes(server, tokens)
        free = free_with_context(server, tokens)
        return server.sequences * one_sequence <= free

    # Even with enough memory, the context cannot be longer than the model's native one.
    native = server.shape.native_context or LARGEST_SOLUTION
    return min(largest(fits), native)


def is_beyond(server: Server) -> bool:
    """Whether the context is longer than the model's native context."""
    native = server.shape.native_context
    if native is None:
        return False
    return server.context > native


def serve_notes(server: Server, fits: bool) -> Iterator[str]:
    """Notes for the answer about the engine's version, the model's shape and context, and the
    machine."""
    shape = server.shape
    yield version_note(server) if fits else modelled_version(server)
    if shape.base:
        yield f"{shape.name} has the shape of {shape.base}, which is in its name"
    if is_beyond(server):
        yield BEYOND.format(context=server.context, native=shape.native_context)
    if server.hardware.remark:
        yield server.hardware.remark
