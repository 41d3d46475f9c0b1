"""Sequences of unlike lengths, packed for a recurrent net."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .drawing import Draw, Given, given
from .rows_cells import step, weights
from .table import Operator


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
)
