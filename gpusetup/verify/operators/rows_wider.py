"""Where a short cut of a kernel shows that was made for more usual calls: places without memory for
each, images of any number of channels, numbers far from zero, sums that no half holds, factors."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, List, Tuple

from .drawing import Draw, Given, given
from .pairs import by_calls
from .releases import HALVES
from .table import FEW, Operator

Made = Tuple[List[Any], Dict[str, Any]]
Called = Dict[str, Callable[..., Any]]
OFTEN = 0.01
"""One sample has every call: `standard` has no need of a second one."""
ONCE: Dict[str, Any] = {"weight": OFTEN, "steady": False, "anew": False}


def _row(name: str, calls: Called, make: Callable[..., Made], **more: Any) -> Operator:
    """A row that makes each call once; the exact answer is that of float64."""

    def run(t: Any, *tensors: Any, kind: str, **options: Any) -> Any:
        return calls[kind](t, *tensors, **options)

    def kinds(d: Draw) -> List[Dict[str, Any]]:
        return [{"kind": kind} for kind in calls]

    return by_calls(name, kinds, make, run, None, **{**ONCE, **more})


# --- places of lines in a batch ------------------------------------------------------------------


def _batches(d: Draw) -> Given:
    """Lines, other numbers for some of them, and which those are: in each batch other ones."""
    count, lines, some = d.choice((2, 3)), d.choice((7, 9)), d.choice((3, 5))
    width = d.choice((2, 8, 17, 65))
    at = d.torch.stack([d.order(lines)[:some] for _ in range(count)])
    x, y = d.normal(count, lines, width), d.normal(count, some, width)
    return given(x, y, at, d.whole(0, some, count, width))


def _batched(own: bool) -> Callable[..., Any]:
    """The calls; `own` memory for each place, or none."""

    def spread(i: Any, shape: Any) -> Any:
        found = i.expand(shape)
        return found.contiguous() if own else found

    def run(t: Any, x: Any, y: Any, i: Any, j: Any) -> List[Any]:
        each, alike = spread(i.unsqueeze(-1), y.shape), spread(i[:1].unsqueeze(-1), y.shape)
        down, columns = spread(j.unsqueeze(1), y.shape), x.transpose(1, 2)
        turned = spread(i.unsqueeze(1), y.transpose(1, 2).shape)
        deep = spread(i[:, :1, None], (len(x), 1, x.shape[2]))
        shown = spread((i > 3).unsqueeze(-1), y.shape)
        found = [x.gather(1, each), x.gather(1, alike), y.gather(1, down), x.gather(1, deep)]
        found += [columns.gather(2, turned), t.take_along_dim(x, each, 1), y.gather(-2, down)]
        found += [x.scatter(1, each, y), x.scatter_add(1, alike, y), x.scatter(1, alike, 2.0)]
        found += [y.scatter_add(1, down, y), x.scatter_reduce(1, each, y, "sum")]
        found += [columns.scatter_add(2, turned, y.transpose(1, 2)), y.masked_fill(shown, 3.0)]
        found += [x.scatter_reduce(1, alike, y, "amax"), t.where(shown, y, -y), y[shown]]
        return [*found, x[t.arange(len(x), device=x.device).unsqueeze(1), i]]

    return run


BATCHED = Operator(
    "batched places without strides",
    _batches,
    _batched(False),
    _batched(True),
    dtypes=("float32",),
    slack=2,
    sizes=FEW,
    **ONCE,
)

# --- images of any number of channels ------------------------------------------------------------

CHANNELS = (9, 10, 12, 15, 17, 18, 20, 23, 24, 25, 31, 33, 36, 40)
"""None, one or several blocks of eight or sixteen, and any rest."""


def _deep_images(d: Draw, kind: str) -> Made:
    name, _, _ = kind.rpartition(" ")
    channels, lengths = d.choice(CHANNELS), (d.choice((4, 5, 6)), d.choice((5, 7)))
    x = d.normal(d.choice((1, 2)), channels, *lengths)
    own = {"depthwise": 1, "few to many": channels, "by point": channels, "turned": channels}
    outputs = {"few to many": d.choice(CHANNELS), "by point": d.choice(CHANNELS)}.get(
        name, channels
    )
    side = 1 if name == "by point" else 3
    inner = 1 if name == "turned depthwise" else own.get(name, 1)
    w = d.normal(outputs, inner, side, side) / sqrt(inner * side * side)
    return [x, w, d.normal(outputs), d.normal(channels)], {"kind": kind}


def _last(t: Any, x: Any) -> Any:
    return x.contiguous(memory_format=t.channels_last)


def _convolve(groups: bool = False, turned: bool = False, stride: int = 1) -> Callable[..., Any]:
    def run(t: Any, x: Any, w: Any, b: Any, s: Any) -> Any:
        call = t.nn.functional.conv_transpose2d if turned else t.nn.functional.conv2d
        pad = w.shape[-1] // 2
        return call(_last(t, x), w, b, stride, pad, groups=x.shape[1] if groups else 1)

    return run


def _pooled(name: str, *rest: Any, **options: Any) -> Callable[..., Any]:
    def run(t: Any, x: Any, w: Any, b: Any, s: Any) -> Any:
        return getattr(t.nn.functional, name)(_last(t, x), *rest, **options)

    return run


def _batch(training: bool) -> Callable[..., Any]:
    def run(t: Any, x: Any, w: Any, b: Any, s: Any) -> Any:
        means, spreads = 0 * s.detach(), 1 + s.detach() ** 2
        call = t.nn.functional.batch_norm
        return call(_last(t, x), means, spreads, s, s, training=training)

    return run


TWICE = (" a", " b")
"""Each call is made with two numbers of channels."""
DEEP: Called = {
    "depthwise": _convolve(True),
    "depthwise strided": _convolve(True, stride=2),
    "few to many": _convolve(),
    "by point": _convolve(),
    "turned": _convolve(turned=True),
    "turned depthwise": _convolve(True, True, 2),
}
POOLED: Called = {
    "max": _pooled("max_pool2d", 3, 2, 1),
    "avg": _pooled("avg_pool2d", 3, 2, 1),
    "adaptive": _pooled("adaptive_avg_pool2d", (2, 3)),
    "adaptive max": _pooled("adaptive_max_pool2d", (2, 3)),
    "all": lambda t, x, w, b, s: _last(t, x).mean((2, 3)),
    "nearest": _pooled("interpolate", scale_factor=2),
    "bilinear": _pooled("interpolate", scale_factor=2, mode="bilinear"),
    "bicubic": _pooled("interpolate", scale_factor=2, mode="bicubic"),
    "reflect": _pooled("pad", (1, 2, 1, 1), mode="reflect"),
    "replicate": _pooled("pad", (1, 2, 1, 1), mode="replicate"),
    "batch in use": _batch(False),
    "batch": _batch(True),
    "each scaled": lambda t, x, w, b, s: _last(t, x) * s.view(-1, 1, 1) + s.view(1, -1, 1, 1),
    "slopes": lambda t, x, w, b, s: t.nn.functional.prelu(_last(t, x), s),
    "softmax": lambda t, x, w, b, s: _last(t, x).softmax(1),
}
DEEP_FILTERS = _row(
    "convolutions of any number of channels",
    {name + more: run for name, run in DEEP.items() for more in TWICE},
    _deep_images,
    dtypes=("float32", "bfloat16"),
    slack=8.0,
    arithmetic="convolution",
    learns=False,
)
DEEP_POOLS = _row(
    "pools and norms of any number of channels",
    {name + more: run for name, run in POOLED.items() for more in TWICE},
    _deep_images,
    dtypes=("float32",),
    slack=8.0,
    serial=True,
)

# --- far from zero, and above what a half holds --------------------------------------------------

WIDTHS = (256, 257, 320, 511, 513, 768, 1024)


def _far_lines(d: Draw, kind: str) -> Made:
    width = d.choice(WIDTHS)
    far = d.choice((-1, 1)) * d.uniform(300, 500, 3, 1)
    return [far + d.normal(3, width), 1 + d.normal(width) / 8, d.normal(width)], {"kind": kind}


FAR_WIDE = _row(
    "wide lines far from zero",
    {
        "layer": lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[1:], w, b),
        "plain layer": lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[1:]),
        "batch": lambda t, x, w, b: t.nn.functional.batch_norm(
            x.t().contiguous(), None, None, training=True
        ),
        "long batch": lambda t, x, w, b: t.nn.functional.batch_norm(
            x.unsqueeze(0), None, None, training=True
        ),
        "spread": lambda t, x, w, b: t.var_mean(x, 1),
        "deviation": lambda t, x, w, b: x.std(1),
        "all": lambda t, x, w, b: (x - x[:, :1]).var(),
        "down": lambda t, x, w, b: x.t().contiguous().var(0),
    },
    _far_lines,
    dtypes=("float32",),
    slack=2.0,
    serial=True,
)


def _great_lines(d: Draw, kind: str) -> Made:
    """The sum of each line is above 65504, the largest number of float16; its mean is not."""
    shape = d.choice((3, 4)), d.choice((2048, 2050, 4095, 4097))
    return [d.uniform(40, 60, *shape), d.uniform(-200, -100, *shape)], {"kind": kind}


def _square(x: Any, side: int = 32) -> Any:
    return x[:, : side * side].reshape(1, -1, side, side) * 2


GREAT_MEANS = _row(
    "means of great halves",
    {
        "mean": lambda t, x, y: x.mean(1),
        "mean down": lambda t, x, y: x.t().contiguous().mean(0),
        "mean kept": lambda t, x, y: y.mean(-1, keepdim=True),
        "mean of all": lambda t, x, y: x.mean(),
        "layer": lambda t, x, y: t.nn.functional.layer_norm(x, x.shape[1:]),
        "apart": lambda t, x, y: t.nn.functional.l1_loss(x, y),
        "global": lambda t, x, y: t.nn.functional.adaptive_avg_pool2d(_square(x), 1),
        "pooled": lambda t, x, y: t.nn.functional.avg_pool2d(_square(x), 32),
        "pooled line": lambda t, x, y: t.nn.functional.avg_pool1d(x.unsqueeze(0), 2048),
        "over images": lambda t, x, y: _square(x).mean((2, 3)),
    },
    _great_lines,
    dtypes=("float16",),
    slack=2.0,
    serial=True,
    learns=False,
)

# --- shares of like numbers ----------------------------------------------------------------------


def _like_lines(d: Draw, kind: str) -> Made:
    """So many that a sum in half precision stays where it is long before its end."""
    length = d.choice((5000, 6001, 7168, 8193))
    return [d.uniform(-0.05, 0.05, 2, length), d.whole(0, length, 2)], {"kind": kind}


def _along(run: Callable[..., Any]) -> Called:
    """Along the last axis, and along the first."""
    return {
        "last": lambda t, x, i: run(t, x, 1),
        "first": lambda t, x, i: run(t, x.t().contiguous(), 0),
    }


def _named(name: str, run: Callable[..., Any]) -> Called:
    return {f"{name} {where}": each for where, each in _along(run).items()}


LIKE_SHARES = _row(
    "shares of like halves",
    {
        **_named("softmax", lambda t, x, dim: x.softmax(dim) * 4096),
        **_named("log_softmax", lambda t, x, dim: x.log_softmax(dim)),
        **_named("logsumexp", lambda t, x, dim: x.logsumexp(dim)),
        **_named("softmin", lambda t, x, dim: t.nn.functional.softmin(x, dim) * 4096),
        "entropy": lambda t, x, i: t.nn.functional.cross_entropy(x, i, reduction="none"),
    },
    _like_lines,
    dtypes=HALVES,
    learns=False,
    roundings=1,
)

# --- factors of products -------------------------------------------------------------------------

FACTORS = ((2, 0), (-0.5, 0), (0.125, 0), (1, 0), (0, 1), (1, 2), (-1, 1), (0.5, -3))
"""alpha and beta."""


def _factors(d: Draw, kind: str) -> Made:
    n, m, k = (d.choice((3, 8, 17, 33)) for _ in range(3))
    return [d.normal(2, n, m), d.normal(2, n, k), d.normal(2, k, m)], {"kind": kind}


def _scaled(t: Any, c: Any, a: Any, b: Any) -> List[Any]:
    found = []
    for alpha, beta in FACTORS:
        by = {"alpha": alpha, "beta": beta}
        found += [t.baddbmm(c, a, b, **by), t.addmm(c[0], a[0], b[0], **by)]
        found += [t.addbmm(c[0], a, b, **by), t.addmv(c[0, :, 0], a[0], b[0, :, 0], **by)]
        found += [t.addr(c[0], a[0, :, 0], b[0, 0], **by), t.baddbmm(c[:, :1, :1], a, b, **by)]
        found += [t.addmm(c[0, 0], a[0], b[0], **by), t.addmm(c[0, 0, :1], a[0], b[0], **by)]
    return found


def _scaled_exact(t: Any, c: Any, a: Any, b: Any) -> List[Any]:
    found = []
    for alpha, beta in FACTORS:
        both, one = alpha * (a @ b), alpha * (a[0] @ b[0])
        found += [both + beta * c, one + beta * c[0], both.sum(0) + beta * c[0]]
        found += [one[:, 0] + beta * c[0, :, 0], alpha * t.outer(a[0, :, 0], b[0, 0]) + beta * c[0]]
        found += [both + beta * c[:, :1, :1], one + beta * c[0, 0], one + beta * c[0, 0, :1]]
    return found


def _scaled_all(t: Any, *tensors: Any, kind: str) -> List[Any]:
    return _scaled(t, *tensors)


SCALED = by_calls(
    "products by factors",
    lambda d: [{"kind": "any"}],
    _factors,
    _scaled_all,
    lambda t, *tensors, kind: _scaled_exact(t, *tensors),
    **{**ONCE, "dtypes": ("float32", "bfloat16"), "slack": 8.0, "arithmetic": "product"},
)
