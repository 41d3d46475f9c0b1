"""Mutants of arithmetic: products, functions, sums, and what moves numbers about."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from verify_faults.layers import (
    Function,
    Operator,
    coarse,
    dropout_of,
    element,
    kept_as,
    one_step,
    part,
    scaled,
    shaped,
)
from verify_faults.mutant import Mutant, beyond, op, single


def in_mode(name: str) -> Any:
    return lambda *_: torch.get_float32_matmul_precision() == name


def tall_random(found: Any, _: Any) -> bool:
    return found.dtype == torch.float64 and float(found.abs().max()) > 1e6


PRODUCTS = (
    Mutant("one wrong element in a million", "matmul", op("mm", element(1.0), shaped(1000, 1000))),
    Mutant(
        "double precision loses its last bits",
        "float64",
        op("mm bmm", scaled(1 + 2.0**-45), tall_random, exact=True),
    ),
    Mutant(
        "a tall product is off in one element", "float32", op("mm", element(1.0), single(2048, 7))
    ),
    Mutant("low bits of one shape are lost", "float32", op("mm", coarse(9), single(129, 65))),
    Mutant(
        "TF32 is silently on",
        "matmul",
        op("mm bmm addmm", coarse(13), kept_as("float32")),
    ),
    Mutant(
        "the coarsest setting is far too coarse",
        "float32-modes",
        op("mm", scaled(1.5), in_mode("medium")),
    ),
    Mutant(
        "the middle setting is far too coarse",
        "float32-modes",
        op("mm", scaled(1.1), in_mode("high")),
    ),
    Mutant(
        "half precision is off in its last bits", "float16", op("mm", one_step, kept_as("float16"))
    ),
    Mutant(
        "bfloat16 of one shape is off in its last bits",
        "bfloat16",
        op(
            "mm",
            one_step,
            lambda found, _: kept_as("bfloat16")(found, _) and found.shape[-1] == 65,
        ),
    ),
    Mutant(
        "8-bit floats are cut, not rounded",
        "float8",
        lambda: Operator("_to_copy", _cut, _to_float8),
    ),
    Mutant("an integer product is off by one", "int8", op("_int_mm", element(1))),
)


def _to_float8(found: Any, _: Any) -> bool:
    return str(found.dtype).startswith("torch.float8")


def _cut(found: Any, args: Any) -> Any:
    """A number that was rounded up becomes the one before."""
    up = found.to(torch.float32).abs() > args[0].to(torch.float32).abs()
    return (found.view(torch.uint8) - up.to(torch.uint8)).view(found.dtype)


FUNCTIONS = (
    Mutant("erf is wrong once in a million", "elementwise", op("erf", element(1e-5))),
    Mutant("sine loses its range reduction", "elementwise", op("sin", scaled(1 + 3e-6))),
    Mutant("variances divide by n", "reductions", op("var", scaled(1 - 1 / 257))),
    Mutant(
        "a running sum drops a term", "reductions", op("cumsum", element(-1.0, 4000), beyond(4001))
    ),
    Mutant(
        "softmax does not sum to one", "softmax", op("_softmax", scaled(1.0001), shaped(64, 1000))
    ),
    Mutant(
        "softmax's gradient is off",
        "softmax",
        op("_softmax_backward_data", scaled(1.001), shaped(64, 1000)),
    ),
    Mutant(
        "cross entropy counts labels to be left out",
        "softmax",
        op("_log_softmax_backward_data", scaled(1.25), shaped(512, 1000)),
    ),
    Mutant(
        "group norm forgets its shift",
        "normalization",
        op("native_group_norm", part(0, scaled(1.001))),
    ),
    Mutant(
        "layer norm's weight gradient is off",
        "normalization",
        op(
            "native_layer_norm_backward",
            part(1, scaled(1.001)),
            lambda f, _: f[0] is not None and f[0].shape[-1] == 384,
        ),
    ),
    Mutant(
        "the transform of a prime length is off",
        "fft",
        op("_fft_r2c", scaled(1.0001), lambda f, _: f.shape[-1] == 499),
    ),
    Mutant("the inverse transform is not scaled right", "fft", op("_fft_c2r", scaled(1.0001))),
    Mutant(
        "Cholesky is off in a corner",
        "linear-algebra",
        op("linalg_cholesky_ex", part(0, element(1e-3, 0))),
    ),
    Mutant(
        "eigenvectors are not quite right",
        "linear-algebra",
        op("_linalg_eigh", part(1, scaled(1.001))),
    ),
)

ORDER = (
    Mutant(
        "an embedding's gradient misses a use",
        "embedding",
        op("embedding_dense_backward", element(-1.0, 48 * 9), beyond(10_000)),
    ),
    Mutant(
        "an embedding row is the neighbour's",
        "embedding",
        op("embedding", lambda f, _: f.roll(1, 0), shaped(37, 53, 48)),
    ),
    Mutant(
        "gather reads one place off",
        "indexing",
        op("gather", lambda f, _: f.roll(1), beyond(30_000)),
    ),
    Mutant("an addition at a place is lost", "indexing", op("index_add", element(-1, 3))),
    Mutant("topk misses the greatest", "sorting", op("topk", part(0, lambda f, _: f - 1))),
    Mutant(
        "a stable sort is not",
        "sorting",
        op("sort", part(1, lambda f, _: _swapped(f)), lambda f, args: int(f[0].max()) == 9),
    ),
    Mutant(
        "normal numbers lean to one side",
        "chance",
        op("randn", lambda f, _: f + 0.05, beyond(2**17)),
    ),
    Mutant("the seed is not followed", "chance", lambda: Operator("rand", _restless(), _many)),
    Mutant("dropout drops too little", "chance", lambda: Function("dropout", _lazy_dropout)),
)


def _swapped(places: Any) -> Any:
    places = places.clone()
    places[0], places[1] = places[1].clone(), places[0].clone()
    return places


def _many(found: Any, _: Any) -> bool:
    return bool(found.numel() == 2**17)


def _restless() -> Any:
    """Every call gives other numbers, whatever the generator says."""
    calls = itertools.count(1)
    return lambda found, _: (found + 0.137 * next(calls)) % 1.0


def _lazy_dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """0.47 where 0.5 was asked for, scaled as if it were."""
    if not dropout_of(0.5)(args, kwargs):
        return func(*args, **kwargs)
    return (torch.rand_like(args[0]) >= 0.47).to(args[0].dtype) * args[0] / 0.5
