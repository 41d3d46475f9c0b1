"""`scaled_dot_product_attention` by each backend that offers itself, held to its definition."""

from __future__ import annotations

import contextlib
import warnings
from math import sqrt
from typing import Any, Iterator, List, NamedTuple

import torch

from ..judging.refusals import has_bfloat16
from ..judging.tolerance import ROUNDOFF, Part, judged, numbers, summed
from ..values import SKIPPED, Outcome
from .normalization import softmax_by_definition
from .trials import Trial, capability_of, compared, roundoff_of


class Heads(NamedTuple):
    name: str
    batch: int
    queries: int
    keys: int
    causal: bool = False
    masked: bool = False


HEADS = (
    Heads("plain", 4, 65, 65),
    Heads("causal", 4, 64, 64, causal=True),
    Heads("across", 4, 33, 80),
    Heads("masked", 4, 48, 48, masked=True),
    Heads("long causal", 1, 1030, 1030, causal=True),
)
LONG = 1024
"""From so many keys on in float32 alone."""
DEPTH = 32
SCORES = 8.0
"""A score is a sum of DEPTH products over sqrt(DEPTH), at most about 5: its rounding to the low
format moves a weight by 5 u; with room."""
BACKENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
NOT_OFFERED = (
    "No available kernel",
    "No viable backend",
    "cuDNN Frontend error",
    "No execution plan",
)


def attention(device: str) -> Outcome:
    """Each backend, in each format that it takes."""
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no scaled_dot_product_attention")
    parts = {backend: by_backend(device, backend) for backend in BACKENDS}
    offered = [backend.partition("_")[0].lower() for backend, found in parts.items() if found]
    every = [part for found in parts.values() for part in found]
    return judged(every, f"the definition in float64 by {', '.join(offered)}")


def by_backend(device: str, backend: str) -> List[Part]:
    """Every case and format that the backend takes; empty where it takes none."""
    parts: List[Part] = []
    halves = ("bfloat16", "float16") if has_bfloat16(capability_of(device)) else ("float16",)
    for row in HEADS:
        for name in ("float32", *(halves if row.keys < LONG else ())):
            with contextlib.suppress(_Unoffered), _only(backend):
                way = f" by {backend.partition('_')[0].lower()}"
                parts += list(compared(_trial(device, row, name), device, way))
    return parts


def _trial(device: str, row: Heads, name: str) -> Trial:
    query, key = ((row.batch, 2, length, DEPTH) for length in (row.queries, row.keys))
    given = [
        numbers(torch, *shape, salt=60 + place).to(getattr(torch, name))
        for place, shape in enumerate((query, key, key))
    ]
    seen = torch.ones(row.queries, row.keys, dtype=torch.bool)
    if row.causal:
        seen = seen.tril()
    if row.masked:  # never each third key, always the own one
        seen[:, ::3] = False
        seen = seen | torch.eye(row.queries, row.keys, dtype=torch.bool)
    mask = seen.to(device) if row.masked else None
    sdpa = torch.nn.functional.scaled_dot_product_attention
    u = roundoff_of(device) if name == "float32" else ROUNDOFF[name]

    def by_definition(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-1, -2) / sqrt(DEPTH)).masked_fill(~seen, float("-inf"))
        return softmax_by_definition(scores) @ v

    return Trial(
        f"{row.name} {name}",
        lambda q, k, v: sdpa(q, k, v, attn_mask=mask, is_causal=row.causal),
        by_definition,
        given,
        4 * (u * SCORES + summed(row.keys)),
    )


class _Unoffered(Exception):
    """The backend does not take this case."""


@contextlib.contextmanager
def _only(backend: str) -> Iterator[None]:
    """Only this backend may answer; `_Unoffered` where it will not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _chosen(backend):
                yield
        except RuntimeError as problem:
            if any(words in str(problem) for words in NOT_OFFERED):
                raise _Unoffered from problem
            raise


def _chosen(backend: str) -> Any:
    """The context of torch 2.3 on; before that the one of 2.0, which knows no cuDNN."""
    with contextlib.suppress(ImportError):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not hasattr(SDPBackend, backend):
            raise _Unoffered
        return sdpa_kernel([getattr(SDPBackend, backend)])
    if backend == "CUDNN_ATTENTION":
        raise _Unoffered
    return torch.backends.cuda.sdp_kernel(
        enable_flash=backend == "FLASH_ATTENTION",
        enable_math=backend == "MATH",
        enable_mem_efficient=backend == "EFFICIENT_ATTENTION",
    )
