"""Operators called with the parameters that choose another kernel, a row each."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import by_channel
from .rows_convolutions import image
from .rows_functions import one
from .rows_norms import _by_channel, places
from .rows_products import _added_batches, _linear, _product, _with_bias
from .table import FULL, Operator

# --- functions -----------------------------------------------------------------------------------


def _function(name: str, make: Any, run: Any, exact: Any, slack: float = 2.0) -> Operator:
    return Operator(name, make, run, exact, slack=slack, split=True, weight=2)


def _tanh(t: Any, x: Any) -> Any:
    return 1 - 2 / ((2 * x).exp() + 1)


POINTWISE: Tuple[Operator, ...] = (
    _function(
        "gelu by tanh",
        one(-2.5, 5),  # below, 1 + tanh has few digits left
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        lambda t, x: x / 2 * (1 + _tanh(t, sqrt(2 / pi) * (x + 0.044715 * x * x * x))),
        24,
    ),
)

# --- products ------------------------------------------------------------------------------------


def _forgotten(make: Any) -> Any:
    """What is not to be added holds no number."""

    def made(d: Draw) -> Given:
        bias, *others = make(d).tensors
        return given(bias * float("nan"), *others)

    return made


def _none_of(t: Any, bias: Any) -> Any:
    """What is to be forgotten; torch 1.13 on the CPU does not forget what is no number."""
    return bias if hasattr(t.nn.functional, "scaled_dot_product_attention") else t.ones_like(bias)


def _many_small(d: Draw) -> Given:
    batch = d.choice((15, 16, 17, 31, 33, 64, 65, 127, 129, 257))
    n, k, m = (d.choice((1, 2, 3, 5, 8, 9)) for _ in range(3))
    return given(d.normal(batch, n, k), d.normal(batch, k, m))


def _long_vectors(d: Draw) -> Given:
    count = d.length() * d.choice((1, 3, 7))
    return given(d.normal(count), d.normal(count))


PRODUCTS: Tuple[Operator, ...] = (
    _product(
        "addmm plain",
        _with_bias,
        lambda t, b, x, y: t.addmm(b, x, y),
        lambda t, b, x, y: b + by.product(t, x, y),
        weight=4,
        roundings_back=1,
    ),
    _product(
        "addmm of nothing",
        _forgotten(_with_bias),
        lambda t, b, x, y: t.addmm(b, x, y, beta=0),
        lambda t, b, x, y: by.product(t, x, y),
        learns=False,
        weight=2,
    ),
    _product(
        "baddbmm of nothing",
        _forgotten(_added_batches),
        lambda t, b, x, y: t.baddbmm(_none_of(t, b), x, y, beta=0),
        lambda t, b, x, y: by.product(t, x, y),
        learns=False,
    ),
    _product(
        "linear without bias",
        _linear,
        lambda t, x, w, b: t.nn.functional.linear(x, w),
        lambda t, x, w, b: by.product(t, x, w.t()),
        weight=4,
        roundings_back=1,
    ),
    _product(
        "bmm of many",
        _many_small,
        lambda t, x, y: t.bmm(x, y),
        by.product,
        weight=3,
        sizes=("tiny", "warp"),
        roundings_back=1,
    ),
    _product(
        "dot of long",
        _long_vectors,
        lambda t, x, y: t.dot(x, y),
        lambda t, x, y: by.added(t, x * y, 0),
        weight=3,
        sizes=("tile", "block", "long"),
    ),
)

# --- the order of equals, and what has no gradient -----------------------------------------------


def _with_ties(d: Draw) -> Given:
    dims = d.choice((1, 2, 3))
    x = d.whole(0, 4, *d.shape(dims, 2)).double()
    return given(x, dim=d.choice(range(dims)))


def _first_of(greatest: bool) -> Any:
    def exact(t: Any, x: Any, dim: int) -> Any:
        top = (by.greatest if greatest else by.least)(t, x, dim).unsqueeze(dim)
        shape = [-1 if i == dim else 1 for i in range(x.dim())]
        count = t.arange(x.shape[dim]).reshape(shape).expand(x.shape)
        return by.least(t, t.where(x == top, count.double(), 1e18 + 0 * count), dim).to(t.int64)

    return exact


REDUCTIONS: Tuple[Operator, ...] = (
    Operator(
        "argmax of equals",
        _with_ties,
        lambda t, x, dim: x.argmax(dim),
        _first_of(True),
        learns=False,
        kept=True,
        weight=3,
    ),
    Operator(
        "argmin of equals",
        _with_ties,
        lambda t, x, dim: x.argmin(dim),
        _first_of(False),
        learns=False,
        kept=True,
    ),
)


def _padded_lookup(d: Draw) -> Given:
    rows, width = d.shape(2, 2)
    return given(
        d.whole(0, 100, rows, width).double(),
        d.whole(0, rows, d.length(1025)),
        none=d.choice((0, 1)),
    )


def _padded_exact(t: Any, x: Any, i: Any, none: int) -> Any:
    one_hot = (i.unsqueeze(1) == t.arange(x.shape[0])).to(x.dtype)
    taught = t.arange(x.shape[0]).unsqueeze(1) != none
    return by.product(t, one_hot, t.where(taught, x, x.detach()))


INDEXING: Tuple[Operator, ...] = (
    Operator(
        "embedding with padding",
        _padded_lookup,
        lambda t, x, i, none: t.nn.functional.embedding(i, x, padding_idx=none),
        _padded_exact,
        dtypes=FULL,
        kept=True,
        weight=4,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
)

# --- images --------------------------------------------------------------------------------------


def _up_to_the_corners(t: Any, x: Any, dim: int, length: int) -> Any:
    """By straight lines, the first and the last stay where they are."""
    n = x.shape[dim]
    at = t.arange(length, dtype=t.float64) * ((n - 1) / max(1, length - 1))
    low = at.floor().long().clamp(max=n - 1)
    part = (at - low).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    high = (low + 1).clamp(max=n - 1)
    return x.index_select(dim, low) * (1 - part) + x.index_select(dim, high) * part


def _resized(d: Draw) -> Given:
    shape = image(2)(d)
    sides = tuple(max(1, int(side * d.choice((0.6, 1.0, 1.7, 2.0)))) for side in shape[2:])
    return given(d.normal(*shape), sides=sides)


IMAGES: Tuple[Operator, ...] = (
    Operator(
        "interpolate to the corners",
        _resized,
        lambda t, x, sides: t.nn.functional.interpolate(
            x, sides, mode="bilinear", align_corners=True
        ),
        lambda t, x, sides: _up_to_the_corners(
            t, _up_to_the_corners(t, x, 2, sides[0]), 3, sides[1]
        ),
        # A place is off by the roundoff of its number, and the answer by so much of a pixel's step.
        slack=512,
        weight=3,
        sizes=("tiny", "warp", "tile", "block"),
        steady=False,
    ),
)

# --- norms ---------------------------------------------------------------------------------------


def _channels(d: Draw) -> Given:
    n, *lengths = places(d)
    channels = d.choice((1, 3, 7, 8, 16, 17, 31, 33, 64, 65, 96, 129))
    return given(
        d.normal(max(2, n), channels, *lengths), d.normal(channels), d.uniform(0.5, 2, channels)
    )


def _batch_norm_known(t: Any, x: Any, mean: Any, spread: Any) -> Any:
    kept = t.float32 if x.element_size() == 2 else x.dtype
    mean, spread = (by_channel(each.detach().to(kept)) for each in (mean, spread))
    return t.nn.functional.batch_norm(x, mean, spread, None, None, False, 0.1, 1e-3)


def _batch_norm_known_exact(t: Any, x: Any, mean: Any, spread: Any) -> Any:
    away = x - _by_channel(x, mean.detach())
    return away / (_by_channel(x, spread.detach()) + 1e-3).sqrt()


NORMS: Tuple[Operator, ...] = (
    Operator(
        "batch_norm of any channels",
        _channels,
        _batch_norm_known,
        _batch_norm_known_exact,
        slack=4,
        weight=5,
    ),
)
