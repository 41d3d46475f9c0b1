"""Convolutions and transposed ones, of one to three dimensions."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

from . import definitions as by
from .drawing import Draw, Given, given
from .table import FEW, FLOATS, Operator

CHANNELS = {
    "tiny": (1, 2, 3),
    "warp": (4, 8, 16),
    "tile": (15, 32, 33),
    "block": (32, 64),
    "long": (3, 16),
    "edges": (1, 31, 33, 64, 65),
}
PLACES = {
    "tiny": (3, 5, 7),
    "warp": (8, 15, 17),
    "tile": (14, 19),
    "block": (16, 23),
    "long": (40, 65),
    "edges": (1, 7, 8, 9, 16, 17),
}


def image(dims: int) -> Callable[[Draw], Tuple[int, ...]]:
    def shape(d: Draw) -> Tuple[int, ...]:
        rows = PLACES[d.size] if dims < 3 else (4, 5, 7)
        lengths = [d.choice(rows) for _ in range(dims)]
        if dims == 1:
            lengths = [d.length(1025)]
        count = d.choice((1, 2, 3, 5, 9) if d.size in FEW else (1, 2, 3))
        return (count, d.choice(CHANNELS[d.size]), *lengths)

    return shape


def convolved(dims: int, transposed: bool = False) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        n, channels, *lengths = image(dims)(d)
        groups = d.choice((1, 1, 1, 2, channels))
        groups = groups if channels % groups == 0 else 1
        outputs = groups * d.choice((1, 2, 4, 5)) if groups > 1 else d.choice((1, 3, 8, 16, 33))
        kernel = [min(d.choice((1, 2, 3, 3, 5)), length) for length in lengths]
        options: Dict[str, Any] = {
            "stride": d.choice((1, 2, 2) if transposed else (1, 1, 2)),
            "padding": d.choice((0, 1)) if not transposed or min(kernel) > 1 else 0,
            "groups": groups,
        }
        if transposed and options["stride"] > 1:
            options["output_padding"] = d.choice((0, 1))
        options["dilation"] = 2 if d.choice((0, 0, 1)) and 2 * max(kernel) < min(lengths) else 1
        shape = (channels, outputs // groups) if transposed else (outputs, channels // groups)
        scale = sqrt(shape[1] * by_all(kernel))
        return given(
            d.normal(n, channels, *lengths),
            d.normal(*shape, *kernel) / scale,
            d.normal(outputs),
            **options,
        )

    return make


def by_channel(dims: int) -> Callable[[Draw], Given]:
    """Each channel by itself: kernels of their own, one for each width."""

    def make(d: Draw) -> Given:
        n, _, *lengths = image(dims)(d)
        channels = d.choice([c for c in CHANNELS[d.size] if c > 1])
        kernel = [min(d.choice((3, 5, 7)), length) for length in lengths]
        outputs = channels * d.choice((1, 1, 2))
        return given(
            d.normal(n, channels, *lengths),
            d.normal(outputs, 1, *kernel) / sqrt(by_all(kernel)),
            d.normal(outputs),
            stride=d.choice((1, 1, 2)),
            padding=d.choice((0, 1)),
            groups=channels,
            dilation=1,
        )

    return make


def by_all(lengths: List[int]) -> int:
    total = 1
    for each in lengths:
        total *= each
    return total


Each = Union[int, Sequence[int]]
"""One number for all axes, or one for each."""


def _each(given: Each, dims: int) -> List[int]:
    return [given] * dims if isinstance(given, int) else list(given)


def _windows(t: Any, x: Any, kernel: Any, stride: Each, dilation: Each = 1) -> Any:
    """Views of all windows: (n, c, out..., kernel...)."""
    dims = len(kernel)
    steps, apart = _each(stride, dims), _each(dilation, dims)
    for i in range(dims):
        x = x.unfold(2 + i, apart[i] * (kernel[i] - 1) + 1, steps[i])
    for i in range(dims):
        if apart[i] > 1:
            x = x[(slice(None),) * (2 + dims + i) + (slice(None, None, apart[i]),)]
    return x


def _padded(t: Any, x: Any, padding: Each, dims: int, value: float = 0.0) -> Any:
    more = _each(padding, dims)
    if not any(more):
        return x
    shape = [*x.shape[:2], *(length + 2 * p for length, p in zip(x.shape[2:], more))]
    wide = t.full(shape, value, dtype=x.dtype)
    inside = (slice(None),) * 2 + tuple(slice(p, p + n) for n, p in zip(x.shape[2:], more))
    wide[inside] = x
    return wide


def by_windows(
    t: Any,
    x: Any,
    w: Any,
    b: Any,
    stride: Each,
    padding: Each,
    groups: int,
    dilation: Each,
    product: Callable[..., Any] = by.product,
) -> Any:
    """A convolution from its definition: windows times weights, added up."""
    dims = w.dim() - 2
    seen = _windows(t, _padded(t, x, padding, dims), w.shape[2:], stride, dilation)
    n, out = x.shape[0], seen.shape[2 : 2 + dims]
    parts = []
    wide, narrow = x.shape[1] // groups, w.shape[0] // groups
    for g in range(groups):
        some = seen[:, g * wide : (g + 1) * wide]
        lines = some.movedim(1, 1 + dims).reshape(n * by_all(list(out)), -1)
        weights = w[g * narrow : (g + 1) * narrow].reshape(narrow, -1)
        parts.append(product(t, lines, weights.t()).reshape(n, *out, narrow))
    return t.cat(parts, -1).movedim(-1, 1) + b.reshape(1, -1, *([1] * dims))


def by_spreading(
    t: Any,
    x: Any,
    w: Any,
    b: Any,
    stride: Each,
    padding: Each,
    groups: int,
    dilation: Each,
    output_padding: Each = 0,
    product: Callable[..., Any] = by.product,
) -> Any:
    """A transposed convolution: a convolution of the spread input with the weights turned.

    A padding takes as much away at both ends; it is at most what the kernel reaches.
    """
    dims = w.dim() - 2
    steps, apart = _each(stride, dims), _each(dilation, dims)
    cut, more = _each(padding, dims), _each(output_padding, dims)
    shape = [*x.shape[:2], *((n - 1) * step + 1 for n, step in zip(x.shape[2:], steps))]
    spread = t.zeros(shape, dtype=x.dtype)
    spread[(slice(None),) * 2 + tuple(slice(None, None, step) for step in steps)] = x
    reach = [a * (n - 1) - p for n, a, p in zip(w.shape[2:], apart, cut)]
    lengths = [n + 2 * r + m for n, r, m in zip(shape[2:], reach, more)]
    wide = t.zeros([*shape[:2], *lengths], dtype=x.dtype)
    wide[(slice(None),) * 2 + tuple(slice(r, r + n) for n, r in zip(shape[2:], reach))] = spread
    turned = w.flip(tuple(range(2, w.dim())))
    size = w.shape[0] // groups
    turned = t.cat([turned[g * size : (g + 1) * size].transpose(0, 1) for g in range(groups)])
    return by_windows(t, wide, turned, b, 1, 0, groups, dilation, product)


def _convolution(dims: int, weight: float) -> Operator:
    name = f"conv{dims}d"
    return Operator(
        name,
        convolved(dims),
        lambda t, *a, **k: getattr(t.nn.functional, name)(*a, **k),
        by_windows,
        slack=8,
        weight=weight,
        arithmetic="convolution",
    )


def _by_channel(dims: int) -> Operator:
    return _convolution(dims, 3)._replace(name=f"depthwise conv{dims}d", make=by_channel(dims))


def _transposed(dims: int) -> Operator:
    name = f"conv_transpose{dims}d"
    return Operator(
        name,
        convolved(dims, True),
        lambda t, *a, **k: getattr(t.nn.functional, name)(*a, **k),
        by_spreading,
        slack=8,
        weight=2,
        arithmetic="convolution",
        dtypes=FLOATS,
    )


CONVOLUTIONS = (
    *(_convolution(dims, weight) for dims, weight in ((1, 4), (2, 10), (3, 2))),
    *(_transposed(dims) for dims in (1, 2, 3)),
    *(_by_channel(dims) for dims in (1, 2)),
)
