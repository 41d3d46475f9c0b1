"""Norms: of layers, by root mean square, of groups, of a batch."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import by_channel
from .rows_convolutions import image
from .table import Operator


def normed(least: int) -> Callable[[Draw], Given]:
    """Lines of so many numbers or more; of two, the gradient through a norm is roundoff."""

    def make(d: Draw) -> Given:
        rows, width = d.shape(2, least)
        return given(d.normal(rows, width) * 2 + 1, d.normal(width), d.normal(width))

    return make


def _layer_norm(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t.nn.functional.layer_norm(x, x.shape[-1:], w, b, 1e-3)


def _layer_norm_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    return by.standard(t, x) * w + b


def _rms_norm(t: Any, x: Any, w: Any, b: Any) -> Any:
    if hasattr(t.nn.functional, "rms_norm"):
        return t.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-3)
    return x * (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * w


def _rms_norm_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    return x / (by.mean(t, x * x, 1) + 1e-3).sqrt().unsqueeze(1) * w


def places(d: Draw) -> Tuple[int, ...]:
    """A count of images and their sides: of one place alone there is nothing to norm."""
    n, _, *lengths = image(2)(d)
    if lengths == [1, 1]:
        lengths[1] = 2
    return (n, *lengths)


def grouped(d: Draw) -> Given:
    n, *lengths = places(d)
    channels = d.choice((4, 6, 32, 64))
    return given(
        d.normal(max(2, n), channels, *lengths) * 2 + 1, d.normal(channels), d.normal(channels)
    )


def _by_channel(x: Any, v: Any) -> Any:
    return v.reshape(1, -1, *([1] * (x.dim() - 2)))


def _group_exact(groups: int) -> Callable[..., Any]:
    def exact(t: Any, x: Any, w: Any, b: Any) -> Any:
        count = groups or x.shape[1]
        flat = by.standard(t, x.reshape(x.shape[0] * count, -1))
        return flat.reshape(x.shape) * _by_channel(x, w) + _by_channel(x, b)

    return exact


def _batch_norm(t: Any, x: Any, w: Any, b: Any) -> Any:
    mean, spread = t.zeros_like(w, dtype=_kept(t, x)), t.ones_like(w, dtype=_kept(t, x))
    w, b = by_channel(w.to(_kept(t, x))), b.to(_kept(t, x))
    found = t.nn.functional.batch_norm(x, mean, spread, w, b, True, 0.3, 1e-3)
    return found, mean, spread


def _kept(t: Any, x: Any) -> Any:
    """The format of what batch norm keeps: float32 beside half precision, as autocast has it."""
    return t.float32 if x.element_size() == 2 else x.dtype


def _batch_norm_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    lines = x.transpose(0, 1).reshape(x.shape[1], -1)
    mean = by.mean(t, lines, 1)
    spread = by.variance(t, lines, 1, 0)
    found = (x - _by_channel(x, mean)) / (_by_channel(x, spread) + 1e-3).sqrt()
    running = 0.7 + 0.3 * by.variance(t, lines.detach(), 1)
    return found * _by_channel(x, w) + _by_channel(x, b), 0.3 * mean.detach(), running


def _batch_norm_kept(t: Any, x: Any, w: Any, b: Any) -> Any:
    kept = _kept(t, x)
    return t.nn.functional.batch_norm(
        x,
        by_channel(b.detach().to(kept)),
        by_channel(w.detach().to(kept).abs() + 0.5),
        by_channel(w.to(kept)),
        b.to(kept),
        False,
        0.1,
        1e-3,
    )


def _batch_norm_kept_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    spread = (w.detach().abs() + 0.5 + 1e-3).sqrt()
    found = (x - _by_channel(x, b.detach())) / _by_channel(x, spread)
    return found * _by_channel(x, w) + _by_channel(x, b)


NORMS: Tuple[Operator, ...] = (
    Operator(
        "layer_norm",
        normed(2),
        _layer_norm,
        _layer_norm_exact,
        slack=16,
        weight=5,
        sizes=("warp", "tile", "block", "long"),
        roundings=1,
    ),
    Operator(
        "rms_norm",
        normed(2),
        _rms_norm,
        _rms_norm_exact,
        slack=4,
        weight=3,
        sizes=("warp", "tile", "block", "long"),
    ),
    Operator(
        "group_norm",
        grouped,
        lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b, 1e-3),
        _group_exact(2),
        serial=True,
        slack=16,
        weight=3,
    ),
    Operator(
        "instance_norm",
        grouped,
        lambda t, x, w, b: t.nn.functional.instance_norm(x, weight=w, bias=b, eps=1e-3),
        _group_exact(0),
        serial=True,
        slack=8,
    ),
    Operator(
        "batch_norm in training",
        grouped,
        _batch_norm,
        _batch_norm_exact,
        serial=True,
        slack=4,
        weight=5,
    ),
    Operator(
        "batch_norm in use", grouped, _batch_norm_kept, _batch_norm_kept_exact, slack=4, weight=3
    ),
)
