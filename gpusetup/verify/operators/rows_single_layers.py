"""Convolutions, unfolding and pools with one option at a time off its usual value."""

from __future__ import annotations

from math import sqrt
from typing import Any, Dict, List

from .drawing import Draw
from .pairs import Axes
from .releases import LAID_OUT_CHANCE, release
from .rows_convolutions import by_all
from .single_options import BY_ITSELF, HELD, Made, Menu, by_single_options

LONG = {1: (9,), 2: (6, 7), 3: (5, 5, 6)}
MANY = 33
"""From so many pictures on a picture has one channel of a group."""
UNLIKE = {"stride": (2, 1, 3), "padding": (1, 2, 0), "dilation": (1, 2, 1), "kernel": (3, 1, 2)}
MORE = (1, 0, 2)
"""Output padding that is unlike on each side; the stride is then 3."""


def _each(of: Dict[str, Any], name: str, dims: int) -> Any:
    """An option for every side; `unlike`: another for each, in one dimension another than usual."""
    if of.get(name) != "unlike":
        return of[name]
    sides = UNLIKE[name]
    return list(sides[:dims]) if dims > 1 else [next(n for n in sides if n > 1)]


# --- convolutions --------------------------------------------------------------------------------

BATCHES = (2, 0, 1, 9, 65, "none")
"""On both sides of 8 and 64; `none`: a picture without a batch."""
CONVOLUTION: Axes = {
    "kernel": (3, 1, "unlike"),
    "stride": (1, "unlike"),
    "padding": (1, 0, "unlike", "same", "valid"),
    "dilation": (1, 2, "unlike"),
    "bias": (True, False),
    "groups": (1, 2, 4),
    "batch": BATCHES,
    **HELD,
}
IN_SPACE: Axes = {
    **{name: CONVOLUTION[name] for name in ("kernel", "stride", "dilation", "bias", "groups")},
    "padding": (1, 0, "unlike"),
    "batch": (1, 0, 9),
}
TRANSPOSED: Axes = {
    "kernel": (3, "unlike"),
    "stride": (2, 1, "unlike"),
    "padding": (1, 0, "unlike"),
    "output_padding": (0, "unlike"),
    "dilation": (1, "unlike"),
    "bias": (True, False),
    "groups": (1, 2),
    "batch": (2, 9, 65, "none"),
}


def _convolved(d: Draw, kind: str, **of: Any) -> Made:
    dims, turned = int(kind[-2]), "transpose" in kind
    count, groups = of["batch"], of["groups"]
    channels = groups if count != "none" and count >= MANY else 4 if dims < 3 else 2 * groups
    outputs = channels * d.choice((1, 2))
    kernel = _each(of, "kernel", dims)
    kernel = [kernel] * dims if isinstance(kernel, int) else kernel
    options = {name: _each(of, name, dims) for name in ("stride", "padding", "dilation")}
    if isinstance(of["padding"], str):
        options["stride"] = 1
    if turned:
        # Behind the reach of the kernel there would be the bias alone.
        far = of["output_padding"] == "unlike"
        options["output_padding"] = list(MORE[:dims]) if far else 0
        if far:
            kernel, options["stride"], options["padding"] = [4] * dims, 3, 2
    sides = LONG[dims]
    shape = (channels, *sides) if count == "none" else (count, channels, *sides)
    first = (channels, outputs // groups) if turned else (outputs, channels // groups)
    w = d.normal(*first, *kernel) / sqrt(channels * by_all(kernel))
    options.update(groups=groups, kind=kind, bias=of["bias"])
    return Made([d.normal(*shape), w, d.normal(outputs)], options)


def _convolve(t: Any, x: Any, w: Any, b: Any, kind: str, bias: bool, **options: Any) -> Any:
    call = getattr(t.nn.functional, kind)
    if not len(x):
        w = w.contiguous()  # of no picture, torch 1.13 takes no other layout
    return call(x, w, b if bias else None, **options)


SINGLE_CONVOLUTIONS = (
    by_single_options(
        "convolutions",
        {**{f"conv{n}d": CONVOLUTION for n in (1, 2)}, "conv3d": IN_SPACE},
        _convolved,
        _convolve,
        arithmetic="convolution",
        slack=2,
        **BY_ITSELF,
    ),
    by_single_options(
        "transposed convolutions",
        {
            **{f"conv_transpose{n}d": TRANSPOSED for n in (1, 2)},
            "conv_transpose3d": {**TRANSPOSED, "batch": (1,)},
        },
        _convolved,
        _convolve,
        arithmetic="convolution",
        slack=2,
        **BY_ITSELF,
    ),
)

# --- convolutions that no library takes over, and their columns ----------------------------------

PLAIN: Axes = {
    "kernel": (3, "unlike"),
    "stride": (1, "unlike"),
    "padding": (1, "unlike"),
    "bias": (True, False),
}
SPREAD: Axes = {**PLAIN, "dilation": (1, 2, "unlike")}
COLUMNS: Axes = {
    "kernel": (2, "unlike"),
    "stride": (1, "unlike"),
    "padding": (0, 1, "unlike"),
    "dilation": (1, "unlike"),
    "batch": (2, 1, "none"),
    **HELD,
}
PLAINLY: Menu = {
    "thnn_conv2d": PLAIN,
    "slow_conv3d": PLAIN,
    **{f"slow_conv_dilated{n}d": SPREAD for n in (2, 3)},
    **{
        f"slow_conv_transpose{n}d": {**SPREAD, "stride": (2, "unlike"), "more": (0, "unlike")}
        for n in (2, 3)
    },
}


def _sides(of: Dict[str, Any], name: str, dims: int) -> List[int]:
    value = _each(of, name, dims)
    return [value] * dims if isinstance(value, int) else value


def _plainly(d: Draw, kind: str, **of: Any) -> Made:
    dims = int(kind[-2])
    names = ("stride", "padding", *(["dilation"] if "dilation" in of else []))
    options: Dict[str, Any] = {name: _sides(of, name, dims) for name in names}
    kernel = _sides(of, "kernel", dims)
    if of.get("more") == "unlike":
        options["output_padding"], options["stride"] = list(MORE[:dims]), [3] * dims
        kernel, options["padding"] = [4] * dims, [2] * dims
    elif "more" in of:
        options["output_padding"] = [0] * dims
    channels, outputs = 2, d.choice((1, 3))
    first = (channels, outputs) if "transpose" in kind else (outputs, channels)
    w = d.normal(*first, *kernel) / sqrt(channels * by_all(kernel))
    x = d.normal(d.choice((1, 3)), channels, *LONG[dims])
    return Made([x, w, d.normal(outputs)], {**options, "kind": kind, "bias": of["bias"]})


def _plain(t: Any, x: Any, w: Any, b: Any, kind: str, bias: bool, **of: Any) -> Any:
    more = [tuple(of[name]) for name in ("output_padding", "dilation") if name in of]
    return getattr(t._C._nn, kind)(
        x.contiguous(),
        w.contiguous(),
        tuple(w.shape[2:]),
        b if bias else None,
        tuple(of["stride"]),
        tuple(of["padding"]),
        *more,
    )


SINGLE_PLAIN = by_single_options(
    "plain convolutions", PLAINLY, _plainly, _plain, arithmetic="convolution", slack=2, **BY_ITSELF
)


def _columned(d: Draw, kind: str, **of: Any) -> Made:
    options = {name: _each(of, name, 2) for name in ("stride", "padding", "dilation")}
    count = of["batch"]
    x = d.normal(3, *LONG[2]) if count == "none" else d.normal(count, 3, *LONG[2])
    kernel = _sides(of, "kernel", 2)
    return Made([x], {**options, "kernel": kernel})


def _columns(t: Any, x: Any, kernel: List[int], **of: Any) -> Any:
    call = t.nn.functional
    columns = call.unfold(x, kernel, **of)
    return [columns, call.fold(columns, x.shape[-2:], kernel, **of)]


SINGLE_COLUMNS = by_single_options(
    "columns of pictures", {"unfold": COLUMNS}, _columned, _columns, **BY_ITSELF
)

# --- pools ---------------------------------------------------------------------------------------

WINDOWS: Axes = {
    "kernel": (3, 2, "unlike"),
    "stride": (2, None, 1, "unlike"),
    "padding": (1, 0, "unlike"),
    "ceil_mode": (False, True),
    "numbers": ("negative", "both", "positive"),
    "batch": (2, 0, 9, "none"),
    **HELD,
}
GREATEST: Axes = {**WINDOWS, "dilation": (1, 2, "unlike"), "return_indices": (False, True)}
MEAN: Axes = {**WINDOWS, "count_include_pad": (True, False)}
ADAPTIVE: Axes = {
    "output_size": ("unlike", 3, 1, "as it was", 7),
    "numbers": ("both", "negative"),
    "batch": (2, 0, 9, "none"),
    **HELD,
}
BY_NORM: Axes = {"norm_type": (2, 1, 3), "ceil_mode": (False, True), "kernel": (2, 3, "unlike")}
CHANCE: Axes = {"kernel": (2, "unlike"), "return_indices": (False, True), "ratio": (False, True)}
BACK: Axes = {"kernel": (2, "unlike"), "stride": (2, "unlike"), "padding": (0, "unlike")}
NONE_ALIKE = {"padding": (1, 1, 0), "kernel": (3, 2, 2), "apart": (2, 1, 2)}
POOLED: Menu = {
    **{f"max_pool{n}d": GREATEST for n in (1, 2)},
    # Backwards it takes no other layout of a picture without a batch.
    "max_pool3d": {**GREATEST, "batch": (2, 0)},
    "avg_pool1d": MEAN,
    **{f"avg_pool{n}d": {**MEAN, "divisor_override": (None, 5)} for n in (2, 3)},
    **{f"lp_pool{n}d": BY_NORM for n in (1, 2)},
}
ADAPTED: Menu = {
    **{f"adaptive_avg_pool{n}d": ADAPTIVE for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": {**ADAPTIVE, "return_indices": (False, True)} for n in (1, 2, 3)},
    **{f"fractional_max_pool{n}d": CHANCE for n in (2, 3)},
    **{f"max_unpool{n}d": BACK for n in (1, 2, 3)},
}
SIGNS = {"negative": 251.0, "both": 125.5, "positive": -1.0}


def _picture(d: Draw, dims: int, of: Dict[str, Any]) -> Any:
    """Of no two like numbers in a window."""
    count = of.get("batch", 2)
    sides = LONG[dims]
    x = d.unlike(1, 2, *sides)[0] if count == "none" else d.unlike(count or 1, 2, *sides)
    return (x if count else x[:0]) - SIGNS[of.get("numbers", "both")]


def _window(of: Dict[str, Any], dims: int) -> Dict[str, Any]:
    """Every side on its own; a padding is at most half of the kernel."""
    kernel, stride, padding, apart = (
        of.get(name, usual)
        for name, usual in (("kernel", 2), ("stride", None), ("padding", 0), ("dilation", 1))
    )
    found = {
        "kernel_size": list(NONE_ALIKE["kernel"][:dims]) if kernel == "unlike" else kernel,
        "stride": list(UNLIKE["stride"][:dims]) if stride == "unlike" else stride,
        "padding": list(NONE_ALIKE["padding"][::-1][:dims]) if padding == "unlike" else padding,
    }
    if apart != 1:
        found["dilation"] = list(NONE_ALIKE["apart"][:dims]) if apart == "unlike" else apart
    return found


def _pooled(d: Draw, kind: str, **of: Any) -> Made:
    dims = int(kind[-2])
    x, options = _picture(d, dims, of), {**_window(of, dims), "kind": kind}
    if kind.startswith("lp"):
        options.pop("padding")
        if dims == 1 and of["kernel"] == "unlike":
            options["kernel_size"] = 4
        x = x.abs() + 1
    names = ("ceil_mode", "return_indices", "count_include_pad", "divisor_override", "norm_type")
    options.update({name: of[name] for name in names if name in of})
    return Made([x], options)


def _pool(t: Any, x: Any, kind: str, **options: Any) -> Any:
    return getattr(t.nn.functional, kind)(x, **options)


def _adapted(d: Draw, kind: str, **of: Any) -> Made:
    dims = int(kind[-2])
    x = _picture(d, dims, of)
    options: Dict[str, Any] = {"kind": kind}
    if kind.startswith("adaptive"):
        sizes: Dict[Any, Any] = {"unlike": [3, 2, 4][:dims], "as it was": [None, 2, None][:dims]}
        size = sizes.get(of["output_size"], of["output_size"])
        options["output_size"] = (size[0] or 4) if dims == 1 and isinstance(size, list) else size
    elif kind.startswith("fractional"):
        kernel = [2, 3, 2][:dims] if of["kernel"] == "unlike" else 2
        sizes = {True: {"output_ratio": [0.5, 0.4, 0.5][:dims]}, False: {"output_size": [3, 2, 3]}}
        options.update(sizes[of["ratio"]], kernel_size=kernel)
        if "output_size" in options:
            options["output_size"] = options["output_size"][:dims]
        return Made([x, d.uniform(0.05, 0.95, 2, 2, dims)], {**options, **_flag(of)})
    else:
        options.update(_window(of, dims))
    return Made([x], {**options, **_flag(of)})


def _flag(of: Dict[str, Any]) -> Dict[str, Any]:
    return {"return_indices": of["return_indices"]} if "return_indices" in of else {}


def _adapt(t: Any, x: Any, *chance: Any, kind: str, **options: Any) -> Any:
    call = getattr(t.nn.functional, kind)
    if chance:
        drawn = chance[0].detach()
        drawn = drawn if release(t) >= LAID_OUT_CHANCE else drawn.contiguous()
        return call(x, _random_samples=drawn, **options)
    if not kind.startswith("max_unpool"):
        return call(x, **options)
    pool = getattr(t.nn.functional, kind.replace("unpool", "pool"))
    found, places = pool(x, return_indices=True, **options)
    return call(found, places, output_size=list(x.shape[2:]), **options)


SINGLE_POOLS = (
    by_single_options("windows", POOLED, _pooled, _pool, slack=4, **BY_ITSELF),
    by_single_options("parts of pictures", ADAPTED, _adapted, _adapt, slack=4, **BY_ITSELF),
)
