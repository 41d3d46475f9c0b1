"""Further pools and further ways to resize and to sample images."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_convolutions import _padded, _windows, image
from .rows_parameters import _up_to_the_corners
from .rows_pools import pooled
from .table import FULL, Operator


def _filled(t: Any, x: Any, after: Tuple[int, ...], value: float) -> Any:
    """With more at the end of each of the last axes."""
    for place, more in enumerate(after):
        dim = x.dim() - len(after) + place
        if more > 0:
            shape = [more if i == dim else n for i, n in enumerate(x.shape)]
            x = t.cat([x, t.full(shape, value, dtype=x.dtype)], dim)
    return x


def _ceiled(n: int, kernel: int, stride: int) -> int:
    """How many numbers are missing behind the last window, which begins within the line."""
    count = -(-(n - kernel) // stride) + 1
    count -= (count - 1) * stride >= n
    return max(0, (count - 1) * stride + kernel - n)


def _max_ceiled(t: Any, x: Any, kernel: int, stride: int) -> Any:
    after = tuple(_ceiled(n, kernel, stride) for n in x.shape[2:])
    wide = _filled(t, x, after, float("-inf"))
    return by.greatest(t, _windows(t, wide, [kernel] * 2, stride).flatten(4), -1)


def _mean_ceiled(t: Any, x: Any, kernel: int, stride: int) -> Any:
    after = tuple(_ceiled(n, kernel, stride) for n in x.shape[2:])
    sums, counts = (
        by.added(t, _windows(t, _filled(t, y, after, 0.0), [kernel] * 2, stride).flatten(4), -1)
        for y in (x, t.ones_like(x))
    )
    return sums / counts


def _spread_max(t: Any, x: Any, kernel: int, stride: int) -> Any:
    if min(x.shape[2:]) < 3:
        return x * 1
    return t.nn.functional.max_pool2d(x, 2, stride, dilation=2)


def _spread_max_exact(t: Any, x: Any, kernel: int, stride: int) -> Any:
    if min(x.shape[2:]) < 3:
        return x * 1
    return by.greatest(t, _windows(t, x, [2, 2], stride, 2).flatten(4), -1)


def _adapted(sizes: Tuple[int, ...], join: Callable[..., Any]) -> Callable[..., Any]:
    """Parts of each axis, unlike where the count does not divide it."""

    def exact(t: Any, x: Any, **_: Any) -> Any:
        for place, count in enumerate(sizes):
            dim, n = 2 + place, x.shape[2 + place]
            cuts = [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
            x = t.stack([join(t, x.narrow(dim, a, b - a), dim) for a, b in cuts], dim)
        return x

    return exact


def _adaptive(kind: str, sizes: Tuple[int, ...]) -> Operator:
    dims = len(sizes)
    return Operator(
        f"adaptive_{kind}_pool{dims}d in parts",
        pooled(dims),
        lambda t, x, kernel, stride: getattr(t.nn.functional, f"adaptive_{kind}_pool{dims}d")(
            x, sizes
        ),
        _adapted(sizes, by.mean if kind == "avg" else by.greatest),
        slack=4,
        weight=2,
        learns=kind == "avg",
    )


POOLED: Tuple[Operator, ...] = (
    Operator(
        "max_pool2d with a last part",
        pooled(2),
        lambda t, x, kernel, stride: t.nn.functional.max_pool2d(x, kernel, stride, ceil_mode=True),
        _max_ceiled,
        weight=2,
    ),
    Operator(
        "avg_pool2d with a last part",
        pooled(2),
        lambda t, x, kernel, stride: t.nn.functional.avg_pool2d(x, kernel, stride, ceil_mode=True),
        _mean_ceiled,
        slack=4,
        weight=2,
    ),
    Operator("max_pool2d spread", pooled(2), _spread_max, _spread_max_exact, weight=2),
    *(_adaptive("avg", sizes) for sizes in ((3,), (3, 2), (2, 3, 2))),
    *(_adaptive("max", sizes) for sizes in ((3,), (3, 2), (2, 3, 2))),
)

# --- resizing ------------------------------------------------------------------------------------


def _sized(dims: int) -> Callable[[Draw], Given]:
    """An image and the sides that it is to have; smaller, as large, larger."""

    def make(d: Draw) -> Given:
        shape = image(dims)(d)
        sides = tuple(max(1, int(n * d.choice((0.6, 1.0, 1.7, 2.0)))) for n in shape[2:])
        return given(d.normal(*shape), sides=sides)

    return make


def _enlarged(dims: int) -> Callable[[Draw], Given]:
    return lambda d: given(d.normal(*image(dims)(d)), times=d.choice((1, 2, 3)))


def _by_places(places: Callable[..., Any]) -> Callable[..., Any]:
    def exact(t: Any, x: Any, sides: Any) -> Any:
        for dim, length in enumerate(sides, start=2):
            x = x.index_select(dim, places(t, x.shape[dim], length))
        return x

    return exact


def _nearest(t: Any, n: int, length: int) -> Any:
    return (t.arange(length) * n).div(length, rounding_mode="floor")


def _nearest_middle(t: Any, n: int, length: int) -> Any:
    return ((2 * t.arange(length) + 1) * n).div(2 * length, rounding_mode="floor")


def _by_lines(t: Any, x: Any, sides: Any) -> Any:
    """Straight lines between the middles of pixels."""
    for dim, length in enumerate(sides, start=2):
        n = x.shape[dim]
        at = ((t.arange(length, dtype=t.float64) + 0.5) * n / length - 0.5).clamp(min=0)
        low = at.floor().long().clamp(max=n - 1)
        part = (at - low).reshape([-1 if i == dim else 1 for i in range(x.dim())])
        high = (low + 1).clamp(max=n - 1)
        x = x.index_select(dim, low) * (1 - part) + x.index_select(dim, high) * part
    return x


def _corners(t: Any, x: Any, sides: Any) -> Any:
    for dim, length in enumerate(sides, start=2):
        x = _up_to_the_corners(t, x, dim, length)
    return x


def _resized(name: str, dims: int, exact: Any, slack: float, **options: Any) -> Operator:
    more = {"weight": 2.0, **options.pop("row", {})}
    return Operator(
        f"{name} {dims}d to a size",
        _sized(dims),
        lambda t, x, sides: t.nn.functional.interpolate(x, sides, **options),
        exact,
        slack=slack,
        steady=False,
        sizes=("tiny", "warp", "tile", "block"),
        **more,
    )


NEAREST, EXACT = _by_places(_nearest), _by_places(_nearest_middle)
WAYS = {1: "linear", 2: "bilinear", 3: "trilinear"}

RESIZED: Tuple[Operator, ...] = (
    *(
        Operator(
            f"nearest-exact {dims}d by whole times",
            _enlarged(dims),
            lambda t, x, times: t.nn.functional.interpolate(
                x, [times * n for n in x.shape[2:]], mode="nearest-exact"
            ),
            lambda t, x, times: EXACT(t, x, [times * n for n in x.shape[2:]]),
            slack=4,
            steady=False,
            dtypes=FULL,
        )
        for dims in (1, 2, 3)
    ),
    *(
        _resized(mode, dims, _by_lines, 2048 if dims == 1 else 512, mode=mode, align_corners=False)
        for dims, mode in WAYS.items()
    ),
    *(
        _resized(
            f"{mode} corners",
            dims,
            _corners,
            2048 if dims == 1 else 512,
            mode=mode,
            align_corners=True,
        )
        for dims, mode in WAYS.items()
        if dims != 2
    ),
    *(
        Operator(
            f"nearest {dims}d by whole times",
            _enlarged(dims),
            lambda t, x, times: t.nn.functional.interpolate(x, scale_factor=times),
            lambda t, x, times: NEAREST(t, x, [times * n for n in x.shape[2:]]),
            slack=4,
            steady=False,
        )
        for dims in (1, 3)
    ),
    _resized(
        "area",
        2,
        lambda t, x, sides: _adapted(tuple(sides), by.mean)(t, x),
        8,
        mode="area",
    ),
)


def _sampled(dims: int, mode: str, border: str, corners: bool) -> Operator:
    def make(d: Draw) -> Given:
        lengths = [d.choice((4, 5, 7, 9, 17)) for _ in range(dims)]
        out = [d.choice((3, 6, 17)) for _ in range(dims)]
        channels = d.choice((1, 3, 8, 17))
        # Away from the middle between pixels and from the edge, where a roundoff would decide.
        reach = [(n - 1 if corners else n) / 2 for n in reversed(lengths)]
        steps = d.whole(-3, 2 * max(lengths) + 4, 2, *out, dims).double() / 2 + 0.23
        low = d.torch.tensor([0.0 if corners else -0.5] * dims, dtype=d.torch.float64)
        place = (steps - low) / d.torch.tensor(reach, dtype=d.torch.float64) - 1
        return given(d.normal(2, channels, *lengths), place)

    name = f"grid_sample {dims}d {mode} {border}{' corners' if corners else ''}"
    return Operator(
        name,
        make,
        lambda t, x, g: t.nn.functional.grid_sample(
            x, g, mode=mode, padding_mode=border, align_corners=corners
        ),
        dtypes=FULL,
        slack=64,
        steady=False,
        learns=mode == "bilinear" and border != "reflection",
        sizes=("tiny", "warp"),
    )


SAMPLED: Tuple[Operator, ...] = (
    *(_sampled(2, "bilinear", border, True) for border in ("zeros", "border", "reflection")),
    *(_sampled(2, "bilinear", border, False) for border in ("border", "reflection")),
    *(_sampled(2, "nearest", border, False) for border in ("zeros", "border")),
    _sampled(2, "bicubic", "zeros", False),
    _sampled(3, "bilinear", "zeros", False),
    _sampled(3, "bilinear", "border", True),
    _sampled(3, "nearest", "zeros", False),
)


def _unfolded(t: Any, x: Any) -> Any:
    seen = _windows(t, _padded(t, x, 1, 2), [3, 2], 2)
    n, c, rows, columns = seen.shape[:4]
    return seen.permute(0, 1, 4, 5, 2, 3).reshape(n, c * 6, rows * columns)


IMAGES: Tuple[Operator, ...] = (
    *POOLED,
    *RESIZED,
    *SAMPLED,
    Operator(
        "unfold",
        lambda d: given(d.normal(*image(2)(d))),
        lambda t, x: t.nn.functional.unfold(x, (3, 2), padding=1, stride=2),
        _unfolded,
        slack=4,
        steady=False,
    ),
)
