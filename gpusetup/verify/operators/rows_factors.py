"""Further linear algebra: what is put back together, or follows from how it was made."""

from __future__ import annotations

from typing import Any, List, Tuple

from .drawing import Draw, Given, given
from .rows_products import _identity, _linear_algebra, _positive, _rebuilt, _spd
from .table import FEW, Operator


def _household(t: Any, x: Any) -> Any:
    packed, tau = t.geqrf(x)
    q = t.linalg.householder_product(packed, tau)
    return q @ packed.triu(), t.ormqr(packed, tau, packed.triu())


def _general(t: Any, x: Any) -> Any:
    values, vectors = t.linalg.eig(x)
    return ((vectors * values.unsqueeze(-2)) @ t.linalg.inv(vectors)).real


FACTORS: Tuple[Operator, ...] = (
    _linear_algebra("eig", lambda t, x, y: _general(t, x), lambda t, x, y: 1 * x, 8192),
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
)


def _one(t: Any, x: Any) -> Any:
    return x.triu(1) + t.eye(x.shape[-1], dtype=x.dtype, device=x.device)


# --- factors of wide, tall and square matrices ---------------------------------------------------


def _of_rows(d: Draw) -> Given:
    """Taller than wide, and no line of them nearly made of others; as many right sides."""
    n, count = d.choice((1, 2)), d.choice((4, 5, 8, 17))
    rows = count + d.choice((1, 3, 4, 16))
    x = d.normal(n, rows, count) / 4
    x[:, range(count), range(count)] += d.choice((3.0, -3.0))
    return given(x, d.normal(n, rows, 2))


def _each_shape(x: Any) -> Tuple[Any, Any, Any]:
    """Tall, wide, square."""
    return x, x.transpose(-1, -2), x[:, : x.shape[2]]


def _across(x: Any) -> Any:
    return x.transpose(-1, -2)


def _put_together(t: Any, x: Any, y: Any) -> List[Any]:
    found = []
    for a in _each_shape(x):
        least, b = min(a.shape[1:]), y[:, : a.shape[1]]
        for whole in (False, True):
            u, s, v = t.linalg.svd(a, full_matrices=whole)
            found += [u[..., :least] * s.unsqueeze(-2) @ v[..., :least, :]]
            found += [_across(u) @ u, v @ _across(v), (s[:, 1:] <= s[:, :-1]).all(), (s >= 0).all()]
            q, r = t.linalg.qr(a, "complete" if whole else "reduced")
            found += [q @ r, _across(q) @ q, r.tril(-1)]
        found += [t.linalg.pinv(a), t.linalg.lstsq(a, b)[0]]
    return found


def _put_together_exact(t: Any, x: Any, y: Any) -> List[Any]:
    found: List[Any] = []
    for a in _each_shape(x):
        rows, columns = a.shape[1:]
        least, b, yes = min(rows, columns), y[:, :rows], t.tensor(True)
        for whole in (False, True):
            high, wide = (rows, columns) if whole else (least, least)
            lines = [_unit(t, a, each) for each in (high, wide)]
            found += [1 * a, *lines, yes, yes]
            found += [1 * a, lines[0], t.zeros(len(a), high, columns, dtype=a.dtype)]
        other = _least_squares(t, a)
        found += [other, other @ b]
    return found


def _unit(t: Any, a: Any, count: int) -> Any:
    return t.eye(count, dtype=a.dtype).expand(len(a), count, count).clone()


def _least_squares(t: Any, a: Any) -> Any:
    """What Moore and Penrose ask for, of a matrix whose lesser lines are independent."""
    if a.shape[1] >= a.shape[2]:
        return t.linalg.solve(_across(a) @ a, _across(a))
    return _across(t.linalg.solve(a @ _across(a), a))


SHAPES = Operator(
    "factors of every shape",
    _of_rows,
    _put_together,
    _put_together_exact,
    dtypes=("float32",),
    learns=False,
    slack=512,
    arithmetic="product",
    steady=False,
    sizes=FEW,
)
