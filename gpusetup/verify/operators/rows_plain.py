"""Numbers at which a plain formula fails: far means, great logits, ends of integers, far places.

The squares of far numbers have lost what a variance is the difference of; `exp` of 100 is none of
float32; two products of bytes leave 16 bits; a place from 32768 on leaves a short index.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, List

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_moving import moving
from .table import FEW, FULL, Operator

# --- means that are large against the spread -----------------------------------------------------

FAR = (300.0, 1000.0, -1000.0)
EPS = 1e-3


def _far(d: Draw) -> Given:
    """Images of four channels whose numbers are far from zero beside their spread."""
    n, side = d.choice((2, 3, 5)), d.choice((4, 7, 16, 33))
    x = d.normal(n, 4, side, d.choice((4, 9, 16))) + d.choice(FAR)
    return given(x, d.normal(4), d.normal(4))


def _normed(t: Any, x: Any, w: Any, b: Any) -> Any:
    """Group norm of what is contiguous: for channels last torch's own kernel for the CPU has the
    plain formula (2.13: at a mean of 1000 its answers are off by a tenth)."""
    call = t.nn.functional
    lines = x.flatten(2)
    return (
        call.layer_norm(lines, lines.shape[2:], None, None, EPS),
        call.layer_norm(x, x.shape[1:], None, None, EPS),
        call.group_norm(x.contiguous(), 2, w, b, EPS),
        call.instance_norm(x, weight=w, bias=b, eps=EPS),
        call.batch_norm(x, None, None, w, b, True, 0.1, EPS),
    )


def _normed_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    def each(lines: Any) -> Any:
        return by.standard(t, lines).reshape(-1)

    n, w, b = len(x), w.reshape(4, 1, 1), b.reshape(4, 1, 1)
    turned = x.transpose(0, 1)
    batch = each(turned.reshape(4, -1)).reshape(turned.shape).transpose(0, 1)
    own = each(x.reshape(4 * n, -1)).reshape(x.shape)
    return (
        own.flatten(2),
        each(x.reshape(n, -1)).reshape(x.shape),
        each(x.reshape(2 * n, -1)).reshape(x.shape) * w + b,
        own * w + b,
        batch * w + b,
    )


def _spreads(t: Any, x: Any, w: Any, b: Any) -> Any:
    call, y = t.nn.functional, x.flip(0)
    cube = x.flatten(2)
    found = [each for dim in range(3) for each in (cube.var(dim), cube.std(dim))]
    return (
        *found,
        *t.std_mean(cube, dim=(1, 2)),
        cube.var(),
        t.cov(cube[0]),
        t.cdist(cube, cube.flip(0), compute_mode="donot_use_mm_for_euclid_dist"),
        *(call.mse_loss(x, y), call.smooth_l1_loss(x, y), call.l1_loss(x, y)),
        t.pairwise_distance(cube[0], cube[1]),
    )


def _spreads_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    y, cube = x.flip(0), x.flatten(2)
    spreads = [by.variance(t, cube, dim) for dim in range(3)]
    inner = cube.flatten(1)
    away = cube[0] - by.mean(t, cube[0], 1).unsqueeze(1)
    apart, flat = cube.unsqueeze(2) - cube.flip(0).unsqueeze(1), (x - y).reshape(-1)
    size = flat.abs()
    return (
        *(each for one in spreads for each in (one, one.sqrt())),
        *(by.variance(t, inner, 1).sqrt(), by.mean(t, inner, 1)),
        by.variance(t, cube.reshape(-1), 0),
        by.product(t, away, away.t()) / (cube.shape[2] - 1),
        by.added(t, apart * apart, -1).sqrt(),
        by.mean(t, flat * flat, 0),
        by.mean(t, t.where(size < 1, flat * flat / 2, size - 0.5), 0),
        by.mean(t, size, 0),
        by.added(t, (cube[0] - cube[1] + 1e-6) ** 2, 1).sqrt(),
    )


FAR_MEANS = Operator(
    "norms far from zero",
    _far,
    _normed,
    _normed_exact,
    dtypes=FULL,
    slack=8,
    serial=True,
    sizes=FEW,
)
FAR_SPREADS = FAR_MEANS._replace(
    name="spreads far from zero", run=_spreads, exact=_spreads_exact, learns=False
)

# --- great logits --------------------------------------------------------------------------------

GREAT = (100.0, -100.0, 10000.0, -10000.0)


def _great(d: Draw) -> Given:
    """Each line along the last dimension and each plane has its own height, near or great."""
    a, b, c = d.choice((2, 3)), d.choice((3, 5, 17)), d.choice((4, 8, 33))
    heights = d.torch.tensor((0.0, *GREAT), dtype=d.torch.float64)
    x = d.normal(a, b, c) * 3
    place = d.choice(("plane", "line", "column", "all"))
    shape = {"plane": (a, 1, 1), "line": (a, b, 1), "column": (a, 1, c), "all": (1, 1, 1)}[place]
    x = x + heights[d.whole(0, len(heights), *shape)]
    return given(x, d.whole(0, b, a, c), scale=d.choice((1.0, 30.0)))


def _soft(t: Any, x: Any, labels: Any, scale: float) -> Any:
    call = t.nn.functional
    found: List[Any] = []
    for dim in range(3):
        found += [x.softmax(dim), x.log_softmax(dim), x.logsumexp(dim), call.softmin(x, dim)]
    found += [call.cross_entropy(x, labels), call.cross_entropy(x, labels, reduction="none")]
    found += [x.sigmoid(), call.logsigmoid(x), call.softplus(x), call.silu(x), x.tanh()]
    found += [call.binary_cross_entropy_with_logits(x, t.ones_like(x), reduction="none")]
    return found


def _soft_exact(t: Any, x: Any, labels: Any, scale: float) -> Any:
    found: List[Any] = []
    for dim in range(3):
        logs = by.log_softmax(t, x, dim)
        most = by.greatest(t, x, dim)
        away = (x - most.unsqueeze(dim)).exp()
        top = most + by.added(t, away, dim).log()
        found += [by.softmax(t, x, dim), logs, top, by.softmax(t, -x, dim)]
    logs = by.log_softmax(t, x, 1)
    known = labels.unsqueeze(1) == t.arange(x.shape[1]).reshape(1, -1, 1)
    each = -by.added(t, t.where(known, logs, 0 * x.detach()), 1)
    up, down = by.softplus(t, x), by.softplus(t, -x)
    share = (-down).exp()
    return [
        *(*found, by.mean(t, each.reshape(-1), 0), each),
        *(share, -down, up, x * share, 2 * (-by.softplus(t, -2 * x)).exp() - 1, down),
    ]


LOGITS = Operator(
    "softmax of great logits",
    _great,
    _soft,
    _soft_exact,
    dtypes=("float32", "float64"),
    learns=False,
    slack=4,
    sizes=FEW,
    weight=3,
)


def _scores(d: Draw) -> Given:
    n, queries, width = d.choice((1, 2)), d.choice((5, 33, 65)), d.choice((8, 64))
    size = d.choice((10.0, 40.0)) * sqrt(sqrt(width))
    q, k = (d.normal(n, 2, queries, width) * size / sqrt(width) for _ in "qk")
    return given(q, k, d.normal(n, 2, queries, width))


GREAT_SCORES = Operator(
    "attention of great scores",
    _scores,
    lambda t, q, k, v: (
        t.nn.functional.scaled_dot_product_attention(q, k, v),
        t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    lambda t, q, k, v: (
        by.attention(t, q, k, v, None, None),
        by.attention(t, q, k, v, t.ones(q.shape[2], q.shape[2]).tril() > 0, None),
    ),
    dtypes=FULL,
    learns=False,
    slack=8,
    arithmetic="product",
    sizes=FEW,
)

# --- places from 32768 and from 65536 on ---------------------------------------------------------

LONG = (33011, 65551, 70001)
SOME = 600


def _far_places(d: Draw) -> Given:
    """A table whose row w holds the two parts of w, places on both sides of 2^15 and 2^16."""
    count = d.choice(LONG)
    ends = [n + i for n in (2**15, 2**16, count) for i in (-2, -1, 0, 1) if n + i < count]
    places = d.torch.cat([d.whole(0, count, SOME - len(ends)), d.torch.tensor(ends)])
    w = d.torch.arange(count)
    table = d.torch.stack([w % 256, w // 256], 1).double()
    return given(table, places[d.order(SOME)], count=count)


def _looked_up(t: Any, x: Any, i: Any, count: int) -> Any:
    call, line = t.nn.functional, x[:, 1]
    pairs, ones = i.unsqueeze(1).expand(SOME, 2), t.ones_like(x)
    top = t.zeros_like(line).index_fill(0, i[:1], 9.0)
    order = t.arange(count, device=i.device).roll(-7)
    seen = t.zeros_like(line).scatter(0, i, 1.0)
    return (
        *(call.embedding(i, x), x.index_select(0, i), x[i], x.gather(0, pairs)),
        *(x.take(2 * i + 1), t.take_along_dim(x, pairs, 0), line.index_select(0, i)),
        call.embedding_bag(i.reshape(-1, 1), x, mode="sum"),
        *(t.zeros_like(x).scatter(0, pairs, 3.0)[i], t.zeros_like(x).index_fill(0, i, 5.0)),
        t.zeros_like(x).index_add(0, i, ones[:SOME]),
        t.zeros_like(x).scatter_add(0, pairs, ones[:SOME]),
        t.zeros_like(line).index_put((i,), line.new_ones(()), accumulate=True),
        t.zeros_like(line).put(i, line.new_full((SOME,), 2.0)),
        *(top.argmax(), top.max(0)[1], (-top).argmin(), top.topk(1)[1], top.nonzero()),
        *(order.sort()[1], order.argsort(descending=True), t.searchsorted(order.sort()[0], i)),
        *(t.bincount(i, minlength=count), seen.nonzero().flatten(), seen.bool().sum()),
        *(t.unique(i, return_inverse=True)[1], seen.cumsum(0), t.arange(count)),
        *(t.ones_like(order).cumsum(0), order.cummax(0)[1], seen.bool().count_nonzero()),
        t.arange(count, device=i.device).repeat_interleave(2)[2 * i],
        t.bucketize(i, order.sort()[0], right=True),
    )


def _looked_up_exact(t: Any, x: Any, i: Any, count: int) -> Any:
    rows = t.stack([i % 256, i // 256], 1).double()
    often = [0.0] * count
    for place in i.tolist():
        often[place] += 1.0
    counts = t.tensor(often, dtype=t.float64)
    seen = (counts > 0).double()
    both = counts.unsqueeze(1).expand(count, 2)
    where = t.tensor([n for n, times in enumerate(often) if times])
    first, line = i[0], t.arange(count)
    ranks = {place: rank for rank, place in enumerate(where.tolist())}
    inverse = t.tensor([ranks[place] for place in i.tolist()])
    sums = by.running(t, seen, 0, lambda a, b: a + b)
    turned, most = line.roll(7), (line + 7 >= count).long()
    return (
        *(rows, rows, rows, rows),
        *(rows[:, 1], rows, rows[:, 1]),
        rows,
        *(3 + 0 * rows, 5 * (both > 0).double()),
        *(both, both, counts, 2 * seen),
        *(first, first, first, first.reshape(1), first.reshape(1, 1)),
        *(turned, turned.flip(0), i),
        *(counts.long(), where, t.tensor(len(where))),
        *(inverse, sums, line),
        *(line + 1, t.where(most > 0, 0 * line + count - 8, line), t.tensor(len(where))),
        i,
        i + 1,
    )


FAR_PLACES = moving(
    "places from 32768 on",
    _far_places,
    _looked_up,
    _looked_up_exact,
    dtypes=("float32", "float16"),
    learns=False,
    sizes=FEW,
)


def _many_classes(d: Draw) -> Given:
    """More classes than a short index tells; labels on both sides of its end."""
    count = d.choice((33011, 40009))
    labels = d.torch.tensor([count - 1, 32767, 32768, 5])
    return given(d.normal(4, count), labels[d.order(4)])


FAR_CLASSES = Operator(
    "cross_entropy from 32768 classes on",
    _many_classes,
    lambda t, x, i: (
        t.nn.functional.cross_entropy(x, i, reduction="none"),
        t.nn.functional.nll_loss(x, i, reduction="none"),
    ),
    lambda t, x, i: (
        -by.log_softmax(t, x, 1).gather(1, i.unsqueeze(1)).squeeze(1),
        -x.gather(1, i.unsqueeze(1)).squeeze(1),
    ),
    dtypes=("float32",),
    slack=4,
    serial=True,
    sizes=FEW,
)
