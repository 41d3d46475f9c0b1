"""What a model in use calls and a model in training does not: the transformer's fast path, padded
and packed batches, weights of eight and four bits."""

from __future__ import annotations

from typing import Any, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import release
from .table import FEW, FULL, Operator

# --- attention and encoder layers as one call ----------------------------------------------------

EPS = 1e-3
WAYS = tuple((smooth, before) for smooth in (False, True) for before in (False, True))
"""`gelu` or `relu`; normed before or after what is added."""
UNLIKE = (WAYS[1], WAYS[2])
PADDED = 1
"""The kind of mask that says which places of a sample hold nothing."""


def _layer(d: Draw) -> Given:
    """A layer's input, its weights, and how long each sample is."""
    n, length, heads = d.choice((1, 2, 3)), d.choice((3, 8, 17, 33)), d.choice((2, 4))
    width, wide = heads * d.choice((4, 8, 16)), d.choice((16, 33))
    weights: List[Any] = []
    for rows, columns in ((3 * width, width), (width, width), (wide, width), (width, wide)):
        weights += [d.normal(rows, columns) / columns**0.5, d.normal(rows) / 4]
    norms = [each for _ in "12" for each in (1 + d.normal(width) / 8, d.normal(width) / 8)]
    lengths = d.whole(1, length + 1, n)
    return given(d.normal(n, length, width), *weights, *norms, lengths, heads=heads)


def _behind(t: Any, x: Any, lengths: Any) -> Any:
    """Which places of a sample hold nothing."""
    return t.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)


def _at_once(t: Any, x: Any, *rest: Any, heads: int) -> List[Any]:
    """What holds nothing is nothing that one may ask for: it is set to zero."""
    x, (*weights, lengths) = x.contiguous(), rest
    weights = [each.contiguous() for each in weights]
    width, hidden = x.shape[2], _behind(t, x, lengths)
    shown, first = ~hidden.unsqueeze(2), weights[:4]
    own, norms = weights[4:8], weights[8:]
    found = [
        t._native_multi_head_attention(x, x, x, width, heads, *first, hidden, True, True, PADDED),
        t._native_multi_head_attention(x, x, x, width, heads, *first, None, True, False),
    ]

    def layer(smooth: bool, before: bool, *masks: Any) -> Any:
        options = (smooth, before, EPS, *norms, *own, *masks)
        return t._transformer_encoder_layer_fwd(x, width, heads, *first, *options)

    (padded, shares), (full, each) = found
    layers = [layer(*way, hidden, PADDED) * shown for way in UNLIKE]
    return [padded * shown, shares * shown, full, each, *layers, *(layer(*way) for way in WAYS)]


def _by_parts(t: Any, x: Any, *rest: Any, heads: int) -> List[Any]:
    *weights, lengths = rest
    hidden = _behind(t, x, lengths)
    shown = (~hidden).unsqueeze(2).double()
    see = (~hidden).reshape(len(x), 1, 1, -1)
    padded, shares = _attended(t, x, weights, heads, see)
    full, each = _attended(t, x, weights, heads, None)
    layers = [_encoded(t, x, weights, heads, see, *way) * shown for way in UNLIKE]
    layers += [_encoded(t, x, weights, heads, None, *way) for way in WAYS]
    return [padded * shown, by.mean(t, shares, 1) * shown, full, each, *layers]


def _attended(t: Any, x: Any, weights: Any, heads: int, see: Any) -> Tuple[Any, Any]:
    """What self-attention gives, and each head's shares."""
    n, length, width = x.shape
    parts = (by.product(t, x, weights[0].t()) + weights[1]).split(width, 2)
    q, k, v = (part.reshape(n, length, heads, -1).transpose(1, 2) for part in parts)
    scores = by.product(t, q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    if see is not None:
        scores = t.where(see, scores, -by.INFINITE + 0 * scores)
    shares = by.softmax(t, scores, -1)
    joined = by.product(t, shares, v).transpose(1, 2).reshape(n, length, width)
    return by.product(t, joined, weights[2].t()) + weights[3], shares


def _encoded(t: Any, x: Any, weights: Any, heads: int, see: Any, smooth: bool, before: bool) -> Any:
    def normed(y: Any, place: int) -> Any:
        return by.standard(t, y, 2) * weights[place] + weights[place + 1]

    def wide(y: Any) -> Any:
        inner = by.product(t, y, weights[4].t()) + weights[5]
        bent = t.where(inner > 0, inner, 0 * inner)
        if smooth:
            bent = inner / 2 * (1 + t.erf(inner / 2**0.5))
        return by.product(t, bent, weights[6].t()) + weights[7]

    if before:
        x = x + _attended(t, normed(x, 8), weights, heads, see)[0]
        return x + wide(normed(x, 10))
    x = normed(x + _attended(t, x, weights, heads, see)[0], 8)
    return normed(x + wide(x), 10)


KINDS_OF_MASKS = (2, 5)
"""The first release that was seen to take them; 1.13 takes one flag for each score."""


def _hidden(d: Draw) -> Given:
    """Scores of each head, what is hidden of each, of every row, of each sample."""
    n, heads, length = d.choice((1, 2, 3)), d.choice((1, 2, 3)), d.choice((2, 7, 16, 33, 65))
    masks = [d.flags(*shape) for shape in ((length, length), (n, length), (n, heads, length))]
    for mask in masks:
        mask[..., 0] = False
    return given(d.normal(n, heads, length, length), *masks)


def _with_masks(t: Any, x: Any, rows: Any, samples: Any, heads: Any) -> Any:
    """Backwards torch knows full masks alone, and so does 1.13 forwards."""
    x, call = x.contiguous(), t._masked_softmax
    full = [each.expand(x.shape).contiguous() for each in _spread(x, rows, samples, heads)]
    if release(t) < KINDS_OF_MASKS:
        return [call(y, each, 3, 2) for y, each in zip((x.detach(), x.detach(), x), full)]
    fixed = x.detach()
    return call(fixed, rows, 3, 0), call(fixed, samples, 3, PADDED), call(x, full[2], 3, 2)


def _spread(x: Any, rows: Any, samples: Any, heads: Any) -> Any:
    return rows, samples.reshape(len(x), 1, 1, -1), heads.unsqueeze(2)


def _with_masks_exact(t: Any, x: Any, rows: Any, samples: Any, heads: Any) -> Any:
    masks = _spread(x, rows, samples, heads)
    lines = (x.detach(), x.detach(), x)
    hidden = -by.INFINITE + 0 * x.detach()
    return [by.softmax(t, t.where(mask, hidden, y), 3) for mask, y in zip(masks, lines)]


def _ragged(d: Draw) -> Given:
    """Sequences one after the other, where each begins, and all of them in one block."""
    n, width, most = d.choice((1, 2, 5)), d.choice((1, 3, 16)), d.choice((3, 8, 33))
    lengths = d.whole(1, most + 1, n)
    lengths[-1] = most
    starts = d.torch.tensor([int(lengths[:i].sum()) for i in range(n + 1)])
    return given(d.normal(int(starts[-1]), width), lengths, starts, most=most)


def _padded(t: Any, x: Any, lengths: Any, starts: Any, most: int) -> Any:
    full = t.ops.aten._jagged_to_padded_dense_forward(x.contiguous(), [starts], [most], 7.0)
    back = t.ops.aten._padded_dense_to_jagged_forward(full, [starts], x.shape[0])
    return full, back


def _padded_exact(t: Any, x: Any, lengths: Any, starts: Any, most: int) -> Any:
    full = t.full((len(lengths), most, x.shape[1]), 7.0, dtype=x.dtype)
    for i, count in enumerate(lengths.tolist()):
        full[i, :count] = x[int(starts[i]) : int(starts[i]) + count]
    return full, 1 * x


FAST_PATH: Tuple[Operator, ...] = (
    Operator(
        "encoder layer in use",
        _layer,
        _at_once,
        _by_parts,
        dtypes=("float32",),
        learns=False,
        slack=2,
        weight=2,
        arithmetic="product",
        sizes=FEW,
    ),
    Operator(
        "softmax with masks",
        _hidden,
        _with_masks,
        _with_masks_exact,
        dtypes=FULL,
        slack=2,
        sizes=FEW,
    ),
    Operator(
        "padded and packed",
        _ragged,
        _padded,
        _padded_exact,
        dtypes=FULL,
        learns=False,
        kept=True,
        sizes=FEW,
    ),
)

# --- products with weights of few bits -----------------------------------------------------------


def _bytes(d: Draw) -> Given:
    """Whole blocks of 32, as `Linear` layers have them."""
    rows, inner, columns = d.choice((1, 2, 7, 33)), d.choice((32, 64, 160)), d.choice((32, 64, 96))
    w = d.whole(-128, 128, columns, inner)
    return given(d.normal(rows, inner), w, d.uniform(0.01, 0.1, columns))


def _by_bytes(t: Any, x: Any, w: Any, scales: Any) -> Any:
    """Of copies: torch 2.5 and 2.13 end with a segmentation fault where a number lies off the
    alignment of its vectors."""
    _on_the_cpu(x)
    own = t.contiguous_format
    parts = (each.clone(memory_format=own) for each in (x, w.to(t.int8), scales))
    return t._weight_int8pack_mm(*parts)


def _on_the_cpu(x: Any) -> None:
    """Which formats and lengths other devices' kernels take was not tried."""
    if x.device.type != "cpu":
        raise NotImplementedError("asked of the CPU alone")


NIBBLES, MIDDLE = 16, 8


def _nibbles(d: Draw) -> Given:
    """Weights of four bits; each group of a row has a scale and a zero of its own."""
    rows, group, columns = d.choice((1, 2, 7, 33)), d.choice((32, 64)), d.choice((16, 32, 64))
    groups = d.choice((1, 2, 3))
    w = d.whole(0, NIBBLES, columns, group * groups)
    return given(
        d.normal(rows, group * groups),
        w,
        d.choice((1, 2, 3)) * d.whole(1, 5, groups, columns).double() / 8,
        d.whole(-4, 5, groups, columns).double() / 4,
        group=group,
    )


def _by_nibbles(t: Any, x: Any, w: Any, scales: Any, zeros: Any, group: int) -> Any:
    _on_the_cpu(x)
    packed = t.ops.aten._convert_weight_to_int4pack_for_cpu(w.int().contiguous(), 2)
    both = t.stack([scales, zeros], -1).contiguous()
    return t.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), packed, group, both)


def _by_nibbles_exact(t: Any, x: Any, w: Any, scales: Any, zeros: Any, group: int) -> Any:
    wide = [each.repeat_interleave(group, 0).t() for each in (scales, zeros)]
    return by.product(t, x, ((w.double() - MIDDLE) * wide[0] + wide[1]).t())


def _eighths(d: Draw) -> Given:
    """Numbers that a float of eight bits holds."""
    rows, inner, columns = (16 * d.choice((1, 2, 3)) for _ in range(3))
    left, right = (d.whole(-8, 9, *each).double() / 8 for each in ((rows, inner), (columns, inner)))
    return given(left, right, scales=(d.choice((0.5, 2.0)), d.choice((0.25, 4.0))))


def _scaled(t: Any, x: Any, y: Any, scales: Any) -> Any:
    one, other = (each.to(t.float8_e4m3fn).contiguous() for each in (x, y))
    by_each = [t.tensor(each, device=x.device) for each in scales]
    found = [
        t._scaled_mm(one, other.t(), *by_each, out_dtype=dtype) for dtype in (t.float32, t.bfloat16)
    ]
    return found[0], found[1].to(x.dtype) * 0 + found[1]


def _scaled_exact(t: Any, x: Any, y: Any, scales: Any) -> Any:
    found = by.product(t, x, y.t()) * (scales[0] * scales[1])
    return found, found.bfloat16().double()


def _less_weights(name: str, make: Any, run: Any, exact: Any, **more: Any) -> Operator:
    return Operator(
        name,
        make,
        run,
        exact,
        learns=False,
        arithmetic="product",
        sizes=FEW,
        **{"dtypes": ("bfloat16", "float32", "float16"), **more},
    )


FEW_BITS: Tuple[Operator, ...] = (
    _less_weights(
        "weights of eight bits",
        _bytes,
        _by_bytes,
        lambda t, x, w, scales: by.product(t, x, (w.double() * scales.unsqueeze(1)).t()),
        weight=2,
    ),
    _less_weights("weights of four bits", _nibbles, _by_nibbles, _by_nibbles_exact),
    _less_weights("scaled eight bits", _eighths, _scaled, _scaled_exact, dtypes=("float32",)),
)
