"""Fourier transforms in their forms, by their definition."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Callable, Dict, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import FULL, Operator

SCALES: Dict[str, Callable[[int], float]] = {
    "backward": lambda n: 1.0,
    "ortho": lambda n: 1 / sqrt(n),
    "forward": lambda n: 1.0 / n,
}
"""What a forward transform of n numbers is multiplied by; a backward one by 1 / n more."""


def _waves(t: Any, n: int) -> Tuple[Any, Any]:
    """Cosines and sines of all products of places; whole turns are left out."""
    count = t.arange(n)
    angle = 2 * pi / n * ((count.unsqueeze(1) * count) % n).double()
    return angle.cos(), angle.sin()


def _along(t: Any, a: Any, b: Any, dim: int, back: bool = False) -> Tuple[Any, Any]:
    """The transform of a + ib along an axis, without a factor."""
    cos, sin = _waves(t, a.shape[dim])
    sin = -sin if back else sin
    a, b = a.movedim(dim, -1), b.movedim(dim, -1)
    shape = a.shape
    a, b = a.reshape(-1, shape[-1]), b.reshape(-1, shape[-1])
    real = by.product(t, a, cos) + by.product(t, b, sin)
    imaginary = by.product(t, b, cos) - by.product(t, a, sin)
    return real.reshape(shape).movedim(-1, dim), imaginary.reshape(shape).movedim(-1, dim)


def _lines(d: Draw) -> Given:
    n = max(2, d.length(1025))
    shape = (d.choice((1, 2, 5)), n)
    return given(d.normal(*shape), d.normal(*shape), norm=d.choice(tuple(SCALES)))


def _apart(t: Any, found: Any) -> Any:
    return t.stack([found.real, found.imag], -1) if found.is_complex() else found


def _transform(
    name: str, run: Callable[..., Any], exact: Callable[..., Any], make: Any = _lines, **more: Any
) -> Operator:
    def right(t: Any, a: Any, b: Any, norm: str) -> Any:
        found = exact(t, a, b, norm)
        return t.stack(found, -1) if isinstance(found, tuple) else found

    return Operator(
        name,
        make,
        lambda t, a, b, norm: _apart(t, run(t, a, b, norm)),
        right,
        dtypes=FULL,
        slack=32,
        weight=2,
        sizes=("tiny", "warp", "tile", "block") if make is _lines else ("tiny", "warp", "tile"),
        **more,
    )


def _scaled(pair: Any, scale: float) -> Any:
    return tuple(scale * each for each in pair)


def _forward(t: Any, a: Any, b: Any, norm: str) -> Any:
    return _scaled(_along(t, a, b, -1), SCALES[norm](a.shape[-1]))


def _backward(t: Any, a: Any, b: Any, norm: str) -> Any:
    n = a.shape[-1]
    return _scaled(_along(t, a, b, -1, True), 1 / (n * SCALES[norm](n)))


def _half(t: Any, a: Any, b: Any, norm: str) -> Any:
    return tuple(x[..., : a.shape[-1] // 2 + 1] for x in _forward(t, a, 0 * a, norm))


def _mirrored(t: Any, a: Any, b: Any, odd: int) -> Tuple[Any, Any]:
    """All bins of a real signal from its first half; the first and the last have no second part."""
    n = 2 * (a.shape[-1] - 1) + odd
    b = t.cat([0 * b[..., :1], b[..., 1:]], -1)
    if not odd:
        b = t.cat([b[..., :-1], 0 * b[..., -1:]], -1)
    rest = n - a.shape[-1]
    turned = t.arange(rest, 0, -1)
    return t.cat([a, a[..., turned]], -1), t.cat([b, -b[..., turned]], -1)


def _back_to_real(odd: int) -> Callable[..., Any]:
    def exact(t: Any, a: Any, b: Any, norm: str) -> Any:
        return _backward(t, *_mirrored(t, a, b, odd), norm)[0]

    return exact


SPECTRAL: Tuple[Operator, ...] = (
    _transform("fft", lambda t, a, b, norm: t.fft.fft(t.complex(a, b), norm=norm), _forward),
    _transform("ifft", lambda t, a, b, norm: t.fft.ifft(t.complex(a, b), norm=norm), _backward),
    _transform("rfft", lambda t, a, b, norm: t.fft.rfft(a, norm=norm), _half),
    _transform(
        "irfft",
        lambda t, a, b, norm: t.fft.irfft(t.complex(a, b), 2 * (a.shape[-1] - 1), norm=norm),
        _back_to_real(0),
    ),
    _transform(
        "irfft of odd",
        lambda t, a, b, norm: t.fft.irfft(t.complex(a, b), 2 * a.shape[-1] - 1, norm=norm),
        _back_to_real(1),
    ),
)
