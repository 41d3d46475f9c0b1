"""Sparse matrices with each option alone: empty rows and matrices, places that come twice, dense
axes, sums over any axes, factors of what is added."""

from __future__ import annotations

from typing import Any, List, Tuple

from . import definitions as by
from .drawing import Draw
from .releases import AXES_FROM_THE_END, release
from .single_options import Made, by_single_options
from .table import FULL, Operator

SIDES = {
    "plain": (6, 8, 3),
    "one row": (1, 9, 2),
    "one column": (7, 1, 4),
    "a line": (5, 6, 1),
    "tiles": (33, 65, 17),
    "no rows": (0, 4, 3),
    "no columns": (4, 0, 3),
    "nothing": (3, 4, 0),
}


def _emptied(d: Draw, sides: str, filled: str, **of: Any) -> Made:
    """Some rows and columns hold nothing: the first, the last, some beside each other, or all."""
    n, m, k = SIDES[sides]
    held = d.flags(n, m) | d.flags(n, m)
    if filled in ("first and last empty", "some rows empty"):
        rows = [0, n - 1] if filled == "first and last empty" else [1, 2, 3, n // 2]
        held[[row for row in rows if 0 <= row < n]] = False
    if filled == "columns empty":
        held[:, ::2] = False
    if filled == "none":
        held &= False
    if filled == "all":
        held |= True
    x = d.normal(n, m) + d.choice((2.0, -2.0))
    shape = {"a line": (k,), "a row": (1, k), "one": (1, 1)}.get(of["bias"], (n, k))
    added = d.normal(*shape)
    if of["beta"] == 0 and held.any():  # where nothing is held, torch keeps what is no number
        added = added * float("nan")
    of["wide"] = of.pop("bias") != "all"
    return Made([x * held, d.normal(m, k), added, d.normal(m)], of)


def _laid(t: Any, x: Any, form: str) -> Any:
    if form == "twice":
        half = (x / 2).to_sparse()
        places = t.cat([half.indices(), half.indices()], 1)
        return t.sparse_coo_tensor(places, t.cat([half.values(), half.values()]), x.shape)
    return x.to_sparse_csr() if form == "rows" else x.to_sparse()


def _by_full(
    t: Any, x: Any, y: Any, c: Any, v: Any, form: str, wide: bool, beta: float, alpha: float
) -> List[Any]:
    a = _laid(t, x.contiguous(), form)
    full = c.expand(x.shape[0], y.shape[1]) if wide else c
    found = [t.mm(a, y), a @ y, t.addmm(full, a, y, beta=beta, alpha=alpha), a @ v]
    if form != "rows":
        found += [t.sparse.mm(a, y), t.sparse.addmm(full, a, y, beta=beta, alpha=alpha)]
    return found


def _by_full_exact(
    t: Any, x: Any, y: Any, c: Any, v: Any, form: str, wide: bool, beta: float, alpha: float
) -> List[Any]:
    both = x @ y
    total = alpha * both + (beta * c if beta else 0.0)
    return [both, both, total, (x * v).sum(1), *([both, total] if form != "rows" else [])]


FULLS = by_single_options(
    "sparse by full",
    {
        "sides": tuple(SIDES),
        "filled": (*("some rows empty", "first and last empty", "columns empty", "none", "all"),),
        "form": ("rows", "places", "twice"),
        "bias": ("all", "a line", "a row", "one"),
        "beta": (1, 0, 2, -0.5),
        "alpha": (1, 2, -0.5),
    },
    _emptied,
    _by_full,
    _by_full_exact,
    arithmetic="product",
    slack=4,
    dtypes=FULL,
    learns=False,
    steady=False,
)

# --- sums and softmax over any axes --------------------------------------------------------------


def _places(d: Draw, dense: int, twice: bool, shape: Any, **of: Any) -> Made:
    """Numbers at places of which some may come twice."""
    sparse = shape[: len(shape) - dense]
    count = d.choice((1, 7, 20)) if all(sparse) and of.pop("filled") else 0
    of.pop("filled", None)
    places = [d.whole(0, max(n, 1), count) for n in sparse]
    if count and not twice:
        flat = d.order(_product(sparse))[:count]
        places, count = [], len(flat)
        for n in reversed(sparse):
            places.insert(0, flat % n)
            flat = flat // n
    numbers = d.normal(count, *shape[len(shape) - dense :]) * 2
    return Made([d.torch.stack(places), numbers], {"shape": shape, "dense": dense, **of})


def _product(shape: Any) -> int:
    found = 1
    for n in shape:
        found *= n
    return found


def _over(
    t: Any, i: Any, x: Any, shape: Any, dense: int, dim: Any, line: int, masked: Any
) -> List[Any]:
    # A line by itself counts as contiguous whatever its stride, and torch would read that far.
    a = t.sparse_coo_tensor(i, x.clone(memory_format=t.contiguous_format), shape)
    found = [a.to_dense() if masked is None else a.to_dense(masked_grad=masked)]
    found += [a.coalesce().to_dense(), t.sparse.sum(a)]
    total = t.sparse.sum(a, dim)
    found += [total.to_dense() if total.is_sparse else total]
    if dense:
        return [*found, (a * 2).to_dense(), a.neg().to_dense()]
    line = line if release(t) >= AXES_FROM_THE_END else line % len(shape)
    for call in (t.sparse.softmax, t.sparse.log_softmax):
        found += [call(a.coalesce(), line).to_dense()]
    return found


def _over_exact(
    t: Any, i: Any, x: Any, shape: Any, dense: int, dim: Any, line: int, masked: Any
) -> List[Any]:
    rest, sparse = shape[len(shape) - dense :], shape[: len(shape) - dense]
    flat = t.zeros(i.shape[1], dtype=t.int64)
    for n, at in zip(sparse, i):
        flat = flat * n + at
    lines = t.zeros(_product(sparse), *rest, dtype=x.dtype)
    full = lines.index_add(0, flat, x).reshape(shape)
    held = t.zeros(_product(sparse), dtype=t.bool).index_fill(0, flat, True).reshape(sparse)
    found = [full, full, full.sum(), full.sum(dim)]
    if dense:
        return [*found, 2 * full, -full]
    hidden = t.where(held, full, t.full_like(full, -by.INFINITE))
    top = hidden.amax(line, keepdim=True).clamp(min=-1e300)
    raised = t.where(held, (full - top).exp(), 0 * full)
    total = raised.sum(line, keepdim=True)
    total = t.where(total > 0, total, 1 + total)
    return [*found, raised / total, t.where(held, full - top - total.log(), 0 * full)]


OVER = by_single_options(
    "sparse sums and softmax",
    {
        "shape": ((5, 6, 4), (1, 7, 3), (4, 1, 1), (17, 9, 2)),
        "filled": (True, False),
        "dense": (0, 1, 2),
        "twice": (False, True),
        "dim": ((0,), (1, 2), (0, 2), (-1,), (-3, -1), (0, 1, 2), (2, 0)),
        "line": (1, 0, 2, -1, -2, -3),
        "masked": (None, True, False),
    },
    _places,
    _over,
    _over_exact,
    slack=16,
    dtypes=FULL,
    learns=False,
    steady=False,
)

# --- every form and back -------------------------------------------------------------------------

BLOCKS = ((2, 3), (1, 1), (3, 2), (4, 6), (2, 1))


def _box(d: Draw, shape: Any, filled: str, **of: Any) -> Made:
    x = d.whole(1, 99, *shape, 2).double() * d.choice((1, -1))
    held = d.flags(*shape) & d.flags(*shape)
    if filled == "none":
        held &= False
    if filled == "rows empty":
        held[..., 1:3, :] = False
    if filled == "columns empty":
        held[..., :, 1:3] = False
    return Made([x * held.unsqueeze(-1)], of)


def _forms(t: Any, x: Any, dense: int, block: Any, sparse: int) -> List[Any]:
    matrix = x[..., 0].contiguous()
    one = matrix.reshape(-1, *matrix.shape[-2:])[0]
    made = [one.to_sparse_csc(), one.to_sparse_csr(), one.to_sparse_bsr(block)]
    made += [one.to_sparse_bsc(block), one.to_sparse(layout=t.sparse_bsr, blocksize=block)]
    made += [one.to_sparse(layout=t.sparse_csc), one.to_sparse(min(sparse, 2))]
    made += [matrix.to_sparse(sparse), one.to_sparse_bsr(block).to_sparse()]
    made += [one.to_sparse_csr().to_sparse_csc(), one.to_sparse_csc().to_sparse()]
    made += [one.to_sparse().t().coalesce(), one.to_sparse().transpose(-1, -2)]
    if dense:
        lines = x.reshape(-1, *x.shape[-3:])[0].contiguous()
        made += [lines.to_sparse_csr(dense), lines.to_sparse_csc(dense)]
        made += [lines.to_sparse_bsr(block, dense), lines.to_sparse_bsc(block, dense)]
        made += [lines.to_sparse(layout=t.sparse_csr, dense_dim=dense)]
    return [each.to_dense() for each in made]


def _forms_exact(t: Any, x: Any, dense: int, block: Any, sparse: int) -> List[Any]:
    matrix = x[..., 0]
    one = matrix.reshape(-1, *matrix.shape[-2:])[0]
    found = [1 * one] * 7 + [1 * matrix, *[1 * one] * 3, one.t() * 1, one.t() * 1]
    if dense:
        found += [1 * x.reshape(-1, *x.shape[-3:])[0]] * 5
    return found


KINDS = by_single_options(
    "sparse forms and back",
    {
        "shape": ((12, 12), (24, 12), (12, 36), (2, 12, 12)),
        "filled": ("some", "rows empty", "columns empty", "none"),
        "dense": (0, 1),
        "block": BLOCKS,
        "sparse": (2, 1),
    },
    _box,
    _forms,
    _forms_exact,
    kept=True,
    dtypes=FULL,
    learns=False,
)


def _by_blocks(t: Any, x: Any, y: Any, c: Any, v: Any, form: str, block: Any, **by_: Any) -> Any:
    x = x.contiguous()
    makers = {
        "rows": lambda: x.to_sparse_csr(),
        "columns": lambda: x.to_sparse_csc(),
        "blocks": lambda: x.to_sparse_bsr(block),
    }
    a = makers[form]()
    last = a @ y if form == "blocks" else (y.t().contiguous() @ a.transpose(-1, -2)).t()
    return [a @ y, a @ v, last]


def _held_blocks(d: Draw, filled: str, **of: Any) -> Made:
    n, m, k = 12, 24, d.choice((1, 4, 5))
    x = d.normal(n, m)
    x[{"rows": slice(0, 4), "none": slice(0, n), "last": slice(8, 12)}.get(filled, slice(0, 0))] = 0
    return Made([x * d.flags(n, m), d.normal(m, k), d.normal(n, k), d.normal(m)], of)


BY_BLOCKS = by_single_options(
    "products of sparse forms",
    {
        "form": ("rows", "columns", "blocks"),
        "block": ((2, 2), (1, 1), (3, 3), (4, 4)),
        "filled": ("some", "rows", "last", "none"),
    },
    _held_blocks,
    _by_blocks,
    lambda t, x, y, c, v, form, block: [x @ y, (x * v).sum(1), x @ y],
    arithmetic="product",
    slack=4,
    dtypes=FULL,
    learns=False,
    steady=False,
)

SINGLE_SPARSE: Tuple[Operator, ...] = (FULLS, OVER, KINDS, BY_BLOCKS)
