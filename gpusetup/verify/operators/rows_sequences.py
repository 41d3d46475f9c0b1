"""Attention in its forms, and recurrent nets."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_cells import from_nothing, weights
from .table import Operator

FORMS = (
    "plain",
    "causal",
    "causal",
    *("causal of unlike lengths", "causal of unlike lengths"),
    "mask",
    "bias",
    "grouped",
    "strided",
    "packed",
    "packed by heads",
    "decoding",
)
MANY_KEYS = {
    "tiny": (7, 8, 9),
    "warp": (63, 65, 96),
    "tile": (127, 257, 300),
    "block": (511, 513, 1000),
    "long": (1023, 1025, 2049),
    "edges": (31, 33, 64, 129),
}
"""Lengths of a cache of keys that one new query is asked of."""


def attended(d: Draw) -> Given:
    """Queries, keys, values in one of the forms that attention takes."""
    width = d.choice((8, 16, 32, 48, 64, 64, 80, 96, 128))
    lengths = {
        "tiny": (1, 2, 7),
        "warp": (16, 31, 33),
        "tile": (63, 64, 65),
        "block": (127, 128, 129),
        "long": (257, 300, 513),
        "edges": (1, 31, 32, 33, 63, 64, 65, 127, 128, 129),
    }[d.size]
    queries, keys = d.choice(lengths), d.choice(lengths)
    heads = d.choice((1, 2, 4))
    form = d.choice(FORMS)
    # Of one key there is nothing to learn: its gradient is 0, and what is left of it roundoff.
    keys = max(2, keys)
    if form == "causal" or form.startswith("packed"):
        queries = keys
    if form == "causal of unlike lengths":
        queries, keys = d.chance.sample([max(2, n) for n in lengths], 2)
    if form == "decoding":
        queries, keys = d.choice((1, 1, 2)), d.choice(MANY_KEYS[d.size])
    shared = 1 if form == "grouped" else heads
    mask = d.flags(queries, keys)
    mask[:, :2] = True
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
    if form == "causal of unlike lengths":
        return sdpa(q, k, v, is_causal=True), sdpa(k, q, q, is_causal=True)
    if form == "causal":
        return sdpa(q, k, v, is_causal=True)
    if form == "packed":  # (batch, length, 3, heads, width), as one linear layer gives them
        packed = t.stack([q, k, v], 1).permute(0, 3, 1, 2, 4).contiguous()
        q, k, v = packed.permute(0, 2, 3, 1, 4).unbind(1)
    if form == "packed by heads":
        q, k, v = t.stack([q, k, v], 3).transpose(1, 2).contiguous().transpose(1, 2).unbind(3)
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
    if form.startswith("causal"):
        mask = t.arange(q.shape[-2]).unsqueeze(1) >= t.arange(k.shape[-2])
    if form == "causal of unlike lengths":
        other = t.arange(k.shape[-2]).unsqueeze(1) >= t.arange(q.shape[-2])
        return by.attention(t, q, k, v, mask, None), by.attention(t, k, q, q, other, None)
    hides = form == "mask" or form.startswith("causal")
    return by.attention(t, q, k, v, mask if hides else None, bias if form == "bias" else None)


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
        return given(d.normal(steps, n, inputs), *weights(d, gates, inputs, hidden))

    return make


def _with_weights(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, *weights: Any) -> Any:
        hidden = weights[1].shape[1]
        start = x.new_zeros(1, x.shape[1], hidden)
        first = (start, start) if kind == "lstm" else start
        name = kind if kind != "rnn" else "rnn_tanh"
        return getattr(t, name)(x, first, list(weights), True, 1, 0.0, True, False, False)

    return run


def _both_ways(kind: str, gates: int) -> Operator:
    """Two layers, each forwards and backwards, without biases; and what is left at the end."""

    def make(d: Draw) -> Given:
        steps, n = d.choice((1, 3, 5)), d.choice((1, 2, 5))
        inputs, hidden = d.choice((3, 8, 17)), d.choice((4, 16, 33))
        layers = [
            each
            for wide in (inputs, inputs, 2 * hidden, 2 * hidden)
            for each in weights(d, gates, wide, hidden, biased=False)
        ]
        return given(d.normal(n, steps, inputs), *layers)

    def run(t: Any, x: Any, *weights: Any) -> Any:
        start = x.new_zeros(4, x.shape[0], weights[1].shape[1])
        first = (start, start) if kind == "lstm" else start
        return getattr(t, kind)(x, first, list(weights), False, 2, 0.0, True, True, True)

    def exact(t: Any, x: Any, *weights: Any) -> Any:
        one_way = from_nothing(kind)
        none = t.zeros(weights[0].shape[0], dtype=x.dtype)
        x, ends = x.transpose(0, 1), []
        for layer in (0, 4):
            forwards = one_way(t, x, *weights[layer : layer + 2], none, none)
            backwards = one_way(t, x.flip(0), *weights[layer + 2 : layer + 4], none, none)
            ends += [forwards[1:], backwards[1:]]
            x = t.cat([forwards[0], backwards[0].flip(0)], -1)
        return (x.transpose(0, 1), *(t.cat(column) for column in zip(*ends)))

    return Operator(f"{kind} both ways", make, run, exact, slack=16, weight=3, arithmetic="product")


SEQUENCES: Tuple[Operator, ...] = (
    _both_ways("lstm", 4),
    _both_ways("gru", 3),
    Operator(
        "attention",
        attended,
        _attention,
        _attention_exact,
        slack=16,
        weight=40,
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
        from_nothing("lstm"),
        slack=8,
        weight=4,
        arithmetic="product",
    ),
    Operator(
        "gru",
        _recurrent(3),
        _with_weights("gru"),
        from_nothing("gru"),
        slack=8,
        weight=2,
        arithmetic="product",
    ),
    Operator(
        "rnn",
        _recurrent(1),
        _with_weights("rnn"),
        from_nothing("rnn_tanh"),
        slack=8,
        arithmetic="product",
    ),
)
