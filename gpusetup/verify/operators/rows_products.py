"""Matrix products in every form, and linear algebra."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import SIZES, Draw, Given, given
from .table import FULL, Operator

MOST = {"tiny": 2**12, "warp": 2**17, "tile": 2**20, "block": 2**21, "long": 2**21, "edges": 2**16}
"""The most multiplications of a product, so that it can be written out."""


def sides(d: Draw, batch: int = 1) -> Tuple[int, int, int]:
    """Rows, inner length, columns: one of the size class, the others as there is room."""
    left = max(1, MOST[d.size] // batch)
    long = min(d.length(), left)
    left //= long
    keys = ("edges",) if d.size == "edges" else ("tiny", "warp", "tile")
    small = [n for key in keys for n in SIZES[key]]
    second = d.choice([n for n in small if n <= left] or [1])
    third = d.choice([n for n in small if n <= left // second] or [1])
    found = [long, second, third]
    d.chance.shuffle(found)
    return found[0], found[1], found[2]


def plain(d: Draw) -> Given:
    n, k, m = sides(d)
    return given(d.normal(n, k), d.normal(k, m))


def batched(d: Draw) -> Given:
    b = d.choice((1, 2, 3, 5, 17))
    n, k, m = sides(d, b)
    return given(d.normal(b, n, k), d.normal(b, k, m))


def _spread(d: Draw) -> Given:
    """Batch axes of which one is broadcast."""
    n, k, m = sides(d, 6)
    return given(d.normal(3, 1, n, k), d.normal(2, k, m))


def _with_bias(d: Draw) -> Given:
    n, k, m = sides(d)
    bias = d.choice((d.normal(m), d.normal(n, m), d.normal(n, 1)))
    return given(bias, d.normal(n, k), d.normal(k, m))


def _linear(d: Draw) -> Given:
    n, k, m = sides(d, 2)
    shape = d.choice(((n, k), (2, n, k)))
    return given(d.normal(*shape), d.normal(m, k), d.normal(m))


def _vector(d: Draw) -> Given:
    n, k = d.shape(2)
    return given(d.normal(n, k), d.normal(k))


def _vectors(d: Draw) -> Given:
    n = d.length()
    return given(d.normal(n), d.normal(n))


def _added_batches(d: Draw) -> Given:
    b = d.choice((1, 3, 4))
    n, k, m = sides(d, b)
    return given(d.normal(b, n, m), d.normal(b, n, k), d.normal(b, k, m))


def _heads(d: Draw) -> Given:
    q, k, width = (d.length(65) for _ in range(3))
    return given(d.normal(2, q, 3, width), d.normal(2, k, 3, width))


def _heads_exact(t: Any, x: Any, y: Any) -> Any:
    return by.product(t, x.permute(0, 2, 1, 3), y.permute(0, 2, 3, 1))


def _product(
    name: str, make: Callable[[Draw], Given], run: Any, exact: Any, **more: Any
) -> Operator:
    """Half precision is added up in float32 and rounded, where the settings ask for no less."""
    more = {"slack": 2.0, "roundings": 1, **more}
    return Operator(name, make, run, exact, arithmetic="product", **more)


PRODUCTS: Tuple[Operator, ...] = (
    _product("mm", plain, lambda t, x, y: x @ y, by.product, weight=6, roundings_back=1),
    _product("bmm", batched, lambda t, x, y: t.bmm(x, y), by.product, weight=5, roundings_back=1),
    _product("matmul", _spread, lambda t, x, y: x @ y, by.product, weight=2),
    _product(
        "mm of transposed",
        plain,
        lambda t, x, y: y.t() @ x.t(),
        lambda t, x, y: by.product(t, x, y).t(),
        weight=4,
        roundings_back=1,
    ),
    _product(
        "mm into a view",
        plain,
        lambda t, x, y: t.mm(x, y, out=x.new_empty(y.shape[1], x.shape[0]).t()),
        by.product,
        learns=False,
    ),
    _product(
        "addmm",
        _with_bias,
        lambda t, b, x, y: t.addmm(b, x, y, beta=0.5, alpha=2),
        lambda t, b, x, y: 0.5 * b + 2 * by.product(t, x, y),
        weight=4,
        roundings_back=1,
    ),
    _product(
        "linear",
        _linear,
        lambda t, x, w, b: t.nn.functional.linear(x, w, b),
        lambda t, x, w, b: by.product(t, x, w.t()) + b,
        weight=6,
        roundings=2,
        roundings_back=1,
    ),
    _product("mv", _vector, lambda t, x, v: x @ v, lambda t, x, v: by.added(t, x * v, 1), weight=2),
    _product("dot", _vectors, lambda t, x, y: t.dot(x, y), lambda t, x, y: by.added(t, x * y, 0)),
    _product(
        "baddbmm",
        _added_batches,
        lambda t, b, x, y: t.baddbmm(b, x, y, beta=2, alpha=0.5),
        lambda t, b, x, y: 2 * b + by.product(t, x, y) / 2,
        weight=3,
        roundings_back=1,
    ),
    _product(
        "addmv",
        _vector,
        # Another row's number is added: its own and 2 * v of one column may cancel in every row.
        lambda t, x, v: t.addmv(x.roll(1, 0)[:, 0], x, v, alpha=2),
        lambda t, x, v: x.roll(1, 0)[:, 0] + 2 * by.added(t, x * v, 1),
        roundings=2,
    ),
    _product(
        "einsum", _heads, lambda t, x, y: t.einsum("bqhd,bkhd->bhqk", x, y), _heads_exact, weight=2
    ),
)


def _exact_wholes(high: int) -> Callable[[Draw], Given]:
    """Whole numbers so small that every sum of their products is exact in float32 and coarser
    arithmetic of the factors."""

    def make(d: Draw) -> Given:
        n, k, m = sides(d)
        return given(
            d.whole(-high, high + 1, n, k).double(), d.whole(-high, high + 1, k, m).double()
        )

    return make


def _bits(t: Any, x: Any, y: Any) -> Any:
    return (x @ y).to(t.float64).to(t.int64) if x.is_floating_point() else x @ y


EXACT: Tuple[Operator, ...] = (
    Operator(
        "mm of whole numbers",
        _exact_wholes(3),
        _bits,
        lambda t, x, y: by.product(t, x, y).to(t.int64),
        dtypes=FULL,
        learns=False,
        weight=4,
    ),
)


def _square(least: int = 1) -> Callable[[Draw], Given]:
    """Well-conditioned: close to the identity."""

    def make(d: Draw) -> Given:
        n = max(least, d.length(129))
        x = d.normal(2, n, n) / (3 * n**0.5) + d.torch.eye(n, dtype=d.torch.float64)
        return given(x, d.normal(2, n, 3))

    return make


def _positive(t: Any, x: Any) -> Any:
    return by.product(t, x, x.transpose(-1, -2)) + t.eye(
        x.shape[-1], dtype=x.dtype, device=x.device
    )


def _linear_algebra(name: str, run: Any, exact: Any, slack: float = 128.0) -> Operator:
    return Operator(
        name,
        _square(),
        run,
        exact,
        dtypes=FULL,
        learns=False,
        slack=slack,
        sizes=("tiny", "warp", "tile"),
        arithmetic="product",
        steady=False,
    )


def _identity(t: Any, x: Any) -> Any:
    return t.eye(x.shape[-1], dtype=x.dtype).expand(x.shape).clone()


ALGEBRA: Tuple[Operator, ...] = (
    _linear_algebra("solve", lambda t, x, y: x @ t.linalg.solve(x, y), lambda t, x, y: 1 * y),
    _linear_algebra(
        "inverse", lambda t, x, y: x @ t.linalg.inv(x), lambda t, x, y: _identity(t, x)
    ),
    _linear_algebra(
        "cholesky",
        lambda t, x, y: _rebuilt(t.linalg.cholesky(_spd(t, x))),
        lambda t, x, y: _positive(t, x),
    ),
    _linear_algebra(
        "qr", lambda t, x, y: _factored(t, x), lambda t, x, y: (1 * x, _identity(t, x))
    ),
    _linear_algebra(
        "svd", lambda t, x, y: _singular(t, x), lambda t, x, y: (1 * x, _identity(t, x)), 2048
    ),
    _linear_algebra(
        "eigh",
        lambda t, x, y: _eigen(t, x),
        lambda t, x, y: (_positive(t, x), _identity(t, x)),
        2048,
    ),
    _linear_algebra("lu", lambda t, x, y: _lu(t, x), lambda t, x, y: 1 * x),
    _linear_algebra(
        "triangular solve",
        lambda t, x, y: x.triu() @ t.linalg.solve_triangular(x.triu(), y, upper=True),
        lambda t, x, y: 1 * y,
    ),
    _linear_algebra(
        "det",
        lambda t, x, y: t.linalg.det(x) / t.linalg.slogdet(x)[1].exp(),
        # Of one number three deviations below 1 the sign is the other.
        lambda t, x, y: t.linalg.eigvals(x).prod(-1).real.sign(),
        2048,
    ),
)


def _spd(t: Any, x: Any) -> Any:
    return x @ x.transpose(-1, -2) + t.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _rebuilt(low: Any) -> Any:
    return low @ low.transpose(-1, -2)


def _factored(t: Any, x: Any) -> Any:
    q, r = t.linalg.qr(x)
    return q @ r.triu(), q.transpose(-1, -2) @ q


def _singular(t: Any, x: Any) -> Any:
    u, s, v = t.linalg.svd(x)
    return (u * s.unsqueeze(-2)) @ v, u.transpose(-1, -2) @ u


def _eigen(t: Any, x: Any) -> Any:
    values, vectors = t.linalg.eigh(_spd(t, x))
    return (vectors * values.unsqueeze(-2)) @ vectors.transpose(-1, -2), _rebuilt(vectors)


def _lu(t: Any, x: Any) -> Any:
    p, low, up = t.linalg.lu(x)
    return p @ low @ up


LINEAR = (*PRODUCTS, *EXACT)
