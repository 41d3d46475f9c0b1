"""Convolutions, pools and resizing with every two of their options together."""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Any, Dict, List, Sequence, Tuple

from . import definitions as by
from .drawing import Draw
from .pairs import in_pairs
from .rows_convolutions import _padded, _windows, by_all, by_spreading, by_windows
from .table import FULL

Made = Tuple[List[Any], Dict[str, Any]]

# --- convolutions --------------------------------------------------------------------------------

CHANNELS = {"one": (3, 4, 1), "two": (4, 6, 2), "each": (4, 4, 4), "each twice": (3, 6, 3)}
"""In, out, groups."""
KERNELS = {"1": (1, 1, 1), "2": (2, 2, 2), "3": (3, 3, 3), "unlike": (3, 1, 2)}
LONG = {1: (11,), 2: (7, 8), 3: (5, 5, 6)}
"""Sides; with a padding of the kernel's reach every window fits."""


def _reach(kernel: Sequence[int], dilation: int) -> List[int]:
    return [dilation * (k - 1) for k in kernel]


def _convolved(d: Draw, dims: int, **of: Any) -> Made:
    channels, outputs, groups = CHANNELS[of["groups"]]
    kernel, reach = _kernel(dims, of)
    wide = [max(r, 1) for r in reach]
    half = [r - r // 2 for r in reach]
    padding = {"none": [0] * dims, "half": half, "wide": wide, "more": [r + 2 for r in wide]}
    used = padding[of["padding"]]
    short = any(n + 2 * p <= r for n, p, r in zip(LONG[dims], used, reach))
    w = d.normal(outputs, channels // groups, *kernel) / sqrt(by_all(kernel))
    x = d.normal(of["batch"], channels, *LONG[dims])
    return [x, w, d.normal(outputs)], {
        "stride": of["stride"],
        "padding": wide if short else used,
        "groups": groups,
        "dilation": of["dilation"],
        "bias": of["bias"],
    }


def _kernel(dims: int, of: Dict[str, Any]) -> Tuple[List[int], List[int]]:
    kernel = list(KERNELS[of["kernel"]][:dims])
    return kernel, _reach(kernel, of["dilation"])


def _spread(d: Draw, dims: int, **of: Any) -> Made:
    """No output padding is more than the padding, no padding more than the reach."""
    kernel, reach = _kernel(dims, of)
    channels, outputs, groups = CHANNELS[of["groups"]]
    room_of = [((n - 1) * of["stride"] + r) // 2 for n, r in zip(LONG[dims], reach)]
    padding = [*map(min, reach, room_of)] if of["padding"] == "wide" else [0] * dims
    room = max(of["stride"], of["dilation"]) - 1
    more = [min(p, room, of["more"]) for p in padding]
    w = d.normal(channels, outputs // groups, *kernel) / sqrt(by_all(kernel))
    x = d.normal(of["batch"], channels, *LONG[dims])
    return [x, w, d.normal(outputs)], {
        "stride": of["stride"],
        "padding": padding,
        "output_padding": more,
        "groups": groups,
        "dilation": of["dilation"],
        "bias": of["bias"],
    }


def _call(t: Any, name: str, x: Any, w: Any, b: Any, bias: bool, **options: Any) -> Any:
    return getattr(t.nn.functional, f"{name}{x.dim() - 2}d")(x, w, b if bias else None, **options)


def _without(b: Any, bias: bool) -> Any:
    return b if bias else b.detach() * 0


def _at_once(t: Any, x: Any, y: Any) -> Any:
    """By float64's own product: what these rows look for is a forgotten option."""
    return x @ y


OF_CONVOLUTIONS = {
    "dims": (1, 2, 3),
    "groups": tuple(CHANNELS),
    "kernel": tuple(KERNELS),
    "stride": (1, 2, 3),
    "dilation": (1, 2, 3),
    "bias": (True, False),
    "batch": (1, 3),
}
CONVOLVED = (
    in_pairs(
        "convolutions",
        {**OF_CONVOLUTIONS, "padding": ("none", "half", "wide", "more")},
        _convolved,
        lambda t, *a, **k: _call(t, "conv", *a, **k),
        lambda t, x, w, b, bias, **k: by_windows(t, x, w, _without(b, bias), product=_at_once, **k),
        arithmetic="convolution",
        slack=8,
    ),
    in_pairs(
        "transposed convolutions",
        {**OF_CONVOLUTIONS, "padding": ("none", "wide"), "more": (0, 1, 2)},
        _spread,
        lambda t, *a, **k: _call(t, "conv_transpose", *a, **k),
        lambda t, x, w, b, bias, **k: by_spreading(
            t, x, w, _without(b, bias), product=_at_once, **k
        ),
        arithmetic="convolution",
        slack=8,
        dtypes=("float32", "float16", "float64"),
    ),
)

# --- pools ---------------------------------------------------------------------------------------

WINDOWS = {"2": (2, 2, 2), "3": (3, 3, 3), "unlike": (3, 1, 2)}


def _pooled(d: Draw, dims: int, kernel: str, padded: bool, **options: Any) -> Made:
    sides = list(WINDOWS[kernel][:dims])
    padding = [n // 2 if padded else 0 for n in sides]
    if dims == 1:
        options.pop("divisor_override", None)
    x = d.unlike(options.pop("batch"), 2, *LONG[dims])
    return [x], {"kernel_size": sides, "padding": padding, **options}


def _outs(x: Any, of: Dict[str, Any]) -> List[int]:
    found = []
    apart, step = of.get("dilation", 1), of["stride"]
    for n, k, p in zip(x.shape[2:], of["kernel_size"], of["padding"]):
        rest = n + 2 * p - apart * (k - 1) - 1
        count = (ceil(rest / step) if of["ceil_mode"] else rest // step) + 1
        found.append(count - (of["ceil_mode"] and (count - 1) * step >= n + p))
    return found


def _seen(t: Any, x: Any, of: Dict[str, Any], value: float, edge: Any = None) -> Any:
    """All numbers of each window; `value` stands for what is beyond the image, `edge` for what is
    of its padding, where that is another."""
    dims = x.dim() - 2
    outs, apart = _outs(x, of), of.get("dilation", 1)
    wide = _padded(t, x, of["padding"], dims, value if edge is None else edge)
    for dim, (out, k) in enumerate(zip(outs, of["kernel_size"]), start=2):
        more = (out - 1) * of["stride"] + apart * (k - 1) + 1 - wide.shape[dim]
        if more > 0:
            shape = [*wide.shape[:dim], more, *wide.shape[dim + 1 :]]
            wide = t.cat([wide, t.full(shape, value, dtype=x.dtype)], dim)
    seen = _windows(t, wide, of["kernel_size"], of["stride"], apart)
    for dim, out in enumerate(outs, start=2):
        seen = seen.narrow(dim, 0, out)
    return seen.flatten(2 + dims)


def _greatest(t: Any, x: Any, **of: Any) -> Any:
    return by.greatest(t, _seen(t, x, of, -by.INFINITE), -1)


def _mean(t: Any, x: Any, **of: Any) -> Any:
    """By how many places of a window are in the image, or in its padding."""
    total = by.added(t, _seen(t, x, of, 0.0), -1)
    if of.get("divisor_override"):
        return total / of["divisor_override"]
    ones = t.ones_like(x).detach()
    if of["count_include_pad"]:
        return total / by.added(t, _seen(t, ones, of, 0.0, 1.0), -1)
    return total / by.added(t, _seen(t, ones, of, 0.0), -1)


def _of_pools(name: str) -> Any:
    return lambda t, x, **k: getattr(t.nn.functional, f"{name}{x.dim() - 2}d")(x, **k)


OF_POOLS = {
    "dims": (1, 2, 3),
    "kernel": tuple(WINDOWS),
    "stride": (1, 2, 3),
    "padded": (False, True),
    "ceil_mode": (False, True),
    "batch": (1, 3),
}
PAIRED_POOLS = (
    in_pairs(
        "greatest of windows",
        {**OF_POOLS, "dilation": (1, 2)},
        _pooled,
        _of_pools("max_pool"),
        _greatest,
        slack=2,
        dtypes=FULL,
    ),
    in_pairs(
        "mean of windows",
        {**OF_POOLS, "count_include_pad": (False, True), "divisor_override": (None, 3)},
        _pooled,
        _of_pools("avg_pool"),
        _mean,
        slack=2,
        dtypes=FULL,
    ),
)

# --- resizing ------------------------------------------------------------------------------------

SIDES = {1: (7,), 2: (7, 9), 3: (5, 7, 9)}
LINES = {1: "linear", 2: "bilinear", 3: "trilinear"}
FACTORS = {"smaller": (0.61, 0.73, 0.57), "larger": (1.73, 1.37, 1.61), "far": (2.57, 2.31, 2.17)}
"""By none of them an image's side becomes a whole number."""


def _sized(d: Draw, dims: int, **of: Any) -> Made:
    x = d.normal(of["batch"], of["channels"], *SIDES[dims])
    factors = FACTORS[of["factor"]][:dims]
    sides = [floor(n * f) for n, f in zip(SIDES[dims], factors)]
    given: Dict[str, Any] = {"size": sides} if of["by"] == "size" else {"scale_factor": factors}
    if of["by"] == "factor":
        given["recompute_scale_factor"] = False
    if of["by"] == "factor anew":
        given["recompute_scale_factor"] = True
    mode = of["mode"]
    mode = LINES[dims] if mode == "lines" or (mode == "bicubic" and dims != 2) else mode
    if mode in ("bicubic", *LINES.values()):
        given["align_corners"] = of["corners"]
    return [x], {"sides": sides, "mode": mode, "given": given, "factors": factors}


def _resized(t: Any, x: Any, mode: str, given: Dict[str, Any], **_: Any) -> Any:
    return t.nn.functional.interpolate(x, mode=mode, **given)


def _resized_exact(t: Any, x: Any, sides: Any, mode: str, given: Any, factors: Any) -> Any:
    for dim, (out, factor) in enumerate(zip(sides, factors), start=2):
        n = x.shape[dim]
        step = 1 / factor if given.get("recompute_scale_factor") is False else n / out
        shares = _shares(t, n, out, step, mode, bool(given.get("align_corners")))
        x = by.product(t, x.movedim(dim, -1), shares.t()).movedim(-1, dim)
    return x


def _shares(t: Any, n: int, out: int, step: float, mode: str, corners: bool) -> Any:
    """What of each of `n` pixels is in each of `out`: (out, n)."""
    at = t.arange(out, dtype=t.float64)
    middles = at * ((n - 1) / max(1, out - 1)) if corners else (at + 0.5) * step - 0.5
    if mode == "nearest":
        return _placed(t, n, (at * step).floor(), 1 + 0 * at)
    if mode == "nearest-exact":
        return _placed(t, n, ((at + 0.5) * step).floor(), 1 + 0 * at)
    if mode == "area":
        rows = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
        places = t.arange(n)
        return t.stack([((places >= a) & (places < b)).double() / (b - a) for a, b in rows])
    if mode == "bicubic":
        low = middles.floor()
        return sum(_placed(t, n, low + i, _cubic(t, middles - low - i)) for i in (-1, 0, 1, 2))
    middles = middles.clamp(min=0)
    low = middles.floor()
    part = middles - low
    return _placed(t, n, low, 1 - part) + _placed(t, n, low + 1, part)


def _placed(t: Any, n: int, places: Any, shares: Any) -> Any:
    inside = places.clamp(0, n - 1)
    return (inside.unsqueeze(1) == t.arange(n)).double() * shares.unsqueeze(1)


def _cubic(t: Any, away: Any) -> Any:
    """Keys' kernel, as torch has it: -3/4."""
    a, s = -0.75, away.abs()
    near = (a + 2) * s**3 - (a + 3) * s**2 + 1
    return t.where(s <= 1, near, a * (s**3 - 5 * s**2 + 8 * s - 4))


PAIRED_RESIZING = in_pairs(
    "resizing",
    {
        "dims": (1, 2, 3),
        "mode": ("nearest", "nearest-exact", "lines", "bicubic", "area"),
        "factor": tuple(FACTORS),
        "by": ("size", "factor", "factor", "factor anew"),
        "corners": (False, True, False),
        "batch": (1, 2),
        "channels": (1, 3, 8),
    },
    _sized,
    _resized,
    _resized_exact,
    slack=512,
    dtypes=FULL,
    steady=False,
)
