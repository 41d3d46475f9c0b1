"""Calls whose parts are unlike: lengths, scales, axes, samples, and the two directions' starts."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_cells import _exact as one_way
from .rows_cells import weights
from .rows_convolutions import by_all, by_spreading, by_windows
from .rows_losses import _picked
from .rows_margins import _all, _heavy, _labelled, _taken
from .rows_moving import moving
from .table import FEW, FULL, Operator

# --- attention -----------------------------------------------------------------------------------

LENGTHS = ((2, 7), (5, 33), (31, 64), (33, 129), (64, 65), (65, 257))


def _cornered(d: Draw) -> Given:
    """A few queries and many keys, and how many heads, how wide."""
    few, many = d.choice(LENGTHS)
    heads, width = d.choice((1, 2)), d.choice((64, 96, 104, 128, 160))
    shapes = (few, many, many)
    return given(*(d.normal(2, heads, n, width) for n in shapes), scale=d.choice((0.02, 0.3)))


def _seen(t: Any, queries: int, keys: int, more: int = 0) -> Any:
    """Which keys a query sees: those up to its own place, and `more`."""
    return t.arange(queries).unsqueeze(1) + more >= t.arange(keys)


def _corners(t: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    sdpa = t.nn.functional.scaled_dot_product_attention
    few, many = q.shape[2], k.shape[2]
    last = _seen(t, few, many, many - few).to(q.device)
    return (
        sdpa(q, k, v, is_causal=True),
        sdpa(k, q, v[:, :, :few], is_causal=True, scale=scale),
        sdpa(q, k, v, attn_mask=last),
        sdpa(q, k, v, scale=scale),
    )


def _corners_exact(t: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    few, many = q.shape[2], k.shape[2]
    return (
        by.attention(t, q, k, v, _seen(t, few, many), None),
        by.attention(t, k, q, v[:, :, :few], _seen(t, many, few), None, scale),
        by.attention(t, q, k, v, _seen(t, few, many, many - few), None),
        by.attention(t, q, k, v, None, None, scale),
    )


CORNERS = Operator(
    "attention of unlike lengths",
    _cornered,
    _corners,
    _corners_exact,
    slack=4,
    weight=3,
    arithmetic="product",
    sizes=FEW,
)

# --- recurrent nets ------------------------------------------------------------------------------


def _both_ways_on(kind: str, gates: int) -> Operator:
    """One layer or two, forwards and backwards, each from a state of its own."""

    def make(d: Draw) -> Given:
        steps, n, layers = d.choice((1, 3, 5)), d.choice((1, 2, 5)), d.choice((1, 2))
        inputs, hidden = d.choice((3, 8, 17)), d.choice((4, 16, 33))
        widths = [inputs] * 2 + [2 * hidden] * 2 * (layers - 1)
        states = (d.normal(2 * layers, n, hidden) for _ in "hc")
        parts = [each for wide in widths for each in weights(d, gates, wide, hidden)]
        return given(d.normal(steps, n, inputs), *states, *parts)

    def run(t: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        start = (h, c) if kind == "lstm" else h
        layers = len(weights) // 8
        return getattr(t, kind)(x, start, list(weights), True, layers, 0.0, True, True, False)

    def exact(t: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        net, ends = one_way(kind, True), []
        for place in range(0, len(h), 2):
            here, back = (weights[4 * i : 4 * i + 4] for i in (place, place + 1))
            forwards = net(t, x, h[place], c[place], *here)
            backwards = net(t, x.flip(0), h[place + 1], c[place + 1], *back)
            ends += [forwards[1:], backwards[1:]]
            x = t.cat([forwards[0], backwards[0].flip(0)], -1)
        return (x, *(t.cat(column) for column in zip(*ends)))

    return Operator(
        f"{kind} both ways from states",
        make,
        run,
        exact,
        slack=4,
        weight=2,
        arithmetic="product",
        sizes=FEW,
    )


RECURRENT = tuple(
    _both_ways_on(*each) for each in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
)

# --- convolutions --------------------------------------------------------------------------------

SIDES = {1: (9, 33, 130), 2: (5, 7, 9, 12), 3: (3, 4, 5)}


def _unlike_axes(dims: int) -> Callable[[Draw], Given]:
    """Each axis has a kernel, a stride, a padding and a dilation of its own."""

    def make(d: Draw) -> Given:
        n, groups = d.choice((1, 2, 3)), d.choice((1, 1, 2))
        lengths = [d.choice(SIDES[dims]) for _ in range(dims)]
        channels, outputs = groups * d.choice((1, 2)), groups * d.choice((1, 3, 4))
        kernel = [d.choice((1, 2, 3)) for _ in range(dims)]
        options: Dict[str, Any] = {
            "stride": [d.choice((1, 2, 3)) for _ in range(dims)],
            "padding": [d.choice(range((k + 1) // 2 + 1)) for k in kernel],
            "dilation": [
                d.choice((1, 2)) if n > 2 * (k - 1) else 1 for n, k in zip(lengths, kernel)
            ],
            "groups": groups,
        }
        scale = sqrt(channels // groups * by_all(kernel))
        w = d.normal(outputs, channels // groups, *kernel) / scale
        return given(d.normal(n, channels, *lengths), w, d.normal(outputs), **options)

    return make


ENLARGING = ((3, 2, 1, 1), (4, 2, 1, 0), (5, 2, 2, 1), (5, 3, 2, 2), (4, 3, 1, 1), (3, 1, 1, 0))
"""Kernel, stride, padding and output padding of decoders, generators and what is unlike them. No
output padding is more than the padding: behind that there would be the bias alone."""


def _enlarged(dims: int) -> Callable[[Draw], Given]:
    """Each axis is enlarged in a way of its own, the last one with an output padding."""

    def make(d: Draw) -> Given:
        n, groups = d.choice((1, 2, 3)), d.choice((1, 1, 2))
        lengths = [d.choice(SIDES[dims]) for _ in range(dims)]
        channels, outputs = groups * d.choice((1, 2)), d.choice((1, 3, 4))
        ways: List[Any] = [d.choice(ENLARGING) for _ in range(dims - 1)]
        ways.append(d.choice([each for each in ENLARGING if each[3]]))
        kernel, stride, padding, more = map(list, zip(*ways))
        apart = [d.choice((1, 2)) if 2 * (k - 1) > p else 1 for k, p in zip(kernel, padding)]
        apart[-1] = 1  # a step of two and a dilation of two would leave each other place empty
        w = d.normal(channels, outputs, *kernel) / sqrt(outputs * by_all(kernel))
        return given(
            d.normal(n, channels, *lengths),
            w,
            d.normal(groups * outputs),
            stride=stride,
            padding=padding,
            output_padding=more,
            groups=groups,
            dilation=apart,
        )

    return make


def _called(name: str) -> Callable[..., Any]:
    return lambda t, *tensors, **options: getattr(t.nn.functional, name)(*tensors, **options)


def _of_axes(dims: int, weight: float) -> Tuple[Operator, ...]:
    row = Operator(
        f"conv{dims}d of unlike axes",
        _unlike_axes(dims),
        _called(f"conv{dims}d"),
        by_windows,
        slack=2,
        weight=weight,
        arithmetic="convolution",
        sizes=FEW,
    )
    turned = row._replace(
        name=f"conv_transpose{dims}d of unlike axes",
        make=_enlarged(dims),
        run=_called(f"conv_transpose{dims}d"),
        exact=by_spreading,
    )
    return (row, turned) if dims > 1 else (turned,)


def _long_lines(d: Draw) -> Given:
    """Sounds and sequences: more than a thousand places, few channels."""
    channels = d.choice((1, 2))
    groups = d.choice((1, channels))
    kernel, dilation = d.choice((3, 4, 5, 10)), d.choice((1, 1, 2, 4))
    outputs = groups * d.choice((1, 2))
    return given(
        d.normal(d.choice((1, 2)), channels, d.choice((2500, 4100))),
        d.normal(outputs, channels // groups, kernel) / sqrt(channels // groups * kernel),
        d.normal(outputs),
        stride=d.choice((1, 1, 2)),
        padding=d.choice((0, dilation * (kernel - 1))),
        groups=groups,
        dilation=dilation,
    )


AXES: Tuple[Operator, ...] = (
    *(row for dims, weight in ((1, 1), (2, 3), (3, 1)) for row in _of_axes(dims, weight)),
    Operator(
        "conv1d of long lines",
        _long_lines,
        _called("conv1d"),
        by_windows,
        slack=2,
        weight=2,
        arithmetic="convolution",
        sizes=FEW,
    ),
)

# --- masks ---------------------------------------------------------------------------------------


def _of_samples(d: Draw) -> Given:
    """Four axes; masks and numbers that are one along some of them, unlike among samples."""
    n, heads, rows, columns = (d.choice(lengths) for lengths in ((2, 3), (2, 5), (3, 17), (7, 33)))
    masks = d.flags(n, 1, rows, columns), d.flags(n, 1, 1, columns), d.flags(1, heads, rows, 1)
    numbers = (d.whole(0, 16, *shape).double() for shape in ((n, 1, 1, columns), (n, heads, 1, 1)))
    return given(d.whole(0, 16, n, heads, rows, columns).double(), *numbers, *masks)


def _masked(t: Any, x: Any, y: Any, z: Any, a: Any, b: Any, c: Any) -> Any:
    three = x[:, 0]
    return (
        x.masked_fill(a, 77.0),
        x.clone().masked_fill_(b, 3),
        x.masked_fill(c, x.new_ones(())),
        three.masked_fill(b[:, 0], 5.0),
        t.where(a, x, y),
        t.where(b, z, x),
        x + y,
        x * z,
        y - x,
        t.maximum(x, z),
        x.masked_select(b & c),
        x[a[:, 0, 0, 0]],
    )


def _masked_exact(t: Any, x: Any, y: Any, z: Any, a: Any, b: Any, c: Any) -> Any:
    y, z = (t.zeros_like(x) + each for each in (y, z))
    a, b, c = (each.expand(x.shape).clone() for each in (a, b, c))
    both = [i for i, flag in enumerate((b & c).reshape(-1).tolist()) if flag]
    chosen = [i for i, flag in enumerate(a[:, 0, 0, 0].tolist()) if flag]
    return (
        t.where(a, 77 + 0 * x, x),
        t.where(b, 3 + 0 * x, x),
        t.where(c, 1 + 0 * x, x),
        t.where(b, 5 + 0 * x, x)[:, 0],
        t.where(a, x, y),
        t.where(b, z, x),
        x + y,
        x * z,
        y - x,
        t.where(x > z, x, z),
        x.reshape(-1)[t.tensor(both, dtype=t.int64)],
        x.index_select(0, t.tensor(chosen, dtype=t.int64)),
    )


MASKS = moving(
    "masks of each sample",
    _of_samples,
    _masked,
    _masked_exact,
    dtypes=("float32", "bfloat16", "float16", "int64"),
    learns=False,
    weight=3,
    sizes=FEW,
)

# --- losses --------------------------------------------------------------------------------------


def _alignable(d: Draw) -> Given:
    """Sounds of unlike lengths, the first of which is as long as the batch, and their words."""
    steps, n, classes = d.choice((9, 14, 33)), d.choice((2, 3, 5)), d.choice((4, 6, 17))
    sounds = [steps, *(d.choice(range(7, steps)) for _ in range(n - 1))]
    words = [d.choice((1, 2, 3)) for _ in range(n)]
    labels = d.whole(1, classes - 1, n, 3)
    return given(d.normal(steps, n, classes), labels, sounds=sounds, words=words)


def _ctc(t: Any, x: Any, labels: Any, sounds: List[int], words: List[int]) -> Any:
    call, logs, last = t.nn.functional.ctc_loss, x.log_softmax(-1), x.shape[2] - 1
    joined = t.cat([row[:count] for row, count in zip(labels, words)])
    numbers = (t.tensor(sounds), t.tensor(words))
    return (
        call(logs, labels, sounds, words, reduction="none"),
        call(logs, joined, *numbers, reduction="mean"),
        call(logs, labels, *numbers, blank=last, reduction="sum", zero_infinity=True),
    )


def _ctc_exact(t: Any, x: Any, labels: Any, sounds: List[int], words: List[int]) -> Any:
    logs, last = by.log_softmax(t, x, -1), x.shape[2] - 1

    def each(blank: int) -> List[Any]:
        rows = zip(labels.tolist(), sounds, words)
        return [
            _spelt(t, logs[:steps, i], word[:count], blank)
            for i, (word, steps, count) in enumerate(rows)
        ]

    first = t.stack(each(0))
    mean = by.mean(t, first / t.tensor(words, dtype=t.float64), 0)
    return first, mean, by.added(t, t.stack(each(last)), 0)


def _spelt(t: Any, logs: Any, word: List[int], blank: int) -> Any:
    """All ways to spell a word, step by step: with a blank between, before and behind."""
    signs = [blank, *(sign for label in word for sign in (label, blank))]
    skips = t.tensor([i > 1 and s != blank and s != signs[i - 2] for i, s in enumerate(signs)])
    rows = logs[:, signs].exp()
    ways = t.where(t.arange(len(signs)) < 2, rows[0], 0 * rows[0])
    for row in rows[1:]:
        one = t.cat([0 * ways[:1], ways[:-1]])
        two = t.cat([0 * ways[:2], ways[:-2]]) * skips
        ways = (ways + one + two) * row
    return -(ways[-1] + ways[-2]).log()


def _smoothed(t: Any, x: Any, labels: Any, w: Any) -> Any:
    call, heavy = t.nn.functional.cross_entropy, w.detach()
    return (
        call(x, labels, label_smoothing=0.1),
        call(x, labels, heavy, label_smoothing=0.2),
        call(x, labels, heavy, label_smoothing=0.1, reduction="none"),
    )


def _smoothed_exact(t: Any, x: Any, labels: Any, w: Any) -> Any:
    known, logs = _taken(t, labels), by.log_softmax(t, x, 1)
    heavy = _heavy(t, w, labels) * known

    def each(share: float, w: Any) -> Any:
        own = _picked(t, logs * w, labels)
        spread = by.added(t, logs * w, 1) / x.shape[1]
        return -((1 - share) * own + share * spread) * known

    first, second, third = each(0.1, 1.0), each(0.2, w.detach()), each(0.1, w.detach())
    return _all(t, first) / _all(t, known), _all(t, second) / _all(t, heavy), third


LENGTHS_AND_LABELS: Tuple[Operator, ...] = (
    Operator(
        "ctc_loss of unlike lengths",
        _alignable,
        _ctc,
        _ctc_exact,
        dtypes=FULL,
        slack=64,
        weight=3,
        sizes=FEW,
    ),
    Operator(
        "cross_entropy smoothed in part",
        _labelled,
        _smoothed,
        _smoothed_exact,
        dtypes=FULL,
        slack=16,
        weight=2,
        sizes=("tiny", "warp", "block"),
    ),
)
