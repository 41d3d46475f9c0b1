"""Sorting, choosing, searching and finding what is alike, with each of their options alone."""

from __future__ import annotations

from typing import Any, List, Tuple

from .drawing import Draw
from .releases import LINES_IN_ORDER, ORDER_AS_IT_COMES, release
from .single_options import Made, by_single_options
from .table import Operator

SHAPES = {
    "plain": (3, 11, 2),
    "a line": (17,),
    "one": (1, 1),
    "long": (2, 120),
    "of ones": (4, 1, 3),
    "tiles": (33, 5),
    "four": (2, 3, 5, 2),
}
BIG = ("float32", "int64", "int32", "float64", "int16")
EVERY = (*BIG, "bfloat16", "float16")


def _unlike(d: Draw, shape: str, **of: Any) -> Made:
    """Numbers on both sides of 0 of which no two are alike."""
    x = d.apart(*SHAPES[shape])
    dim = {"first": 0, "last": -1, "inner": 1, "from the end": -2}[of.pop("dim")]
    dim = max(min(dim, x.dim() - 1), -x.dim())
    return Made([x], {"dim": dim, **of})


def _seen(x: Any, held: str) -> Any:
    """Other numbers in the same order; `expanded` has a new last axis of stride 0."""
    if held == "expanded":
        return x.unsqueeze(-1).expand(*x.shape, 2)
    if held == "all negative":
        return x - x.amax() - 1
    if held == "other way":
        return -x
    return x


def _lines(x: Any, dim: int, held: str) -> Tuple[Any, int]:
    """The axis keeps its place where a new last one is added."""
    return _seen(x, held), dim % x.dim() if held == "expanded" else dim


def _sorted(
    t: Any, x: Any, dim: int, held: str, stable: Any, descending: bool, keepdim: bool, whole: bool
) -> List[Any]:
    x, dim = _lines(x, dim, held)
    stable = stable if release(t) >= ORDER_AS_IT_COMES else bool(stable)
    n = x.shape[dim]
    k = max(1, n // 3)
    found = [*t.sort(x, stable=stable, dim=dim, descending=descending)]
    found += [*t.sort(x, dim, descending), t.argsort(x, dim, descending)]
    found += [t.argsort(x, stable=bool(stable), dim=dim, descending=descending), t.msort(x)]
    found += [*x.topk(k, dim, descending, True), *x.kthvalue(k, dim, keepdim)]
    some = x.topk(k, dim, not descending, False)
    found += [some[0].sort(dim)[0], some[1].sort(dim)[0]]
    found += [*x.median(dim, keepdim), x.median()]
    if whole:
        found += [x.amax(dim, keepdim), *x.max(dim, keepdim), *x.min(dim, keepdim)]
        found += [x.argmax(dim, keepdim), x.argmin(dim, keepdim), x.argmax(), x.argmin()]
        found += [*x.mode(dim, keepdim)[:1]]
    return found


def _sorted_exact(
    t: Any, x: Any, dim: int, held: str, stable: Any, descending: bool, keepdim: bool, whole: bool
) -> List[Any]:
    x, dim = _lines(x, dim, held)
    n = x.shape[dim]
    k = max(1, n // 3)
    up, places = _ranked(t, x, dim)
    ups, downs = (up, places), (up.flip(dim), places.flip(dim))
    way, other = (downs, ups) if descending else (ups, downs)
    found = [*way, *way, way[1], way[1], _ranked(t, x, 0)[0]]

    def at(each: Any, rank: int) -> Any:
        one = each.select(dim, rank)
        return one.unsqueeze(dim) if keepdim else one

    found += [each.narrow(dim, 0, k) for each in way]
    found += [at(each, k - 1) for each in ups]
    some = [each.narrow(dim, 0, k) for each in other]
    found += [some[0].flip(dim) if not descending else some[0], _ranked(t, some[1], dim)[0]]
    line = _ranked(t, x.reshape(-1), 0)[0]
    found += [*(at(each, (n - 1) // 2) for each in ups), line[(len(line) - 1) // 2]]
    if whole:
        found += [at(up, n - 1), *(at(each, n - 1) for each in ups), *(at(each, 0) for each in ups)]
        found += [at(places, n - 1), at(places, 0)]
        flat = x.reshape(-1)
        found += [(flat == line[-1]).nonzero()[0, 0], (flat == line[0]).nonzero()[0, 0]]
        found += [at(up, 0)]
    return found


def _ranked(t: Any, x: Any, dim: int) -> Tuple[Any, Any]:
    """A line in order and where its numbers stood, by counting the lesser ones before each."""
    y = x.movedim(dim, -1)
    less = y.unsqueeze(-2) < y.unsqueeze(-1)
    before = (y.unsqueeze(-2) == y.unsqueeze(-1)).tril(-1)
    rank = (less | before).long().sum(-1)
    hits = rank.unsqueeze(-1) == t.arange(y.shape[-1])
    places = (hits * t.arange(y.shape[-1]).unsqueeze(-1)).sum(-2)
    values = (hits.to(y.dtype) * y.unsqueeze(-1)).sum(-2)
    return values.movedim(-1, dim), places.movedim(-1, dim)


SORTED = by_single_options(
    "orders",
    {
        "shape": tuple(SHAPES),
        "dim": ("last", "first", "inner", "from the end"),
        "held": ("own", "expanded", "all negative", "other way"),
        "stable": (False, True, None),
        "descending": (False, True),
        "keepdim": (False, True),
        "whole": (True, False),
    },
    _unlike,
    _sorted,
    _sorted_exact,
    kept=True,
    learns=False,
    dtypes=EVERY,
)

# --- what comes again ----------------------------------------------------------------------------


def _again(d: Draw, shape: str, few: bool, **of: Any) -> Made:
    x = d.whole(-2 if few else -40, 3 if few else 40, *SHAPES[shape])
    return Made([x.double(), d.whole(-3, 4, 5).double(), d.normal(1)], of)


def _alike(
    t: Any,
    x: Any,
    y: Any,
    like: Any,
    dim: int,
    inverse: bool,
    counts: bool,
    ordered: bool,
    once: bool,
    invert: bool,
) -> List[Any]:
    dim = max(min(dim, x.dim() - 1), -x.dim())
    two = {"return_inverse": inverse, "return_counts": counts}
    found = [
        *_list(t.unique_consecutive(x, **two)),
        *_list(t.unique_consecutive(x, dim=dim, **two)),
    ]
    found += _list(t.unique(x, dim=dim, **two))
    if ordered:
        found += _list(t.unique(x, **two))
    else:
        loose = _list(t.unique(x, sorted=False, **two))
        found += [loose[0].sort()[0], *([loose[0][loose[1]]] if inverse else [])]
    tests = t.unique(y) if once else y
    found += [t.isin(t.unique(x) if once else x, tests, assume_unique=once, invert=invert)]
    found += [t.isin(x, 1, invert=invert), t.isin(1, y, invert=invert)]
    modes = x.mode(dim, keepdim=counts)[0]
    return [*found, modes]


def _list(found: Any) -> List[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _alike_exact(
    t: Any,
    x: Any,
    y: Any,
    like: Any,
    dim: int,
    inverse: bool,
    counts: bool,
    ordered: bool,
    once: bool,
    invert: bool,
) -> List[Any]:
    dim = max(min(dim, x.dim() - 1), -x.dim())

    def told(found: Any, shape: Any) -> List[Any]:
        kept, back, times = found
        back = t.tensor(back, dtype=t.int64).reshape(shape)
        return [kept, *([back] if inverse else []), *([t.tensor(times)] if counts else [])]

    turn = t.movedim if release(t) >= LINES_IN_ORDER else t.transpose
    flat, whole = x.reshape(-1), turn(x, dim, 0)
    rows = [tuple(row.reshape(-1).tolist()) for row in whole]

    def of_rows(found: Any) -> Any:
        first, back, times = found
        return turn(whole[t.tensor(first)], 0, dim), back, times

    line = [(value,) for value in flat.tolist()]
    first, back, times = _runs(line)
    found = told((flat[t.tensor(first)], back, times), x.shape)
    found += told(of_rows(_runs(rows)), (len(rows),)) + told(of_rows(_uniques(rows)), (len(rows),))
    first, back, times = _uniques(line)
    found += told((flat[t.tensor(first)], back, times), x.shape)[: None if ordered else 1 + inverse]
    if not ordered and inverse:
        found[-1] = 1 * x
    those = flat[t.tensor(first)] if once else x
    known = set(y.tolist())
    held = t.tensor([each in known for each in those.reshape(-1).tolist()]).reshape(those.shape)
    found += [held ^ invert, (x == 1) ^ invert, t.tensor((1 in known) ^ invert)]
    lines = x.movedim(dim, -1).reshape(-1, x.shape[dim])
    modes = t.tensor(
        [_mode(each) for each in lines.tolist()],
        dtype=x.dtype,
    ).reshape(x.movedim(dim, -1).shape[:-1])
    return [*found, modes.unsqueeze(dim) if counts else modes]


def _mode(line: List[Any]) -> Any:
    """What comes most often; the least of those.

    >>> _mode([2, 3, 3, 2, 1])
    2
    """
    return min(line, key=lambda value: (-line.count(value), value))


def _runs(rows: List[Any]) -> Tuple[List[int], List[int], List[int]]:
    """Where each run begins, in which run each is, how long the runs are.

    >>> _runs(["a", "a", "b", "a"])
    ([0, 2, 3], [0, 0, 1, 2], [2, 1, 1])
    """
    first: List[int] = []
    back: List[int] = []
    for i, row in enumerate(rows):
        if i == 0 or row != rows[i - 1]:
            first.append(i)
        back.append(len(first) - 1)
    return first, back, [back.count(k) for k in range(len(first))]


def _uniques(rows: List[Any]) -> Tuple[List[int], List[int], List[int]]:
    """The same of all that are alike, in order.

    >>> _uniques(["b", "a", "b"])
    ([1, 0], [1, 0, 1], [1, 2])
    """
    words = sorted(set(rows))
    return [rows.index(w) for w in words], [*map(words.index, rows)], [*map(rows.count, words)]


ALIKE = by_single_options(
    "what is alike",
    {
        "shape": ("plain", "a line", "one", "of ones", "tiles"),
        "few": (True, False),
        "dim": (-1, 0, 1, -2),
        "inverse": (True, False),
        "counts": (True, False),
        "ordered": (True, False),
        "once": (False, True),
        "invert": (False, True),
    },
    _again,
    _alike,
    _alike_exact,
    kept=True,
    learns=False,
    dtypes=("float32", "int64", "int32", "float64", "int16"),
)

# --- searching -----------------------------------------------------------------------------------


def _bounded(d: Draw, bounds: int, values: str, **of: Any) -> Made:
    """Bounds on both sides of 0 that come again, values among, on and beyond them."""
    lines = d.whole(-9, 10, 3, bounds).double().sort(-1)[0]
    order = d.torch.stack([d.order(bounds) for _ in range(3)])
    count = {"none": 0, "one": 1, "long": 70}.get(values, 5)
    return Made([lines, d.whole(-12, 13, 3, count).double(), order], of)


def _searched(
    t: Any, x: Any, v: Any, order: Any, right: bool, side: Any, small: bool, mixed: bool, held: str
) -> List[Any]:
    v = v[:, :1].expand_as(v) if held == "expanded" else v
    many = {"out_int32": small, **({"side": side} if side else {"right": right})}
    loose, how = x, {}
    if mixed:
        loose = t.zeros_like(x).scatter(1, order, x)
        how = {"sorter": order}
    found = [t.searchsorted(loose, v, **many, **how), t.searchsorted(x[0].contiguous(), v, **many)]
    found += [t.bucketize(v, x[0].contiguous(), out_int32=small, right=right)]
    found += [t.searchsorted(x[0].contiguous(), 3, **many), t.bucketize(3, x[0].contiguous())]
    return [*found, t.tensor([each.dtype == (t.int32 if small else t.int64) for each in found[:4]])]


def _searched_exact(
    t: Any, x: Any, v: Any, order: Any, right: bool, side: Any, small: bool, mixed: bool, held: str
) -> List[Any]:
    v = v[:, :1].expand_as(v) if held == "expanded" else v
    upper = side == "right" if side else right

    def among(lines: Any, values: Any, high: bool) -> Any:
        one, other = lines.unsqueeze(-2), values.unsqueeze(-1)
        return (one <= other if high else one < other).long().sum(-1)

    three = t.tensor([3.0], dtype=x.dtype)
    found = [among(x, v, upper), among(x[0], v, upper), among(x[0], v, right)]
    found += [among(x[0], three, upper)[0], among(x[0], three, False)[0]]
    return [*found, t.ones(4, dtype=t.bool)]


SEARCHED = by_single_options(
    "searching",
    {
        "bounds": (7, 1, 33, 0),
        "values": ("some", "one", "none", "long"),
        "right": (False, True),
        "side": (None, "left", "right"),
        "small": (False, True),
        "mixed": (False, True),
        "held": ("own", "expanded"),
    },
    _bounded,
    _searched,
    _searched_exact,
    kept=True,
    learns=False,
    dtypes=("float32", "float64", "int64", "int32", "float16", "bfloat16"),
)

SINGLE_ORDERS: Tuple[Operator, ...] = (SORTED, ALIKE, SEARCHED)
