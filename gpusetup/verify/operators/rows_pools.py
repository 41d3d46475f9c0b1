"""Pools, and images that are made larger or smaller."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_convolutions import _padded, _windows, image
from .table import Operator


def pooled(dims: int) -> Callable[[Draw], Given]:
    """Numbers of which no two are alike in an image: the greatest of a window is the only one."""

    def make(d: Draw) -> Given:
        n, channels, *lengths = image(dims)(d)
        lengths = [min(length, 250) if dims == 1 else length for length in lengths]
        return given(
            d.unlike(n, channels, *lengths),
            kernel=min(2 + d.choice((0, 1)), *lengths),
            stride=d.choice((1, 2)),
        )

    return make


def _max_exact(t: Any, x: Any, kernel: int, stride: int) -> Any:
    dims = x.dim() - 2
    seen = _windows(t, x, [kernel] * dims, stride).flatten(2 + dims)
    return by.greatest(t, seen, -1)


def _mean_exact(t: Any, x: Any, kernel: int, stride: int) -> Any:
    dims = x.dim() - 2
    return by.mean(t, _windows(t, x, [kernel] * dims, stride).flatten(2 + dims), -1)


def _pool(name: str, dims: int, exact: Any, weight: float) -> Operator:
    return Operator(
        f"{name}{dims}d",
        pooled(dims),
        lambda t, x, kernel, stride: getattr(t.nn.functional, f"{name}{dims}d")(x, kernel, stride),
        exact,
        slack=2,
        weight=weight,
    )


def _padded_max(t: Any, x: Any, kernel: int, stride: int) -> Any:
    return t.nn.functional.max_pool2d(x, 3, stride, 1)


def _padded_max_exact(t: Any, x: Any, kernel: int, stride: int) -> Any:
    wide = _padded(t, x, 1, 2, float("-inf"))
    return by.greatest(t, _windows(t, wide, [3, 3], stride).flatten(4), -1)


def _adapted(t: Any, x: Any, kernel: int, stride: int) -> Any:
    return t.nn.functional.adaptive_avg_pool2d(x, (kernel, 1))


def _adapted_exact(t: Any, x: Any, kernel: int, stride: int) -> Any:
    rows = x.shape[2]
    parts = []
    for i in range(kernel):
        low, high = i * rows // kernel, -(-(i + 1) * rows // kernel)
        parts.append(by.mean(t, x[:, :, low:high].flatten(2), -1))
    return t.stack(parts, -1).unsqueeze(-1)


def _max_indices(t: Any, x: Any, kernel: int, stride: int) -> Any:
    values, places = t.nn.functional.max_pool2d(x, kernel, stride, return_indices=True)
    return x.flatten(2).gather(2, places.flatten(2)).reshape(values.shape)


POOLS: Tuple[Operator, ...] = (
    *(_pool("max_pool", n, _max_exact, w) for n, w in ((1, 2), (2, 4), (3, 1))),
    *(_pool("avg_pool", n, _mean_exact, w) for n, w in ((1, 1), (2, 3), (3, 1))),
    Operator("max_pool2d padded", pooled(2), _padded_max, _padded_max_exact, weight=3),
    Operator("max_pool2d places", pooled(2), _max_indices, _max_exact, weight=2),
    Operator("adaptive_avg_pool2d", pooled(2), _adapted, _adapted_exact, slack=2, weight=3),
)


def _image(d: Draw) -> Given:
    return given(d.normal(*image(2)(d)))


def _nearest(t: Any, x: Any) -> Any:
    return t.nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def _line_up(t: Any, x: Any, dim: int) -> Any:
    """Twice as long, by straight lines between the middles."""
    n = x.shape[dim]
    at = ((t.arange(2 * n, dtype=t.float64) + 0.5) / 2 - 0.5).clamp(min=0)
    low = at.floor().long()
    part = (at - low).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    high = (low + 1).clamp(max=n - 1)
    return x.index_select(dim, low) * (1 - part) + x.index_select(dim, high) * part


RESIZING: Tuple[Operator, ...] = (
    Operator(
        "interpolate nearest",
        _image,
        _nearest,
        lambda t, x: x[:, :, t.arange(2 * x.shape[2]) // 2][..., t.arange(2 * x.shape[3]) // 2],
        weight=2,
        steady=False,
    ),
    Operator(
        "interpolate bilinear",
        _image,
        lambda t, x: t.nn.functional.interpolate(
            x, scale_factor=2, mode="bilinear", align_corners=False
        ),
        lambda t, x: _line_up(t, _line_up(t, x, 2), 3),
        slack=4,
        weight=2,
        steady=False,
    ),
    Operator(
        "unfold and fold",
        _image,
        lambda t, x: t.nn.functional.fold(
            t.nn.functional.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1
        ),
        lambda t, x: _folded(t, x),
        slack=4,
        steady=False,
    ),
)


def _folded(t: Any, x: Any) -> Any:
    """Each place is counted by each window that lies over it."""
    counts = []
    for n in x.shape[2:]:
        i = t.arange(n)
        counts.append(1 + (i > 0).double() + (i < n - 1).double())
    return x * counts[0].unsqueeze(1) * counts[1]
