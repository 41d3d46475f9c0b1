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
)

BEYOND = (
    "{context:,} tokens are beyond the native {native:,}: a server refuses them unless the "
    "model's positions are extended (rope scaling)"
)


def uncounted_by_serving(server: Server) -> tuple[str, ...]:
    """The reasons why a server that should fit may still not start."""
    reasons: list[str] = []
    shape = server.shape
    if shape.assumed:
        reasons.append(f"the shape of {shape.name} ({shape.assumed})")
    if shape.tower and server.engine_name != LLAMA_CPP:
        reasons.append("the largest image, which the engine tries at its start, is not counted")
    free = free_for_cache(server) - server.sequences * sequence_bytes(server, server.context)
    if free < WITHIN_ERROR * server.hardware.capacity:
        reasons.append(f"{free / GIB:.1f} GiB are left, which is within the estimate's error")
    version, counted = server.engine_version, server.engine.version
    # A patch release (0.11.2) uses memory as its minor release does.
    if version and not f"{version}.".startswith(f"{counted.split()[0]}."):
        reasons.append(f"plan counts {server.engine_name} {counted}, and {version} differs")
    return tuple(reasons)


WITHIN_ERROR = 0.02
"""The error of estimates for servers, as a share of the GPU's memory: CUDA graphs and NCCL's
buffers differ between versions."""


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
    free = free_for_cache(server)
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
        notes=tuple(serve_notes(server)),
    )


def largest_context(server: Server) -> int:
    """The longest context, in tokens, that all requests can have at once, within the model's
    limit."""
    free = free_for_cache(server)

    def fits(tokens: int) -> bool:
        return server.sequences * sequence_bytes(server, tokens) <= free

    # Even with enough memory, the context cannot be longer than the model's native one.
    native = server.shape.native_context or LARGEST_SOLUTION
    return min(largest(fits), native)


def is_beyond(server: Server) -> bool:
    """Whether the context is longer than the model's native context."""
    native = server.shape.native_context
    if native is None:
        return False
    return server.context > native


def serve_notes(server: Server) -> Iterator[str]:
    """Notes for the answer about the engine's version, the model's shape and context, and the
    machine."""
    shape = server.shape
    yield f"planned for {server.engine_name} {server.engine.version}"
    if shape.base:
        yield f"{shape.name} has the shape of {shape.base}, which is in its name"
    if is_beyond(server):
        yield BEYOND.format(context=server.context, native=shape.native_context)
    if server.hardware.remark:
        yield server.hardware.remark
