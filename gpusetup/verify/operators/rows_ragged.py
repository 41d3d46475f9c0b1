"""Sequences of unlike lengths: packed for a recurrent net, padded, nested."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_cells import step, weights
from .table import FULL, Operator


def _packed(gates: int) -> Callable[[Draw], Given]:
    """The first step of every sequence, then the second of those that have one, and so on."""

    def make(d: Draw) -> Given:
        lengths = sorted((d.choice((1, 2, 3, 5, 9)) for _ in range(d.choice((2, 3, 7)))))[::-1]
        sizes = [sum(length > step for length in lengths) for step in range(lengths[0])]
        inputs, hidden = d.choice((3, 8, 17, 32)), d.choice((4, 16, 33, 64))
        layer = weights(d, gates, inputs, hidden)
        return given(d.normal(sum(sizes), inputs), *layer, sizes=tuple(sizes))

    return make


def _packed_run(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, *weights: Any, sizes: Tuple[int, ...]) -> Any:
        start = x.new_zeros(1, sizes[0], weights[1].shape[1])
        first = (start, start) if kind == "lstm" else start
        options = (list(weights), True, 1, 0.0, True, False)
        return getattr(t, kind)(x, t.tensor(sizes), first, *options)

    return run


def _packed_exact(kind: str) -> Callable[..., Any]:
    def exact(t: Any, x: Any, *weights: Any, sizes: Tuple[int, ...]) -> Any:
        h = c = t.zeros(sizes[0], weights[1].shape[1], dtype=x.dtype)
        seen, begin = [], 0
        for size in sizes:
            part = x[begin : begin + size]
            new, kept = step(kind, t, part, h[:size], c[:size], *weights)
            h, c = t.cat([new, h[size:]]), t.cat([kept, c[size:]])
            seen.append(new)
            begin += size
        last = (h, c) if kind == "lstm" else (h,)
        return (t.cat(seen), *(each.unsqueeze(0) for each in last))

    return exact


def _several(d: Draw) -> Given:
    """Sequences one after the other, and a matrix that each of their steps meets."""
    lengths = tuple(d.choice((1, 2, 7, 16, 33)) for _ in range(d.choice((2, 3, 5))))
    width, out = d.choice((3, 8, 17, 32)), d.choice((4, 16, 33))
    scale = 1 / sqrt(width)
    return given(
        d.normal(sum(lengths), width),
        d.normal(out, width) * scale,
        d.normal(out) * scale,
        lengths=lengths,
    )


def _padded(t: Any, parts: List[Any], value: float = 0.0) -> Any:
    longest = max(len(part) for part in parts)
    rows = []
    for part in parts:
        more = t.full((longest - len(part), *part.shape[1:]), value, dtype=part.dtype)
        rows.append(t.cat([part, more]))
    return t.stack(rows)


def _nested(t: Any, x: Any, lengths: Tuple[int, ...]) -> Any:
    return t.nested.as_nested_tensor([each.contiguous() for each in x.split(list(lengths))])


def _nested_linear(t: Any, x: Any, w: Any, b: Any, lengths: Tuple[int, ...]) -> Any:
    found = t.nn.functional.linear(_nested(t, x, lengths), w, b)
    return found.to_padded_tensor(0.0), found.softmax(-1).to_padded_tensor(0.0)


def _nested_exact(t: Any, x: Any, w: Any, b: Any, lengths: Tuple[int, ...]) -> Any:
    lines = by.product(t, x, w.t()) + b
    shares = by.softmax(t, lines, 1)
    return tuple(_padded(t, list(each.split(list(lengths)))) for each in (lines, shares))


RAGGED: Tuple[Operator, ...] = (
    *(
        Operator(
            f"{kind} packed",
            _packed(gates),
            _packed_run(kind),
            _packed_exact(kind),
            slack=8,
            arithmetic="product",
            weight=2,
            sizes=("tiny", "warp", "tile"),
        )
        for kind, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1))
    ),
    Operator(
        "padded sequences",
        _several,
        lambda t, x, w, b, lengths: t.nn.utils.rnn.pad_sequence(
            x.split(list(lengths)), batch_first=True, padding_value=-2.0
        ),
        lambda t, x, w, b, lengths: _padded(t, list(x.split(list(lengths))), -2.0),
        kept=True,
        sizes=("tiny", "warp", "tile"),
    ),
    Operator(
        "nested linear and softmax",
        _several,
        _nested_linear,
        _nested_exact,
        dtypes=FULL,
        learns=False,
        slack=8,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
    ),
)
