"""Further linear algebra: what is put back together, or follows from how it was made."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import TALL_TRACE, release
from .rows_products import _identity, _linear_algebra, _positive, _rebuilt, _spd, _times
from .table import FULL, Operator


def _general(t: Any, x: Any) -> Any:
    values, vectors = t.linalg.eig(x)
    return ((vectors * values.unsqueeze(-2)) @ t.linalg.inv(vectors)).real


def _blocks(t: Any, x: Any, y: Any) -> Any:
    low, pivots = t.linalg.lu_factor(x)
    return x @ t.linalg.lu_solve(low, pivots, y)


def _symmetric(t: Any, x: Any, y: Any) -> Any:
    each = x + x.transpose(-1, -2)
    return each @ t.linalg.ldl_solve(*t.linalg.ldl_factor(each), y)


def _household(t: Any, x: Any) -> Any:
    packed, tau = t.geqrf(x)
    q = t.linalg.householder_product(packed, tau)
    return q @ packed.triu(), t.ormqr(packed, tau, packed.triu())


def _exponential(t: Any, x: Any) -> Any:
    total = term = t.eye(x.shape[-1], dtype=x.dtype).expand(x.shape)
    for n in range(1, 24):
        term = by.product(t, term, x / 4) / n
        total = total + term
    return total


def _trace(t: Any, x: Any) -> Any:
    """A matrix and its transpose have one trace: an older torch is given the wide one."""
    tall = x.shape[0] > x.shape[1]
    return (x.mT if tall and release(t) < TALL_TRACE else x).trace()


def _vectors(d: Draw) -> Given:
    n = d.length(1025)
    return given(d.normal(n, 3), d.normal(n, 3))


FACTORS: Tuple[Operator, ...] = (
    _linear_algebra("eig", lambda t, x, y: _general(t, x), lambda t, x, y: 1 * x, 8192),
    _linear_algebra(
        "values of a spectrum",
        lambda t, x, y: (
            t.linalg.eigvalsh(_spd(t, x)).sum(-1),
            t.linalg.svdvals(x).square().sum(-1),
            t.linalg.eigvals(x).sum(-1).real,
        ),
        lambda t, x, y: (
            _positive(t, x).diagonal(dim1=-2, dim2=-1).sum(-1),
            (x * x).sum((-1, -2)),
            x.diagonal(dim1=-2, dim2=-1).sum(-1),
        ),
        2048,
    ),
    _linear_algebra("lu of parts", _blocks, lambda t, x, y: 1 * y),
    _linear_algebra("ldl", _symmetric, lambda t, x, y: 1 * y, 2048),
    _linear_algebra(
        "cholesky above",
        lambda t, x, y: _rebuilt(t.linalg.cholesky(_spd(t, x), upper=True).transpose(-1, -2)),
        lambda t, x, y: _positive(t, x),
    ),
    _linear_algebra(
        "cholesky solved",
        lambda t, x, y: (
            _spd(t, x) @ t.cholesky_solve(y, t.linalg.cholesky(_spd(t, x))),
            _spd(t, x) @ t.cholesky_inverse(t.linalg.cholesky(_spd(t, x))),
            t.linalg.cholesky(_spd(t, x)).triu(1),
        ),
        lambda t, x, y: (1 * y, _identity(t, x), 0 * x),
        1024,
    ),
    _linear_algebra(
        "householder", lambda t, x, y: _household(t, x), lambda t, x, y: (1 * x, 1 * x), 512
    ),
    _linear_algebra(
        "triangles solved",
        lambda t, x, y: (
            x.tril() @ t.linalg.solve_triangular(x.tril(), y, upper=False),
            t.linalg.solve_triangular(x.triu(), y.mT, upper=True, left=False) @ x.triu(),
            _one(t, x) @ t.linalg.solve_triangular(x, y, upper=True, unitriangular=True),
        ),
        lambda t, x, y: (1 * y, y.mT * 1, 1 * y),
        512,
    ),
    _linear_algebra(
        "solved from the right",
        lambda t, x, y: t.linalg.solve(x, y.mT, left=False) @ x,
        lambda t, x, y: y.mT * 1,
    ),
    _linear_algebra(
        "matrix_exp", lambda t, x, y: t.linalg.matrix_exp(x / 4), lambda t, x, y: _exponential(t, x)
    ),
    _linear_algebra(
        "products of several",
        lambda t, x, y: (t.linalg.multi_dot([x[0], x[1], y[0]]), t.linalg.matrix_power(x, -1) @ x),
        lambda t, x, y: (_times(t, x[0], x[1], y[0]), _identity(t, x)),
    ),
    _linear_algebra(
        "norms of matrices",
        lambda t, x, y: (
            t.linalg.matrix_norm(x),
            t.linalg.matrix_norm(x, 1),
            t.linalg.matrix_norm(x, float("inf")),
            t.linalg.matrix_norm(x, "nuc") - t.linalg.svdvals(x).sum(-1),
        ),
        lambda t, x, y: (
            (x * x).sum((-1, -2)).sqrt(),
            by.greatest(t, x.abs().sum(-2), -1),
            by.greatest(t, x.abs().sum(-1), -1),
            0 * x[:, 0, 0],
        ),
        1024,
    ),
    Operator(
        "cross and vecdot",
        _vectors,
        lambda t, x, y: (t.linalg.cross(x, y), t.linalg.vecdot(x, y)),
        lambda t, x, y: (_crossed(t, x, y), by.added(t, x * y, -1)),
        dtypes=FULL,
        slack=4,
    ),
    Operator(
        "trace",
        lambda d: given(d.normal(*d.shape(2))),
        _trace,
        lambda t, x: by.added(t, x.diagonal(), 0),
        dtypes=FULL,
        slack=4,
        serial=True,
    ),
)


def _one(t: Any, x: Any) -> Any:
    return x.triu(1) + t.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _crossed(t: Any, x: Any, y: Any) -> Any:
    a, b, c = x.unbind(-1)
    e, f, g = y.unbind(-1)
    return t.stack([b * g - c * f, c * e - a * g, a * f - b * e], -1)
