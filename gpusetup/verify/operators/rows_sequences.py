"""Attention in its forms, and recurrent nets."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import Operator


def attended(d: Draw) -> Given:
    """Queries, keys, values in one of the forms that attention takes."""
    width = d.choice((8, 16, 32, 48, 64, 64, 80, 96, 128))
    lengths = {
        "tiny": (1, 2, 7),
        "warp": (16, 31, 33),
        "tile": (63, 64, 65),
        "block": (127, 128, 129),
        "long": (257, 300),
        "edges": (1, 31, 32, 33, 63, 64, 65, 127, 128, 129),
    }[d.size]
    queries, keys = d.choice(lengths), d.choice(lengths)
    heads = d.choice((1, 2, 4))
    form = d.choice(("plain", "causal", "causal", "mask", "bias", "grouped", "strided"))
    # Of one key there is nothing to learn: its gradient is 0, and what is left of it roundoff.
    keys = max(2, keys)
    queries, keys = (keys, keys) if form == "causal" else (queries, keys)
    shared = 1 if form == "grouped" else heads
    mask = d.flags(queries, keys)
    mask[:, 0] = True
    return given(
        d.normal(2, heads, queries, width),
        d.normal(2, shared, keys, width),
        d.normal(2, shared, keys, width),
        mask,
        d.normal(queries, keys),
        form=form,
    )


def _attention(t: Any, q: Any, k: Any, v: Any, mask: Any, bias: Any, form: str) -> Any:
    sdpa = t.nn.functional.scaled_dot_product_attention
    if form == "causal":
        return sdpa(q, k, v, is_causal=True)
    if form == "mask":
        return sdpa(q, k, v, attn_mask=mask)
    if form == "bias":
        return sdpa(q, k, v, attn_mask=bias)
    if form == "grouped":
        return sdpa(q, k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1))
    if form == "strided":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return sdpa(q, k, v)


def _attention_exact(t: Any, q: Any, k: Any, v: Any, mask: Any, bias: Any, form: str) -> Any:
    scores = q @ k.transpose(-1, -2) / sqrt(q.shape[-1])
    if form == "causal":
        n = q.shape[-2]
        mask = t.arange(n).unsqueeze(1) >= t.arange(n)
    if form == "bias":
        scores = scores + bias
    if form in ("mask", "causal"):
        scores = t.where(mask, scores, float("-inf") + 0 * scores.detach())
    return by.softmax(t, scores, -1) @ v


def _gqa(d: Draw) -> Given:
    width, length = d.choice((32, 64, 128)), d.choice((7, 33, 64, 129))
    return given(
        d.normal(2, 4, length, width), d.normal(2, 2, length, width), d.normal(2, 2, length, width)
    )


def _gqa_run(t: Any, q: Any, k: Any, v: Any) -> Any:
    sdpa = t.nn.functional.scaled_dot_product_attention
    try:
        return sdpa(q, k, v, is_causal=True, enable_gqa=True)
    except TypeError:
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        return sdpa(q, k, v, is_causal=True)


def _gqa_exact(t: Any, q: Any, k: Any, v: Any) -> Any:
    k, v = (t.stack([x, x], 2).reshape(2, 4, *x.shape[2:]) for x in (k, v))
    return _attention_exact(t, q, k, v, None, None, "causal")


def _recurrent(gates: int) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        steps, n = d.choice((1, 3, 7)), d.choice((1, 2, 5))
        inputs, hidden = d.choice((3, 8, 17, 32)), d.choice((4, 16, 33, 64))
        scale = 1 / sqrt(hidden)
        return given(
            d.normal(steps, n, inputs),
            d.normal(gates * hidden, inputs) * scale,
            d.normal(gates * hidden, hidden) * scale,
            d.normal(gates * hidden) * scale,
            d.normal(gates * hidden) * scale,
        )

    return make


def _with_weights(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, *weights: Any) -> Any:
        hidden = weights[1].shape[1]
        start = x.new_zeros(1, x.shape[1], hidden)
        first = (start, start) if kind == "lstm" else start
        name = kind if kind != "rnn" else "rnn_tanh"
        return getattr(t, name)(x, first, list(weights), True, 1, 0.0, True, False, False)

    return run


def _lstm_exact(t: Any, x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
    n, size = x.shape[1], wh.shape[1]
    h = c = t.zeros(n, size, dtype=x.dtype)
    out = []
    for step in x:
        gates = by.product(t, step, wi.t()) + bi + by.product(t, h, wh.t()) + bh
        i, f, g, o = (gates[:, j * size : (j + 1) * size] for j in range(4))
        c = c / (1 + (-f).exp()) + (2 / (1 + (-2 * g).exp()) - 1) / (1 + (-i).exp())
        h = (2 / (1 + (-2 * c).exp()) - 1) / (1 + (-o).exp())
        out.append(h)
    return t.stack(out), h.unsqueeze(0), c.unsqueeze(0)


def _gru_exact(t: Any, x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
    size = wh.shape[1]
    h = t.zeros(x.shape[1], size, dtype=x.dtype)
    out = []
    for step in x:
        a, b = by.product(t, step, wi.t()) + bi, by.product(t, h, wh.t()) + bh
        r = 1 / (1 + (-(a + b)[:, :size]).exp())
        z = 1 / (1 + (-(a + b)[:, size : 2 * size]).exp())
        new = 2 / (1 + (-2 * (a[:, 2 * size :] + r * b[:, 2 * size :])).exp()) - 1
        h = (1 - z) * new + z * h
        out.append(h)
    return t.stack(out), h.unsqueeze(0)


def _rnn_exact(t: Any, x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
    h = t.zeros(x.shape[1], wh.shape[1], dtype=x.dtype)
    out = []
    for step in x:
        h = (by.product(t, step, wi.t()) + bi + by.product(t, h, wh.t()) + bh).tanh()
        out.append(h)
    return t.stack(out), h.unsqueeze(0)


SEQUENCES: Tuple[Operator, ...] = (
    Operator(
        "attention",
        attended,
        _attention,
        _attention_exact,
        slack=16,
        weight=10,
        arithmetic="product",
    ),
    Operator(
        "attention of grouped heads",
        _gqa,
        _gqa_run,
        _gqa_exact,
        slack=16,
        weight=3,
        arithmetic="product",
    ),
    Operator(
        "lstm",
        _recurrent(4),
        _with_weights("lstm"),
        _lstm_exact,
        slack=8,
        weight=4,
        arithmetic="product",
    ),
    Operator(
        "gru",
        _recurrent(3),
        _with_weights("gru"),
        _gru_exact,
        slack=8,
        weight=2,
        arithmetic="product",
    ),
    Operator("rnn", _recurrent(1), _with_weights("rnn"), _rnn_exact, slack=8, arithmetic="product"),
)
