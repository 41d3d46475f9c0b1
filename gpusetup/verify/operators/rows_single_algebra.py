"""Linear algebra with each of its options alone: sides, triangles, batches of every rank, permuted
and empty matrices."""

from __future__ import annotations

from math import prod
from typing import Any, List, Tuple

from .drawing import Draw
from .single_options import Made, by_single_options
from .table import FULL, Operator

BATCHES = ((2,), (), (1,), (3, 2), (2, 1, 2), (0,))
COUNTS = (4, 1, 2, 0, 9, 33)


def _turned(x: Any) -> Any:
    return x.transpose(-1, -2)


def _eye(d: Draw, n: int) -> Any:
    return d.torch.eye(n, dtype=d.torch.float64)


def _near_one(d: Draw, batch: Tuple[int, ...], n: int) -> Any:
    return d.normal(*batch, n, n) / (3 * max(n, 1) ** 0.5) + _eye(d, n)


# --- square matrices: solved, inverted, determinants ---------------------------------------------


def _square(d: Draw, batch: Tuple[int, ...], count: int, kind: str, right: str, **of: Any) -> Made:
    """Each matrix of a batch has its own permutation and sign."""
    x = _near_one(d, batch, count)
    flat = x.reshape(prod(batch), count, count)
    for i in range(len(flat)):
        if kind in ("permuted", "both"):
            flat[i] = flat[i][d.order(count)]
        if kind in ("negative", "both"):
            flat[i] *= d.choice((1.0, -1.0))
            flat[i, :1] *= d.choice((1.0, -1.0))
    columns = {"one": 1, "none": 0}.get(right, 3)
    some = batch[1:] if right == "for all" else batch
    y = d.normal(*some, count, columns)
    options = {"vector": right == "vector", "wide": right == "expanded", **of}
    return Made([flat.reshape(x.shape), y], options)


def _solved(
    t: Any, x: Any, y: Any, left: bool, adjoint: bool, upper: bool, ones: bool, **of: Any
) -> List[Any]:
    if of["wide"]:
        y = y[..., :1].expand_as(y)
    sign, size = t.linalg.slogdet(x)
    found = [t.linalg.det(x), sign, size, t.linalg.inv(x), t.logdet(x @ x)]
    other = y if left else _turned(y)
    found += [t.linalg.solve(x, other, left=left)]
    if of["vector"]:
        found += [t.linalg.solve(x, y.expand(*x.shape[:-1], -1)[..., 0])]
    factors, pivots = t.linalg.lu_factor(x)
    found += [t.linalg.lu_solve(factors, pivots, other, left=left, adjoint=adjoint)]
    each = {"upper": upper, "left": left, "unitriangular": ones}
    found += [t.linalg.solve_triangular(_outweighed(t, x), other, **each)]
    return found


def _outweighed(t: Any, x: Any) -> Any:
    """A diagonal of which no number is near 0, whatever was permuted."""
    return x / 4 + t.eye(x.shape[-1], dtype=x.dtype, device=x.device) * 1.5


def _solved_exact(
    t: Any, x: Any, y: Any, left: bool, adjoint: bool, upper: bool, ones: bool, **of: Any
) -> List[Any]:
    if of["wide"]:
        y = y[..., :1].expand_as(y)
    inverse, det = t.linalg.inv(x), t.linalg.det(x)
    found = [det, det.detach().sign(), det.abs().log(), inverse, 2 * det.abs().log()]
    found += [_beside(inverse, y, left)]
    if of["vector"]:
        found += [(inverse @ y)[..., 0]]
    found += [_beside(_turned(inverse) if adjoint else inverse, y, left)]
    one = t.eye(x.shape[-1], dtype=x.dtype)
    side = _outweighed(t, x)
    side = side.triu() if upper else side.tril()
    side = side * (1 - one) + one if ones else side
    return [*found, _beside(t.linalg.inv(side), y, left)]


def _beside(x: Any, y: Any, left: bool) -> Any:
    return x @ y if left else _turned(y) @ x


SOLVED = by_single_options(
    "square matrices",
    {
        "batch": BATCHES,
        "count": COUNTS,
        "kind": ("permuted", "plain", "negative", "both"),
        "right": ("several", "one", "none", "vector", "for all", "expanded"),
        "left": (True, False),
        "adjoint": (False, True),
        "upper": (True, False),
        "ones": (False, True),
    },
    _square,
    _solved,
    _solved_exact,
    arithmetic="product",
    slack=64,
    dtypes=FULL,
    steady=False,
)

# --- symmetric matrices: one triangle counts -----------------------------------------------------


def _halves(d: Draw, batch: Tuple[int, ...], count: int, **of: Any) -> Made:
    """Of a matrix whose triangles are not alike; what is on its diagonal is real and not alike."""
    parts = [d.normal(*batch, count, count) / (3 * max(count, 1) ** 0.5) for _ in "ri"]
    parts[0] += 1.5 * _eye(d, count)
    return Made([*parts, d.normal(*batch, count, 2)], of)


def _numbers(t: Any, x: Any, z: Any, of_complex: bool) -> Any:
    if not of_complex:
        return x
    return t.complex(x, z - z * t.eye(x.shape[-1], dtype=z.dtype, device=z.device))


def _completed(x: Any, upper: bool) -> Any:
    """The matrix of which a triangle is one half."""
    half = x.triu() if upper else x.tril()
    rest = x.triu(1) if upper else x.tril(-1)
    return half + rest.mH


def _apart(t: Any, found: List[Any]) -> List[Any]:
    return [t.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in found]


def _by_triangle(
    t: Any, x: Any, z: Any, y: Any, upper: bool, of_complex: bool, hermitian: bool
) -> List[Any]:
    a = _numbers(t, x, z, of_complex)
    side = "U" if upper else "L"
    values, vectors = t.linalg.eigh(a, side)
    whole = _completed(a, upper)
    low = t.linalg.cholesky(whole, upper=upper)
    known, _ = t.linalg.cholesky_ex(whole, upper=upper, check_errors=True)
    y = y.to(a.dtype)
    found = [
        *(values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors),
        *(t.linalg.eigvalsh(a, side), low, known),
        *(t.cholesky_solve(y, low, upper), t.cholesky_inverse(low, upper)),
        *(t.linalg.inv_ex(a, check_errors=True)[0], t.linalg.solve_ex(a, y, check_errors=True)[0]),
    ]
    real = whole.real.contiguous() if of_complex else whole
    found += [call(real, hermitian=hermitian) for call in (t.linalg.pinv, t.linalg.matrix_rank)]
    return _apart(t, found)


def _by_triangle_exact(
    t: Any, x: Any, z: Any, y: Any, upper: bool, of_complex: bool, hermitian: bool
) -> List[Any]:
    a = _numbers(t, x, z, of_complex)
    whole = _completed(a, upper)
    values = t.linalg.eigvalsh(whole)
    low = t.linalg.cholesky(whole)
    low = low.mH if upper else low
    one = t.eye(x.shape[-1], dtype=a.dtype).expand(a.shape).clone()
    inverse, other, y = t.linalg.inv(whole), t.linalg.inv(a), y.to(a.dtype)
    last = t.linalg.inv(whole.real) if of_complex else inverse
    rank = t.full(x.shape[:-2], x.shape[-1])
    found = [values, whole, one, values, low, low, inverse @ y, inverse, other, other @ y]
    return _apart(t, [*found, last, rank])


SYMMETRIC = by_single_options(
    "symmetric matrices",
    {
        "batch": BATCHES,
        "count": COUNTS,
        "upper": (False, True),
        "of_complex": (False, True),
        "hermitian": (False, True),
    },
    _halves,
    _by_triangle,
    _by_triangle_exact,
    arithmetic="product",
    slack=256,
    dtypes=FULL,
    learns=False,
    steady=False,
)


def _indefinite(d: Draw, batch: Tuple[int, ...], count: int, **of: Any) -> Made:
    """Symmetric, of numbers of either sign on the diagonal, which outweigh the rest."""
    made = _halves(d, batch, count, **of)
    made.tensors[0] += _eye(d, count) * (2 * d.flags(count).double() - 2) * 1.5
    return made


def _ldl(
    t: Any, x: Any, z: Any, y: Any, upper: bool, of_complex: bool, hermitian: bool
) -> List[Any]:
    a = _numbers(t, x, z, of_complex)
    hermitian = hermitian or of_complex
    whole = _completed(a, upper)
    y = y.to(a.dtype)
    factors, pivots, _ = t.linalg.ldl_factor_ex(whole, hermitian=hermitian, check_errors=True)
    found = [t.linalg.ldl_solve(factors, pivots, y, hermitian=hermitian)]
    found += [t.linalg.ldl_solve(*t.linalg.ldl_factor(whole, hermitian=hermitian), y)] * (
        not of_complex
    )
    return _apart(t, found)


def _ldl_exact(
    t: Any, x: Any, z: Any, y: Any, upper: bool, of_complex: bool, hermitian: bool
) -> List[Any]:
    a = _numbers(t, x, z, of_complex)
    found = t.linalg.inv(_completed(a, upper)) @ y.to(a.dtype)
    return _apart(t, [found] * (1 if of_complex else 2))


LDL = by_single_options(
    "matrices of either sign",
    {
        "batch": BATCHES,
        "count": (4, 1, 2, 9, 33),
        "upper": (False, True),
        "of_complex": (False, True),
        "hermitian": (False, True),
    },
    _indefinite,
    _ldl,
    _ldl_exact,
    arithmetic="product",
    slack=256,
    dtypes=FULL,
    learns=False,
    steady=False,
)

# --- norms ---------------------------------------------------------------------------------------

ORDERS = ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))


def _measured(d: Draw, shape: Tuple[int, ...], **of: Any) -> Made:
    n = of["count"]
    return Made([d.normal(*shape), _near_one(d, (2,), n)], of)


def _norms(t: Any, x: Any, y: Any, count: int, order: Any, dim: Any, keepdim: bool) -> List[Any]:
    found = t.linalg.matrix_norm(x, order, dim, keepdim)
    return [found, t.linalg.norm(x, order, dim, keepdim), t.linalg.cond(y, order)]


def _norms_exact(
    t: Any, x: Any, y: Any, count: int, order: Any, dim: Any, keepdim: bool
) -> List[Any]:
    dims = [each % x.dim() for each in dim]
    found = _norm_of(t, x.movedim(dims, (-2, -1)), order)
    if keepdim:
        for each in sorted(dims):
            found = found.unsqueeze(each)
    return [found, found, _norm_of(t, y, order) * _norm_of(t, t.linalg.inv(y), order)]


def _norm_of(t: Any, x: Any, order: Any) -> Any:
    if order == "fro":
        return (x * x).sum((-1, -2)).sqrt()
    if order in ("nuc", 2, -2):
        values = t.linalg.svdvals(x)
        return values.sum(-1) if order == "nuc" else values[..., 0 if order == 2 else -1]
    sums = x.abs().sum(-2 if abs(order) == 1 else -1)
    return sums.amax(-1) if order > 0 else sums.amin(-1)


MEASURED = by_single_options(
    "norms of matrices",
    {
        "order": ORDERS,
        "dim": ((-2, -1), (0, 1), (2, 0), (-1, 0), (1, -1)),
        "keepdim": (False, True),
        "shape": ((3, 4, 5), (2, 1, 6), (1, 1, 1), (9, 2, 17)),
        "count": (4, 1, 9),
    },
    _measured,
    _norms,
    _norms_exact,
    slack=256,
    dtypes=FULL,
    learns=False,
    steady=False,
)

# --- vectors -------------------------------------------------------------------------------------

CROSSED = {
    "last": ((4, 3), (4, 3), -1),
    "first": ((3, 5), (3, 5), 0),
    "inner": ((2, 3, 5), (2, 3, 5), 1),
    "of one": ((4, 3), (1, 3), -1),
    "wider": ((2, 1, 3), (1, 4, 3), 2),
    "negative": ((3, 4, 2), (3, 4, 2), -3),
    "none": ((0, 3), (0, 3), 1),
}


def _crossing(d: Draw, shapes: str, **of: Any) -> Made:
    one, other, dim = CROSSED[shapes]
    return Made([d.normal(*one), d.normal(*other)], {"dim": dim, **of})


def _cross(t: Any, x: Any, y: Any, dim: int, held: str) -> List[Any]:
    x, y = t.broadcast_tensors(x, y) if held == "expanded" else (x, y)
    return [t.linalg.cross(x, y, dim=dim), t.linalg.vecdot(x, y, dim=dim)]


def _cross_exact(t: Any, x: Any, y: Any, dim: int, held: str) -> List[Any]:
    x, y = t.broadcast_tensors(x, y)
    (a, b, c), (e, f, g) = x.unbind(dim), y.unbind(dim)
    return [t.stack([b * g - c * f, c * e - a * g, a * f - b * e], dim), a * e + b * f + c * g]


CROSS = by_single_options(
    "cross and vecdot",
    {"shapes": tuple(CROSSED), "held": ("own", "expanded")},
    _crossing,
    _cross,
    _cross_exact,
    slack=8,
    dtypes=FULL,
)

SINGLE_ALGEBRA: Tuple[Operator, ...] = (SOLVED, SYMMETRIC, LDL, MEASURED, CROSS)
