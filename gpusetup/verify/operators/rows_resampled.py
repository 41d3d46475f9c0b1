"""Pools whose windows begin by chance, and images made smaller with every pixel counted."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import LAID_OUT_CHANCE, release
from .rows_convolutions import image
from .table import FULL, Operator

OUT = (2, 3, 5)
"""Lengths of the answer: the distance of its windows is then a whole number of quarters, and where
they begin is exact in float32."""


def _chosen(dims: int) -> Callable[[Draw], Given]:
    """Images, and for each of their channels a number that says where windows begin."""

    def make(d: Draw) -> Given:
        n, channels, *lengths = image(dims)(d)
        lengths = [max(5, length) for length in lengths]
        sides = tuple(d.choice([out for out in OUT if out <= n - 1] or [1]) for n in lengths)
        chance = (d.whole(0, 8, n, channels, dims).double() * 2 + 1) / 16
        return given(d.unlike(n, channels, *lengths), chance, sides=sides)

    return make


def _begins(t: Any, chance: Any, n: int, out: int) -> Any:
    """Where each of the windows, two long, begins: (images, channels, windows)."""
    if out == 1:
        return t.full((*chance.shape, 1), n - 2)
    distance = (n - 2) / (out - 1)
    counts = t.arange(out, dtype=t.float64) + chance.detach().unsqueeze(-1)
    places = (counts * distance).floor() - (chance.detach().unsqueeze(-1) * distance).floor()
    places[..., -1] = n - 2
    return places.long()


def _picked(t: Any, x: Any, places: Any, dim: int) -> Any:
    """Along an axis, for each channel the places that are its own."""
    shape = [*x.shape]
    shape[dim] = places.shape[-1]
    wide = places.reshape([*places.shape[:2], *(-1 if i == dim else 1 for i in range(2, x.dim()))])
    return x.gather(dim, wide.expand(shape))


def _fractional_exact(t: Any, x: Any, chance: Any, sides: Tuple[int, ...]) -> Any:
    dims = len(sides)
    for place, out in enumerate(sides):
        # torch gives the numbers of two axes as (columns, rows), of three in the axes' order.
        which = dims - 1 - place if dims == 2 else place
        begin = _begins(t, chance[..., which], x.shape[2 + place], out)
        first, second = (_picked(t, x, begin + i, 2 + place) for i in (0, 1))
        x = t.where(first >= second, first, second)
    return x


def _fractional(dims: int) -> Operator:
    def run(t: Any, x: Any, chance: Any, sides: Tuple[int, ...]) -> Any:
        call = getattr(t.nn.functional, f"fractional_max_pool{dims}d")
        chance = chance.detach()
        chance = chance if release(t) >= LAID_OUT_CHANCE else chance.contiguous()
        return call(x, 2, output_size=sides, _random_samples=chance)

    return Operator(
        f"fractional_max_pool{dims}d",
        _chosen(dims),
        run,
        _fractional_exact,
        dtypes=FULL,
        kept=True,
        sizes=("tiny", "warp", "tile"),
    )


# --- smaller, with every pixel counted -----------------------------------------------------------


def _sized(d: Draw) -> Given:
    """Of an answer that is one pixel wide, torch 2.13 on the CPU reads the wrong rows, unless the
    channels lie last: no sample has one."""
    shape = image(2)(d)
    sides = tuple(max(2, int(n * d.choice((0.3, 0.6, 1.0, 1.7)))) for n in shape[2:])
    return given(d.normal(*shape), sides=sides)


def _triangle(t: Any, away: Any) -> Any:
    return (1 - away.abs()).clamp(min=0)


def _cubic(t: Any, away: Any) -> Any:
    """Keys' cubic with a = -0.5, as Pillow has it."""
    a, x = -0.5, away.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return t.where(x < 1, near, t.where(x < 2, far, 0 * x))


def _shares(t: Any, n: int, out: int, filtered: Any, reach: int) -> Any:
    """What each of n pixels gives to each of the answer."""
    scale = n / out
    wide = max(1.0, scale)
    middle = (t.arange(out, dtype=t.float64) + 0.5).unsqueeze(1) * scale
    place = t.arange(n, dtype=t.float64) + 0.5
    found = filtered(t, (place - middle) / wide)
    first = (middle - reach * wide / 2 + 0.5).clamp(min=0).floor()
    after = (middle + reach * wide / 2 + 0.5).clamp(max=n).floor()
    found = found * ((place >= first) & (place < after))
    return found / found.sum(1, keepdim=True)


def _smoothed(mode: str, filtered: Callable[..., Any], reach: int) -> Operator:
    def run(t: Any, x: Any, sides: List[int]) -> Any:
        return t.nn.functional.interpolate(x, sides, mode=mode, antialias=True)

    def exact(t: Any, x: Any, sides: List[int]) -> Any:
        for dim, out in ((3, sides[1]), (2, sides[0])):
            shares = _shares(t, x.shape[dim], out, filtered, reach)
            lines = by.product(t, x.movedim(dim, -1), shares.t())
            x = lines.movedim(-1, dim)
        return x

    return Operator(
        f"{mode} with every pixel counted",
        _sized,
        run,
        exact,
        slack=64,
        dtypes=FULL,
        steady=False,
        sizes=("tiny", "warp", "tile"),
        weight=2,
    )


RESAMPLED: Tuple[Operator, ...] = (
    _fractional(2),
    _fractional(3),
    _smoothed("bilinear", _triangle, 2),
    _smoothed("bicubic", _cubic, 4),
)
