"""Further forms of attention and of recurrent nets: from a state, in cells, with a scale."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import Operator


def weights(d: Draw, gates: int, inputs: int, hidden: int, biased: bool = True) -> List[Any]:
    """Of one layer: of what comes in, of what is kept, and a bias of each."""
    scale, rows = 1 / sqrt(hidden), gates * hidden
    found = [d.normal(rows, inputs) * scale, d.normal(rows, hidden) * scale]
    return [*found, d.normal(rows) * scale, d.normal(rows) * scale] if biased else found


def _from_a_state(gates: int) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        steps, n = d.choice((1, 3, 5)), d.choice((1, 2, 5))
        inputs, hidden = d.choice((3, 8, 17, 32)), d.choice((4, 16, 33, 64))
        return given(
            d.normal(steps, n, inputs),
            d.normal(n, hidden),
            d.normal(n, hidden),
            *weights(d, gates, inputs, hidden),
        )

    return make


def _run(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        start = (h.unsqueeze(0), c.unsqueeze(0)) if kind == "lstm" else h.unsqueeze(0)
        return getattr(t, kind)(x, start, list(weights), True, 1, 0.0, True, False, False)

    return run


def _cell(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        call = getattr(t, f"{kind}_cell")
        for step in x:
            if kind == "lstm":
                h, c = call(step, (h, c), *weights)
            else:
                h = call(step, h, *weights)
        return (h, c) if kind == "lstm" else h

    return run


def _tanh(x: Any) -> Any:
    return 2 / (1 + (-2 * x).exp()) - 1


def step(kind: str, t: Any, x: Any, h: Any, c: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
    a, b = by.product(t, x, wi.t()) + bi, by.product(t, h, wh.t()) + bh
    size = wh.shape[1]
    if kind == "lstm":
        i, f, g, o = ((a + b)[:, j * size : (j + 1) * size] for j in range(4))
        c = c / (1 + (-f).exp()) + _tanh(g) / (1 + (-i).exp())
        return _tanh(c) / (1 + (-o).exp()), c
    if kind == "gru":
        r, z = (1 / (1 + (-(a + b)[:, j * size : (j + 1) * size]).exp()) for j in range(2))
        new = _tanh(a[:, 2 * size :] + r * b[:, 2 * size :])
        return (1 - z) * new + z * h, c
    return ((a + b).clamp(min=0) if kind == "rnn_relu" else _tanh(a + b)), c


def from_nothing(kind: str) -> Callable[..., Any]:
    """A net that begins with zeros."""

    def exact(t: Any, x: Any, *weights: Any) -> Any:
        start = t.zeros(x.shape[1], weights[1].shape[1], dtype=x.dtype)
        return _exact(kind, True)(t, x, start, start, *weights)

    return exact


def _exact(kind: str, whole: bool) -> Callable[..., Any]:
    def exact(t: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        seen = []
        for part in x:
            h, c = step(kind, t, part, h, c, *weights)
            seen.append(h)
        last = (h, c) if kind == "lstm" else (h,)
        return (t.stack(seen), *(each.unsqueeze(0) for each in last)) if whole else last

    return exact


def _recurrent(kind: str, gates: int) -> Tuple[Operator, ...]:
    forms = ((f"{kind} from a state", _run, True), (f"{kind} cell", _cell, False))
    return tuple(
        Operator(
            name,
            _from_a_state(gates),
            make(kind),
            _exact(kind, whole),
            slack=8,
            arithmetic="product",
            weight=2,
            sizes=("tiny", "warp", "tile"),
        )
        for name, make, whole in forms
    )


# --- attention -----------------------------------------------------------------------------------

FORMS = ("scale", "keys", "wide values", "three axes", "bias of heads", "grouped mask")


def _attended(d: Draw) -> Given:
    form = d.choice(FORMS)
    queries, keys = (d.choice((2, 7, 16, 31, 33, 64, 65, 129)) for _ in "qk")
    heads, width = d.choice((1, 2, 4)), d.choice((8, 16, 32, 64, 80, 128, 256))
    values = d.choice((8, 24, 64)) if form == "wide values" else width
    shared = 2 if form == "grouped mask" else heads
    heads = 4 if form == "grouped mask" else heads
    mask = d.flags(2, 1, 1, keys)
    mask[..., :2] = True
    return given(
        d.normal(2, heads, queries, width),
        d.normal(2, shared, keys, width),
        d.normal(2, shared, keys, values),
        mask,
        d.normal(2, heads, queries, keys),
        form=form,
    )


def _attention(t: Any, q: Any, k: Any, v: Any, mask: Any, bias: Any, form: str) -> Any:
    sdpa = t.nn.functional.scaled_dot_product_attention
    if form == "scale":
        return sdpa(q, k, v, scale=0.3)
    if form == "keys":
        return sdpa(q, k, v, attn_mask=mask)
    if form == "bias of heads":
        return sdpa(q, k, v, attn_mask=bias)
    if form == "grouped mask":
        return sdpa(q, k, v, attn_mask=mask, enable_gqa=True)
    if form == "three axes":
        return sdpa(q[:, 0], k[:, 0], v[:, 0])
    return sdpa(q, k, v)


def _attention_exact(t: Any, q: Any, k: Any, v: Any, mask: Any, bias: Any, form: str) -> Any:
    if form == "grouped mask":
        k, v = (t.stack([x, x], 2).flatten(1, 2) for x in (k, v))
    mask = mask if form in ("keys", "grouped mask") else None
    bias = bias if form == "bias of heads" else None
    found = by.attention(t, q, k, v, mask, bias, 0.3 if form == "scale" else 0.0)
    return found[:, 0] if form == "three axes" else found


CELLS: Tuple[Operator, ...] = (
    *_recurrent("lstm", 4),
    *_recurrent("gru", 3),
    *_recurrent("rnn_tanh", 1),
    *_recurrent("rnn_relu", 1),
    Operator(
        "attention in other forms",
        _attended,
        _attention,
        _attention_exact,
        slack=16,
        weight=6,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
    ),
)
