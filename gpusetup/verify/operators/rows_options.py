"""Arguments that a call may leave out, and that choose another branch of a kernel."""

from __future__ import annotations

from math import sqrt
from typing import Any, Dict, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import MASKS_OF_NUMBERS, release
from .rows_convolutions import image
from .rows_images import _by_lines
from .rows_indexing import SAME_SUMS, _meeting, _met
from .rows_losses import _picked, classed
from .rows_norms import _by_channel, grouped
from .table import FULL, Operator

SMALL = ("tiny", "warp", "tile")

# --- lookups -------------------------------------------------------------------------------------


def _bags(d: Draw) -> Given:
    """A table, words of which some do not count, and where bags begin; the second is empty."""
    rows, width = d.shape(2, 2)
    count = d.choice((9, 33, 130))
    ends = d.choice((True, False))
    starts = d.torch.tensor([0, 4, 4, count // 2, *([count] if ends else [])])
    words = d.whole(0, rows, count)
    options = {"mode": d.choice(("sum", "mean", "max")), "ends": ends, "none": int(words[1])}
    return given(d.normal(rows, width), words, starts, **options)


def _bag(t: Any, x: Any, i: Any, starts: Any, mode: str, ends: bool, none: int) -> Any:
    options: Dict[str, Any] = {"include_last_offset": ends, "padding_idx": none}
    return t.nn.functional.embedding_bag(i, x, starts, mode=mode, **options)


def _bag_exact(t: Any, x: Any, i: Any, starts: Any, mode: str, ends: bool, none: int) -> Any:
    begins, found = starts.tolist(), []
    begins = begins[:-1] if ends else begins
    for first, last in zip(begins, [*begins[1:], len(i)]):
        words = i[first:last]
        lines = x[words[words != none]]
        if not len(lines):
            found.append(0 * x[0])
        elif mode == "max":
            found.append(by.greatest(t, lines, 0))
        else:
            found.append(by.added(t, lines, 0) / (len(lines) if mode == "mean" else 1))
    return t.stack(found)


def _words(d: Draw) -> Given:
    rows, width = d.shape(2, 2)
    return given(d.normal(rows, width), d.whole(0, rows, d.length(1025)))


def by_frequency(t: Any, x: Any, i: Any) -> Any:
    """Each word's gradient is divided by how often it came."""
    lines = x[i]
    often = (i.unsqueeze(0) == i.unsqueeze(1)).sum(1).unsqueeze(1)
    return lines / often + (lines - lines / often).detach()


def _shortened(t: Any, x: Any, i: Any) -> Any:
    lines = x[i]
    norms = by.added(t, lines.abs(), 1).unsqueeze(1)
    return lines * t.where(norms > 2, 2 / (norms + 1e-7), 1 + 0 * norms)


def _by_int32(t: Any, x: Any, i: Any) -> Any:
    short = i.to(t.int32)
    return (
        x.index_select(0, short),
        x.t().index_select(1, short),
        t.nn.functional.embedding(short, x),
    )


def _by_int32_exact(t: Any, x: Any, i: Any) -> Any:
    lines = t.stack([x[j] for j in i.tolist()])
    return lines, lines.t(), lines


LOOKUPS: Tuple[Operator, ...] = (
    Operator(
        "lookup by int32",
        _words,
        _by_int32,
        _by_int32_exact,
        dtypes=FULL,
        kept=True,
        slack=8,
        weight=2,
        sizes=SMALL,
        steady=False,
    ),
    Operator(
        "bags by int32",
        _bags,
        lambda t, x, i, starts, **more: _bag(t, x, i.to(t.int32), starts.to(t.int32), **more),
        _bag_exact,
        dtypes=FULL,
        slack=8,
        sizes=SMALL,
        steady=False,
    ),
    Operator(
        "index_add by int32",
        _meeting,
        lambda t, x, i, s: x.index_add(0, i.to(t.int32), s),
        _met,
        dtypes=SAME_SUMS,
        kept=True,
        sizes=SMALL,
        steady=False,
    ),
    Operator(
        "embedding_bag without a word",
        _bags,
        _bag,
        _bag_exact,
        dtypes=FULL,
        slack=8,
        weight=3,
        sizes=SMALL,
        steady=False,
    ),
    Operator(
        "embedding by frequency",
        _words,
        lambda t, x, i: t.nn.functional.embedding(i, x, scale_grad_by_freq=True),
        by_frequency,
        dtypes=FULL,
        slack=8,
        sizes=SMALL,
        steady=False,
    ),
    Operator(
        "embedding of short rows by sums",
        _words,
        lambda t, x, i: t.nn.functional.embedding(i, x.clone(), max_norm=2.0, norm_type=1.0),
        _shortened,
        dtypes=FULL,
        learns=False,
        serial=True,
        slack=16,
        sizes=SMALL,
    ),
)

# --- losses --------------------------------------------------------------------------------------


def _without_class(t: Any, x: Any, labels: Any, w: Any) -> Any:
    none = int(labels[-1])
    call, logs = t.nn.functional, x.log_softmax(1)
    return (
        call.cross_entropy(x, labels, w.detach(), ignore_index=none, reduction="none"),
        call.nll_loss(logs, labels, w.detach(), ignore_index=none, reduction="sum"),
        call.cross_entropy(
            x, labels % (x.shape[1] - 1), w.detach(), ignore_index=x.shape[1] - 1, reduction="mean"
        ),
    )


def _without_class_exact(t: Any, x: Any, labels: Any, w: Any) -> Any:
    none, logs = int(labels[-1]), by.log_softmax(t, x, 1) * w.detach()
    each = -_picked(t, logs, labels) * (labels != none)
    fewer = labels % (x.shape[1] - 1)
    heavy = _picked(t, w.detach() + 0 * x, fewer)
    mean = -by.added(t, _picked(t, logs, fewer), 0) / by.added(t, heavy, 0)
    return each, by.added(t, each, 0), mean


def _counted(d: Draw) -> Given:
    shape = d.shape(2)
    return given(d.uniform(0.5, 3, *shape), d.uniform(1, 9, *shape))


def _poisson_exact(t: Any, x: Any, y: Any) -> Any:
    y = y.detach()
    plain = x - y * (x + 1e-3).log()
    return plain, plain + y * y.log() - y + (2 * 3.141592653589793 * y).log() / 2


CHOSEN: Tuple[Operator, ...] = (
    Operator(
        "losses without a class",
        classed,
        _without_class,
        _without_class_exact,
        dtypes=FULL,
        slack=16,
        weight=2,
    ),
    Operator(
        "poisson_nll_loss of numbers",
        _counted,
        lambda t, x, y: (
            t.nn.functional.poisson_nll_loss(
                x, y.detach(), log_input=False, eps=1e-3, reduction="none"
            ),
            t.nn.functional.poisson_nll_loss(
                x, y.detach(), log_input=False, full=True, eps=1e-3, reduction="none"
            ),
        ),
        _poisson_exact,
        dtypes=FULL,
        slack=8,
    ),
)

# --- norms, images and attention -----------------------------------------------------------------


def _instances(t: Any, x: Any, w: Any, b: Any) -> Any:
    spread = w.detach().abs() + 0.5
    return t.nn.functional.instance_norm(
        x, b.detach(), spread, w, b, use_input_stats=False, eps=1e-3
    )


def _instances_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    spread = (w.detach().abs() + 0.5 + 1e-3).sqrt()
    found = (x - _by_channel(x, b.detach())) / _by_channel(x, spread)
    return found * _by_channel(x, w) + _by_channel(x, b)


def _factor(d: Draw) -> Given:
    return given(d.normal(*image(2)(d)), factor=d.choice((1.25, 1.5, 2.25)))


def _by_factor(t: Any, x: Any, factor: float) -> Any:
    options = {"scale_factor": factor, "mode": "bilinear", "recompute_scale_factor": True}
    return t.nn.functional.interpolate(x, **options)


def _heads(d: Draw) -> Given:
    n, queries, keys = d.choice((1, 2)), d.choice((1, 5, 17, 33)), d.choice((3, 16, 31))
    width = d.choice((8, 16, 48))
    scale = 1 / sqrt(width)
    hidden = d.flags(n, keys)
    hidden[:, :2] = False  # of one key alone the gradient is 0, and what is left of it roundoff
    return given(
        d.normal(queries, n, width),
        d.normal(keys, n, width),
        d.normal(3 * width, width) * scale,
        d.normal(3 * width) * scale,
        d.normal(width, width) * scale,
        d.normal(width) * scale,
        d.normal(queries, keys),
        hidden,
    )


def _masked_heads(
    t: Any, x: Any, y: Any, wi: Any, bi: Any, wo: Any, bo: Any, more: Any, hidden: Any
) -> Any:
    call = t.nn.functional.multi_head_attention_forward
    nothing = (None, None, False, 0.0)
    wide = t.where(hidden, float("-inf") + 0 * more.detach()[:1], 0 * more.detach()[:1])
    wide = wide if release(t) >= MASKS_OF_NUMBERS else hidden
    options = {"key_padding_mask": wide, "attn_mask": more.detach()}
    given = (x, y, y, x.shape[2], 4, wi, bi, *nothing, wo, bo)
    found, shares = call(*given, training=True, average_attn_weights=False, **options)
    plain, _ = call(*given, training=True, need_weights=False, **options)
    return found, shares, plain


def _masked_heads_exact(
    t: Any, x: Any, y: Any, wi: Any, bi: Any, wo: Any, bo: Any, more: Any, hidden: Any
) -> Any:
    width, parts = x.shape[2], []
    for place, source in enumerate((x, y, y)):
        w, b = (each[place * width : (place + 1) * width] for each in (wi, bi))
        lines = by.product(t, source, w.t()) + b
        parts.append(lines.reshape(*source.shape[:2], 4, width // 4).permute(1, 2, 0, 3))
    q, k, v = parts
    scores = q @ k.transpose(-1, -2) / sqrt(width // 4) + more.detach()
    hides = hidden[:, None, None, :]
    shares = by.softmax(t, t.where(hides, float("-inf") + 0 * scores.detach(), scores), -1)
    found = (shares @ v).permute(2, 0, 1, 3).reshape(x.shape)
    found = by.product(t, found, wo.t()) + bo
    return found, shares, found


NORM_IN_USE = Operator(
    "instance_norm in use", grouped, _instances, _instances_exact, slack=8, dtypes=FULL
)
BY_FACTOR = Operator(
    "bilinear by a factor",
    _factor,
    _by_factor,
    lambda t, x, factor: _by_lines(t, x, [int(n * factor) for n in x.shape[2:]]),
    slack=512,
    steady=False,
    sizes=SMALL,
)
MASKED_HEADS = Operator(
    "multi_head_attention with masks",
    _heads,
    _masked_heads,
    _masked_heads_exact,
    slack=16,
    weight=2,
    arithmetic="product",
    sizes=SMALL,
    dtypes=FULL,
)
