"""Sparse matrices."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import FULL, Operator


def _thinned(d: Draw) -> Given:
    """A matrix of which most is 0, another one, and a full one."""
    n, m, k = d.length(129), d.length(65), d.choice((1, 3, 17))
    kept = d.flags(n, m) & d.flags(n, m)
    other = d.flags(n, m) & d.flags(n, m)
    return given(d.normal(n, m) * kept, d.normal(n, m) * other, d.normal(m, k))


def _sparse(name: str, run: Any, exact: Any, **more: Any) -> Operator:
    return Operator(
        f"sparse {name}",
        _thinned,
        run,
        exact,
        dtypes=FULL,
        learns=False,
        slack=4,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
        steady=False,
        **more,
    )


def _sparse_softmax(t: Any, x: Any, y: Any, z: Any) -> Any:
    hidden = t.where(x == 0, float("-inf") + 0 * x, x)
    hidden = t.where((x != 0).any(1, keepdim=True), hidden, 0 * x)
    return by.softmax(t, hidden, 1) * (x != 0)


SPARSE: Tuple[Operator, ...] = (
    _sparse("and back", lambda t, x, y, z: x.to_sparse().to_dense(), lambda t, x, y, z: 1 * x),
    _sparse(
        "by full",
        lambda t, x, y, z: t.sparse.mm(x.to_sparse(), z),
        lambda t, x, y, z: by.product(t, x, z),
        weight=2,
    ),
    _sparse(
        "rows by full",
        lambda t, x, y, z: x.to_sparse_csr() @ z,
        lambda t, x, y, z: by.product(t, x, z),
        weight=2,
    ),
    _sparse(
        "added",
        lambda t, x, y, z: ((x.to_sparse() + y.to_sparse()).to_dense(), y + x.to_sparse()),
        lambda t, x, y, z: (x + y, x + y),
    ),
    _sparse(
        "times",
        lambda t, x, y, z: (
            (x.to_sparse() * y.to_sparse()).to_dense(),
            (x.to_sparse() * 3).to_dense(),
        ),
        lambda t, x, y, z: (x * y, 3 * x),
    ),
    _sparse(
        "sum",
        lambda t, x, y, z: (
            t.sparse.sum(x.to_sparse()),
            t.sparse.sum(x.to_sparse(), 0).to_dense(),
            t.sparse.sum(x.to_sparse(), 1).to_dense(),
        ),
        lambda t, x, y, z: (x.sum(), by.added(t, x, 0), by.added(t, x, 1)),
    ),
    _sparse(
        "coalesced",
        lambda t, x, y, z: _stacked(t, x, y).coalesce().to_dense(),
        lambda t, x, y, z: x + y,
    ),
    _sparse(
        "softmax",
        lambda t, x, y, z: t.sparse.softmax(x.to_sparse(), 1).to_dense(),
        _sparse_softmax,
    ),
    _sparse(
        "addmm",
        lambda t, x, y, z: t.sparse.addmm(z[:1] + 0 * x[:, :1], x.to_sparse(), z, beta=2),
        lambda t, x, y, z: 2 * (z[:1] + 0 * x[:, :1]) + by.product(t, x, z),
    ),
    _sparse(
        "transposed",
        lambda t, x, y, z: x.to_sparse().t().coalesce().to_dense(),
        lambda t, x, y, z: x.t() * 1,
    ),
)


def _stacked(t: Any, x: Any, y: Any) -> Any:
    """One sparse matrix that has some places twice."""
    one, other = x.to_sparse(), y.to_sparse()
    places = t.cat([one.indices(), other.indices()], 1)
    return t.sparse_coo_tensor(places, t.cat([one.values(), other.values()]), x.shape)
