"""What stands at the end, comes very often, or is too large for its square."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_moving import moving
from .rows_options import by_frequency
from .table import FEW, FULL, Operator

# --- what counts stands at the end ---------------------------------------------------------------

UNEVEN = (513, 517, 777, 1031, 2049, 2063, 4099)
"""Lengths that leave a rest, whatever they are cut into."""
TOP, MOST = 100.0, 120.0


def _at_the_end(d: Draw) -> Given:
    """Lines of small numbers, each with its greatest at the end, and the greatest of all last."""
    x = d.whole(0, 50, d.choice((2, 3, 5)), d.choice(UNEVEN)).double()
    x[:, -1] = TOP
    x[-1, -1] = MOST
    return given(x)


def _ends(t: Any, x: Any) -> Any:
    down, turned = -x, x.t()
    columns = turned.contiguous()
    (high, there), (low, where) = x.max(1), down.min(1)
    (best, first), (worst, least) = x.topk(1), down.topk(1, largest=False)
    return (
        *(x.argmax(1), x.argmax(), x.argmax(1, keepdim=True), turned.argmax(0), columns.argmax(0)),
        *(down.argmin(1), down.argmin(), down.t().argmin(0), columns.neg().argmin(0, True)),
        *(high, there, low, where, best, first, worst, least),
        *(x.amax(1), columns.amax(0), down.amin(1), x.max(), down.min()),
        *((x >= TOP).any(1), (x >= MOST).any(), (x < TOP).all(1), (x < MOST).all()),
        *((x >= TOP).sum(1), t.count_nonzero(x >= TOP), (x >= TOP).nonzero()),
        *(t.isfinite(x / (x < MOST).to(x.dtype)).all(), x.sort(1, descending=True)[1][:, 0]),
    )


def _ends_exact(t: Any, x: Any) -> Any:
    rows, length = x.shape
    top = t.full((rows,), TOP, dtype=x.dtype)
    top[-1] = MOST
    last, lines = t.full((rows,), length - 1), t.arange(rows)
    total, most = t.tensor(rows * length - 1), t.tensor(MOST, dtype=x.dtype)
    yes, no = t.tensor(True), t.tensor(False)
    return (
        *(last, total, last.unsqueeze(1), last, last),
        *(last, total, last, last.unsqueeze(0)),
        *(top, last, -top, last),
        *(top.unsqueeze(1), last.unsqueeze(1), -top.unsqueeze(1), last.unsqueeze(1)),
        *(top, top, -top, most, -most),
        *(lines >= 0, yes, lines < 0, no),
        *(t.ones_like(last), t.tensor(rows), t.stack([lines, last], 1)),
        *(no, last),
    )


ENDS = moving(
    "extremes at the end",
    _at_the_end,
    _ends,
    _ends_exact,
    dtypes=("float32", "bfloat16", "float16"),
    learns=False,
    weight=3,
    sizes=FEW,
)

# --- words that come often -----------------------------------------------------------------------


def _often(d: Draw) -> Given:
    """A table of which one row is two thirds of all that is looked up."""
    rows, width, count = d.choice((3, 17, 100)), d.choice((3, 16, 33)), d.choice((99, 300, 702))
    words = d.whole(0, rows, count)
    words[d.order(count)[: 2 * count // 3]] = d.choice(range(rows))
    return given(d.normal(rows, width), words, none=int(words[0]), bags=d.choice((1, 3)))


def _looked_up(t: Any, x: Any, i: Any, none: int, bags: int) -> Any:
    call = t.nn.functional
    return (
        call.embedding(i, x),
        call.embedding(i.reshape(3, -1), x, padding_idx=none),
        call.embedding(i, x, scale_grad_by_freq=True),
        call.embedding_bag(i.reshape(bags, -1), x, mode="sum"),
        x.index_select(0, i),
    )


def _looked_up_exact(t: Any, x: Any, i: Any, none: int, bags: int) -> Any:
    lines = x[i]
    taught = t.where((i != none).unsqueeze(1), lines, lines.detach()).reshape(3, -1, x.shape[1])
    sums = by.added(t, lines.reshape(bags, -1, x.shape[1]), 1)
    return lines, taught, by_frequency(t, x, i), sums, lines


OFTEN = Operator(
    "embedding of frequent words",
    _often,
    _looked_up,
    _looked_up_exact,
    dtypes=FULL,
    slack=8,
    weight=3,
    sizes=FEW,
    steady=False,
)

# --- halves whose squares are none ---------------------------------------------------------------


def _far(d: Draw) -> Given:
    """Of float16 either too large to be squared, or so small that a square has no digits."""
    rows, width = d.choice((2, 5, 33)), d.choice((64, 144, 1040))
    size = d.choice((0.002, 400.0, 400.0))
    return given(d.normal(rows, width) * size, d.normal(width), d.normal(width))


EPS = 1e-9


def _standard(t: Any, lines: Any) -> Any:
    away = lines - by.mean(t, lines, 1).unsqueeze(1)
    return away / (by.mean(t, away * away, 1) + EPS).sqrt().unsqueeze(1)


def _images(x: Any) -> Any:
    """As images of four channels."""
    return x.reshape(x.shape[0], 4, 4, -1)


def _grouped(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t.nn.functional.group_norm(_images(x), 2, w[:4], b[:4], EPS)


def _grouped_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    found = _images(_standard(t, x.reshape(2 * x.shape[0], -1)).reshape(x.shape))
    return found * w[:4].reshape(4, 1, 1) + b[:4].reshape(4, 1, 1)


def _batch(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t.nn.functional.batch_norm(_images(x), None, None, None, None, True, 0.1, EPS)


def _batch_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    lines = _images(x).transpose(0, 1)
    return _standard(t, lines.reshape(4, -1)).reshape(lines.shape).transpose(0, 1)


def _lengths(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t.nn.functional.normalize(x, eps=1e-6), x.norm(dim=1), x.std(1), x.std(1, correction=0)


def _lengths_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    norms = by.added(t, x * x, 1).sqrt()
    spread = [by.variance(t, x, 1, less).sqrt() for less in (1, 0)]
    return x / norms.unsqueeze(1), norms, *spread


def _of_far(name: str, run: Callable[..., Any], exact: Callable[..., Any]) -> Operator:
    return Operator(
        f"{name} of far halves",
        _far,
        run,
        exact,
        dtypes=("float16",),
        slack=16,
        serial=True,
        weight=2,
        sizes=FEW,
    )


FAR: Tuple[Operator, ...] = (
    _of_far(
        "layer_norm",
        lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[1:], w, b, EPS),
        lambda t, x, w, b: _standard(t, x) * w + b,
    ),
    _of_far(
        "rms_norm",
        lambda t, x, w, b: t.nn.functional.rms_norm(x, x.shape[1:], w, EPS),
        lambda t, x, w, b: x / (by.mean(t, x * x, 1) + EPS).sqrt().unsqueeze(1) * w,
    ),
    _of_far("group_norm", _grouped, _grouped_exact),
    # Backwards torch 2.13 itself keeps a sum of half batch norm in half precision: it may overflow.
    _of_far("batch_norm", _batch, _batch_exact)._replace(learns=False),
    _of_far("lengths", _lengths, _lengths_exact),
)
