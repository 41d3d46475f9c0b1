"""The answer of `plan --serve`: does it fit, and the largest context and concurrency that do."""

from __future__ import annotations

from gpusetup.errors import UsageError
from gpusetup.model.documents import ServePlan
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.memory.serve import (
    Serving,
    for_cache,
    pass_bytes,
    rows,
    token_bytes,
    tokens_within,
    weight_bytes,
)

MOST = 1 << 24
"""Tokens or requests beyond which nobody asks."""


def checked(s: Serving) -> Serving:
    """UsageError where a name is unknown, or the engine cannot read the format."""
    known = rows()
    if s.engine not in known.engines:
        raise UsageError(f"No engine is called {s.engine!r}", hint=", ".join(known.engines))
    formats = known.gguf if s.engine == "llama.cpp" else known.weights
    if s.weights not in formats:
        raise UsageError(
            f"{s.engine} has no weights in {s.weights!r}", hint=f"one of: {', '.join(formats)}"
        )
    if s.cache not in known.cache:
        raise UsageError(f"No cache is kept in {s.cache!r}", hint=", ".join(known.cache))
    if s.shape.heads % s.gpus:
        raise UsageError(f"{s.gpus} GPUs do not divide the {s.shape.heads} heads of the model")
    if not s.shape.vocabulary:
        raise UsageError(f"{s.shape.name} writes no text: `--serve` is about models that do")
    return s


def serve_plan(s: Serving, gpu: str) -> ServePlan:
    """The answer of one server."""
    held = tokens_within(s)
    native = s.shape.native_context
    longest = min(_largest_context(s), native or MOST)
    fits = held >= s.context * s.sequences
    notes = []
    if native and s.context > native:
        notes.append(f"{s.context:,} tokens are beyond the native {native:,}")
    if s.shape.kind.startswith("gemma"):
        notes.append("layers with a sliding window keep less than is counted here")
    return ServePlan(
        fits=fits,
        model=s.shape.name,
        parameters=s.shape.parameters,
        engine=s.engine,
        gpu=gpu,
        gpus=s.gpus,
        weights=s.weights,
        cache=s.cache,
        context=s.context,
        sequences=s.sequences,
        weights_gib=round(weight_bytes(s) / GIB, 3),
        cache_gib=round(token_bytes(s) * s.context * s.sequences / GIB, 3),
        pass_gib=round(pass_bytes(s) / GIB, 3),
        free_gib=round((for_cache(s) - token_bytes(s) * s.context * s.sequences) / GIB, 3),
        capacity_gib=round(s.capacity / GIB, 3),
        token_kib=round(token_bytes(s) / 1024, 2),
        largest_context=longest,
        largest_sequences=held // s.context,
        command=command(s) if fits else None,
        notes=tuple(notes),
    )


def _largest_context(s: Serving) -> int:
    """The longest context of as many requests; a pass of the whole prompt grows with it."""
    low, high = 0, 1
    while high < MOST and _holds(s, high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _holds(s, middle) else (low, middle)
    return low


def _holds(s: Serving, context: int) -> bool:
    return tokens_within(replace(s, context=context)) >= context * s.sequences


def command(s: Serving) -> str | None:
    """How the server is started so that the answer holds; None where a program does it itself."""
    if s.engine == "vllm":
        cache = " --kv-cache-dtype fp8" * (s.cache == "fp8")
        return (
            f"vllm serve MODEL --max-model-len {s.context} --max-num-seqs {s.sequences} "
            f"--tensor-parallel-size {s.gpus} --gpu-memory-utilization 0.9{cache}"
        )
    if s.engine == "sglang":
        cache = " --kv-cache-dtype fp8_e5m2" * (s.cache == "fp8")
        return (
            f"python -m sglang.launch_server --model-path MODEL --context-length {s.context} "
            f"--max-running-requests {s.sequences} --tp {s.gpus} --mem-fraction-static 0.88{cache}"
        )
    if s.engine == "llama.cpp":
        types = f" -ctk {s.cache} -ctv {s.cache} -fa on" * s.cache.startswith("q")
        return (
            f"llama-server -m MODEL.gguf -ngl 99 -c {s.context * s.sequences} "
            f"-np {s.sequences}{types}"
        )
    return None
