"""Places that repeat: long runs of one place, and places without memory for each (stride 0)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .drawing import Draw, Given, given
from .pairs import by_calls
from .releases import release
from .table import FEW, Operator

OFTEN = 0.01
"""One sample has every call: `standard` has no need of a second one."""

# --- long runs -----------------------------------------------------------------------------------

RUNS = (9, 10, 16, 17, 31, 33, 64, 65, 128, 129, 257, 300)
ROWS = 5


def _runs(d: Draw, kind: str) -> Tuple[List[Any], Dict[str, Any]]:
    """Sorted places, each many times in a row, one of them never; or one place alone; or any."""
    width = d.choice((1, 3, 4))
    places = sorted(d.chance.sample(range(ROWS), 3)) if kind != "equal" else [d.choice(range(ROWS))]
    lengths = [d.choice(RUNS) for _ in places]
    line = [place for place, count in zip(places, lengths) for _ in range(count)]
    if kind == "mixed":
        d.chance.shuffle(line)
    i = d.torch.tensor(line)
    s = d.whole(1, 9, len(i), width).double()
    return [d.whole(1, 9, ROWS, width).double(), i, s], {}


def _added(t: Any, x: Any, i: Any, s: Any) -> List[Any]:
    """Sums of whole numbers, then means; then lookups, whose gradients add up."""
    call, wide = t.nn.functional, i.unsqueeze(1).expand_as(s)
    flat = wide * x.shape[1] + t.arange(x.shape[1], device=x.device)
    zero, ones = t.zeros_like(i), t.ones_like(i)
    sums = [
        x.index_add(0, i, s),
        x.scatter_add(0, wide, s),
        x.detach().scatter(0, wide, s.detach(), reduce="add"),
    ]
    sums += [x.index_put((i,), s, accumulate=True), x.contiguous().put(flat, s, accumulate=True)]
    sums += [x.index_put((i, zero), s[:, 0], accumulate=True)[:, :1] + 0 * x]
    sums += [x.t().index_add(1, i, s.t()).t(), x.scatter_reduce(0, wide, s, "sum")]
    sums += [x.t().index_put((t.zeros_like(i), i), s[:, 0], accumulate=True)[0]]
    means = [x.scatter_reduce(0, wide, s, "mean"), _greatest(x, wide, s)]
    means += [t.bincount(i, s[:, 0].detach(), ROWS), t.bincount(i, minlength=ROWS)]
    means += [t.histc(i.to(x.dtype), ROWS, -0.5, ROWS - 0.5)]
    bags = t.stack([zero[0], ones[0]])
    looked = [x[i], x.index_select(0, i), x.gather(0, wide), t.take(x, flat), call.embedding(i, x)]
    looked += [x[i, zero], x.t()[:, i], t.take_along_dim(x, wide, 0)]
    looked += [call.embedding_bag(i, x, bags, mode=mode) for mode in ("sum", "mean")]
    return [*sums, *means, *looked]


def _greatest(x: Any, wide: Any, s: Any) -> Any:
    """Without gradients: of equal ones each has its share, which the exact answer gives to few."""
    return x.detach().scatter_reduce(0, wide, s.detach(), "amax")


def _added_exact(t: Any, x: Any, i: Any, s: Any) -> List[Any]:
    hot = (i.unsqueeze(0) == t.arange(ROWS).unsqueeze(1)).to(x.dtype)
    sums, counts = x + hot @ s, hot.sum(1)
    first = sums[:, 0]
    most = t.stack([t.where(hot[row].unsqueeze(1) > 0, s, 0 * s).amax(0) for row in range(ROWS)])
    lines = hot.t() @ x
    ends = [1.0, float(len(i) - 1)]
    bags = t.stack([lines[0], lines[1:].sum(0)])
    shares = t.tensor(ends, dtype=x.dtype).unsqueeze(1)
    return [
        *(sums, sums, sums.detach(), sums, sums),
        *(first.unsqueeze(1) + 0 * x, sums, sums, first),
        *(sums / (1 + counts).unsqueeze(1), t.maximum(x, most).detach()),
        *(first.detach() - x[:, 0].detach(), counts, counts),
        *([lines] * 5),
        *(lines[:, 0], lines.t(), lines, bags, bags / shares),
    ]


LONG_RUNS = by_calls(
    "long runs of one place",
    lambda d: [{"kind": kind} for kind in ("sorted", "equal", "mixed")],
    _runs,
    _added,
    _added_exact,
    dtypes=("float32",),
    slack=2.0,
    weight=OFTEN,
    steady=False,
)


def _segments(d: Draw) -> Given:
    lengths = [d.choice((*RUNS, 0, 1)) for _ in range(4)]
    return given(d.whole(1, 9, sum(lengths), d.choice((1, 3))).double(), d.torch.tensor(lengths))


def _by_segments(t: Any, x: Any, lengths: Any) -> List[Any]:
    if release(t) < (2, 5):
        raise NotImplementedError("1.13 takes other formats of lengths")
    return [
        t.segment_reduce(x, kind, lengths=lengths, initial=0) for kind in ("sum", "mean", "max")
    ]


def _by_segments_exact(t: Any, x: Any, lengths: Any) -> List[Any]:
    parts = x.split(lengths.tolist())
    sums = t.stack([part.sum(0) for part in parts])
    most = [part.amax(0) if len(part) else 0 * x.sum(0) for part in parts]
    return [sums, sums / lengths.clamp(min=1).unsqueeze(1), t.stack(most)]


LONG_SEGMENTS = Operator(
    "long segments",
    _segments,
    _by_segments,
    _by_segments_exact,
    dtypes=("float32",),
    learns=False,
    slack=2,
    weight=OFTEN,
    sizes=FEW,
    steady=False,
)

# --- places without strides ----------------------------------------------------------------------

WIDTHS = (65, 70, 97, 129, 130, 257)


def _few_places(d: Draw) -> Given:
    """Lines, other numbers for some of them, which those are, and a place for each column."""
    rows, some, width = d.choice((7, 9, 12)), d.choice((2, 5)), d.choice(WIDTHS)
    at = d.order(rows)[:some]
    edges = d.normal(width).sort()[0]
    x, y = d.normal(rows, width), d.normal(some, width)
    return given(x, y, edges, at, d.whole(0, rows, width), d.whole(0, width, some))


def _placed(own: bool) -> Callable[..., Any]:
    """The calls; `own` memory for each place, or none."""

    def spread(i: Any, *shape: int) -> Any:
        found = i.expand(shape)
        return found.contiguous() if own else found

    def run(t: Any, x: Any, y: Any, edges: Any, i: Any, j: Any, k: Any) -> List[Any]:
        call, (some, width) = t.nn.functional, y.shape
        wide, deep = spread(i.unsqueeze(1), some, width), spread(j, some, width)
        one, across = spread(i[:1], width), spread(k.unsqueeze(1), some, width)
        lines, three = spread(edges, some, width), x.unsqueeze(1)
        found = [x.gather(0, wide), x.gather(0, deep), x.t().gather(1, wide.t())]
        found += [y.gather(1, across), t.take_along_dim(x, wide, 0), t.take(x, across)]
        found += [three.gather(0, wide.unsqueeze(1)), x.index_select(0, one), x[one], x[wide, deep]]
        found += [x.scatter(0, wide, y), x.scatter_add(0, wide, y), x.scatter(0, deep, 3.0)]
        found += [x.scatter_add(0, deep, y), y.scatter_add(1, across, y), x.index_put((wide, j), y)]
        found += [x.scatter_reduce(0, wide, y, "sum"), x.scatter_reduce(0, wide, y, "amax")]
        found += [x.index_put((wide, deep), y, accumulate=True), x.index_put((one,), y[0])]
        found += [x.index_add(1, one[:some], y.new_ones(()) * x[:, :some]), t.bincount(one)]
        found += [call.embedding(wide, x[:, :3]), call.embedding(deep, x[:, :3]), x[:, :5][one]]
        found += [call.one_hot(wide, len(x)), call.one_hot(deep, len(x))]
        logits = x.t().log_softmax(1)
        planes = logits.t().unsqueeze(0).expand(some, len(x), width)
        found += [call.cross_entropy(x.t(), one), call.nll_loss(logits, one, reduction="none")]
        found += [call.cross_entropy(planes, wide), call.nll_loss(planes, deep, reduction="none")]
        values = spread(y[:, :1].detach(), some, width)
        plain = edges.detach().contiguous()
        found += [t.searchsorted(lines.detach(), y.detach()), t.bucketize(values, plain)]
        found += [t.searchsorted(plain, values, right=True), t.searchsorted(plain, values)]
        shown, low = spread((i > 2).unsqueeze(1), some, width), spread(j > 2, some, width)
        found += [y.masked_fill(shown, 2.0), y.masked_fill(low, 2.0), y[shown], t.where(low, y, -y)]
        return found

    return run


UNSTRIDED = Operator(
    "places without strides",
    _few_places,
    _placed(False),
    _placed(True),
    dtypes=("float32",),
    slack=2,
    weight=OFTEN,
    sizes=FEW,
    steady=False,
)
REPEATED: Tuple[Operator, ...] = (LONG_RUNS, LONG_SEGMENTS, UNSTRIDED)
