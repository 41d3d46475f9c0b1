"""Layers with one long axis, all else of them being tiny: what tiles of thousands leave between."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, List, Tuple

from .drawing import Draw
from .pairs import by_calls
from .table import Operator

Called = Dict[str, Callable[..., Any]]
OFTEN = 0.01
"""One sample has every call: `standard` has no need of a second one."""


def _long(d: Draw) -> int:
    """More than a tile of 4,096 and up to five of them; an even number of places."""
    return 2 * int(d.choice(range(2600, 10_000)))


def _row(name: str, calls: Called, make: Any, **more: Any) -> Operator:
    """A row that makes each call once; the exact answer is that of float64."""

    def run(t: Any, *tensors: Any, kind: str) -> Any:
        return calls[kind](t, *tensors)

    more = {"weight": OFTEN, "dtypes": ("float32",), "steady": False, "anew": False, **more}
    return by_calls(
        name, lambda d: [{"kind": kind} for kind in calls], make, run, None, slack=2.0, **more
    )


# --- convolutions --------------------------------------------------------------------------------


def _filtered(d: Draw, kind: str) -> Tuple[List[Any], Dict[str, Any]]:
    """The last digit of a kind is the place of its long axis, the one before its number of axes."""
    dims, axis = int(kind[-2]), int(kind[-1])
    shape, kernel = [d.choice((1, 2)) for _ in range(dims)], [1] * dims
    shape[axis], kernel[axis] = _long(d), d.choice((2, 3, 5))
    channels, outputs = (1, 2) if "turned" not in kind else (2, 1)
    ends = (channels, outputs) if "turned" in kind else (outputs, channels)
    w = d.normal(*ends, *kernel) / sqrt(kernel[axis])
    return [d.normal(1, channels, *shape), w, d.normal(outputs)], {"kind": kind}


def _filter(name: str, dims: int, stride: int = 1) -> Callable[..., Any]:
    return lambda t, x, w, b: getattr(t.nn.functional, f"{name}{dims}d")(x, w, b, stride=stride)


LONG_FILTERS = _row(
    "convolutions of one long axis",
    {
        "10": lambda t, x, w, b: t.nn.functional.conv1d(x, w, b, padding=w.shape[2] // 2),
        "strided 10": _filter("conv", 1, 2),
        "turned 10": _filter("conv_transpose", 1),
        "20": _filter("conv", 2),
        "21": _filter("conv", 2),
        "turned 21": _filter("conv_transpose", 2),
        "32": _filter("conv", 3),
        "30": _filter("conv", 3),
    },
    _filtered,
    arithmetic="convolution",
)

# --- pools, resizing, margins --------------------------------------------------------------------


def _line(d: Draw, kind: str) -> Tuple[List[Any], Dict[str, Any]]:
    return [d.normal(1, 1, _long(d))], {"kind": kind}


def _wide(x: Any) -> Any:
    """Two rows, of which the second is the first one turned."""
    return x.new_ones(()) * x.unsqueeze(2).expand(-1, -1, 2, -1)


def _tall(x: Any) -> Any:
    return _wide(x).transpose(-1, -2)


def _deep(x: Any) -> Any:
    return x.reshape(1, 1, -1, 1, 2)


def _call(name: str, *rest: Any, of: Callable[[Any], Any] = lambda x: x) -> Callable[..., Any]:
    return lambda t, x: getattr(t.nn.functional, name)(of(x), *rest)


def _resized(mode: str, of: Callable[[Any], Any], times: Any, aligned: Any = False) -> Any:
    """By a half or two, at which every place is exact."""

    def run(t: Any, x: Any) -> Any:
        options: Dict[str, Any] = {} if aligned is None else {"align_corners": aligned}
        return t.nn.functional.interpolate(of(x), scale_factor=times, mode=mode, **options)

    return run


def _margin(mode: str) -> Any:
    return lambda t, x: t.nn.functional.pad(x, (3, 2), mode)


LONG_POOLS = _row(
    "pools and resizing of one long axis",
    {
        "avg": _call("avg_pool1d", 3, 2, 1),
        "max": _call("max_pool1d", 3, 2, 1),
        "power": lambda t, x: t.nn.functional.lp_pool1d(x.abs() + 0.5, 2, 3, 2),
        "avg wide": _call("avg_pool2d", (1, 3), 1, of=_wide),
        "max tall": _call("max_pool2d", (3, 1), 1, of=_tall),
        "avg deep": _call("avg_pool3d", (2, 1, 1), 1, of=_deep),
        "max deep": _call("max_pool3d", (2, 1, 1), 1, of=_deep),
        "adaptive": _call("adaptive_avg_pool1d", 6007),
        "adaptive max": _call("adaptive_max_pool1d", 6007),
        "linear": _resized("linear", lambda x: x, 2),
        "linear less": _resized("linear", lambda x: x, 0.5),
        "nearest": _resized("nearest", lambda x: x, 2, None),
        "bilinear": _resized("bilinear", _wide, 2),
        "bicubic": _resized("bicubic", _tall, (0.5, 1)),
        "trilinear": _resized("trilinear", _deep, (2, 1, 1)),
        **{mode: _margin(mode) for mode in ("reflect", "replicate", "circular", "constant")},
    },
    _line,
)

# --- norms, softmax, running sums ----------------------------------------------------------------


def _lines(d: Draw, kind: str) -> Tuple[List[Any], Dict[str, Any]]:
    count = _long(d)
    return [d.normal(2, count), 1 + d.normal(count) / 8, d.normal(count)], {"kind": kind}


def _flat(run: Callable[..., Any], turned: bool = False) -> Callable[..., Any]:
    """Along the last axis, or along the first."""
    if turned:
        return lambda t, x, w, b: run(t, x.t().contiguous(), 0)
    return lambda t, x, w, b: run(t, x, 1)


def _both(name: str, run: Callable[..., Any]) -> Called:
    return {f"{name} along {i}": _flat(run, i == 0) for i in (0, 1)}


LONG_NORMS = _row(
    "norms of one long axis",
    {
        "layer": lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[1:], w, b),
        "group": lambda t, x, w, b: t.nn.functional.group_norm(x.reshape(1, 4, -1), 2),
        "batch": lambda t, x, w, b: t.nn.functional.batch_norm(
            x.unsqueeze(0), None, None, training=True
        ),
        "batch of many": lambda t, x, w, b: t.nn.functional.batch_norm(
            x.t().contiguous(), None, None, training=True
        ),
        "instance": lambda t, x, w, b: t.nn.functional.instance_norm(x.unsqueeze(0)),
        **_both("unit", lambda t, x, dim: t.nn.functional.normalize(x, dim=dim)),
    },
    _lines,
    serial=True,
)
LONG_SUMS = _row(
    "shares and running sums of one long axis",
    {
        **_both("softmax", lambda t, x, dim: x.softmax(dim)),
        **_both("log_softmax", lambda t, x, dim: x.log_softmax(dim)),
        **_both("logsumexp", lambda t, x, dim: x.logsumexp(dim)),
        **_both("cumsum", lambda t, x, dim: x.cumsum(dim)),
        **_both("cumprod", lambda t, x, dim: (1 + x / 1000).cumprod(dim)),
        **_both("cummax", lambda t, x, dim: x.cummax(dim)),
        "logcumsumexp": _flat(lambda t, x, dim: x.logcumsumexp(dim)),
        "spread": _flat(lambda t, x, dim: x.std(dim)),
    },
    _lines,
    serial=True,
)
